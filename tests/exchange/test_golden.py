"""The journals that each format becomes, entry for entry, as they were read and approved.

A change of a reader shows here as a difference. `python -m tests.exchange.test_golden` writes them
anew, to be read once more before they are committed.
"""

import base64
import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from killick import Store
from killick.exchange import export_session, import_paths
from killick.stores.memory import MemoryDisk
from tests.exchange import (
    test_claude_code,
    test_cline,
    test_codex,
    test_deerflow,
    test_goose,
    test_hermes,
    test_message_lists,
)
from tests.exchange.checks import check_sound
from tests.exchange.sources import NOW

FOLDER = Path(__file__).parent / "golden"
LISTS = ("openai-chat", "anthropic")
ID = re.compile(r"\b([a-z]+)_[0-9a-f]{32}\b")


def _file(name: str, make: Callable[[], bytes]) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(make())


def _goose_export(folder: Path) -> None:
    value = test_goose.ABOUT | {"conversation": test_goose.CONVERSATION}
    (folder / "export.json").write_text(json.dumps(value))


SOURCES: dict[str, Callable[[Path], object]] = {
    "claude-code": _file(
        f"{test_claude_code.SESSION}.jsonl", lambda: test_claude_code.everything().data()
    ),
    "codex": _file(test_codex.NAME, lambda: test_codex.everything().data()),
    "codex-paginated": _file(test_codex.NAME, lambda: test_codex.everything("paginated").data()),
    "goose": lambda folder: test_goose.database(folder / "sessions.db"),
    "goose-lines": _file("20240101_120000.jsonl", test_goose.legacy),
    "goose-export": _goose_export,
    "cline": lambda folder: test_cline.whole(folder / test_cline.ID),
    "cline-task": lambda folder: test_cline.write_task(folder, [2, 3]),
    "hermes": lambda folder: test_hermes.everything(folder / "state.db"),
    "hermes-lines": _file("20260418_192600_a1b2c3d4.jsonl", test_hermes.transcript),
    "hermes-export": _file("export.jsonl", test_hermes.export),
    "deerflow": lambda folder: test_deerflow.database(
        folder / "deerflow.db", test_deerflow.everything()
    ),
    "deerflow-files": lambda folder: test_deerflow.files(
        folder, test_deerflow.everything(), misfile=True
    ),
    "openai-chat": _file("chat.json", lambda: json.dumps(test_message_lists.CHAT).encode()),
    "anthropic": _file("chat.json", lambda: json.dumps(test_message_lists.MESSAGES).encode()),
}


def journal_of(name: str, folder: Path) -> str:
    """Every session that comes in, one after the other, and what was reported."""
    source = folder / "source"
    source.mkdir()
    SOURCES[name](source)
    for path in source.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    before = Path.cwd()
    os.chdir(folder)  # so that a source is called the same everywhere
    try:
        with Store(MemoryDisk().open()) as store:
            report = import_paths(store, [Path("source")], clock=lambda: NOW)
            check_sound(store)
            lines = [
                _readable(line)
                for one in report.sessions
                for line in b"".join(export_session(store, one.session_id)).splitlines()
            ]
    finally:
        os.chdir(before)
    lines += [json.dumps({"problem": str(one)}) for one in report.problems]
    text = "\n".join(lines) + "\n"
    return _without_place(text, folder) if name in LISTS else text


def _without_place(text: str, folder: Path) -> str:
    """Plain lists are known by where they are, so their ids are others in each folder."""
    numbers: dict[str, str] = {}
    text = text.replace(f"{folder.resolve()}/", "")
    return ID.sub(lambda id_: numbers.setdefault(id_[0], f"{id_[1]}_{len(numbers) + 1}"), text)


def _readable(line: bytes) -> str:
    """Opaque data as the text that it is; without links, which follow from the rest."""
    value = {key: inner for key, inner in json.loads(line).items() if key != "link"}
    return json.dumps(_opened(value), ensure_ascii=False)


def _opened(value: object) -> object:
    if isinstance(value, dict):
        if value.get("type") == "opaque":
            value = value | {"data": base64.b64decode(value["data"]).decode()}
        return {key: _opened(inner) for key, inner in value.items()}
    return [_opened(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", SOURCES)
def test_the_journal_is_the_one_that_was_approved(name: str, tmp_path: Path) -> None:
    wanted = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert journal_of(name, tmp_path).splitlines() == wanted.splitlines()


def write() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in SOURCES:
        with tempfile.TemporaryDirectory() as folder:
            text = journal_of(name, Path(folder))
        (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
