"""Running the tools that a model calls, for the synchronous face; and what both faces share.

A helper that nobody has to use. Each call is started when it is whole, while the reply may still
stream; its start, its output and its result are recorded apart from those of all others.
"""

import inspect
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from killick.errors import HandleClosed, TurnEnded, TurnStopped
from killick.journal.wholeness import is_whole_object
from killick.model.parts import File, Image, Json, Opaque, Text, ToolCall, ToolResult
from killick.session.endings import describe

if TYPE_CHECKING:
    from killick.session.blocks import Tool, Turn
    from killick.session.turns import TurnCore

Tools = Mapping[str, Callable[..., Any]]
"""Functions by name. Each takes the call's arguments as keywords; a custom tool takes its text."""


class Calling(Protocol):
    """A reply that tells of its calls: a stream of ours, or a provider's that is recorded."""

    def on_call(self, tell: Callable[[ToolCall], object]) -> None: ...


class Outcome(msgspec.Struct, frozen=True):
    """What a tool gave, as it is recorded; no content means that its output is the result."""

    content: str | tuple[Text | Image | File | Opaque, ...] | None
    is_error: bool = False
    structured: Json = None

    def result(self, call_id: str, printed: Sequence[str]) -> ToolResult:
        content = "".join(printed) if self.content is None else self.content
        return ToolResult(call_id, content, self.is_error, self.structured)


def bind(call: ToolCall, tools: Tools) -> Callable[[], Any]:
    """The function with its arguments. Raises LookupError or ValueError, in words for the model."""
    function = tools.get(call.name)
    if function is None:
        raise LookupError(f"there is no tool named {call.name!r}")
    if call.tool_type == "custom":
        return lambda: function(call.arguments)
    if not call.arguments.strip():
        return function
    if not is_whole_object(call.arguments):
        raise ValueError("the arguments are not a JSON object")
    arguments = json.loads(call.arguments)
    return lambda: function(**arguments)


def outcome(value: Any) -> Outcome:
    """What a function returned: text, parts, or anything that JSON can hold."""
    if value is None or isinstance(value, str):
        return Outcome(value)
    if _is_part(value):
        return Outcome((value,))
    if isinstance(value, list | tuple) and value and all(_is_part(part) for part in value):
        return Outcome(tuple(value))
    return Outcome(json.dumps(value, ensure_ascii=False, default=str), structured=plain(value))


def failure(error: BaseException) -> Outcome:
    return Outcome(describe(error), is_error=True)


def plain(value: Any) -> Json:
    """The value as JSON would give it back; None when it has no such form."""
    try:
        found: Json = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return None
    return found


def too_late(call: ToolCall) -> HandleClosed:
    """The block was left, and its reply goes on: a call in it would never be run."""
    return HandleClosed(
        f"tool call {call.id!r} became whole after the block of run_tools() was left, and was not "
        "run; leave the reply's block first"
    )


def raise_failures(failures: Sequence[BaseException]) -> None:
    """What went wrong around tools, other than in them: the one failure, or all of them."""
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise BaseExceptionGroup("several tools could not be recorded", failures)


def _is_part(part: Any) -> bool:
    return isinstance(part, Text | Image | File | Opaque)


class ToolRun:
    """Tools that run beside a reply. Use it as a block; leaving it waits for all of them.

    Each runs on a thread of its own. When an exception leaves the block, or the turn is asked to
    stop, no further tool is started and none is waited for: one that is still running finishes on
    its own, and its result is kept as late.
    """

    def __init__(
        self, turn: "Turn", core: "TurnCore", reply: Calling, tools: Tools, *, in_order: bool
    ) -> None:
        self._turn = turn
        self._core = core
        self._reply = reply
        self._tools = tools
        self._in_order = in_order
        self._changed = threading.Condition()
        self._running = 0
        self._last: threading.Thread | None = None
        self._closed = self._waited = False
        self._failures: list[BaseException] = []
        self.results: dict[str, ToolResult] = {}
        """The results so far, by the ids of their calls."""

    def __enter__(self) -> Self:
        self._reply.on_call(self._start)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._wait()
                self._waited = True
        finally:
            self._closed = True
        if error is None:
            raise_failures(self._failures)

    def _wait(self) -> None:
        """Until all are done, or somebody asks the turn to stop, which raises TurnStopped."""
        core = self._core
        before, core.on_stop = core.on_stop, self._wake
        try:
            with self._changed:
                while self._running:
                    core.check_open()
                    self._changed.wait()
            core.check_open()
        finally:
            core.on_stop = before

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _start(self, call: ToolCall) -> None:
        if self._waited:
            raise too_late(call)
        before = self._last if self._in_order else None
        # A daemon: a tool that hangs must not keep the process from ending.
        thread = threading.Thread(
            target=self._run, args=(call, before), name=f"killick-tool-{call.name}", daemon=True
        )
        with self._changed:
            thread.start()  # first: one that cannot be started is not waited for
            self._running += 1
            self._last = thread

    def _run(self, call: ToolCall, before: threading.Thread | None) -> None:
        try:
            if before is not None:
                before.join()
            if not self._closed and self._turn.stop_asked is None:
                with self._turn.tool(call.id) as tool:
                    self._perform(call, tool)
        except (TurnStopped, TurnEnded):
            pass  # the turn's own block says so
        except BaseException as error:  # noqa: BLE001  (raised where the block is left)
            self._failures.append(error)
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _perform(self, call: ToolCall, tool: "Tool") -> None:
        printed: list[str] = []
        try:
            value = bind(call, self._tools)()
            if inspect.isgenerator(value):
                value = _print_all(value, tool, printed)
            _refuse_asynchronous(call, value)
            found = outcome(value)
        except (TurnStopped, TurnEnded):
            raise
        except Exception as error:  # noqa: BLE001  (the model is told, and can do better)
            found = failure(error)
        tool.finish(found.content, is_error=found.is_error, structured=found.structured)
        self.results[call.id] = found.result(call.id, printed)


def _refuse_asynchronous(call: ToolCall, value: Any) -> None:
    """It has not run, and nothing here can run it: what it is must not pass for its result."""
    if inspect.iscoroutine(value):
        value.close()
    elif not inspect.isawaitable(value) and not inspect.isasyncgen(value):
        return
    raise TypeError(f"the tool {call.name!r} is asynchronous, and did not run; use AsyncStore")


def _print_all(pieces: Any, tool: "Tool", printed: list[str]) -> Any:
    """What a generator yields is its tool's output as it runs; what it returns is the result."""
    try:
        while True:
            piece = str(next(pieces))
            tool.output(piece)
            printed.append(piece)
    except StopIteration as done:
        return done.value
    finally:
        pieces.close()
