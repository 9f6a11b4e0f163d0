"""Turns, streams and tools of the synchronous face, and a helper that runs the tools.

`run_tools` is optional. Each call is started when it is whole, while the reply may still
stream; its start, its output and its result are recorded apart from those of all others.
"""

import inspect
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import msgspec

from killick.errors import HandleClosed, ToolNotApproved, TurnEnded, TurnStopped
from killick.journal.assembly import is_whole_object
from killick.journal.checks import check_id
from killick.model import entries as e
from killick.model.causes import Cause
from killick.model.effects import Effect, Outcome, check_effect
from killick.model.messages import (
    File,
    Image,
    Json,
    Message,
    Opaque,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from killick.session.batch import BatchCore, SessionT
from killick.session.core.session import Content
from killick.session.core.stream import Deltas, ModelCall, StreamCore
from killick.session.core.tool import ToolCore
from killick.session.core.turn import TurnCore
from killick.session.core.unfinished import unfinished_calls
from killick.session.drive.exit_guard import describe_failed_tool, leaves, says_nothing
from killick.session.drive.steps import Flow, Write, run
from killick.stores.engine.state import Receipt

Tools = Mapping[str, Callable[..., Any]]
"""Functions by name. Each takes the call's arguments as keywords; a custom tool takes its text."""


class Calling(Protocol):
    """A reply that tells of its calls: a stream of ours, or a provider's that is recorded."""

    def on_call(self, tell: Callable[[ToolCall], object]) -> None: ...


class ToolOutcome(msgspec.Struct, frozen=True):
    """A tool's result as it is recorded; without content, its output is the result."""

    content: str | tuple[Text | Image | File | Opaque, ...] | None
    is_error: bool = False
    structured: Json = None

    def result(self, call_id: str, printed: Sequence[str]) -> ToolResult:
        content = "".join(printed) if self.content is None else self.content
        return ToolResult(call_id, content, self.is_error, self.structured)


Effects = Mapping[str, Effect]
"""Effects by the names of tools; a tool that is not named has the effect once."""

Found = bool | str | None
"""A check's answer: it ran, or with which result; False, it did not run; None, it is not known."""

Checks = Mapping[str, Callable[..., Any]]
"""Functions by the names of tools, which ask the outside whether a call happened.

Each takes what its tool takes, and returns a `Found`.
"""


def bind(call: ToolCall, tools: Tools, key: str | None = None) -> Callable[[], Any]:
    """The function with its arguments. Raises LookupError or ValueError, in words for the model.

    A function that takes `idempotency_key` is given the call's.
    """
    function = tools.get(call.name)
    if function is None:
        raise LookupError(f"there is no tool named {call.name!r}")
    given = {} if key is None or not _takes_key(function) else {"idempotency_key": key}
    if call.tool_type == "custom":
        return lambda: function(call.arguments, **given)
    if not call.arguments.strip():
        return lambda: function(**given)
    if not is_whole_object(call.arguments):
        raise ValueError("the arguments are not a JSON object")
    arguments = {**json.loads(call.arguments), **given}
    return lambda: function(**arguments)


def _takes_key(function: Callable[..., Any]) -> bool:
    try:
        return "idempotency_key" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # one that is not written in Python
        return False


def settlement(answer: Found) -> tuple[Outcome, str | None] | None:
    """Return the outcome and the result that a check's answer means; None when it does not know."""
    if answer is None:
        return None
    if isinstance(answer, str):
        return "ran", answer
    if not isinstance(answer, bool):
        raise TypeError(
            "a check returns True, False, the result as text, or None when it does not know, and "
            f"this is a {type(answer).__name__}"
        )
    return ("ran" if answer else "did_not_run"), None


class ToolJob(msgspec.Struct, frozen=True):
    """A call that is to be run, the turn that made it, and whether the outside is asked first."""

    call: ToolCall
    of: str | None = None
    needs_check: bool = False


class ToolPlan:
    """Which tools there are, and what is known of them: the same on both faces."""

    def __init__(
        self, tools: Tools, effects: Effects | None, unfinished: str | None, check: Checks | None
    ) -> None:
        self.tools = tools
        self.effects = dict(effects or {})
        for effect in self.effects.values():
            check_effect(effect)
        if unfinished is not None:
            check_id(unfinished, "id of the unfinished turn")
        self.unfinished = unfinished
        self.check = dict(check or {})

    def effect(self, call: ToolCall) -> Effect:
        return self.effects.get(call.name, "once")

    def jobs(self, core: TurnCore) -> Flow[list[ToolJob]]:
        """Return what was left unfinished in the turn that is gone on with."""
        if self.unfinished is None:
            return []
        left = yield from unfinished_calls(core.session, self.unfinished)
        return [ToolJob(each.call, each.turn_id, each.needs_check) for each in left]


def outcome(value: Any) -> ToolOutcome:
    """Return the outcome for a value: text, parts, or anything that JSON can hold."""
    if value is None or isinstance(value, str):
        return ToolOutcome(value)
    if _is_part(value):
        return ToolOutcome((value,))
    if isinstance(value, list | tuple) and value and all(_is_part(part) for part in value):
        return ToolOutcome(tuple(value))
    return ToolOutcome(json.dumps(value, ensure_ascii=False, default=str), structured=plain(value))


def failure(error: BaseException) -> ToolOutcome:
    return ToolOutcome(describe_failed_tool(error), is_error=True)


def plain(value: Any) -> Json:
    """The value as JSON would give it back; None when it has no such form."""
    try:
        copied: Json = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return None
    return copied


def too_late(call: ToolCall) -> HandleClosed:
    """The block was left, and its reply goes on: a call in it would never be run."""
    return HandleClosed(
        f"tool call {call.id!r} became whole after the block of run_tools() was left, and was not "
        "run; leave the reply's block first"
    )


def raise_failures(failures: Sequence[BaseException]) -> None:
    """Raise what went wrong around tools, other than in them: one failure, or a group."""
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
        self, turn: "Turn", reply: Calling | None, plan: ToolPlan, *, in_order: bool
    ) -> None:
        self._turn = turn
        self._core = turn._core
        self._reply = reply
        self._plan = plan
        self._in_order = in_order
        self._changed = threading.Condition()
        self._running = 0
        self._last: threading.Thread | None = None
        self._closed = self._waited = False
        self._failures: list[BaseException] = []
        self.results: dict[str, ToolResult] = {}
        """The results so far, by the ids of their calls."""

    def __enter__(self) -> Self:
        for job in run(self._core.runtime, self._plan.jobs(self._core)):
            self._begin(job)
        if self._reply is not None:
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
        """Wait until all are done. Raises TurnStopped once the turn is asked to stop."""
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
        self._begin(ToolJob(call))

    def _begin(self, job: ToolJob) -> None:
        before = self._last if self._in_order else None
        # A daemon: a tool that hangs must not keep the process from ending.
        thread = threading.Thread(
            target=self._run, args=(job, before), name=f"killick-tool-{job.call.name}", daemon=True
        )
        with self._changed:
            thread.start()  # first: one that cannot be started is not waited for
            self._running += 1
            self._last = thread

    def _run(self, job: ToolJob, before: threading.Thread | None) -> None:
        try:
            if before is not None:
                before.join()
            if not self._closed and self._turn.stop_asked is None:
                if job.needs_check and self._ran(job):
                    return
                effect = self._plan.effect(job.call)
                with self._turn.tool(job.call.id, of=job.of, effect=effect) as tool:
                    self._perform(job.call, tool)
        except (TurnStopped, TurnEnded):
            pass  # the turn's own block says so
        except ToolNotApproved as refused:
            if not refused.denied:  # a denial is an answer, and the model is told of it
                self._failures.append(refused)
        except BaseException as error:  # noqa: BLE001  (raised where the block is left)
            self._failures.append(error)
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _ran(self, job: ToolJob) -> bool:
        """Ask the outside about a call of unknown outcome, and settle what it says."""
        checks = self._plan.check
        if job.call.name not in checks or job.of is None:
            return False
        key = run(self._core.runtime, self._core.session.key_of(job.of, job.call.id))
        settled = settlement(bind(job.call, checks, key)())
        if settled is None:
            return False
        outcome, result = settled
        flow = self._core.session.settle(
            job.of, job.call.id, outcome, result=result, by="check", evidence=None, replaces=None
        )
        run(self._core.runtime, flow)
        return outcome == "ran"

    def _perform(self, call: ToolCall, tool: "Tool") -> None:
        printed: list[str] = []
        try:
            value = bind(call, self._plan.tools, tool.key)()
            if inspect.isgenerator(value):
                value = _print_all(value, tool, printed)
            _refuse_asynchronous(call, value)
            result = outcome(value)
        except Exception as error:
            if says_nothing(error):
                raise
            result = failure(error)  # the model is told, and can do better
        tool.finish(result.content, is_error=result.is_error, structured=result.structured)
        self.results[call.id] = result.result(call.id, printed)


def _refuse_asynchronous(call: ToolCall, value: Any) -> None:
    """It has not run, and nothing here can run it: what it is must not pass for its result."""
    if inspect.iscoroutine(value):
        value.close()
    elif not inspect.isawaitable(value) and not inspect.isasyncgen(value):
        return
    raise TypeError(f"the tool {call.name!r} is asynchronous, and did not run; use AsyncStore")


def _print_all(pieces: Any, tool: "Tool", printed: list[str]) -> Any:
    """Record what a generator yields as output; return its result."""
    try:
        while True:
            piece = str(next(pieces))
            tool.output(piece)
            printed.append(piece)
    except StopIteration as done:
        return done.value
    finally:
        pieces.close()


T = TypeVar("T")
C = TypeVar("C", StreamCore, ToolCore)


class TurnFacts:
    """Properties of a turn, the same on both faces."""

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
        """Why it ended, in words; `cause` is what decides."""
        return self._core.reason

    @property
    def cause(self) -> str | None:
        """Why it did not complete: one of `Cause`."""
        return self._core.cause

    @property
    def repeated(self) -> bool:
        """True if this key was used before: the turn exists and must not be run again."""
        return self._core.repeated

    @property
    def stop_asked(self) -> str | None:
        """The reason, once this turn was asked to stop."""
        asked = self._core.stop_asked
        return None if asked is None else asked.reason


class Turn(TurnFacts):
    """One prompt and everything until its one ending. Use it as a block."""

    def __enter__(self) -> Self:
        return self.begin()

    def begin(self) -> Self:
        """Begin the turn, as entering its block does; `end` ends it.

        For programs whose beginning and end are two callbacks. Dropping this object ends the turn
        as abandoned. If interrupted: a turn that was begun all the same is ended first.
        """
        self._core.held_by(self)  # a `with` statement holds it already
        try:
            self._run(self._core.enter())
        except BaseException as error:
            # Interrupted after it had begun: no caller leaves the block.
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

    def end(self, error: BaseException | None = None, cause: Cause | None = None) -> None:
        """End the turn as leaving its block does; leaving the block then does nothing more.

        `cause` stands in place of the one that follows from `error`; with neither the turn is
        completed. A stop that was asked for keeps its own. Raises UsageError for an unknown cause.

        If interrupted: the ending is written all the same; only the wait for it is given up.
        """
        run(self._core.runtime, self._core.leave(error, cause), leaving=error)

    def record(self, message: Message, *, provider: str | None = None) -> Receipt:
        """Record a whole message, durable on return.

        `provider` names the one that gave it: signed reasoning goes back to that one only.
        If interrupted: it is recorded or it is not; with an `id` of yours, recording it again
        changes nothing.
        """
        return self._run(self._core.record(message, provider))

    def record_all(self, messages: Sequence[Message]) -> list[Receipt]:
        """Record whole messages in one commit, durable on return: all of them or none.

        If interrupted: they are recorded or they are not; with ids of yours, recording them again
        changes nothing.
        """
        return self._run(self._core.record_all(messages))

    def stream(
        self,
        *,
        provider: str | None = None,
        model: str | None = None,
        settings: dict[str, Any] | None = None,
        system: str | None = None,
        tools: Json = None,
        attempt: int = 1,
        retry_of: str | None = None,
        role: Role = "assistant",
        request: dict[str, Any] | None = None,
    ) -> "Stream":
        """Make a stream, a block: one model call and its answer as it comes.

        `system` and `tools`, what the model was asked with, are stored once, as blobs. Of the
        `request` a hash is recorded, so that `killick verify` can show what was sent.
        """
        call = ModelCall(
            provider=provider,
            model=model,
            settings=settings,
            system=system,
            tools=tools,
            attempt=attempt,
            retry_of=retry_of,
            role=role,
            request=request,
        )
        return Stream(StreamCore(self._core, call))

    def tool(
        self,
        call_id: str,
        *,
        of: str | None = None,
        effect: Effect = "once",
        key: str | None = None,
    ) -> "Tool":
        """Make a run of a tool call, a block: its start is durable before the block runs.

        `of` is the turn that made the call, if this turn continues it: a call that was never
        started there can be started here, and its result belongs to that call. One that was
        started can be started again if its `effect` is "none" or "idempotent", or if it was
        settled that it did not run; else OutcomeUnsettled is raised. `key` is for the outside:
        `call.key` is that, or one that is the same for each start.
        """
        return Tool(ToolCore(self._core, call_id, of, effect, key))

    def run_tools(
        self,
        reply: Calling | None,
        tools: Tools,
        *,
        in_order: bool = False,
        effects: Effects | None = None,
        unfinished: str | None = None,
        check: Checks | None = None,
    ) -> "ToolRun":
        """Run the tools that a reply calls, as a block: each is started as soon as it is whole.

        All at once, or with `in_order` one after another. `tools` are functions by name, which
        take the call's arguments, and `idempotency_key` if they name it; what a generator yields is
        output. Leaving the block waits. A call that a person denied is not run; one that still
        waits raises ToolNotApproved there. `effects` are those of tools by name, once if not named.

        With `unfinished`, a turn that this one continues, its calls without a result are run
        first, of which no model was told yet: those that were never started, those whose effect
        allows a repeat. `check` has functions by name that ask the outside about the others;
        what they say is settled, and without an answer OutcomeUnsettled is raised. Then `reply`
        may be None.

        If interrupted: no further tool is started. One that runs is not ended: its result is late.
        """
        plan = ToolPlan(tools, effects, unfinished, check)
        return ToolRun(self, reply, plan, in_order=in_order)

    def put_blob(self, data: bytes) -> str:
        """Keep the bytes of an image or a file that came in this turn; the name for its part.

        If interrupted: the blob is stored or it is not; unused ones are collected later.
        """
        return self._run(self._core.put_blob(data))

    def steering(self) -> list[Message]:
        """Take what was said to this turn with `session.steer` since it was last asked.

        Call it before each model call: the messages stand in the context from here on.

        If interrupted: each is taken and in the journal, or waits.
        """
        return self._run(self._core.steering())

    def ask_approval(self, call_id: str, arguments: str) -> e.ApprovalAsked:
        """Record that a call waits for a person. If interrupted: it is recorded or it is not."""
        return self._run(self._core.ask_approval(call_id, arguments))

    def _run(self, flow: Flow[T] | Write[T]) -> T:
        return run(self._core.runtime, flow)


class Block(Generic[C]):
    """Enters and leaves a stream or a tool."""

    _core: C

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.end(error)

    def begin(self) -> Self:
        """Do what entering the block does; durable on return.

        If interrupted: it has begun or it has not; the turn's end closes it.
        """
        run(self._core.turn.runtime, self._core.enter())
        return self

    def end(self, error: BaseException | None = None, cause: Cause | None = None) -> None:
        """Do what leaving the block does, by this exception or without; again, it does nothing.

        `cause` stands in place of the one that follows from `error`: with one, an answer is partial
        and a tool is left without a result, or with `failed` has an error as its result.

        If interrupted: what came is written all the same; only the wait for it is given up.
        """
        run(self._core.turn.runtime, self._core.leave(error, cause), leaving=error)


class Stream(Deltas, Block[StreamCore]):
    """A model's answer as it comes. Use it as a block."""

    def __init__(self, core: StreamCore) -> None:
        self._core = core


class Tool(Block[ToolCore]):
    """A tool that runs. Use it as a block, and finish it."""

    def __init__(self, core: ToolCore) -> None:
        self._core = core

    @property
    def key(self) -> str:
        """The key for the outside: the one given, or one that is the same for each start."""
        return self._core.key

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


class WriteBatch(BatchCore[SessionT, Turn]):
    """Writes that are made in one commit, in the order in which they were given.

    Each does what the method of its name does on its own.
    """

    def write(self) -> None:
        """Write all of it; durable on return. The batch is empty then, and can be used again.

        A write that a rule refuses is refused alone, and its error is raised when the others are
        done. Where the store fails, nothing is written.

        If interrupted: all of it is written or nothing; a turn that was begun is ended first.
        """
        run(self._store.runtime(), self._taken())
