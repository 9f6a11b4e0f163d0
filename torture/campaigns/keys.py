"""Repeated, delayed and crossed writes of one key, from two openings of a store that also crash.

What a network does to requests: each is sent, its answer is lost, it is sent again, perhaps after
others, perhaps to another process. For each key there is one entry, whatever comes.
"""

import random
from collections.abc import Callable
from typing import Any, Final

from holdfast import IdConflict, Message, Session, Store, Text, ToolCall
from holdfast.model import entries as e
from holdfast.testing.crash import crash
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

    def make(self, count: int) -> None:
        for _ in range(count):
            kind = self._chance.choice(["note", "queue", "turn", "turn", "result"])
            key = (kind, f"key-{self._chance.randrange(3)}")
            # Now and then somebody uses a key again for something else.
            text = "another" if self._chance.random() < 0.15 else f"of {key[1]}"
            request = (key, text, getattr(self, f"_{kind}")(key[1], text))
            self.sent += [request] * self._chance.choice([1, 2, 3])
        self._chance.shuffle(self.sent)  # delayed and crossed

    def _note(self, key: str, text: str) -> Send:
        return lambda session: session.note("n", text, key=key)

    def _queue(self, key: str, text: str) -> Send:
        return lambda session: session.queue(text, key=f"q-{key}")

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
        bodies = [entry.body for entry in session.entries()]
        found: dict[tuple[str, str], list[str]] = {}
        for body in bodies:
            match body:
                case e.Note(name="n"):
                    found.setdefault(("note", body.id), []).append(str(body.data))
                case e.TurnStarted(key=str()):
                    found.setdefault(("turn", body.key or ""), []).append(body.turn_id)
                case e.ToolFinished() | e.LateResult():
                    content = str(body.result.content)
                    found.setdefault(("result", body.result.call_id), []).append(content)
                case e.PromptQueued():
                    found.setdefault(("queue", body.id), []).append(body.parts[0].text)  # type: ignore[union-attr]
                case _:
                    pass
        assert all(len(entries) == 1 for entries in found.values()), found
        for kind in ("note", "turn", "result", "queue"):
            asked = [key for key in requests.first if key[0] == kind]
            assert len([key for key in found if key[0] == kind]) == len(asked), (kind, found)
        texts = [message.text for message in session.messages() if message.role == "user"]
        asked_texts = [text for key, text in requests.first.items() if key[0] == "turn"]
        for text in set(asked_texts):
            assert texts.count(text) >= asked_texts.count(text)

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
