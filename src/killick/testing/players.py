"""Playing a script of what agents do, step by step, on any store, with everything decided.

A `Player` holds one session and at most one turn, stream and tool of each of two openings of the
same database, so that turns can be taken over and stopped from elsewhere. Ids and times come from
counters: two players that are given the same steps write the same journal, whatever the store.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from killick.errors import KillickError
from killick.model import entries as e
from killick.model.effects import Effect, Outcome, SettledBy
from killick.model.messages import Message, Opaque, Part, Text, ToolCall
from killick.session.runtime import Prefix
from killick.session.sync import Session, Store
from killick.session.sync_blocks import Stream, Tool, Turn
from killick.stores.contract import Database
from killick.stores.engine.state import Op
from killick.testing.faults import crash

_NEVER_SECONDS = 1_000.0

T = TypeVar("T")


_EXIT = {"stdout": "a.txt", "outcome": {"type": "exit", "exit_code": 0}}
_KILLED = {"stdout": "", "outcome": {"type": "timeout"}}
_SERVED: list[tuple[str, list[dict[str, Any]]]] = [
    ("openai", [{"type": "web_search_call", "id": "ws_#", "status": "completed"}]),
    ("openai", [{"unfinished": {"type": "web_search_call", "id": "ws_#"}}]),
    (
        "openai",
        [{"type": "mcp_call", "id": "mcp_#", "name": "pay", "arguments": "{}", "error": "no"}],
    ),
    (
        "openai",
        [
            {"type": "shell_call", "id": "sh_#", "call_id": "c#", "action": {"commands": ["ls"]}},
            {"type": "shell_call_output", "id": "so_#", "call_id": "c#", "output": [_EXIT]},
        ],
    ),
    (
        "openai",
        [
            {"type": "shell_call", "id": "sh_#", "call_id": "c#", "action": {"commands": ["ls"]}},
            {"type": "shell_call_output", "id": "so_#", "call_id": "c#", "output": [_KILLED]},
        ],
    ),
    ("openai", [{"type": "shell_call", "id": "sh_#", "call_id": "c#", "action": {"commands": []}}]),
    (
        "anthropic",
        [
            {"type": "server_tool_use", "id": "srv_#", "name": "web_search", "input": {"q": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "srv_#", "content": []},
        ],
    ),
    (
        "anthropic",
        [
            {"type": "mcp_tool_use", "id": "mcp_#", "name": "pay", "server_name": "s", "input": {}},
            {"type": "mcp_tool_result", "tool_use_id": "mcp_#", "is_error": True, "content": []},
        ],
    ),
    ("anthropic", [{"type": "server_tool_use", "id": "srv_#", "name": "web_fetch", "input": {}}]),
    ("anthropic", [{"type": "web_fetch_tool_result", "tool_use_id": "srv_#", "content": []}]),
    (
        "gemini",
        [
            {"executable_code": {"language": "PYTHON", "code": "print(#)"}},
            {"code_execution_result": {"outcome": "OUTCOME_FAILED", "output": "#"}},
        ],
    ),
    (
        "gemini",
        [
            {"tool_call": {"id": "t#", "tool_type": "GOOGLE_SEARCH_WEB", "args": {"q": "x"}}},
            {"tool_response": {"id": "t#", "tool_type": "GOOGLE_SEARCH_WEB", "response": {}}},
        ],
    ),
    ("gemini", [{"tool_call": {"id": "t#", "tool_type": "URL_CONTEXT", "args": {}}}]),
    ("gemini", [{"tool_response": {"id": "t#", "tool_type": "URL_CONTEXT", "response": {}}}]),
]
"""Tools that providers run themselves, with and without the other half of the run."""


def served(which: int, number: int) -> list[Opaque]:
    """Return what a provider sends of a tool that it runs itself; `number` makes its ids."""
    provider, values = _SERVED[which % len(_SERVED)]
    encoded = [json.dumps(value).replace("#", str(number)) for value in values]
    return [Opaque(provider, value.encode()) for value in encoded]


class Failed(Exception):
    """Raised by a player to fail in a block."""


class _Side:
    """One opening of the database and what is open in it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.session: Session | None = None
        self.turn: Turn | None = None
        self.streams: list[Stream] = []
        self.tool: Tool | None = None
        self.called = False


class Player:
    """Carries out steps; each returns what came of it, as a value that can be compared."""

    def __init__(self, make: Callable[[], Database]) -> None:
        self._make = make
        self._time = 0
        self._minted = 0
        self._served = 0
        self._sides = [self._open(), self._open()]
        self.session_id = self._sides[0].store.create_session().id
        self.turn_ids: list[str] = []
        self.message_turns: dict[str, str] = {}
        self.tokens: list[str] = []
        for side in self._sides:
            side.session = side.store.session(self.session_id)

    # -- the world -----------------------------------------------------------------------------

    def _open(self) -> _Side:
        store = Store(self._make(), clock=self._clock, ids=self._ids, window_seconds=_NEVER_SECONDS)
        return _Side(store)

    def _clock(self) -> int:
        self._time += 1
        return self._time

    def _ids(self, prefix: Prefix) -> str:
        self._minted += 1
        return f"{prefix}_{self._minted:06}"

    def close(self) -> None:
        for side in self._sides:
            side.turn = side.tool = None
            side.streams = []
            side.store.close()

    def flush(self, number: int) -> None:
        """Write what streams were given so far, as the window's end would."""
        writer = self._sides[number].store._core.runtime().writer
        writer.at_once()
        barrier = writer.submit(Op(lambda engine: None))
        barrier.wait()

    def fold(self, number: int) -> None:
        """Take one step of folding streams out of the rows that they share, as time would."""
        writer = self._sides[number].store._core.runtime().writer
        writer.submit(Op(lambda engine: engine.tx.fold_deltas())).wait()

    def crash(self, number: int) -> None:
        """One opening's process dies; it is opened again and opens the session."""
        crash(self._sides[number].store)
        self._sides[number] = self._open()
        self._sides[number].session = self._sides[number].store.session(self.session_id)

    def likely(self, number: int) -> list[str]:
        """Steps that lead somewhere from here: a script of only random ones goes nowhere."""
        side = self._sides[number]
        if side.turn is None:
            late = ["late_result", "late_text"] if self.turn_ids else []
            late += ["settle", "continue_turn", "continue_turn"] if self.turn_ids else []
            late += ["take_due", "take_due"] if self.turn_ids else []
            late += ["work", "work", "work"] if self.tokens else []
            history = ["compact", "rewind", "undo", "see", "fork"] if self.turn_ids else []
            return ["start_turn", "start_turn", *(["start_turn"] * len(history)), *late, *history]
        names = [
            "end_turn",
            "record",
            "steer",
            "take_steering",
            *(["open_stream"] * (3 - len(side.streams))),
        ]
        if side.streams:
            names += ["say", "say", "think", "call", "call", "call", "serve", "end_stream"]
            names += ["end_stream"]
        if side.tool is not None:
            names += ["print", "print", "finish_tool", "finish_tool", "end_tool"]
        elif side.called:
            names += ["start_tool"] * 4
        elif len(self.turn_ids) > 1:
            names += ["repeat_tool", "repeat_tool"]
        return names

    # -- steps ---------------------------------------------------------------------------------

    def step(self, number: int, name: str, *args: Any) -> Any:
        """Do one thing; the outcome, or the name of the error that refused it."""
        try:
            outcome = getattr(self, f"_{name}")(self._sides[number], *args)
        except KillickError as error:
            return type(error).__name__
        finally:
            self.flush(number)
            # A stop reaches the other opening at once here, not at its next look.
            for side in self._sides:
                side.store._core.runtime()._look_for_stops()
        return outcome

    def _start_turn(
        self, side: _Side, prompt: str, key: str | None, if_busy: str, resume: int = 0
    ) -> Any:
        assert side.session is not None
        turn = side.session.turn(prompt, key=key, if_busy=if_busy, resume=resume)  # type: ignore[arg-type]
        turn.__enter__()
        if not turn.repeated:
            side.turn, side.streams, side.tool, side.called = turn, [], None, False
            self.turn_ids.append(turn.id)
        return turn.id, turn.repeated, turn.status

    def _end_turn(self, side: _Side, how: str) -> Any:
        if side.turn is None:
            return None
        turn, side.turn, side.streams, side.tool = side.turn, None, [], None
        self._leave(turn, how)
        return turn.status

    def _open_stream(self, side: _Side) -> Any:
        if side.turn is None or len(side.streams) == 2:
            return None
        stream = side.turn.stream(model="m", system="s")
        stream.__enter__()
        side.streams.append(stream)
        self.message_turns[stream.id] = side.turn.id
        return stream.id

    def _say(self, side: _Side, text: str) -> Any:
        return side.streams[-1].text(text) if side.streams else None

    def _think(self, side: _Side, text: str, signature: str | None) -> Any:
        if side.streams:
            side.streams[-1].reasoning(text, signature=signature)

    def _call(self, side: _Side, call_id: str, arguments: str) -> Any:
        if side.streams:
            side.called = True
            side.streams[-1].tool_call(call_id, name="shell", arguments=arguments)

    def _serve(self, side: _Side, which: int) -> Any:
        """Let the provider run a tool of its own, in the answer that it streams."""
        if side.streams:
            self._served += 1
            for part in served(which, self._served):
                side.streams[-1].part(part)

    def _end_stream(self, side: _Side, how: str) -> Any:
        if side.streams:
            self._leave(side.streams.pop(0), how)

    def _continue_turn(self, side: _Side, which: int) -> Any:
        """Begin a turn that goes on with one of the last two."""
        if not self.turn_ids:
            return None
        assert side.session is not None
        turn = side.session.turn(None, continues=self.turn_ids[-2:][which % 2 - 1])
        turn.__enter__()
        side.turn, side.streams, side.tool, side.called = turn, [], None, False
        self.turn_ids.append(turn.id)
        return turn.id

    def _take_due(self, side: _Side, lease_seconds: float) -> Any:
        taken = side.store.take_due(limit=2, lease_seconds=lease_seconds)
        self.tokens += [work.token for work in taken]
        return [(work.session_id, work.turn_id, work.attempt, work.token) for work in taken]

    def _work(self, side: _Side, which: int) -> Any:
        """Begin with work that was taken, here or in the other opening, now or long ago."""
        if not self.tokens:
            return None
        assert side.session is not None
        turn = side.session.turn(None, work=_one_of(self.tokens, -1 - which))
        turn.__enter__()
        side.turn, side.streams, side.tool, side.called = turn, [], None, False
        self.turn_ids.append(turn.id)
        return turn.id

    def _pause(self, side: _Side, paused: bool) -> Any:  # noqa: FBT001  (a step's argument)
        assert side.session is not None
        return side.session.pause("enough") if paused else side.session.unpause()

    def _resume_at(self, side: _Side, year: int | None) -> Any:
        assert side.session is not None
        return side.session.resume_at(None if year is None else datetime(year, 1, 1, tzinfo=UTC))

    def _close_dead(self, side: _Side) -> Any:
        return [(each.session_id, each.turn_id) for each in side.store.close_dead_turns()]

    def _start_tool(self, side: _Side, call_id: str, effect: Effect) -> Any:
        if side.turn is None or side.tool is not None:
            return None
        tool = side.turn.tool(call_id, effect=effect)
        tool.__enter__()
        side.tool = tool
        return tool.key

    def _repeat_tool(self, side: _Side, turn: int, call_id: str) -> Any:
        """Start a call of an earlier turn, for the first time or again."""
        if side.turn is None or side.tool is not None:
            return None
        tool = side.turn.tool(call_id, of=_one_of(self.turn_ids, -1 - turn))
        tool.__enter__()
        side.tool = tool
        return tool.key

    def _settle(self, side: _Side, turn: int, call_id: str, outcome: Outcome, by: SettledBy) -> Any:
        """Settle a call; another time the other way, in place of what was settled before."""
        if not self.turn_ids:
            return None
        assert side.session is not None
        turn_id = _one_of(self.turn_ids, -1 - turn)
        before = [
            entry.body
            for entry in side.session.entries()
            if isinstance(entry.body, e.Settled)
            and (entry.body.turn_id, entry.body.call_id) == (turn_id, call_id)
        ]
        replaces = before[-1].id if before and turn % 2 else None
        return side.session.settle(turn_id, call_id, outcome, by=by, replaces=replaces)

    def _print(self, side: _Side, text: str) -> Any:
        if side.tool is not None:
            side.tool.output(text)

    def _finish_tool(self, side: _Side, content: str | None) -> Any:
        return side.tool.finish(content) if side.tool is not None else None

    def _end_tool(self, side: _Side, how: str) -> Any:
        if side.tool is not None:
            tool, side.tool = side.tool, None
            self._leave(tool, how)

    def _record(self, side: _Side, text: str, message_id: str, call_id: str | None) -> Any:
        if side.turn is None:
            return None
        parts: list[Part] = [Text(text)]
        if call_id is not None:
            side.called = True
            parts.append(ToolCall(call_id, "shell", "{}"))
        return side.turn.record(Message("assistant", parts, id=message_id))

    def _late_result(self, side: _Side, turn: int, call_id: str, content: str) -> Any:
        if not self.turn_ids:
            return None
        assert side.session is not None
        turn_id = self.turn_ids[turn % len(self.turn_ids)]
        return side.session.finish_tool(turn_id, call_id, content)

    def _late_text(self, side: _Side, message: int, text: str) -> Any:
        if not self.message_turns:
            return None
        assert side.session is not None
        message_id = list(self.message_turns)[message % len(self.message_turns)]
        stored = [item.text for item in side.session.messages() if item.id == message_id]
        whole = "".join(stored) + text
        return side.session.add_late_text(self.message_turns[message_id], message_id, whole)

    def _stop(self, side: _Side, reason: str) -> Any:
        assert side.session is not None
        return side.session.stop(reason=reason)

    def _queue(self, side: _Side, prompt: str, key: str | None) -> Any:
        assert side.session is not None
        return side.session.queue(prompt, key=key)

    def _steer(self, side: _Side, words: str, key: str | None) -> Any:
        assert side.session is not None
        return side.session.steer(words, key=key)

    def _take_steering(self, side: _Side) -> Any:
        return None if side.turn is None else side.turn.steering()

    def _withdraw(self, side: _Side, number: int) -> Any:
        assert side.session is not None
        waiting = side.session.queued()
        return side.session.withdraw(waiting[number % len(waiting)].id) if waiting else None

    def _rename(self, side: _Side, title: str, by: str) -> Any:
        assert side.session is not None
        side.session.rename(title, by=by)  # type: ignore[arg-type]
        return side.session.title

    def _limit(self, side: _Side, calls: int | None) -> Any:
        assert side.session is not None
        return side.session.limit(calls=calls)

    def _tag(self, side: _Side, add: str, remove: str) -> Any:
        assert side.session is not None
        return side.session.tag(add, remove=[remove])

    def _pin(self, side: _Side, pinned: bool) -> Any:  # noqa: FBT001  (a step's argument)
        assert side.session is not None
        return side.session.pin(pinned=pinned)

    def _compact(self, side: _Side, summary: str, first: int, through: int, keep: int) -> Any:
        assert side.session is not None
        places = self._places(side.session)
        kept = [_one_of(places, keep)] if keep % 2 and places else []
        return side.session.compact(
            summary,
            through=_one_of(places, through),
            first=1 if first % 3 else _one_of(places, first),
            keep=kept,
        )

    def _rewind(self, side: _Side, through: int) -> Any:
        assert side.session is not None
        return side.session.rewind(through % (side.session.head + 2))

    def _undo(self, side: _Side, which: int) -> Any:
        assert side.session is not None
        kinds = ("compaction", "rewind")
        made = [entry.seq for entry in side.session.entries() if entry.kind in kinds]
        return side.session.undo(_one_of(made, which) if made and which % 2 else None)

    def _see(self, side: _Side, which: int, visible: bool, person: bool, model: bool) -> Any:  # noqa: FBT001
        assert side.session is not None
        seq = _one_of(self._places(side.session), which)
        change = side.session.show if visible else side.session.hide
        return change(seq, person=person, model=model)

    def _fork(self, side: _Side, at: int) -> Any:
        """Fork the session, and go on in the fork if nothing runs."""
        assert side.session is not None
        fork = side.session.fork(at=at % (side.session.head + 2))
        if all(other.turn is None for other in self._sides):
            self.session_id = fork.id
            self.turn_ids = [turn.id for turn in fork.turns()]
            for other in self._sides:
                other.session = other.store.session(fork.id)
        return fork.id, fork.head

    def _places(self, session: Session) -> list[int]:
        return [message.seq for message in session.messages()] or [1]

    def _delete(self, side: _Side) -> Any:
        return side.store.delete_session(self.session_id)

    def _restore(self, side: _Side) -> Any:
        side.session = side.store.restore_session(self.session_id)

    def _leave(self, block: Turn | Stream | Tool, how: str) -> None:
        error: BaseException | None = None
        if how != "normally":
            error = Failed("no") if how == "failing" else KeyboardInterrupt()
        block.__exit__(None if error is None else type(error), error, None)

    # -- what can be seen ----------------------------------------------------------------------

    def journal(self) -> list[e.Entry]:
        """The entries, with the names of holders taken out: they differ between stores."""
        session = self._visible()
        return [] if session is None else [_without_holder(entry) for entry in session.entries()]

    def messages(self) -> list[Message]:
        session = self._visible()
        return [] if session is None else session.messages()

    def pages(self) -> list[Message]:
        """The messages, read two at a time."""
        session, read = self._visible(), list[Message]()
        while session and (page := session.messages(after=read[-1].seq if read else 0, limit=2)):
            read += page
        return read

    def findings(self) -> list[Any]:
        """Return what an examination finds wrong with the session, and a proof of its links."""
        store = self._sides[0].store
        return [
            *store.examine_session(self.session_id),
            *store.verify_session(self.session_id).findings,
        ]

    def transcript(self) -> list[Any]:
        session = self._visible()
        return [] if session is None else session.transcript()

    def contexts(self) -> list[Any]:
        session = self._visible()
        return [] if session is None else [session.context("neutral"), session.context("anthropic")]

    def turns(self) -> list[Any]:
        session = self._visible()
        return [] if session is None else session.turns()

    def news(self) -> list[tuple[Any, ...]]:
        """The feed over all sessions, all of it and what waits, without cursors."""
        store = self._sides[0].store
        lines = [*store.follow().now(), *store.follow(waiting=True).now()]
        return [(line.session_id, line.seq, line.kind, line.cause) for line in lines]

    def counts(self) -> dict[str, int]:
        return self._sides[0].store.counts()

    def titles(self) -> list[str | None]:
        return [info.title for info in self._sides[0].store.sessions(archived=None)]

    def _visible(self) -> Session | None:
        return self._sides[0].session


def _one_of(places: list[T], which: int) -> T:
    return places[which % len(places)]


def _without_holder(entry: e.Entry) -> e.Entry:
    if isinstance(entry.body, e.TurnStarted):
        body = msgspec.structs.replace(entry.body, holder="")
        return e.Entry(entry.seq, entry.at_us, body)
    if isinstance(entry.body, e.WorkTaken):
        taken = msgspec.structs.replace(entry.body, taker="", until_us=0)
        return e.Entry(entry.seq, entry.at_us, taken)
    return entry
