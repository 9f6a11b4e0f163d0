"""What is entered and left around work, for the synchronous face: Turn, Stream and Tool.

As in `killick.session.store`, nothing is decided here.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar, Unpack

from killick.model import entries as e
from killick.model.messages import Message
from killick.model.parts import Json, Part, ToolCall
from killick.session.blocking import run
from killick.session.core import Content
from killick.session.leaving import leaves
from killick.session.options import CallSettings, model_call
from killick.session.running import Calling, ToolRun, Tools
from killick.session.steps import Flow, Write
from killick.session.streams import StreamCore, ToolCore, ToolType
from killick.session.turns import TurnCore
from killick.stores.standing import Receipt

T = TypeVar("T")
C = TypeVar("C", StreamCore, ToolCore)


class TurnFacts:
    """What a turn says of itself, the same on both faces; and its end when nobody holds it."""

    def __init__(self, core: TurnCore) -> None:
        self._core = core

    @property
    def id(self) -> str:
        return self._core.claim.turn_id

    @property
    def status(self) -> str:
        """`running` until the block is left; then `completed`, `failed` or `interrupted`."""
        return self._core.status

    @property
    def reason(self) -> str | None:
        return self._core.reason

    @property
    def repeated(self) -> bool:
        """Whether this key was used before: the turn exists and must not be run again."""
        return self._core.repeated

    @property
    def stop_asked(self) -> str | None:
        """The reason, once somebody has asked this turn to stop."""
        return self._core.stop_reason


class Turn(TurnFacts):
    """One prompt and everything until its one ending. Use it as a block."""

    def __enter__(self) -> Self:
        self._core.held_by(self)  # a `with` statement holds it already
        try:
            self._run(self._core.enter())
        except BaseException as error:
            # Interrupted after it had begun: nobody will leave the block.
            run(self._core.runtime, self._core.leave(error), leaving=error)
            raise
        return self

    @leaves
    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        run(self._core.runtime, self._core.leave(error), leaving=error)

    def record(self, message: Message) -> Receipt:
        """Record a whole message, durable on return.

        If interrupted: it is recorded or it is not; with an `id` of yours, recording it again
        changes nothing.
        """
        return self._run(self._core.record(message))

    def stream(self, **settings: Unpack[CallSettings]) -> "Stream":
        """One model call and its answer as it comes, as a block."""
        return Stream(StreamCore(self._core, model_call(settings)))

    def tool(self, call_id: str, *, of: str | None = None) -> "Tool":
        """A run of the tool the model called, as a block: started before the block runs.

        `of` is the turn that made the call, if this turn continues it: a call that was never
        started there can be started here, and its result belongs to that call.
        """
        return Tool(ToolCore(self._core, call_id, of))

    def run_tools(self, reply: Calling, tools: Tools, *, in_order: bool = False) -> "ToolRun":
        """Run the tools that a reply calls, as a block: each is started as soon as it is whole.

        All at once, or with `in_order` one after another. `tools` are functions by name, which
        take the call's arguments; what a generator yields is output. Leaving the block waits.

        If interrupted: no further tool is started. One that runs is not ended: its result is late.
        """
        return ToolRun(self, self._core, reply, tools, in_order=in_order)

    def put_blob(self, data: bytes) -> str:
        """Keep the bytes of an image or a file that came in this turn; the name for its part.

        If interrupted: the blob is stored or it is not; unused ones are collected later.
        """
        return self._run(self._core.put_blob(data))

    def ask_approval(self, call_id: str, arguments: str) -> e.ApprovalAsked:
        """Record that a call waits for a person. If interrupted: it is recorded or it is not."""
        return self._run(self._core.ask_approval(call_id, arguments))

    def _run(self, flow: Flow[T] | Write[T]) -> T:
        return run(self._core.runtime, flow)


class Deltas:
    """What can be handed over while an answer streams: plain calls on both faces, none waits."""

    _core: StreamCore

    @property
    def id(self) -> str:
        """The message's id."""
        return self._core.id

    @property
    def model_call_id(self) -> str:
        return self._core.model_call_id

    def text(self, text: str) -> None:
        """A piece of the answer."""
        self._core.text(text)

    def reasoning(
        self, text: str = "", *, signature: str | None = None, encrypted: str | None = None
    ) -> None:
        """A piece of reasoning; its signature or encrypted content closes the part."""
        self._core.reasoning(text, signature, encrypted)

    def tool_call(
        self,
        call_id: str,
        *,
        name: str | None = None,
        arguments: str = "",
        tool_type: ToolType = "function",
        done: bool = False,
    ) -> None:
        """A tool call, or a piece of its arguments: after the first piece the id is enough.

        As soon as the arguments are a whole JSON object, or `done` says so, its tool may start.
        """
        self._core.tool_call(call_id, name, arguments, tool_type, done=done)

    def part(self, part: Part) -> None:
        """A whole part: an image, a file, or a provider's opaque data."""
        self._core.part(part)

    def end_part(self) -> None:
        """The open part is over: text or reasoning that follows begins one of its own."""
        self._core.end_part()

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The calls that are whole so far, in the order in which they became it."""
        return list(self._core.tool_calls)

    def on_call(self, tell: Callable[[ToolCall], object]) -> None:
        """Have a function called with each tool call as soon as it is whole.

        It runs where the last piece is handed over, so it must not wait. Calls that are whole
        already are told at once.
        """
        self._core.on_call(tell)

    def cut_off(self, why: str) -> None:
        """Say that the answer broke off although no exception did: the message will be partial."""
        self._core.cut_off(why)

    def finish(
        self,
        *,
        finish_reason: str | None = None,
        usage: e.Usage | None = None,
        provider_ids: dict[str, str] | None = None,
    ) -> None:
        """What the provider said at the end; recorded when the block is left."""
        self._core.finish(finish_reason, usage, provider_ids)


class Block(Generic[C]):
    """What is entered and left around work: a stream, or a tool."""

    _core: C

    def __enter__(self) -> Self:
        run(self._core.turn.runtime, self._core.enter())
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        run(self._core.turn.runtime, self._core.leave(error), leaving=error)


class Stream(Deltas, Block[StreamCore]):
    """A model's answer as it comes. Use it as a block."""

    def __init__(self, core: StreamCore) -> None:
        self._core = core


class Tool(Block[ToolCore]):
    """A tool that runs. Use it as a block, and finish it."""

    def __init__(self, core: ToolCore) -> None:
        self._core = core

    def output(self, text: str) -> None:
        """A piece of what the tool prints; does not wait."""
        self._core.output(text)

    def finish(
        self, content: Content | None = None, *, is_error: bool = False, structured: Json = None
    ) -> Receipt:
        """Record the result, durable on return; without content, what was printed is the result.

        If interrupted: it is recorded or it is not; the same content again changes nothing.
        """
        flow = self._core.finish(content, is_error=is_error, structured=structured)
        return run(self._core.turn.runtime, flow)
