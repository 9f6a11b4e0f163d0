"""Counts what is in other agents' files, apart from the readers: by what the raw records say.

`python -m tests.exchange.corpus` counts the files below the folder that KILLICK_CORPUS names, which
`tests.exchange.repositories` unpacks, and writes the table in docs/agents.md. It goes on where it
was left: `--seconds` ends it early. What it has counted is kept in that folder.
"""

import argparse
import json
import os
import re
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from killick import Store
from killick.exchange import Report, import_paths
from killick.exchange.importer import find
from killick.model import entries as e
from killick.model.messages import Reasoning, ToolCall
from killick.stores.memory import MemoryDisk
from tests.exchange.checks import check_sound
from tests.lab.page import PAGE, replace_between

CORPUS = os.environ.get("KILLICK_CORPUS", "")
LATE = 1 << 52
"""A time at which every file has rested."""


class Counts(NamedTuple):
    """What a conversation is made of."""

    prompts: int = 0
    calls: int = 0
    results: int = 0
    thoughts: int = 0


_PRINTED = ("<bash-stdout>", "<bash-stderr>")
"""What a command has printed that a person of Claude Code ran."""


# -- what came in ----------------------------------------------------------------------------------


def stored(store: Store) -> Counts:
    """Counts over all journals of a store; what was left out of view counts, too."""
    found: Counter[str] = Counter()
    for session_id in store.session_ids():
        entries = store.session(session_id).entries()
        hidden = {
            entry.body.message_id
            for entry in entries
            if isinstance(entry.body, e.Visibility) and entry.body.person is False
        }
        for entry in entries:
            body = entry.body
            if isinstance(body, e.MessageRecorded | e.MessageEnded):
                found["calls"] += sum(isinstance(part, ToolCall) for part in body.parts)
                found["thoughts"] += sum(isinstance(part, Reasoning) for part in body.parts)
                if isinstance(body, e.MessageRecorded) and body.role == "user":
                    printed = str(getattr(body.parts[0], "text", "")).startswith(_PRINTED)
                    found["prompts"] += body.id not in hidden and not printed
            found["results"] += isinstance(body, e.ToolFinished | e.LateResult)
            found["results"] += isinstance(body, e.Note) and body.name.endswith("without_call")
    return Counts(found["prompts"], found["calls"], found["results"], found["thoughts"])


# -- what the files say ----------------------------------------------------------------------------


def records(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                yield value


def _blocks(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, str):
        return [{"type": "text", "text": value}] if value else []
    found = value if isinstance(value, list) else []
    blocks = [{"type": "text", "text": one} if isinstance(one, str) else one for one in found]
    return [one for one in blocks if isinstance(one, dict)]


_NOT_TYPED = (
    "<command-name>",
    "<local-command-",
    "<task-notification>",
    "[Request interrupted by user",
    *_PRINTED,
)


def claude_code(path: Path) -> Counts:
    prompts, calls, results, thoughts, seen = 0, 0, set[str](), 0, set[str]()
    queue, taken = list[str](), set[str]()
    for record in records(path):
        said = record.get("message")
        message: dict[str, Any] = said if isinstance(said, dict) else {}
        own = f"{record.get('uuid') or len(seen)}/{json.dumps(message)}"
        if record.get("type") == "queue-operation":
            if record.get("operation") == "enqueue" and isinstance(record.get("content"), str):
                queue.append(record["content"])
            elif queue:
                text = queue.pop(0)
                typed = not re.match(r"/[\w:-]+(\s|\Z)|\s*<|\s*\Z", text)
                prompts += record["operation"] == "remove" and typed and text not in taken
                taken.add(text)
            continue
        if own in seen:
            continue
        seen.add(own)
        blocks = _blocks(message.get("content"))
        if record.get("type") == "assistant" and message.get("model") != "<synthetic>":
            calls += sum(block.get("type") == "tool_use" for block in blocks)
            thoughts += sum(block.get("type") == "thinking" for block in blocks)
        if record.get("type") == "user":
            ids = [block["tool_use_id"] for block in blocks if block.get("type") == "tool_result"]
            results |= set(ids)
            blocks = [one for one in blocks if not one.get("text", "").startswith("<ide_")]
            text = "".join(block.get("text", "") for block in blocks if block.get("type") == "text")
            meta = record.get("isMeta") or record.get("isCompactSummary")
            others = [block for block in blocks if block.get("type") != "tool_result"]
            told = text.startswith("<teammate-message") and not path.stem.startswith("agent-")
            prompts += bool(others and not (meta or told or text.startswith(_NOT_TYPED)))
    return Counts(prompts, calls, len(results), thoughts)


_CODEX_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call")
_CODEX_OUTPUTS = ("function_call_output", "custom_tool_call_output", "tool_search_output")
_CODEX_OWN = re.compile(
    r"\s*(# AGENTS\.md|<environment_context>|<user_instructions>|<turn_aborted>)"
)


def codex(path: Path) -> Counts:
    prompts = calls = results = thoughts = 0
    for record in records(path):
        item = record.get("payload")
        if record.get("type") != "response_item" or not isinstance(item, dict):
            continue
        calls += item.get("type") in _CODEX_CALLS
        results += item.get("type") in _CODEX_OUTPUTS
        texts = _blocks(item.get("summary") or item.get("content"))
        if item.get("type") == "reasoning":
            thoughts += bool(texts or item.get("encrypted_content"))
        if item.get("type") == "message" and item.get("role") == "user":
            text = "".join(block.get("text", "") for block in texts)
            prompts += not _CODEX_OWN.match(text)
    return Counts(prompts, calls, results, thoughts)


def pi(path: Path) -> Counts:
    prompts = calls = results = thoughts = 0
    for record in records(path):
        message = record.get("message") or {}
        blocks = _blocks(message.get("content"))
        prompts += message.get("role") in ("user", "bashExecution")
        results += message.get("role") == "toolResult"
        if message.get("role") == "assistant":
            calls += sum(block.get("type") == "toolCall" for block in blocks)
            thoughts += sum(
                block.get("type") == "thinking" and bool(block.get("thinking")) for block in blocks
            )
    return Counts(prompts, calls, results, thoughts)


def qwen(path: Path) -> Counts:
    prompts = calls = results = thoughts = 0
    for record in records(path):
        parts = _blocks((record.get("message") or {}).get("parts"))
        calls += sum("functionCall" in part for part in parts)
        results += sum("functionResponse" in part for part in parts)
        thoughts += sum(part.get("thought") is True and bool(part.get("text")) for part in parts)
        prompts += record.get("type") == "user" and any("text" in part for part in parts)
    return Counts(prompts, calls, results, thoughts)


def gemini(path: Path) -> Counts:
    found: dict[str, dict[str, Any]] = {}
    rows = (
        list(records(path)) if path.suffix == ".jsonl" else json.loads(path.read_text())["messages"]
    )
    for row in rows:
        for one in (row.get("$set") or {}).get("messages", [row]):
            if one.get("type"):
                found[one.get("id") or str(len(found))] = one
    prompts = calls = results = thoughts = 0
    for one in found.values():
        tools = one.get("toolCalls") or []
        calls += len(tools)
        results += sum(bool(tool.get("result") or tool.get("resultDisplay")) for tool in tools)
        thoughts += len(one.get("thoughts") or [])
        text = one.get("content")
        parts = [text] if isinstance(text, str) else text or []
        words = "".join(part if isinstance(part, str) else part.get("text", "") for part in parts)
        prompts += one["type"] == "user" and bool(words) and "<session_context>" not in words
    return Counts(prompts, calls, results, thoughts)


def copilot(path: Path) -> Counts:
    found: Counter[str] = Counter()
    for record in records(path):
        data = record.get("data") or {}
        found["prompts"] += record.get("type") == "user.message"
        found["results"] += record.get("type") == "tool.execution_complete"
        if record.get("type") == "assistant.message":
            found["calls"] += len(data.get("toolRequests") or [])
            found["thoughts"] += bool(data.get("reasoningText"))
    return Counts(found["prompts"], found["calls"], found["results"], found["thoughts"])


def opencode(path: Path) -> Counts:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as opened:
        parts = opened.execute(
            "SELECT p.data, m.data FROM part p JOIN message m ON m.id = p.message_id"
        ).fetchall()
    found: Counter[str] = Counter()
    for data, message in parts:
        part, role = json.loads(data), json.loads(message)["role"]
        said = part["type"] == "text" and not part.get("synthetic") and bool(part["text"])
        found["prompts"] += role == "user" and said
        found["thoughts"] += part["type"] == "reasoning" and bool(part.get("text"))
        if part["type"] == "tool":
            found["calls"] += 1
            found["results"] += part["state"]["status"] in ("completed", "error")
    return Counts(found["prompts"], found["calls"], found["results"], found["thoughts"])


_SPECSTORY_SAYS = re.compile(r"_\*\*(User|Agent|Assistant)\b([^\n]*)\*\*_[ \t]*")
_SPECSTORY_TAGS = re.compile(r"</?think>|</?details>|<summary>[^\n]*</summary>")


def specstory(path: Path) -> Counts:
    """Line by line; what stands in a result or a thought is nothing of its own."""
    found: Counter[str] = Counter()
    who, inside, typed, thought = "", "", "", ""
    for line in [*path.read_text("utf-8", "replace").split("\n"), "_**User**_"]:
        says = None if inside else _SPECSTORY_SAYS.fullmatch(line)
        if says is not None:
            found["prompts"] += who == "User" and bool(typed.strip().strip("-").strip())
            who, typed = "aside" if "- sidechain" in says[2] else says[1], ""
        elif who == "User":
            typed += f"{line}\n"
        elif not inside and line.startswith('<tool-use data-tool-type="'):
            inside = "tool"
        elif not inside and line.startswith("<think>"):
            inside, thought = "thought", ""
        thought += line
        if inside == "tool" and line.rstrip() in ("</details></tool-use>", "</tool-use>"):
            inside = ""
            found["calls"] += who != "aside"
        elif inside == "thought" and line.rstrip().endswith("</think>"):
            inside = ""
            found["thoughts"] += who != "aside" and bool(_SPECSTORY_TAGS.sub("", thought).strip())
    return Counts(found["prompts"], found["calls"], found["calls"], found["thoughts"])


COUNTERS: dict[str, Callable[[Path], Counts]] = {
    "claude-code": claude_code,
    "codex": codex,
    "pi": pi,
    "qwen": qwen,
    "gemini": gemini,
    "copilot": copilot,
    "opencode": opencode,
    "specstory": specstory,
}


class Checked(NamedTuple):
    """One file: what was counted in it and what came in."""

    format: str
    told: Counts | None
    taken: Counts
    report: Report


def check(path: Path, format_: str) -> Checked:
    """Bring one file in, hold what came in against all rules, and count it."""
    with Store(MemoryDisk().open()) as store:
        report = import_paths(store, [path], clock=lambda: LATE, empty=True)
        check_sound(store)
        for session_id in store.session_ids():
            context = json.dumps(store.session(session_id).context("anthropic").messages)
            assert "It did not run" not in context, session_id
        taken = stored(store)
    counter = COUNTERS.get(format_)
    return Checked(format_, counter(path) if counter and path.is_file() else None, taken, report)


def files(folder: Path) -> Iterator[tuple[Path, str]]:
    for file in find([folder], Report()):
        yield file.path, file.format


# -- the table -------------------------------------------------------------------------------------

BEGIN, END = "<!-- corpus: begin -->", "<!-- corpus: end -->"


class Counted(NamedTuple):
    """One file, as it is kept: where it is from, and what was counted in it."""

    path: str
    format: str
    sessions: int
    told: Counts | None
    taken: Counts
    problems: int
    wrong: str
    """What a validator, or the check for false statements, says of it."""

    @property
    def repository(self) -> str:
        return self.path.split("/")[0].replace("+", "/", 1)

    @property
    def differs(self) -> bool:
        return self.told is not None and self.told != self.taken


def count(folder: Path, seconds: float) -> list[Counted]:
    """Count what was not counted before, until the time is over; return all that is known."""
    kept, ends = folder / ".counted.jsonl", time.monotonic() + seconds
    known = {one["path"]: _counted(one) for one in records(kept)} if kept.exists() else {}
    with kept.open("a", encoding="utf-8") as file:
        for path, format_ in files(folder):
            name = path.relative_to(folder).as_posix()
            if name in known:
                continue
            if time.monotonic() > ends:
                print(f"{len(known)} are counted, and more are left", file=sys.stderr)
                break
            known[name] = _count(path, name, format_)
            file.write(json.dumps(known[name]._asdict()) + "\n")
            file.flush()
    return list(known.values())


def _count(path: Path, name: str, format_: str) -> Counted:
    try:
        one = check(path, format_)
    except AssertionError as error:
        return Counted(name, format_, 0, None, Counts(), 0, str(error)[:200] or "an assertion")
    sessions, problems = len(one.report.sessions), len(one.report.problems)
    return Counted(name, format_, sessions, one.told, one.taken, problems, "")


def _counted(one: dict[str, Any]) -> Counted:
    told = Counts(*one["told"]) if one["told"] is not None else None
    return Counted(**(one | {"told": told, "taken": Counts(*one["taken"])}))


def table(found: list[Counted]) -> list[str]:
    """Return the table: for each repository and format what came in, of what was counted apart."""
    lines = [
        "| repository | format | files | sessions | prompts | calls | results | thoughts "
        "| files that differ | of these named by the import | wrong |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for repository, format_ in sorted({(one.repository, one.format) for one in found}):
        rows = [one for one in found if (one.repository, one.format) == (repository, format_)]
        taken = [sum(numbers) for numbers in zip(*(one.taken for one in rows), strict=True)]
        told = [
            sum(numbers) for numbers in zip(*(one.told or Counts() for one in rows), strict=True)
        ]
        apart = all(one.told is not None for one in rows)
        cells = [f"{t:,} of {s:,}" if apart else f"{t:,}" for t, s in zip(taken, told, strict=True)]
        differ = [one for one in rows if one.differs]
        named, wrong = sum(one.problems > 0 for one in differ), sum(bool(one.wrong) for one in rows)
        head = [repository, format_, f"{len(rows):,}", f"{sum(one.sessions for one in rows):,}"]
        tail = [
            str(len(differ)) if apart else "\u2013",
            str(named) if apart else "\u2013",
            str(wrong),
        ]
        lines.append(f"| {' | '.join([*head, *cells, *tail])} |")
    return [*lines, ""]


def main() -> None:
    """Count, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.exchange.corpus")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    found = count(Path(CORPUS), parser.parse_args().seconds)
    replace_between(PAGE, BEGIN, END, table(found))
    for one in found:
        if one.wrong or (one.differs and not one.problems):
            print(one)


if __name__ == "__main__":
    main()
