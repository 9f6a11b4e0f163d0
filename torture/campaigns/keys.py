"""Repeated, delayed and crossed writes of one key, from two openings of a store that also crash.

What a network does to requests: each is sent, its answer is lost, it is sent again, perhaps after
others, perhaps to another process. For each key there is one entry, whatever comes.
"""

import random
from collections.abc import Callable
from typing import Any, Final

from killick import IdConflict, Message, Session, Store, Text, ToolCall
from killick.model import entries as e
from killick.testing.faults import crash
from torture.campaign import Campaign, Round, Sizes

_SCHEDULES: Final = 200

Send = Callable[[Session], Any]


class Requests:
    """Requests of one session, by key: what was asked first is what counts."""

    def __init__(self, turn_id: str, chance: random.Random) -> None:
        self._turn_id = turn_id
        self._chance = chance
        self.first: dict[tuple[str, str], str] = {}
        self.sent: list[tuple[tuple[str, str], str, Send]] = []

    def of(self, space: str) -> list[str]:
        """What counts of one kind of request."""
        return sorted(text for (kind, _), text in self.first.items() if kind == space)

    def make(self, count: int) -> None:
        for _ in range(count):
            kind = self._chance.choice(["note", "queue", "turn", "turn", "result"])
            # A prompt that is queued and one that is asked at once may carry one key.
            space = "ask" if kind in ("queue", "turn") else kind
            key = (space, f"key-{self._chance.randrange(3)}")
            # Now and then somebody uses a key again for something else.
            text = "another" if self._chance.random() < 0.15 else f"of {key[1]}"
            request = (key, text, getattr(self, f"_{kind}")(key[1], text))
            self.sent += [request] * self._chance.choice([1, 2, 3])
        self._chance.shuffle(self.sent)  # delayed and crossed

    def _note(self, key: str, text: str) -> Send:
        return lambda session: session.note("n", text, key=key)

    def _queue(self, key: str, text: str) -> Send:
        return lambda session: session.queue(text, key=key)

    def _turn(self, key: str, text: str) -> Send:
        def send(session: Session) -> None:
            with session.turn(text, key=key) as turn:
                if not turn.repeated:
                    turn.record(Message("assistant", [Text("answer")], id=f"answer-{key}"))

        return send

    def _result(self, key: str, text: str) -> Send:
        return lambda session: session.finish_tool(self._turn_id, key, text)


def begin(store: Store, name: str) -> str:
    """A session with a turn whose three calls still have no result."""
    session = store.create_session(id=name)
    with session.turn("go") as turn:
        calls = [ToolCall(f"key-{number}", "shell", "{}") for number in range(3)]
        turn.record(Message("assistant", calls, id="calls"))
    return turn.id


class Network:
    """Two processes that answer, and lose their answers."""

    def __init__(self, opened: Callable[[], Store], chance: random.Random) -> None:
        self._opened = opened
        self._chance = chance
        self._stores = [opened(), opened()]

    def case(self, name: str) -> None:
        requests = Requests(begin(self._stores[0], name), self._chance)
        requests.make(self._chance.randrange(4, 9))
        for key, text, send in requests.sent:
            self._deliver(name, requests, key, text, send)
            if self._chance.random() < 0.05:
                self._lose_one()
        self._check(name, requests)

    def _deliver(
        self, name: str, requests: Requests, key: tuple[str, str], text: str, send: Send
    ) -> None:
        session = self._chance.choice(self._stores).session(name)
        try:
            send(session)
        except IdConflict:
            assert requests.first.get(key, text) != text, "the same again is no conflict"
        else:
            first = requests.first.setdefault(key, text)
            assert first == text, "another request under one key was taken"

    def _lose_one(self) -> None:
        """A process dies; another takes its place."""
        number = self._chance.randrange(2)
        crash(self._stores[number])
        self._stores[number] = self._opened()

    def _check(self, name: str, requests: Requests) -> None:
        """One entry for each key: that of the request that came first."""
        session = self._stores[0].session(name)
        with session.turn("last"):
            pass  # takes what waits
        bodies = [entry.body for entry in session.entries()]
        found = [str(body.data) for body in bodies if isinstance(body, e.Note)]
        assert sorted(found) == requests.of("note")
        results = [x.result for x in bodies if isinstance(x, e.ToolFinished | e.LateResult)]
        assert sorted(str(result.content) for result in results) == requests.of("result")
        asked = [message.text for message in session.messages() if message.role == "user"]
        assert sorted(asked) == sorted(["go", "last", *requests.of("ask")])
        keys = [body.key for body in bodies if isinstance(body, e.TurnStarted) and body.key]
        assert len(keys) == len(set(keys)), "a turn was run twice"

    def close(self) -> None:
        for store in self._stores:
            store.close()


def run(round_: Round) -> None:
    path = round_.quick / "store.db"
    network = Network(lambda: Store(path, durability="normal", indexing=False), round_.chance)
    try:
        for number in range(_SCHEDULES):
            round_.check("a schedule", network.case, f"s{number}")
    finally:
        network.close()


CAMPAIGN = Campaign(
    name="keys",
    tries="requests under one key are repeated, delayed, crossed with others and given to another "
    "process, which dies now and then; some use a key again for something else",
    holds="one entry for each key, that of the request that came first; another under its key is a "
    "conflict",
    sizes=Sizes(slice=200, torture=10_000, long=500_000),
    run=run,
)
