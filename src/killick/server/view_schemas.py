"""Types of views and what waits: pages of a transcript, moments, requests to models. Pure."""

from typing import Annotated, Any, Literal

import msgspec

from killick.agent.approvals import Allowance
from killick.exchange.export.endings import ending_words
from killick.model import entries as e
from killick.model.messages import Part, Role, State, ToolResult
from killick.server.schemas import (
    ApprovalOut,
    Count,
    FromClient,
    Id,
    Limit,
    Seq,
    SessionOut,
    ToClient,
    TurnOut,
    time_text,
)
from killick.views.neutral import Repair
from killick.views.timeline import TimedTurn
from killick.views.transcript import Shown, ShownSettlement, ShownTool, ToolState


class TranscriptQuery(FromClient, frozen=True, kw_only=True):
    """Without any of these, all of it.

    `at` shows it as it was when the journal ended there. `last` is the size of a page; `before` and
    `since` say where it ends and begins. A page has the contents of no fold: `inside` names the seq
    of one. `text` cuts what tools printed and returned to so many characters.
    """

    at: Seq | None = None
    last: Limit | None = None
    before: Seq | None = None
    since: Seq | None = None
    inside: Seq | None = None
    text: Count | None = None


class ToolQuery(FromClient, frozen=True, kw_only=True):
    message_id: Id
    call_id: Id


class ImportQuery(FromClient, frozen=True, kw_only=True):
    """The name of the file, by whose ending some formats are known."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] = "session.jsonl"


class SentQuery(FromClient, frozen=True, kw_only=True):
    """The provider's shape, for a call whose request was not recorded."""

    format: Literal["anthropic", "openai-chat", "openai-responses", "gemini"] = "openai-chat"


class ToolOut(ToClient, frozen=True, kw_only=True):
    """A tool call. `output_chars` and `result_chars` count what there is, also where it was cut.

    Of what it printed the end is kept, of what it returned the beginning.
    """

    call_id: str
    name: str
    arguments: str
    state: ToolState
    result: ToolResult | None
    output: str | None
    settled: ShownSettlement | None
    output_chars: int
    result_chars: int

    @classmethod
    def of(cls, tool: ShownTool, text: int | None = None) -> "ToolOut":
        result, output = tool.result, tool.output
        content = result.content if result is not None else None
        if text is not None and result is not None and isinstance(content, str):
            result = msgspec.structs.replace(result, content=content[:text])
        return cls(
            call_id=tool.call_id,
            name=tool.name,
            arguments=tool.arguments,
            state=tool.state,
            result=result,
            output=output if output is None or text is None else output[-text:],
            settled=tool.settled,
            output_chars=len(output or ""),
            result_chars=len(content) if isinstance(content, str) else 0,
        )


class ShownOut(ToClient, frozen=True, kw_only=True):
    """One thing a person sees: a message, an ending that was no completion, or a fold.

    `words` say why a turn ended, and what to do. `folds` counts what a fold stands for, also where
    its contents were left out.
    """

    kind: Literal["message", "ending", "compaction"]
    id: str | None
    role: Role
    state: State
    parts: tuple[Part, ...]
    tools: list[ToolOut]
    seq: int
    turn_id: str | None
    at: str
    status: str | None
    reason: str | None
    cause: str | None
    words: str | None
    folds: int
    folded: list["ShownOut"]

    @classmethod
    def of(cls, shown: Shown, text: int | None = None, *, folded: bool = True) -> "ShownOut":
        return cls(
            kind=shown.kind,
            id=shown.id,
            role=shown.role,
            state=shown.state,
            parts=shown.parts,
            tools=[ToolOut.of(tool, text) for tool in shown.tools],
            seq=shown.seq,
            turn_id=shown.turn_id,
            at=time_text(shown.at_us) or "",
            status=shown.status,
            reason=shown.reason,
            cause=shown.cause,
            words=ending_words(shown.status, shown.cause, shown.reason, None),
            folds=len(shown.folded),
            folded=[cls.of(item, text) for item in shown.folded] if folded else [],
        )


class TranscriptOut(ToClient, frozen=True, kw_only=True):
    """The transcript, or a page of it with the turns of that page. Events go on after `cursor`.

    `before` is the seq to give for the page before this one; null when this is the first.
    """

    shown: list[ShownOut]
    turns: list[TurnOut]
    undoable: int | None
    cursor: str
    before: int | None
    earlier: int


class UnknownOut(ToClient, frozen=True, kw_only=True):
    """A call that was started and has no result; a person can settle it."""

    turn_id: str
    call_id: str
    name: str
    arguments: str


class AllowedOut(ToClient, frozen=True, kw_only=True):
    """The calls that a person has allowed for good: one tool with one set of arguments each."""

    allowed: list[Allowance]


class WaitingLine(ToClient, frozen=True, kw_only=True):
    """One thing that waits for a person: its kind as in the feed, and what to act on it with."""

    session: SessionOut
    seq: int
    kind: str
    cause: str | None
    words: str | None
    turn_id: str | None
    tool: str | None
    approval: ApprovalOut | None
    unknown: list[UnknownOut]


class WaitingOut(ToClient, frozen=True, kw_only=True):
    """The newest of all that waits, and how much there is."""

    waiting: list[WaitingLine]
    count: int


class TimelineOut(ToClient, frozen=True, kw_only=True):
    """When everything of the session's turns happened; moments are microseconds since 1970."""

    turns: list[TimedTurn]


class JournalOut(ToClient, frozen=True, kw_only=True):
    """The kinds of all entries and their moments, from seq 1 on.

    `broke_off` has the seqs of the endings of turns that failed or were interrupted.
    """

    head: int
    kinds: list[str]
    at_us: list[int]
    broke_off: list[int]


class CallOut(ToClient, frozen=True, kw_only=True):
    """One request to a model. `recorded` says that the journal has the hash of what was sent."""

    id: str
    seq: int
    turn_id: str
    at: str
    attempt: int
    provider: str | None
    model: str | None
    usage: e.Usage | None
    failed: bool
    recorded: bool

    @classmethod
    def of(
        cls, entry: e.Entry, body: e.ModelCallStarted, end: e.ModelCallEnded | None
    ) -> "CallOut":
        return cls(
            id=body.id,
            seq=entry.seq,
            turn_id=body.turn_id,
            at=time_text(entry.at_us) or "",
            attempt=body.attempt,
            provider=body.provider,
            model=body.model,
            usage=None if end is None else end.usage,
            failed=end is not None and end.error is not None,
            recorded=body.request is not None,
        )


class CallsOut(ToClient, frozen=True, kw_only=True):
    calls: list[CallOut]


class SentMessage(ToClient, frozen=True, kw_only=True):
    """One message of a request, and how many tokens it may be; the call before had no `new` one."""

    body: dict[str, Any]
    tokens: int
    new: bool


class SentOut(ToClient, frozen=True, kw_only=True):
    """A request to a model, computed from the journal.

    `proof` is "equal" when it has the hash that was recorded, "different" when it has another, and
    "not recorded" when the journal has none to compare with.
    """

    id: str
    format: str
    model: str | None
    settings: dict[str, Any]
    system: str | None
    tools: Any
    messages: list[SentMessage]
    repairs: list[Repair]
    proof: Literal["equal", "different", "not recorded"]
    dropped: int


class ImportedOut(ToClient, frozen=True, kw_only=True):
    """The sessions that a file held, and what was not taken over, in words."""

    sessions: list[str]
    problems: list[str]
