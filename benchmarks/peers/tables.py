"""The figures as tables, on the terminal and in the document."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

from benchmarks.peers.work import Figure, Skipped
from benchmarks.report import DOCUMENT, aligned, replace_between
from benchmarks.results import TIMES

_PACKAGES: Final = (
    *("openai-agents", "langgraph", "langgraph-checkpoint-sqlite", "google-adk"),
    *("pydantic-ai-slim", "pydantic-ai-harness"),
)

_MORE: Final = {"append": ("written", "stored"), "load": ("memory",)}
"""What is told beside the times, by the first word of the work."""

_PLOTS: Final = """\
![One append as a session grows](plots/peers-append.svg)
![Appends a second of many sessions at once](plots/peers-together.svg)
![Loading a session](plots/peers-load.svg)"""


def show(found: Sequence[Figure | Skipped]) -> str:
    works = list(dict.fromkeys(one.work for one in found))
    return "\n\n".join(_tables(work, found) for work in works)


def write(found: Sequence[Figure | Skipped], about: str) -> None:
    versions = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    replace_between(DOCUMENT, "peers", f"{about} {versions}.\n\n{_PLOTS}\n\n{show(found)}")


def _tables(work: str, found: Sequence[Figure | Skipped]) -> str:
    mine = [one for one in found if one.work == work]
    sizes = list(dict.fromkeys(one.size for one in mine))
    return "\n\n".join(
        _table(work, size, [one for one in mine if one.size == size]) for size in sizes
    )


def _table(work: str, size: int, mine: Sequence[Figure | Skipped]) -> str:
    head = ["store", "durability", f"{TIMES} raw (95 % interval)", "p50", "p99", "each second"]
    more = _MORE.get(work.split()[0], ())
    usual = max(one.blocks for one in mine if isinstance(one, Figure))
    rows = [[*head, *more]]
    for one in mine:
        if isinstance(one, Skipped):
            rows.append([one.store, "", one.reason, *[""] * (len(rows[0]) - 3)])
            continue
        against = one.times_raw
        row = [
            one.store,
            one.durability,
            f"{against.median:.2f} ({against.low:.2f} to {against.high:.2f})"
            + (f", {one.blocks} blocks" if one.blocks < usual else ""),
            _time(one.p50),
            _time(one.p99),
            f"{one.per_second:,.0f}" + (f", {one.refused} refused" if one.refused else ""),
        ]
        rows.append([*row, *(_bytes(getattr(one, name)) for name in more)])
    return f"**{_title(work, size)}**\n\n{aligned(rows)}"


def _title(work: str, size: int) -> str:
    if work == "append":
        return f"Append to a session of {size:,} messages"
    if work == "together":
        return f"{size:,} {'session' if size == 1 else 'sessions'} at once, {TIMES} one raw writer"
    return f"{work[0].upper()}{work[1:]} of {size:,} messages"


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs" if seconds < 0.01 else f"{seconds * 1e3:,.0f} ms"


def _bytes(count: float | None) -> str:
    return "" if count is None else f"{count:,.0f} B" if count < 1e5 else f"{count / 1e3:,.0f} kB"
