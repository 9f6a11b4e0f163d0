"""Work whose every step is announced before it is done and acknowledged after it was done.

Both notes go to a file that outlives the process. Afterwards `check` compares the store with them:
what was acknowledged must be there, and nothing may be there that was never announced.
"""

import json
import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from killick import Message, Session, Store, Stream, Text, ToolResult, Turn, TurnInfo
from killick.model import entries as e
from tests.crash.journals import check_sound

Fact = list[Any]


class Log:
    """Two kinds of line: `will` before a step, `did` after it returned, each with the time."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def will(self, *fact: object) -> None:
        self._note("will", fact)

    def did(self, *fact: object) -> None:
        self._note("did", fact)

    def _note(self, which: str, fact: tuple[object, ...]) -> None:
        line = json.dumps([which, time.monotonic(), *fact])
        os.write(self._file, line.encode() + b"\n")


class Worker:
    """Does turns on one session, in an order that its seed decides."""

    def __init__(self, session: Session, log: Log, seed: int) -> None:
        self._session = session
        self._log = log
        self._random = random.Random(seed)
        self._count = 0
        self._tag = f"{os.getpid()}.{seed}"

    def one_turn(self, steps: int | None = None) -> None:
        """A turn of a few random steps that ends in one of the ways a turn can end."""
        prompt = self._name()
        self._log.will("turn", self._session.id, prompt)
        chosen = self._random.choice(["completed", "completed", "failed", "interrupted"])
        turn_id = ""
        try:
            with self._session.turn(prompt) as turn:
                turn_id = turn.id
                self._log.did("turn", self._session.id, prompt, turn_id)
                for _ in range(self._random.randint(1, 4) if steps is None else steps):
                    self._random.choice([self._record, self._stream, self._stream, self._tools])(
                        turn
                    )
                if chosen == "failed":
                    raise ValueError("on purpose")
                if chosen == "interrupted":
                    raise KeyboardInterrupt
        except (ValueError, KeyboardInterrupt):
            pass
        self._log.did("ended", self._session.id, turn_id, chosen)

    def every_kind(self) -> None:
        """A turn with each kind of step in it, always the same."""
        prompt = self._name()
        self._log.will("turn", self._session.id, prompt)
        with self._session.turn(prompt) as turn:
            turn_id = turn.id
            self._log.did("turn", self._session.id, prompt, turn_id)
            self._record(turn)
            self._stream(turn)
            self._tools(turn)
        self._log.did("ended", self._session.id, turn_id, "completed")

    def stream_for_ever(self) -> None:
        with self._session.turn(None) as turn:
            turn_id = turn.id
            self._log.did("turn", self._session.id, None, turn_id)
            with turn.stream() as reply:
                # Slowly, so that only the window flushes: 4 KB at once would be written at once.
                while True:
                    self._say(reply.id, reply.text, sizes=[0])
                    time.sleep(0.004)

    def begin_to_stream(self) -> "Speaking":
        """A turn with a stream that the caller ends."""
        turn = self._session.turn(None).begin()
        self._log.did("turn", self._session.id, None, turn.id)
        speaking = Speaking(self, turn, turn.stream().begin())
        speaking.say()
        return speaking

    def say(self, reply: Stream) -> None:
        self._say(reply.id, reply.text, sizes=[0, 30])

    def leave(self, turn: Turn, reply: Stream) -> None:
        reply.end()
        self._log.did("whole", reply.id)
        turn.end()
        self._log.did("ended", self._session.id, turn.id, "completed")

    def _name(self) -> str:
        self._count += 1
        return f"{self._tag}.{self._count}"

    def _record(self, turn: Turn) -> None:
        message_id = self._name()
        self._log.will("message", message_id, f"text of {message_id}")
        turn.record(Message("assistant", [Text(f"text of {message_id}")], id=message_id))
        self._log.did("message", message_id, f"text of {message_id}")

    def _stream(self, turn: Turn) -> None:
        with turn.stream() as reply:
            for _ in range(self._random.randint(1, 30)):
                self._say(reply.id, reply.text)
                if self._random.random() < 0.3:
                    time.sleep(self._random.random() * 0.004)
            message_id = reply.id
        self._log.did("whole", message_id)

    def _say(
        self, message_id: str, say: Callable[[str], None], sizes: Sequence[int] = (0, 3, 700)
    ) -> None:
        chunk = f"{self._name()} " + "x" * self._random.choice(sizes)
        self._log.will("said", message_id, chunk)
        say(chunk)
        self._log.did("said", message_id, chunk)

    def _tools(self, turn: Turn) -> None:
        first, second = self._name(), self._name()
        with turn.stream() as reply:
            message_id = reply.id
            reply.tool_call(first, name="shell", arguments="{}")
            reply.tool_call(second, name="shell", arguments='{"n": ')
            reply.tool_call(second, arguments="1}")
            self._tool(turn, first, message_id)  # while its reply still streams
        self._log.did("calls", message_id, [first, second])
        self._tool(turn, second, message_id)

    def _tool(self, turn: Turn, call_id: str, message_id: str) -> None:
        self._log.will("result", call_id, f"result of {call_id}")
        with turn.tool(call_id) as call:
            self._log.did("started", call_id, message_id)
            call.output("working…")
            call.finish(f"result of {call_id}")
            self._log.did("result", call_id, f"result of {call_id}")


# -- afterwards --------------------------------------------------------------------------------


class Speaking:
    """A stream of a turn of its own."""

    def __init__(self, worker: Worker, turn: Turn, reply: Stream) -> None:
        self._worker = worker
        self._turn = turn
        self._reply = reply

    def say(self) -> None:
        self._worker.say(self._reply)

    def end(self) -> None:
        self._worker.leave(self._turn, self._reply)


class Said(NamedTuple):
    """One chunk of streamed text: when it was handed over, if the call returned."""

    text: str
    at: float | None


class Notes:
    """A log, read back."""

    def __init__(self, path: str) -> None:
        self.did: list[Fact] = []
        self.will: list[Fact] = []
        self.said: dict[str, list[Said]] = {}
        if not os.path.exists(path):  # noqa: PTH110  (the process was killed before its first note)
            return
        with open(path, encoding="utf-8") as lines:  # noqa: PTH123
            for line in lines:
                if line.endswith("\n"):  # the kill may have cut the last one off
                    self._take(*json.loads(line))

    def _take(self, which: str, at: float, *fact: Any) -> None:
        if fact[0] == "said":
            _, message_id, chunk = fact
            said = self.said.setdefault(message_id, [])
            if which == "will":
                said.append(Said(chunk, None))
            else:
                said[-1] = Said(chunk, at)
        else:
            (self.will if which == "will" else self.did).append(list(fact))


class Killed(NamedTuple):
    """The notes of one process, and when it was killed."""

    notes: str
    at: float


def check(store: Store, killed: Sequence[Killed], window: float) -> list[float]:
    """Compare the store with the notes of all processes that wrote to it.

    Text that was handed over more than `window` seconds before the kill must be there. Returns how
    old the oldest missing chunk of each cut-off stream was at the kill.
    """
    sessions = [store.session(info.id) for info in store.sessions(limit=10_000)]
    for session in sessions:
        check_sound(session)
    assert store.counts()["deltas"] == 0
    messages = {m.id: m for session in sessions for m in session.messages()}
    turns = {turn.id: turn for session in sessions for turn in session.turns()}
    prompts = {(m.turn_id, m.text) for m in messages.values() if m.role == "user"}
    started = _started(sessions)
    results = _results(list(messages.values()))
    ages: list[float] = []
    announced: set[tuple[str, ...]] = set()
    for one in killed:
        notes = Notes(one.notes)
        _check_done(notes, messages, turns, prompts, started, results)
        announced.update(tuple(fact[-2:]) for fact in notes.will)
        ages += _missing_ages(notes, messages, one.at, window)
    for session in sessions:
        for message in session.messages():
            if message.role == "user":
                assert (session.id, message.text) in announced, "nobody has asked this"
    assert set(results.items()) <= announced, "a result that no tool has given"
    return ages


def check_one(store: Store, session: Session, notes: str) -> None:
    """Compare one session with the notes of the one process that wrote to it and still lives."""
    check_sound(session)
    assert store.counts()["deltas"] == 0
    messages = {message.id: message for message in session.messages()}
    turns = {turn.id: turn for turn in session.turns()}
    prompts = {(m.turn_id, m.text) for m in messages.values() if m.role == "user"}
    _check_done(
        Notes(notes),
        messages,
        turns,
        prompts,
        _started([session]),
        _results(list(messages.values())),
    )


def _started(sessions: Sequence[Session]) -> set[tuple[str, str]]:
    return {
        (x.body.call_id, x.body.message_id)
        for session in sessions
        for x in session.entries()
        if isinstance(x.body, e.ToolStarted)
    }


def _check_done(
    notes: Notes,
    messages: dict[str, Message],
    turns: dict[str, TurnInfo],
    prompts: set[tuple[str | None, str]],
    started: set[tuple[str, str]],
    results: dict[str, object],
) -> None:
    """Everything that was acknowledged is there."""
    for fact in notes.did:
        match fact:
            case ["turn", _, prompt, turn_id]:
                assert turn_id in turns, fact
                assert prompt is None or (turn_id, prompt) in prompts, fact
            case ["ended", _, turn_id, status]:
                assert turns[turn_id].status == status, fact
            case ["message", message_id, text]:
                assert messages[message_id].text == text, fact
            case ["whole", message_id]:
                assert messages[message_id].state == "complete", fact
                said = "".join(chunk.text for chunk in notes.said[message_id])
                assert messages[message_id].text == said, fact
            case ["calls", message_id, call_ids]:
                assert [call.id for call in messages[message_id].tool_calls] == call_ids, fact
            case ["started", call_id, message_id]:
                assert (call_id, message_id) in started, fact
            case ["result", call_id, text]:
                assert results[call_id] == text, fact
            case _:
                raise AssertionError(f"a note that nobody checks: {fact}")


def _results(messages: list[Message]) -> dict[str, object]:
    found = [part for m in messages for part in m.parts if isinstance(part, ToolResult)]
    assert len({part.call_id for part in found}) == len(found), "a result is there twice"
    return {part.call_id: part.content for part in found}


def _missing_ages(
    notes: Notes, messages: dict[str, Message], killed_at: float, window: float
) -> list[float]:
    ages = []
    for message_id, said in notes.said.items():
        stored = messages[message_id].text if message_id in messages else ""
        whole = "".join(chunk.text for chunk in said)
        assert whole.startswith(stored), "what is stored is not a prefix of what was said"
        length = 0
        for chunk in said:
            length += len(chunk.text)
            if length > len(stored) and chunk.at is not None:
                age = killed_at - chunk.at
                assert age <= window, f"text was lost that was handed over {age:.3f} s earlier"
                ages.append(age)
                break
    return ages
