"""What coding agents do: a file for each session, appended to or written anew."""

import json
import os
from pathlib import Path
from typing import Any

from benchmarks.peers.contestant import FULL, NOT_SYNCED, SAID, Contestant, Conversation


def _record() -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": SAID}]}


class _Lines(Conversation):
    def __init__(self, path: Path, *, sync: bool) -> None:
        self._path = path
        self._sync = sync
        self._file = path.open("a", encoding="utf-8")

    async def append(self) -> None:
        self._file.write(json.dumps(_record()) + "\n")
        self._file.flush()
        if self._sync:
            os.fdatasync(self._file.fileno())

    async def load(self) -> int:
        with self._path.open(encoding="utf-8") as lines:
            return len([json.loads(line) for line in lines])

    def close(self) -> None:
        self._file.close()


class JsonLines(Contestant):
    """A line for each message, left to the kernel."""

    name = "JSON lines"
    durability = NOT_SYNCED
    _sync = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._open: list[_Lines] = []

    async def conversation(self, name: str) -> Conversation:
        self._open.append(_Lines(self.folder / f"{name}.jsonl", sync=self._sync))
        return self._open[-1]

    async def close(self) -> None:
        for one in self._open:
            one.close()


class JsonLinesSynced(JsonLines):
    """A line for each message, synced."""

    name = "JSON lines, fsync"
    durability = FULL
    _sync = True


class _WholeFile(Conversation):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._messages: list[dict[str, Any]] = []

    async def append(self) -> None:
        self._messages.append(_record())
        self._write()

    async def fill(self, messages: int) -> None:
        self._messages += [_record() for _ in range(messages)]
        self._write()

    def _write(self) -> None:
        partial = self._path.with_suffix(".part")
        partial.write_text(json.dumps(self._messages), encoding="utf-8")
        partial.replace(self._path)

    async def load(self) -> int:
        return len(json.loads(self._path.read_text(encoding="utf-8")))


class WholeFile(Contestant):
    """All messages in one JSON file, written anew for each of them, as Cline does."""

    name = "whole-file rewrite"
    durability = NOT_SYNCED

    async def conversation(self, name: str) -> Conversation:
        return _WholeFile(self.folder / f"{name}.json")
