"""What a model is told of tools, compared with generated journals, in four formats."""

import base64
import contextlib
import hashlib
import itertools
import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from killick.errors import KillickError
from killick.model import entries as e
from killick.model.effects import EFFECTS, OUTCOMES, SETTLED_BY
from killick.model.messages import Message, Part, Text, ToolCall, ToolResult
from killick.session.core.stream import ToolType
from killick.session.sync import Session, Store
from killick.session.sync_blocks import Stream, Tool, Turn
from killick.stores.engine.state import Op
from killick.stores.memory import MemoryDisk
from killick.testing.faults import crash
from killick.testing.players import served
from killick.views import validators
from killick.views.context import Format, compute
from killick.views.validators.truth import count_calls
from torture.campaign import Campaign, Round, Sizes
from torture.campaigns.contexts import VALIDATORS

FORMATS: Final[tuple[Format, ...]] = ("openai-chat", "openai-responses", "anthropic", "gemini")
_PREFIXES: Final = 5
"""Beginnings of a journal that are looked at beside the whole of it."""

_NAMES: Final = ["shell", "read_file", "files.write file", "7zip"]
_RESULTS: Final = ["", " ", "done {}", "a\nb {}", "東京 {}"]
_TYPES: Final[list[ToolType]] = ["custom", "mcp", "hosted"]
_SECRET: Final = "sk-ant-api03-" + "Zq7" * 12
"""What the store masks where it streams: what was signed over it can no longer be sent."""


def sign(thought: str) -> str:
    """Return what a provider sends behind a thought, and compares with what it is sent back."""
    return base64.b64encode(hashlib.sha256(thought.encode()).digest()).decode()


class Broken(Exception):
    """What leaves a turn that fails; its text is nothing for a model."""


class Script:
    """One session, and steps that an agent, its user and bad luck may take."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self._disk = MemoryDisk()
        self._numbers = itertools.count(1)
        self.store = self._open()
        self.session: Session = self.store.create_session()
        self.turn: Turn | None = None
        self.tools: list[Tool] = []
        self.calls: list[tuple[str, str, str]] = []
        self.asked: list[e.ApprovalAsked] = []
        self.cut: list[tuple[str, str, str]] = []
        self.earlier: str | None = None
        self.half = ""
        self.rest: list[Part] = []

    def _open(self) -> Store:
        return Store(self._disk.open(), window_seconds=1_000.0, redact="secrets")

    def close(self) -> None:
        self.turn, self.tools = None, []
        self.store.close()

    def number(self) -> int:
        return next(self._numbers)

    def flush(self) -> None:
        """Write what streams were given so far, as the window's end would."""
        writer = self.store._core.runtime().writer
        writer.at_once()
        writer.submit(Op(lambda engine: None)).wait()

    def step(self) -> None:
        """Take one step of those that may lead somewhere; what is refused is refused."""
        with contextlib.suppress(KillickError):
            self.chance.choice(IN_TURN if self.turn is not None else BETWEEN)(self)

    # -- in a turn -----------------------------------------------------------------------------

    def answer(self) -> None:
        """Stream an answer with calls and, now and then, a tool that the provider runs."""
        assert self.turn is not None
        provider = self.chance.choice([None, "openai", "anthropic", "gemini"])
        with contextlib.suppress(Broken), self.turn.stream(provider=provider) as reply:
            if self.chance.random() < 0.2:
                self._think(reply)
            if self.chance.random() < 0.5:
                reply.text(f"Thinking {self.number()}.")
            for part in self._hosted():
                reply.part(part)
            made = [self._make() for _ in range(self.chance.choice([0, 1, 2, 3, 4]))]
            for call in {call.id: call for call in made}.values():
                name, given, kind = call.name, call.arguments, call.tool_type
                reply.tool_call(call.id, name=name, arguments=given, tool_type=kind, done=True)
                self.calls.append((self.turn.id, call.id, call.arguments))
                if self.chance.random() < 0.1:
                    self._start(self.turn.id, call.id)
            if self.chance.random() < 0.25:
                reply.text("It breaks")
                raise Broken
        last = self.session.messages(last=1)
        if last and last[0].id == reply.id and last[0].state == "partial":
            self.cut.append((self.turn.id, reply.id, last[0].text))

    def record(self) -> None:
        assert self.turn is not None
        call = self._make()
        parts: list[Part] = [Text(f"Recorded {self.number()}."), *self._hosted(), call]
        self.turn.record(Message(role="assistant", parts=parts))
        self.calls.append((self.turn.id, call.id, call.arguments))

    def repeat(self) -> None:
        """Call twice under one id, as some servers do; now and then a result comes as a message."""
        assert self.turn is not None
        first, second = self._make(), self._make()
        both = [first, msgspec.structs.replace(second, id=first.id)]
        self.turn.record(Message(role="assistant", parts=both))
        self.calls.append((self.turn.id, first.id, first.arguments))
        if self.chance.random() < 0.7:
            result = ToolResult(first.id, f"of the first {self.number()}")
            self.turn.record(Message(role="tool", parts=[result]))

    def _make(self) -> ToolCall:
        number = self.number()
        call_id = self.chance.choice([f"call_{number}", "call_0", f"toolu_{number}/…"])
        kind = self.chance.choice(_TYPES) if self.chance.random() < 0.25 else "function"
        given = {"n": number, "of": self.chance.choice(["a", "a", "\ud83d", float("inf")])}
        return ToolCall(call_id, self.chance.choice(_NAMES), json.dumps(given), kind)

    def _think(self, reply: Stream) -> None:
        """Think aloud, now and then of a secret; the signature comes last, as providers send it."""
        thought = ""
        for _ in range(self.chance.choice([1, 2])):
            piece = f"Hm {self.number()}, {self.chance.choice(['', _SECRET])}. "
            reply.reasoning(piece)
            thought += piece
            if self.chance.random() < 0.5:
                self.flush()
        reply.reasoning("", signature=sign(thought))

    def _hosted(self) -> list[Part]:
        runs = self.chance.choice([0, 0, 0, 1, 2])
        return [part for _ in range(runs) for part in served(self.number(), self.number())]

    def judge(self) -> None:
        """Call a model that only looks: what it is sent is sent."""
        assert self.turn is not None
        with self.turn.stream() as reply:
            reply.text(f"Fine {self.number()}.")

    def start(self) -> None:
        if self.calls:
            turn_id, call_id, _ = self.chance.choice(self.calls[-6:])
            self._start(turn_id, call_id)

    def _start(self, turn_id: str, call_id: str) -> None:
        assert self.turn is not None
        effect = self.chance.choice(EFFECTS)
        tool = self.turn.tool(call_id, of=turn_id, effect=effect)
        tool.__enter__()
        self.tools.append(tool)
        if self.chance.random() < 0.5:
            tool.output(f"so far {self.number()}\n")

    def finish(self) -> None:
        if self.tools:
            tool = self.tools.pop(self.chance.randrange(len(self.tools)))
            tool.finish(self._content(), is_error=self.chance.random() < 0.3)
            tool.__exit__(None, None, None)

    def _content(self) -> str:
        return self.chance.choice(_RESULTS).format(self.number())

    def leave(self) -> None:
        """Leave a tool without a result, in a turn that goes on."""
        if self.tools:
            tool = self.tools.pop()
            tool.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)

    def ask(self) -> None:
        assert self.turn is not None
        if self.calls:
            _, call_id, arguments = self.chance.choice(self.calls[-3:])
            for _ in range(self.chance.choice([1, 1, 2])):  # asked again, the first counts no more
                self.asked.append(self.turn.ask_approval(call_id, arguments))

    def decide(self) -> None:
        if self.asked:
            asked = self.chance.choice(self.asked[-3:])
            approved = self.chance.random() < 0.3
            reason = self.chance.choice([None, f"too risky {self.number()}"])
            self.session.decide_approval(asked, approved=approved, reason=reason)

    def refuse(self) -> None:
        """Deny a call for which the program records a result of its own all the same."""
        assert self.turn is not None
        call = self._make()
        self.turn.record(Message(role="assistant", parts=[call]))
        self.calls.append((self.turn.id, call.id, call.arguments))
        asked = self.turn.ask_approval(call.id, call.arguments)
        if self.chance.random() < 0.3:
            self.judge()
        reason = self.chance.choice([None, f"too risky {self.number()}"])
        self.session.decide_approval(asked, approved=False, reason=reason)
        if self.chance.random() < 0.3:
            self.judge()
        result = ToolResult(call.id, f"The user said no {self.number()}.", is_error=True)
        self.turn.record(Message(role="tool", parts=[result]))

    def answer_by_message(self) -> None:
        """Record a result as a message, as programs do that have a list."""
        assert self.turn is not None
        mine = [call_id for turn_id, call_id, _ in self.calls if turn_id == self.turn.id]
        if mine:
            result = ToolResult(self.chance.choice(mine), f"by message {self.number()}")
            self.turn.record(Message(role="tool", parts=[result]))

    def end(self) -> None:
        assert self.turn is not None
        turn, self.turn, self.tools = self.turn, None, []
        self.earlier = turn.id
        error: BaseException | None = self.chance.choice(
            [None, None, KeyboardInterrupt(), Broken(f"/srv/secret/{self.number()}.db is locked")]
        )
        turn.__exit__(None if error is None else type(error), error, None)

    def crash(self) -> None:
        """The process dies; the next one opens the session."""
        if self.turn is not None:
            self.earlier = self.turn.id
        self.turn, self.tools = None, []
        crash(self.store)
        self.store = self._open()
        self.session = self.store.session(self.session.id)

    def take_over(self) -> None:
        """Another process takes the session over; what tools printed on is late."""
        assert self.turn is not None
        turn, tools, self.turn, self.tools = self.turn, self.tools, None, []
        self.earlier = turn.id
        reply = self._half_an_answer(turn) if self.chance.random() < 0.5 else None
        with self._open() as store:
            session = store.session(self.session.id)
            with session.turn(f"Mine {self.number()}.", if_busy="take_over") as other:
                for _ in range(self.chance.randrange(2)):
                    with other.stream() as reply:
                        reply.text(f"Fine {self.number()}.")
        for tool in tools:
            with contextlib.suppress(KillickError):
                tool.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        if reply is not None:
            with contextlib.suppress(KillickError):
                self._rest_of_an_answer(reply)
                reply.__exit__(None, None, None)
        with contextlib.suppress(KillickError):
            turn.__exit__(None, None, None)

    def _half_an_answer(self, turn: Turn) -> Stream:
        """Begin an answer, of which the journal has some, now and then half of a call or a run."""
        self.half = ""
        reply = turn.stream()
        reply.__enter__()
        if self.chance.random() < 0.7:
            reply.text(f"Half {self.number()}.")
        if self.chance.random() < 0.5:
            self.half = f"half_{self.number()}"
            reply.tool_call(self.half, name="shell", arguments='{"n": ')
        run = self._hosted()
        cut = self.chance.randrange(len(run) + 1)
        for part in run[:cut]:
            reply.part(part)
        self.rest = run[cut:]
        self.flush()
        return reply

    def _rest_of_an_answer(self, reply: Stream) -> None:
        """Go on with it after another process took over: all of this is late."""
        call = self._make()
        if self.half and self.chance.random() < 0.5:
            reply.tool_call(self.half, arguments=f"{self.number()}}}")
        for part in self.rest:
            reply.part(part)
        if self.chance.random() < 0.5:
            reply.text(f"Rest {self.number()}.")
        if self.chance.random() < 0.7:
            reply.tool_call(f"{call.id}_late", name=call.name, arguments=call.arguments, done=True)

    # -- between turns -------------------------------------------------------------------------

    def begin(self) -> None:
        continues = self.earlier if self.chance.random() < 0.4 else None
        starts = "unseen" if self.chance.random() < 0.25 else "seen"
        turn = self.session.turn(f"Prompt {self.number()}.", continues=continues, starts=starts)  # type: ignore[arg-type]
        turn.__enter__()
        self.turn = turn

    def late_result(self) -> None:
        if self.calls:
            turn_id, call_id, _ = self.chance.choice(self.calls)
            failed = self.chance.random() < 0.3
            self.session.finish_tool(turn_id, call_id, self._content(), is_error=failed)

    def settle(self) -> None:
        """A person or a check finds something out; now and then it was something else."""
        if self.calls:
            turn_id, call_id, _ = self.chance.choice(self.calls[-8:])
            outcome = self.chance.choice(OUTCOMES)
            found = self._content() if outcome == "ran" and self.chance.random() < 0.5 else None
            bodies = [entry.body for entry in self.session.entries()]
            before = [
                body.id
                for body in bodies
                if isinstance(body, e.Settled)
                and (body.turn_id, body.call_id) == (turn_id, call_id)
            ]
            self.session.settle(
                turn_id,
                call_id,
                outcome,
                result=found,
                by=self.chance.choice(SETTLED_BY),
                evidence=self.chance.choice([None, f"seen {self.number()}"]),
                replaces=before[-1] if before and self.chance.random() < 0.7 else None,
            )

    def late_text(self) -> None:
        if self.cut:
            turn_id, message_id, text = self.chance.choice(self.cut[-2:])
            self.session.add_late_text(turn_id, message_id, f"{text} and goes on {self.number()}")

    def rewind(self) -> None:
        head = self.session.head
        self.session.rewind(self.chance.randrange(max(1, head - 25), head + 1))

    def undo(self) -> None:
        self.session.undo()

    def compact(self) -> None:
        if self.chance.random() < 0.5:
            return
        places = [message.seq for message in self.session.messages()] or [1]
        keep = [self.chance.choice(places)] if self.chance.random() < 0.4 else []
        through = self.chance.choice(places[: len(places) // 2 + 1])
        self.session.compact(f"In short {self.number()}.", through=through, keep=keep)

    def hide(self) -> None:
        """Hide a message, a tool's result, or what a tool prints that has none."""
        places = [item.seq for item in self.session.messages()]
        places += [x.seq for x in self.session.entries() if isinstance(x.body, e.ToolStarted)]
        self.session.hide(self.chance.choice(places or [1]))


Steps = list[Callable[[Script], None]]
IN_TURN: Final[Steps] = [
    *[Script.answer] * 6,
    *[Script.start] * 6,
    *[Script.finish] * 3,
    *[Script.judge] * 3,
    *[Script.ask, Script.decide] * 2,
    *[Script.record, Script.leave, Script.answer_by_message, Script.refuse, Script.repeat],
    *[Script.compact, Script.crash],
    *[Script.take_over, Script.hide, Script.settle],
    *[Script.end] * 4,
]
BETWEEN: Final[Steps] = [
    *[Script.begin] * 6,
    *[Script.late_result] * 3,
    *[Script.settle] * 4,
    *[Script.late_text, Script.rewind] * 2,
    *[Script.rewind, Script.compact, Script.decide, Script.undo, Script.hide],
]


def case(script: Script, journal: list[e.Entry], ends: list[int]) -> None:
    """Compare the whole journal and some beginnings of it with what a model is told of them."""
    for end in ends:
        begun = journal[:end]
        for name in FORMATS:
            context = compute(begun, name, blobs=lambda _: None)
            false = validators.truth(begun, context)
            assert not false, (name, end, false)
            refused = VALIDATORS[name](context.messages, context.system)
            assert not refused, (name, end, refused)
            for thought, signature in signed(context.messages):
                assert signature == sign(thought), (name, end, "not what was signed", thought)
    for name in FORMATS:
        read = script.session.context(name)
        false = validators.truth(journal, read)
        assert not false, (name, "as the store reads it", false)


def signed(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the thoughts that are sent with a signature, wherever they stand."""
    if isinstance(value, list):
        for inner in value:
            yield from signed(inner)
    elif isinstance(value, dict):
        thought = value.get("thinking") or (value.get("thought") and value["text"])
        if thought:
            yield thought, value.get("signature") or value["thought_signature"]
        yield from signed(list(value.values()))


def run(round_: Round) -> None:
    """Play one journal; each of its calls is a case."""
    script = Script(round_.chance)
    try:
        for _ in range(round_.chance.randrange(40, 160)):
            script.step()
        journal = list(script.session.entries())
        ends = [round_.chance.randrange(len(journal)) for _ in range(_PREFIXES)]
        calls = max(1, count_calls(journal))
        whole = [*ends, len(journal)]
        round_.check("the tools of one journal", case, script, journal, whole, cases=calls)
    finally:
        script.close()


CAMPAIGN = Campaign(
    name="truth",
    tries="tool calls that start between model calls, unseen, denied, late, rewound, compacted, "
    "run by the provider, cut short by a crash, started again, settled; signed thoughts, also of "
    "secrets that are masked; what a model is told of each, in four formats",
    holds="each provider takes it; every statement is what the journal knew when it was sent, none "
    "is missing, none is left over; of an exception its type alone is told; what is signed is "
    "sent as it was signed",
    sizes=Sizes(slice=2_000, torture=100_000, long=1_000_000),
    run=run,
)
