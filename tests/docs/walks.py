"""Profiled runs: which modules a streamed text, a message's end, a Stop, a recovery and an HTTP
prompt visit, on the thread of the caller and on the writer's.

`python -m tests.docs.walks FOLDER` prints them as JSON. Every run does its thing twice: the writer
is done with the first when it answers the second, so nothing of that is missed.
"""

import asyncio
import contextlib
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import httpx2

import killick
from killick import AsyncSession, AsyncStore, AsyncTurn, Store
from killick.server.auth import Tokens
from killick.server.launch import serve
from killick.server.log import configure
from killick.server.runner import Runner
from killick.server.service import ServerSettings
from tests.server.client import parse
from tests.waiting import until

SOURCE = os.path.dirname(killick.__file__) + os.sep  # noqa: PTH120  (compared with code objects)
WRITER = "killick-writer"


class Profile:
    """Modules in which a function was called while recording, by thread."""

    def __init__(self) -> None:
        self._threads: frozenset[str] = frozenset()
        self._visited: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event != "call" or not self._threads or not code.co_filename.startswith(SOURCE):
            return
        if code.co_name != "<module>" and threading.current_thread().name in self._threads:
            self._visited.add(code.co_filename.removeprefix(SOURCE))

    @contextlib.contextmanager
    def of(self, *threads: str) -> Iterator[None]:
        self._threads = frozenset(threads)
        yield
        self._threads = frozenset()

    def take(self) -> list[str]:
        visited, self._visited = self._visited, set()
        return sorted(visited)


profile = Profile()
BOTH = ("MainThread", WRITER)


def streamed_text(store: Store) -> list[str]:
    """From `reply.text` until its delta is in the file."""
    session = store.create_session()
    with session.turn("go") as turn, turn.stream() as reply:
        for text in ("The first begins a part. ", "The second, ", "and the third."):
            begun = text.startswith("The first")
            with profile.of(*(() if begun else BOTH)):
                reply.text(text)
            with profile.of(*(() if begun else (WRITER,))):
                until(lambda text=text: session.messages()[-1].text.endswith(text))  # type: ignore[misc]
    return profile.take()


def message_end(store: Store) -> list[str]:
    """Leaving the block of a stream."""
    with store.create_session().turn("go") as turn:
        for _ in range(2):
            stream = turn.stream()
            stream.__enter__().text("an answer")
            with profile.of(*BOTH):
                stream.__exit__(None, None, None)
    return profile.take()


def stop(store: Store) -> list[str]:
    """`session.stop`, until it is durable and the turn knows of it."""
    sessions = [store.create_session() for _ in range(2)]
    turns = [session.turn("go") for session in sessions]
    for turn in turns:
        turn.__enter__()
    for session in sessions:
        with profile.of(*BOTH):
            session.stop(reason="enough")
    for turn in turns:
        turn.__exit__(None, None, None)
    return profile.take()


def recovery(path: Path) -> list[str]:
    """`store.session` of a turn whose process was killed."""
    if (child := os.fork()) == 0:
        with Store(path) as store:
            for name in ("dead-1", "dead-2"):
                turn = store.create_session(id=name).turn("go").__enter__()
                reply = turn.stream().__enter__()
                reply.text("half an answer")
                reply.tool_call("c1", name="shell", arguments="{}")
                turn.tool("c1").__enter__()
            os._exit(9)
    os.waitpid(child, 0)
    with Store(path, indexing=False) as store:
        store.create_session()  # it has begun to write
        for name in ("dead-1", "dead-2"):
            with profile.of(*BOTH):
                session = store.session(name)
            assert [turn.status for turn in session.turns()] == ["interrupted"]
    return profile.take()


def http_prompt(folder: Path) -> list[str]:
    """`POST /api/sessions/…/turns`, until its last event has come; modules of the server."""
    configure()
    settings = ServerSettings(port=0, look_seconds=3_600)
    ended = threading.Event()

    async def answer(_session: AsyncSession, turn: AsyncTurn) -> None:
        async with turn.stream(provider="scripted", model="one") as reply:
            reply.text("An answer.")

    @contextlib.asynccontextmanager
    async def answering() -> AsyncIterator[Runner]:
        yield Runner(answer, "scripted")

    def ready(url: str) -> None:
        threading.Thread(target=talk, args=(url, ended), name="client").start()

    with contextlib.suppress(SystemExit, KeyboardInterrupt):
        asyncio.run(
            serve(
                lambda _tenant: AsyncStore(folder / "served.db", indexing=False),
                answering(),
                settings,
                Tokens(folder / "tokens.json"),
                ready,
            )
        )
    assert ended.is_set()
    ticks = "server/launch.py"  # looks for the end of the server, whether there are prompts or not
    return [name for name in profile.take() if name.startswith("server/") and name != ticks]


def talk(url: str, ended: threading.Event) -> None:
    """A client: it listens, sends two prompts, and hears the ends of both turns."""
    try:
        with httpx2.Client(base_url=url, timeout=30, trust_env=False) as http:
            session_id = http.post("/api/sessions", json={}).json()["id"]
            path = f"/api/sessions/{session_id}"
            with http.stream("GET", f"{path}/events") as answer:
                events = parse(answer.iter_lines())
                next(events)
                with profile.of(*BOTH):
                    for _ in range(2):
                        with httpx2.Client(base_url=url, timeout=30, trust_env=False) as other:
                            done = other.post(f"{path}/turns", json={"prompt": "go"})
                            assert done.status_code == 201, done.text
                        while next(events).name != "turn_ended":
                            pass
        ended.set()
    finally:
        os.kill(os.getpid(), 2)


def main(folder: Path) -> None:
    threading.setprofile(profile)
    sys.setprofile(profile)
    path = folder / "work.db"
    modules = {"recovery": recovery(path)}
    with Store(path, indexing=False) as store:
        modules["streamed text"] = streamed_text(store)
        modules["end of a message"] = message_end(store)
        modules["stop"] = stop(store)
    modules["HTTP prompt"] = http_prompt(folder)
    print(json.dumps(modules))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
