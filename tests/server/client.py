"""What tests of the server share: a server process, plain HTTP, and reading of events."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

ROOT = Path(__file__).parents[2]


class Event(NamedTuple):
    """One server-sent event."""

    id: str | None
    name: str
    data: dict[str, Any]


class Server:
    """A server in a process of its own; `store` is a file in the folder if it is no URL."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        store: str = "work.db",
        module: str = "tests.server.scripted",
        command: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.store = store if "://" in store else str(folder / store)
        self.log_path = folder / f"{os.urandom(4).hex()}.log"
        self._log = self.log_path.open("wb")
        scripted = (sys.executable, "-m", module, self.store)
        self.process = subprocess.Popen(
            [*(command or (*scripted, "--tokens", str(folder / "tokens.json"))), *options],
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            text=True,
            env=env,
        )
        assert self.process.stdout is not None
        found = re.search(r"http://[\w.:\[\]]+", self.process.stdout.readline())
        assert found, self.log_path.read_text()
        self.url = found[0]
        self.http = httpx2.Client(base_url=self.url, timeout=20, trust_env=False)

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def log_lines(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.splitlines()]
        return [line for line in lines if line["event"] == event]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def end(self, seconds: float = 15) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def close(self) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._log.close()

    # -- the interface -------------------------------------------------------------------------

    def get(self, path: str, **settings: Any) -> Any:
        answer = self.http.get(path, **settings)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def create(self, **fields: Any) -> str:
        answer = self.http.post("/api/sessions", json=fields)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def ask(self, session_id: str, prompt: str | None, **fields: Any) -> httpx2.Response:
        headers = {"Idempotency-Key": fields.pop("key")} if "key" in fields else {}
        body = {"prompt": prompt, **fields}
        return self.http.post(f"/api/sessions/{session_id}/turns", json=body, headers=headers)

    def begin(self, session_id: str, prompt: str | None, **fields: Any) -> str:
        answer = self.ask(session_id, prompt, **fields)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["turn_id"])

    def stop(self, session_id: str, **fields: Any) -> httpx2.Response:
        return self.http.post(f"/api/sessions/{session_id}/stop", json=fields)

    def events(
        self, session_id: str, after: str | None = None, *, header: bool = True
    ) -> Generator[Event, None, None]:
        """Events as they come; leave the loop to hang up."""
        headers = {"Last-Event-ID": after} if after is not None and header else {}
        query = {"after": after} if after is not None and not header else {}
        path = f"/api/sessions/{session_id}/events"
        with self.http.stream("GET", path, headers=headers, params=query) as answer:
            if answer.status_code != 200:
                answer.read()
            assert answer.status_code == 200, answer.text
            yield from parse(answer.iter_lines())

    def until_end(self, session_id: str, after: str | None = None) -> list[Event]:
        """Events up to the next ending of a turn."""
        seen = []
        with contextlib.closing(self.events(session_id, after)) as events:
            for event in events:
                seen.append(event)
                if event.name == "turn_ended":
                    return seen
        raise AssertionError("the stream ended before the turn")


def parse(lines: Iterator[str]) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in lines:
        if not line:
            if "data" in fields:
                name, data = fields.get("event", "message"), json.loads(fields["data"])
                yield Event(fields.get("id"), name, data)
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value


def texts(events: list[Event]) -> dict[str, str]:
    """The text of each message as its deltas make it; a gap or a repeat fails."""
    parts: dict[tuple[str, int], str] = {}
    for event in events:
        if event.name == "delta" and event.data["call_id"] is None:
            name = event.data["message_id"], event.data["part"]
            assert event.data["offset"] == len(parts.get(name, "")), "a gap or a repeat"
            parts[name] = parts.get(name, "") + event.data["text"]
    found: dict[str, str] = {}
    for (message_id, _), text in sorted(parts.items()):
        found[message_id] = found.get(message_id, "") + text
    return found
