"""The feed over all sessions, while agents, the server and a follower are killed.

Agents run turns in 200 sessions: they complete, fail, wait for an approval, leave an outcome
unknown, are paused and killed. A server closes the turns of dead agents and posts the feed to a
receiver; a process follows it and keeps each line with its cursor in one write. On PostgreSQL a
transaction is held open meanwhile. The journals say what should have been told.
"""

import contextlib
import hashlib
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg

from killick import Session, Store
from killick.errors import KillickError, SessionNotFound
from killick.journal.news import fold_news
from killick.model.entries import Entry
from killick.model.messages import Message, Text, ToolCall
from killick.server.webhooks import SESSIONS as WEBHOOKS
from tests.crash.processes import Channel, Child, Nursery
from tests.server.client import Server
from tests.waiting import until
from torture.campaign import Campaign, Round, Sizes

SESSIONS: Final = 200
_AGENTS: Final = 4
_KILLS: Final = 10
_PATIENCE_SECONDS: Final = 120.0
_SILENCE_SECONDS: Final = 20.0
"""After so long without a line, no more is waited for."""

_TOLD_SECONDS: Final = 2.0
"""How soon an ending is told once its holder is known to be dead."""

_KNOWN_SECONDS: Final = {"file": 0.5, "server": 1.5}
"""How soon a death is known: a file's server looks each half second, PostgreSQL's asks twice."""


class Line(NamedTuple):
    """One line as the follower kept it; `at` is when."""

    cursor: str
    session_id: str
    seq: int
    kind: str
    at: float


# -- the processes ---------------------------------------------------------------------------------


def agent(parent: Channel, path: str, names: list[str], seed: int) -> None:
    """Run a turn in each session, of another kind each; say which session is next."""
    with Store(path, durability="normal") as store:
        for number, name in enumerate(names, seed):
            parent.send(name)
            with contextlib.suppress(KillickError, ZeroDivisionError, KeyboardInterrupt):
                _act(store.open_session(name), number)
        parent.send(None)
        parent.hang()


def _act(session: Session, number: int) -> None:
    with session.turn("Go.") as turn:
        calls = [ToolCall("c1", "shell", "{}"), ToolCall("c2", "shell", "{}")]
        turn.record(Message("assistant", [Text("Let me look."), *calls]))
        match number % 5:
            case 0:
                raise ZeroDivisionError
            case 1:
                asked = turn.ask_approval("c1", "{}")
                session.decide_approval(asked, approved=bool(number % 2))
            case 2:
                turn.ask_approval("c2", "{}")
            case 3:
                with turn.tool("c1"):
                    raise KeyboardInterrupt
            case _:
                with turn.tool("c1") as call:
                    time.sleep(0.02)
                    call.finish("done")
    if number % 7 == 0:
        session.pause("lunch")
    if number % 14 == 0:
        session.unpause()


def follower(parent: Channel, path: str, file: str) -> None:
    """Follow the feed from where the file ends; each line and its cursor are one write."""
    kept = read_lines(Path(file))
    after: int | str = kept[-1].cursor if kept else 0
    out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with Store(path, durability="normal") as store:
        parent.send("following")
        for news in store.follow(after=after):
            line = Line(news.cursor, news.session_id, news.seq, news.kind, time.monotonic())
            os.write(out, json.dumps(line).encode() + b"\n")


def read_lines(path: Path) -> list[Line]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [Line(*json.loads(line)) for line in text.splitlines()]


class Receiver:
    """A receiver on loopback that refuses one request of seventeen; `events` are those it took."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._count = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver._count += 1
                refused = receiver._count % 17 == 0
                if not refused:
                    receiver.events.append(body)
                self.send_response(503 if refused else 200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def held_open(path: str) -> Iterator[None]:
    """Hold a transaction open again and again, where there is a server: it hides no commit."""
    if "://" not in path:
        yield
        return
    over = threading.Event()

    def hold() -> None:
        with psycopg.connect(path.partition("?")[0]) as connection:
            while not over.is_set():
                connection.execute("SELECT pg_current_xact_id()")
                over.wait(0.3)
                connection.rollback()
                over.wait(0.2)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


# -- the round -------------------------------------------------------------------------------------


class Feed:
    """One store whose sessions are worked on, followed and posted while processes die."""

    def __init__(self, round_: Round, nursery: Nursery, receiver: Receiver, sessions: int) -> None:
        self._chance = round_.chance
        self._nursery = nursery
        self._receiver = receiver
        self._folder = round_.folder
        self._path = round_.places.at("feed.db")
        self._names = [f"s{number}" for number in range(sessions)]
        self._file = self._folder / "lines"
        self._agents: dict[int, tuple[Child, list[str]]] = {}
        self._kills = _KILLS
        self.delays: list[float] = []

    def run(self) -> None:
        Store(self._path).close()
        with held_open(self._path):
            server, following = self._serve(), self._follow()
            shares = [self._names[number::_AGENTS] for number in range(_AGENTS)]
            for number, share in enumerate(shares):
                self._begin(number, share)
            while self._agents:
                self._look()
                if self._kills > 0 and self._chance.random() < 0.3:
                    self._kills -= 1
                    match self._chance.randrange(4):
                        case 0:
                            server.close()
                            server = self._serve()
                        case 1:
                            following.kill()
                            following = self._follow()
                        case _:
                            self._kill_agent()
            self._last_death()
        try:
            self._compare()
        finally:
            server.close()
            following.kill()

    def _serve(self) -> Server:
        """Start a server, and wait until it has begun to post what happens from then on."""
        server = Server(self._folder, "--webhook", self._receiver.url, store=self._path)
        digest = hashlib.sha256(self._receiver.url.encode()).hexdigest()
        with Store(self._path) as store:
            hidden = store.open_session(f"{WEBHOOKS}{digest[:32]}", type="hidden")
            until(lambda: hidden.notes(name="cursor"))
        return server

    def _follow(self) -> Child:
        child = self._nursery.start(follower, self._path, str(self._file))
        child.expect("following")
        return child

    def _begin(self, number: int, names: list[str]) -> None:
        seed = self._chance.randrange(1_000)
        self._agents[number] = (self._nursery.start(agent, self._path, names, seed), names)

    def _look(self) -> None:
        """Hear which sessions the agents are at; one that is done is ended."""
        for number, (child, names) in list(self._agents.items()):
            with contextlib.suppress(TimeoutError):
                name = child.receive(0.02)
                if name is None:
                    child.kill()
                    del self._agents[number]
                else:
                    self._agents[number] = (child, names[names.index(name) :])

    def _kill_agent(self) -> None:
        number = self._chance.choice(sorted(self._agents))
        child, names = self._agents.pop(number)
        child.kill()
        self._begin(number, names[1:])

    def _last_death(self) -> None:
        """Kill one agent while the server and the follower live: its ending is told in time."""
        name = self._names[0]
        known = len(self._of(name))
        child = self._nursery.start(stuck, self._path, name)
        child.expect("running")
        child.kill()
        until(lambda: len(self._of(name)) > known, _PATIENCE_SECONDS)
        self.delays.append(self._of(name)[known].at - child.ended_at)

    def _of(self, name: str) -> list[Line]:
        return [line for line in read_lines(self._file) if line.session_id == name]

    def _compare(self) -> None:
        """Compare the follower and the receiver with the journals."""
        with Store(self._path) as store:
            wanted = {
                name: [(told.seq, told.line.kind) for told in fold_news(_journal(store, name))]
                for name in self._names
            }
        made = sum(map(bool, wanted.values()))
        assert made >= len(self._names) - _KILLS, "sessions are missing"
        count = sum(map(len, wanted.values()))

        def followed() -> dict[str, list[tuple[int, str]]]:
            found = defaultdict(list)
            for line in read_lines(self._file):
                found[line.session_id].append((line.seq, line.kind))
            return {name: found[name] for name in self._names}

        def posted() -> dict[str, list[tuple[int, str]]]:
            found: dict[str, dict[tuple[int, str], None]] = defaultdict(dict)
            for event in list(self._receiver.events):
                found[event["session_id"]][event["seq"], event["kind"]] = None
            return {name: list(found[name]) for name in self._names}

        def total(found: dict[str, list[tuple[int, str]]]) -> int:
            return sum(map(len, found.values()))

        seen, since = -1, time.monotonic()
        while min(total(followed()), total(posted())) < count:
            now = total(followed()) + total(posted())
            if now != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() - since > _SILENCE_SECONDS:
                break
            time.sleep(0.05)
        for found, how in ((followed(), "followed"), (posted(), "posted")):
            wrong = {
                name: (found[name], wanted[name]) for name in wanted if found[name] != wanted[name]
            }
            assert not wrong, f"{how} otherwise than in the journal: {wrong}"
        assert count > len(self._names)
        where = "server" if "://" in self._path else "file"
        late = [delay for delay in self.delays if delay > _TOLD_SECONDS + _KNOWN_SECONDS[where]]
        assert not late, f"told after {late} seconds"


def _journal(store: Store, name: str) -> list[Entry]:
    """Return a session's journal; nothing if its agent was killed before it had made it."""
    try:
        return store.session(name).entries()
    except SessionNotFound:
        return []


def stuck(parent: Channel, path: str, name: str) -> None:
    """Begin a turn and hang in it."""
    with Store(path, durability="normal") as store:
        session = store.open_session(name)
        with session.turn("Go."):
            parent.send("running")
            parent.hang()


def run(round_: Round, sessions: int = SESSIONS) -> None:
    nursery, receiver = Nursery(round_.places.died), Receiver()
    try:
        feed = Feed(round_, nursery, receiver, sessions)
        round_.check("200 sessions are followed", feed.run, cases=sessions)
    finally:
        receiver.close()
        nursery.close()


CAMPAIGN = Campaign(
    name="feed",
    tries="the feed over 200 sessions, followed and posted while agents, the server and the "
    "follower are killed; on PostgreSQL, while a transaction is held open",
    holds="a follower is told every line of the journals once and in order, a receiver at least "
    "once and in order; the ending of a turn that was killed is told within two seconds of its "
    "holder's death being known",
    sizes=Sizes(slice=0, torture=1_000, long=20_000),
    run=run,
)
