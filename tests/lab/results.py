"""What a model was told, compared with what had been said and done."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lab.cells import REFUSED, Cell, Event
from tests.lab.wires import Said, bare, said

UNKNOWN = "outcome of this tool call is unknown"
BROKEN: tuple[Event, ...] = ("kill_tools", "kill_text", "ctrl_c", "failure")
TOLD = "[The turn above "


@dataclass
class Kept:
    """What a request, or a session, has of a cell."""

    prompts: int = 0
    words: int = 0
    results: int = 0
    calls: int = 0
    unknown: int = 0
    partial: bool = False
    told: int = 0
    """How often it is said that the turn was broken off."""
    failure: bool = False
    """Whether the model's refusal is there."""
    is_ended: bool = False
    """Whether what is there looks as after a turn that ended."""
    cannot_know: str = ""
    wrong: list[str] = field(default_factory=list)

    def row(self, cell: Cell) -> str:
        """Return it in a few words."""
        calls = len(cell.results) + len(cell.unfinished)
        said = [f"prompt {self.prompts}/{len(cell.prompts)}"]
        if cell.words:
            said.append(f"words {self.words}/{len(cell.words)}")
        if calls:
            said.append(f"calls {self.calls}/{calls}, results {self.results}/{len(cell.results)}")
        if cell.unfinished and self.told >= 0:
            said.append("third unknown" if self.unknown else "third not told unknown")
        if cell.partial is not None:
            said.append("partial words" if self.partial else "no partial words")
        if cell.event == "failure" and self.told < 0:
            said.append("the failure" if self.failure else "no failure")
        if cell.event in BROKEN and self.told >= 0:
            said.append({0: "not told", 1: "told once"}.get(self.told, f"told {self.told} times"))
        return ", ".join(said)


def kept(cell: Cell, told: list[Said]) -> Kept:
    """Return what a request has of a cell."""
    found = Kept()
    users = [each.text for each in told if each.kind == "user"]
    answers = [each.text for each in told if each.kind == "assistant"]
    results = {bare(each.id): each.text for each in told if each.kind == "result"}
    calls = [bare(each.id) for each in told if each.kind == "call"]
    found.prompts = sum(any(prompt in text for text in users) for prompt in cell.prompts)
    found.words = sum(any(word in text for text in answers) for word in cell.words)
    for call_id, expected in cell.results.items():
        found.calls += call_id in calls
        found.results += expected in results.get(call_id, "")
    for call_id in cell.unfinished:
        found.calls += call_id in calls
        found.unknown += UNKNOWN in results.get(call_id, "")
    found.partial = cell.partial is not None and any(cell.partial in text for text in answers)
    found.told = sum(text.count(TOLD) for text in users)
    for name, ids in (
        ("call", calls),
        ("result", [bare(s.id) for s in told if s.kind == "result"]),
    ):
        found.wrong += [f"{name} {id_} twice" for id_ in set(ids) if ids.count(id_) > 1]
    found.wrong += [f"a result without its call: {id_}" for id_ in results if id_ not in calls]
    return found


def faults(cell: Cell, found: Kept, *, on_disk: Kept | None = None) -> list[str]:
    """Say what a model that goes on was told wrongly, or not told.

    `on_disk` is what the agent itself has kept on its disk: nobody can have more of it.
    """
    wrong = list(found.wrong)
    wanted = on_disk or Kept(
        len(cell.prompts), len(cell.words), len(cell.results),
        len(cell.results) + len(cell.unfinished), len(cell.unfinished),
        is_ended=cell.event not in BROKEN,
    )  # fmt: skip
    for name in ("prompts", "words", "results", "calls"):
        if getattr(found, name) < getattr(wanted, name):
            wrong.append(f"{name}: {getattr(found, name)} of {getattr(wanted, name)}")
    if cell.unfinished and found.unknown < min(len(cell.unfinished), wanted.calls):
        wrong.append("the third call is not told to be unknown")
    if wanted.partial and not found.partial:
        wrong.append("the partial words are not there")
    if found.told != (0 if wanted.is_ended else 1):
        wrong.append(f"that the turn was broken off is told {found.told} times")
    return wrong


def of_context(messages: list[dict[str, Any]]) -> list[Said]:
    """Read a context for Chat Completions as a request."""
    return said("chat", {"messages": json.loads(json.dumps(messages))})


def on_disk(cell: Cell) -> Kept:
    """Return what the agent itself has on its disk, found by its words alone, whatever the format.

    Whether a call is unknown, and what is told of the turn, no file says.
    """
    data = b"".join(file.read_bytes() for file in cell.sessions.rglob("*") if _holds(file))

    def has(text: str) -> bool:
        return text.encode() in data

    calls = [*cell.results, *cell.unfinished]
    words, called = sum(map(has, cell.words)), sum(map(has, calls))
    answered = cell.event == "kill_tools" and bool(words) and not called
    return Kept(
        prompts=sum(map(has, cell.prompts)),
        words=words,
        results=sum(map(has, cell.results.values())),
        calls=called,
        partial=cell.partial is not None and has(cell.partial),
        failure=has(REFUSED),
        told=-1,
        is_ended=cell.event == "whole" or answered,
        cannot_know="its file has the answer and none of its calls, as after a whole turn"
        if answered
        else "",
    )


def _holds(file: Path) -> bool:
    """Tell whether a file is a part of a session, and no log."""
    return file.is_file() and not {"logs", "log"} & set(file.parts) and file.suffix != ".log"
