"""Three servers on one store behind one address, one of which is killed again and again.

Clients know the one address alone. Each asks prompts under keys of its own until one is
acknowledged, follows its session's events from its cursor on until that turn has ended, and asks
the next one. The store and what every client was told are compared at the end.
"""

import contextlib
import itertools
import os
import select
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Final, NamedTuple

import httpx2

from killick import Store
from killick.model.entries import TurnStarted
from killick.model.messages import Text
from tests.server.client import Server, parse
from torture.campaign import Campaign, Round, Sizes

SERVERS: Final = 3
_WORDS: Final = 20
_PATIENCE_SECONDS: Final = 60.0


class Plan(NamedTuple):
    """How many clients ask how much, and how often a server dies."""

    clients: int = 6
    prompts: int | None = 20
    """Of each client; None goes on until so many servers have died."""
    pause_seconds: float = 0.0
    """Of a client, before each prompt."""
    rest_seconds: tuple[float, float] = (0.2, 1.0)
    """Between two deaths: less than the prompts of one client take."""
    deaths: int | None = None
    every_seconds: float | None = None
    """Deaths come by the clock, however long a new server takes to start; no rests then."""
    ended: float = 0.25
    """The share that is ended by SIGTERM; the others are killed."""


PLAN: Final = Plan()


class Address:
    """One port that leads to whichever server takes the connection, in turn."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self._closed = False
        self._turn = itertools.count()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._closed = True
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            with contextlib.suppress(OSError):  # of a client that went away; the next one comes
                client, _ = self._listener.accept()
                threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        """Pass bytes on both ways until one side is gone; no server lives, then neither does it."""
        with client:
            first = next(self._turn)
            for number in range(SERVERS):
                port = self.ports[(first + number) % SERVERS]
                with contextlib.suppress(OSError):
                    server = socket.create_connection(("127.0.0.1", port))
                    break
            else:
                return
            # What one server was asked is never left to another: that one would say nothing.
            with server, contextlib.suppress(OSError):
                _join(client, server)


def _join(one: socket.socket, other: socket.socket) -> None:
    while True:
        for side in select.select([one, other], [], [])[0]:
            data = side.recv(65_536)
            if not data:
                return
            (other if side is one else one).sendall(data)


class Client:
    """One session's client; it keeps what it was told, and asks again when it was told nothing."""

    def __init__(self, url: str, number: int, plan: Plan, over: threading.Event) -> None:
        self._plan = plan
        self._over = over
        self._http = httpx2.Client(base_url=url, timeout=10, trust_env=False)
        self.name = f"s{number}"
        self._cursor: str | None = None
        self.turns: dict[str, str] = {}
        """The prompt of each turn that was acknowledged."""
        self.seqs: list[int] = []
        self.texts: defaultdict[str, str] = defaultdict(str)
        self.ended: Counter[str] = Counter()

    def run(self) -> None:
        with self._http:
            for number in itertools.count():
                if number == self._plan.prompts or self._over.wait(self._plan.pause_seconds):
                    return
                prompt = f"count {_WORDS} 0.01 {self.name}-{number}"
                self._follow(self._ask(prompt, f"{self.name}-{number}"))

    def _ask(self, prompt: str, key: str) -> str:
        """Ask until it is acknowledged; the same key never begins a second turn."""
        body = {"prompt": prompt, "if_busy": "wait", "wait_seconds": 5}
        refusals: Counter[str] = Counter()
        for _ in self._trying():
            try:
                answer = self._http.post(
                    f"/api/sessions/{self.name}/turns", json=body, headers={"Idempotency-Key": key}
                )
            except httpx2.TransportError as error:
                refusals[type(error).__name__] += 1
                continue
            if answer.status_code in (200, 201):
                turn_id = str(answer.json()["turn_id"])
                self.turns[turn_id] = prompt
                return turn_id
            assert answer.status_code in (409, 503), answer.text
            refusals[answer.text[:200]] += 1
        told = f"{dict(refusals)}, load {os.getloadavg()}"
        raise AssertionError(f"{key} was not acknowledged in {_PATIENCE_SECONDS} s: {told}")

    def _follow(self, turn_id: str) -> None:
        """Follow the session from where it was left until this turn has ended."""
        path = f"/api/sessions/{self.name}/events"
        for _ in self._trying():
            headers = {} if self._cursor is None else {"Last-Event-ID": self._cursor}
            with (
                contextlib.suppress(httpx2.TransportError),
                self._http.stream("GET", path, headers=headers) as answer,
            ):
                assert answer.status_code in (200, 503), answer.status_code
                if answer.status_code == 503:
                    continue
                for event in parse(answer.iter_lines()):
                    assert event.name != "reload", event.data
                    self._take(event.id, event.data)
                    if self.ended[turn_id]:
                        return
        raise AssertionError(f"the ending of {turn_id} was not told in {_PATIENCE_SECONDS} s")

    def _take(self, cursor: str | None, data: dict[str, Any]) -> None:
        self._cursor = cursor or self._cursor
        if data["kind"] == "delta":
            if data["type"] == "text" and data["call_id"] is None:
                assert data["offset"] == len(self.texts[data["message_id"]]), data
                self.texts[data["message_id"]] += data["text"]
            return
        self.seqs.append(data["seq"])
        body = data["body"]
        if data["kind"] == "turn_ended":
            self.ended[body["turn_id"]] += 1
        elif data["kind"] == "message_ended":  # whole, for a client that was away meanwhile
            text = "".join(part["text"] for part in body["parts"] if part["type"] == "text")
            assert text.startswith(self.texts[body["id"]]), (text, self.texts[body["id"]])
            self.texts[body["id"]] = text

    def _trying(self) -> Iterator[None]:
        """Go on with pauses until it took too long."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < end:
            yield
            time.sleep(0.05)


class Servers:
    """One store, its servers, their address and their clients."""

    def __init__(self, round_: Round, plan: Plan) -> None:
        self._plan = plan
        self._over = threading.Event()
        self._chance = round_.chance
        self._folder = round_.folder
        self._path = round_.places.at("served.db")
        self._died = round_.places.died
        self._deaths = 0
        self._address = Address()
        self._began = time.monotonic()
        url = self._address.url
        self._clients = [Client(url, n, plan, self._over) for n in range(plan.clients)]

    def run(self) -> int:
        """Return how many prompts were acknowledged; raise for what does not hold."""
        with Store(self._path) as store:
            for client in self._clients:
                store.open_session(client.name)
        running = [self._start() for _ in range(SERVERS)]
        try:
            self._address.ports = [_port(server) for server in running]
            with ThreadPoolExecutor(len(self._clients)) as pool:
                asking = [pool.submit(client.run) for client in self._clients]
                while wait(asking, self._rest()).not_done and not self._over.is_set():
                    self._replace(running)
                for one in asking:
                    one.result()
        finally:
            self._address.close()
            for server in running:
                server.close()
        self._compare()
        return sum(len(client.turns) for client in self._clients)

    def _rest(self) -> float:
        """Return how long all servers live now; after the last death the clients stop asking."""
        if self._deaths == self._plan.deaths:
            self._over.set()
        if self._plan.every_seconds is not None:
            next_death = self._began + (self._deaths + 1) * self._plan.every_seconds
            return max(0.0, next_death - time.monotonic())
        return self._chance.uniform(*self._plan.rest_seconds)

    def _start(self) -> Server:
        return Server(self._folder, "--drain", "0.5", store=self._path)

    def _replace(self, running: list[Server]) -> None:
        """End one server, mostly without a word, and put a new one in its place."""
        self._deaths += 1
        number = self._chance.randrange(SERVERS)
        old = running[number]
        if self._chance.random() < self._plan.ended:
            old.end()
        else:
            old.kill()
            self._died(old.process.pid)
        old.close()
        running[number] = self._start()
        self._address.ports[number] = _port(running[number])

    def _compare(self) -> None:
        """Compare the store with what the clients were told."""
        assert self._deaths, "no server died"
        assert self._plan.deaths in (None, self._deaths), f"{self._deaths} died"
        words = "".join(f"w{number} " for number in range(_WORDS))
        with Store(self._path) as store:
            for client in self._clients:
                session = store.session(client.name)
                entries = session.entries(after=0)
                begun = [e.body.turn_id for e in entries if isinstance(e.body, TurnStarted)]
                assert begun == list(client.turns), (client.name, begun, client.turns)
                assert len(set(client.turns.values())) == len(client.turns)
                prompts = [m.text for m in session.messages() if m.role == "user"]
                assert prompts == list(client.turns.values()), client.name
                told = range(1, client.seqs[-1] + 1)
                assert client.seqs == list(told), f"{client.name} was told {client.seqs}"
                assert client.ended == Counter(client.turns.keys()), client.ended
                status = {turn.id: turn.status for turn in session.turns() if turn.id}
                for message in session.messages():
                    if message.role != "assistant":
                        continue
                    text = "".join(p.text for p in message.parts if isinstance(p, Text))
                    assert text == client.texts[message.id], (text, client.texts[message.id])
                    assert words.startswith(text), text
                    whole = status[str(message.turn_id)] == "completed"
                    assert text == words or not whole


def _port(server: Server) -> int:
    return int(server.url.rpartition(":")[2])


def run(round_: Round, plan: Plan = PLAN) -> None:
    servers = Servers(round_, plan)
    prompts = plan.clients * (plan.prompts or 0)
    round_.check("servers die behind one address", servers.run, cases=prompts)


CAMPAIGN = Campaign(
    name="servers",
    tries="three servers on one store behind one address, one after the other killed or ended "
    "while clients ask and follow",
    holds="every prompt that was acknowledged is asked once; every client is told every entry "
    "and every word once, in order, by whichever server it reaches",
    sizes=Sizes(slice=0, torture=600, long=20_000),
    run=run,
)
