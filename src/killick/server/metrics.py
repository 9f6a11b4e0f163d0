"""Figures of a running process for a monitor, in Prometheus' text format and in OpenMetrics."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

from killick.stores.contract import Histogram

Kind = Literal["counter", "gauge", "histogram", "info"]

PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_ENDINGS: Final[Mapping[Kind, str]] = {"counter": "_total", "info": "_info"}
"""What the name of a sample has behind its family's; the older format has it in both."""


class FigureValues(NamedTuple):
    """One figure: its name, what it counts, and values, each with a name's ending and labels."""

    name: str
    kind: Kind
    text: str
    values: tuple[tuple[str, str, float], ...]


def single(name: str, kind: Kind, text: str, value: float) -> FigureValues:
    return FigureValues(name, kind, text, (("", "", value),))


def by_label(
    name: str, kind: Kind, text: str, label: str, values: Mapping[str, float]
) -> FigureValues:
    """Return a figure with one value for each of a label's; the label's values are ours."""
    rows = (("", f'{label}="{value}"', number) for value, number in values.items())
    return FigureValues(name, kind, text, tuple(rows))


def histogram(name: str, text: str, values: Histogram) -> FigureValues:
    rows: list[tuple[str, str, float]] = []
    so_far = 0
    for bound, count in zip((*values.bounds, None), values.counts, strict=True):
        so_far += count
        label = "+Inf" if bound is None else repr(float(bound))
        rows.append(("_bucket", f'le="{label}"', so_far))
    rows += [("_sum", "", values.total), ("_count", "", so_far)]
    return FigureValues(name, "histogram", text, tuple(rows))


def render(families: Iterable[FigureValues], accept: str = "") -> tuple[str, str]:
    """Return the media type that a client takes, and the figures in it."""
    if "application/openmetrics-text" not in accept:
        return PLAIN, "\n".join(_lines(families, is_open=False)) + "\n"
    return OPEN_METRICS, "\n".join(_lines(families, is_open=True)) + "\n# EOF\n"


def _lines(families: Iterable[FigureValues], *, is_open: bool) -> Iterator[str]:
    for family in families:
        ending = _ENDINGS.get(family.kind, "")
        name = f"killick_{family.name}"
        shown, kind = (name, family.kind) if is_open else (name + ending, _older(family.kind))
        yield f"# HELP {shown} {family.text}"
        yield f"# TYPE {shown} {kind}"
        for suffix, labels, value in family.values:
            yield f"{name}{ending}{suffix}{'{' + labels + '}' if labels else ''} {value:g}"


def _older(kind: Kind) -> Kind:
    return "gauge" if kind == "info" else kind
