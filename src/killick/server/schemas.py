"""Types of requests and answers; the description of the interface is made of them. Pure."""

from typing import Annotated, Any, Literal

import msgspec

from killick.exchange.export.endings import ending_words
from killick.journal.codec import to_bytes
from killick.journal.kinds import digest
from killick.model import entries as e
from killick.model.causes import Cause
from killick.model.effects import Outcome
from killick.model.limits import ID_BYTES_MAX, TAG_CHARS_MAX, TITLE_CHARS_MAX
from killick.model.messages import Message, Part, Role, State, Text
from killick.model.sessions import (
    Fork,
    Namer,
    Parent,
    Project,
    SessionInfo,
    Starts,
    Status,
    TurnInfo,
    moment,
)
from killick.search.results import Hit
from killick.session.core.figures import ActiveDay
from killick.views.neutral import Repair
from killick.views.timeline import TimedTurn

Title = Annotated[str, msgspec.Meta(max_length=TITLE_CHARS_MAX)]
Tag = Annotated[str, msgspec.Meta(min_length=1, max_length=TAG_CHARS_MAX)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=ID_BYTES_MAX)]
Seq = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=500)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=60)]
Reason = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]
Search = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]
Day = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
IfBusy = Literal["refuse", "wait", "queue", "interrupt"]


class FromClient(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sent by a client. An unknown field is refused."""


class ToClient(msgspec.Struct, frozen=True, kw_only=True):
    """Sent to a client: every field, always."""


def time_text(at_us: int | None) -> str | None:
    """ISO 8601, in UTC, to the microsecond."""
    if at_us is None:
        return None
    return moment(at_us).isoformat(timespec="microseconds").replace("+00:00", "Z")


# -- what clients send -------------------------------------------------------------------------


class NewSession(FromClient, frozen=True, kw_only=True):
    title: Title | None = None
    tags: tuple[Tag, ...] = ()
    project: Project | None = None


class SessionChange(FromClient, frozen=True, kw_only=True):
    """Only what is given is changed; a title of null takes it away."""

    title: Title | msgspec.UnsetType | None = msgspec.UNSET
    pinned: bool | msgspec.UnsetType = msgspec.UNSET
    archived: bool | msgspec.UnsetType = msgspec.UNSET
    add_tags: tuple[Tag, ...] = ()
    remove_tags: tuple[Tag, ...] = ()


class Settle(FromClient, frozen=True, kw_only=True):
    """A person's finding about a call whose outcome is unknown; `replaces` corrects one before."""

    turn_id: Id
    call_id: Id
    outcome: Outcome
    result: str | None = None
    evidence: str | None = None
    replaces: Id | None = None


class NewTurn(FromClient, frozen=True, kw_only=True):
    """Without a prompt the turn takes what is queued, or goes on with what was said."""

    prompt: str | None = None
    if_busy: IfBusy = "refuse"
    wait_seconds: Seconds = 30.0
    continues: Id | None = None
    retry_of: Id | None = None


class Stop(FromClient, frozen=True, kw_only=True):
    """Without a turn, whichever runs. `wait_seconds` is how long to wait for its ending."""

    turn_id: Id | None = None
    reason: Reason | None = None
    cause: Cause = "stopped"
    wait_seconds: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.0


class SteerTurn(FromClient, frozen=True, kw_only=True):
    """Words for the turn that runs; its agent takes them before its next model call."""

    prompt: str


class Decision(FromClient, frozen=True, kw_only=True):
    """A person's decision, and the hash of the arguments that they were shown.

    With `always`, the same call of the same tool is allowed from now on in this session.
    """

    approved: bool
    arguments_hash: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    reason: Reason | None = None
    always: bool = False


class AskAgain(FromClient, frozen=True, kw_only=True):
    """A call that was allowed for good and is to be asked about again."""

    tool: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    arguments_hash: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class ForkAt(FromClient, frozen=True, kw_only=True):
    at: Seq | None = None
    title: Title | None = None


class RewindTo(FromClient, frozen=True, kw_only=True):
    through: Seq


class Compact(FromClient, frozen=True, kw_only=True):
    """Without a summary, the model that answers here writes one of everything so far."""

    summary: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    through: Seq | None = None


class SessionQuery(FromClient, frozen=True, kw_only=True):
    """Filters of the list of sessions. `before` is the `next` of the page before."""

    q: str | None = None
    type: str | None = None
    project: str | None = None
    tag: str | None = None
    model: str | None = None
    interrupted: bool | msgspec.UnsetType = msgspec.UNSET
    pinned: bool | msgspec.UnsetType = msgspec.UNSET
    archived: Literal["yes", "no", "all"] = "no"
    deleted: bool = False
    fork_of: str | None = None
    limit: Limit = 50
    before: Id | None = None


class MessageQuery(FromClient, frozen=True, kw_only=True):
    after: Seq = 0


class EventQuery(FromClient, frozen=True, kw_only=True):
    after: Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)] | None = None


class NewsQuery(FromClient, frozen=True, kw_only=True):
    after: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None
    waiting: bool = False


class ContextQuery(FromClient, frozen=True, kw_only=True):
    at: Seq | None = None
    format: Literal["anthropic", "openai-chat", "openai-responses", "gemini"] = "openai-chat"
    profile: str | None = None
    max_messages: Count | None = None
    max_tokens: Count | None = None
    max_bytes: Count | None = None


class ExportQuery(FromClient, frozen=True, kw_only=True):
    to: Literal[
        "killick",
        "markdown",
        "html",
        "anthropic",
        "openai-chat",
        "openai-responses",
        "gemini",
    ] = "markdown"


class SearchQuery(FromClient, frozen=True, kw_only=True):
    q: Search
    session: str | None = None
    role: Literal["user", "assistant", "tool", "system", "summary"] | None = None
    order: Literal["newest", "best"] = "newest"
    limit: Limit = 20


class StatsQuery(FromClient, frozen=True, kw_only=True):
    since: Day | None = None
    until: Day | None = None


# -- what clients are sent ---------------------------------------------------------------------


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A failure: a code that stays the same, and a sentence. The rest where it is known."""

    code: str
    message: str
    turn_id: str | None = None
    holder: str | None = None
    status: str | None = None
    reason: str | None = None
    cause: str | None = None
    head: int | None = None


class Created(ToClient, frozen=True, kw_only=True):
    id: str


class SessionOut(ToClient, frozen=True, kw_only=True):
    """`opening` is how a session without a title begins: the first words that were asked."""

    id: str
    title: str | None
    opening: str | None
    titled_by: Namer | None
    type: str
    status: Status | None
    project: Project | None
    tags: tuple[str, ...]
    models: tuple[str, ...]
    archived: bool
    pinned: bool
    created_at: str
    updated_at: str
    deleted_at: str | None
    fork: Fork | None
    parent: Parent | None

    @classmethod
    def of(cls, info: SessionInfo, opening: str | None) -> "SessionOut":
        about = info.about
        return cls(
            id=info.id,
            title=about.title,
            opening=opening,
            titled_by=about.titled_by,
            type=about.type,
            status=about.status,
            project=about.project,
            tags=about.tags,
            models=about.models,
            archived=about.archived,
            pinned=about.pinned,
            created_at=time_text(info.created_at_us) or "",
            updated_at=time_text(info.updated_at_us) or "",
            deleted_at=time_text(about.deleted_at_us),
            fork=about.fork,
            parent=about.parent,
        )


class SessionPage(ToClient, frozen=True, kw_only=True):
    """`next` is given as `before` for the page after this one; null after the last."""

    sessions: list[SessionOut]
    next: str | None


class MessageOut(ToClient, frozen=True, kw_only=True):
    """`seq` is the place at which the message began."""

    id: str
    role: Role
    state: State
    parts: tuple[Part, ...]
    text: str
    turn_id: str | None
    seq: int

    @classmethod
    def of(cls, message: Message) -> "MessageOut":
        return cls(
            id=message.id,
            role=message.role,
            state=message.state,
            parts=tuple(message.parts),
            text="".join(part.text for part in message.parts if isinstance(part, Text)),
            turn_id=message.turn_id,
            seq=message.seq,
        )


class MessagesOut(ToClient, frozen=True, kw_only=True):
    """`whole` says that these are all messages there are: history was changed."""

    messages: list[MessageOut]
    head: int
    whole: bool


class TurnOut(ToClient, frozen=True, kw_only=True):
    """One turn. `words` say why it ended, and what to do, without what a provider wrote.

    `usage` is the sum over its model calls, where any was recorded. Where `starts` are unseen, a
    call without a result may have run.
    """

    id: str
    seq: int
    status: Status
    starts: Starts
    reason: str | None
    cause: str | None
    detail: str | None
    words: str | None
    started_at: str
    ended_at: str | None
    ended_seq: int | None
    continues: str | None
    retry_of: str | None
    usage: e.Usage | None

    @classmethod
    def of(cls, turn: TurnInfo, timed: TimedTurn | None = None) -> "TurnOut":
        known = timed is not None and any(call.usage is not None for call in timed.model_calls)
        return cls(
            id=turn.id,
            seq=turn.seq,
            status=turn.status,
            starts=turn.starts,
            reason=turn.reason,
            cause=turn.cause,
            detail=turn.detail,
            words=ending_words(turn.status, turn.cause, turn.reason, turn.detail),
            started_at=time_text(turn.started_at_us) or "",
            ended_at=time_text(turn.ended_at_us),
            ended_seq=None if timed is None else timed.ended_seq,
            continues=turn.continues,
            retry_of=turn.retry_of,
            usage=timed.usage if known and timed is not None else None,
        )


class ApprovalOut(ToClient, frozen=True, kw_only=True):
    """A call that waits for a person.

    `arguments` are those that were asked about, whole: show them, and send their hash with the
    decision. None when the journal holds others.
    """

    id: str
    turn_id: str
    message_id: str
    call_id: str
    arguments: str | None
    arguments_hash: str

    @classmethod
    def of(cls, asked: e.ApprovalAsked, arguments: str | None) -> "ApprovalOut":
        known = arguments is not None and digest(to_bytes(arguments)) == asked.arguments_hash
        return cls(
            id=asked.id,
            turn_id=asked.turn_id,
            message_id=asked.message_id,
            call_id=asked.call_id,
            arguments=arguments if known else None,
            arguments_hash=asked.arguments_hash,
        )


class SessionDetail(ToClient, frozen=True, kw_only=True):
    """A session now: its newest turn, the prompts that wait, what waits for a person."""

    id: str
    title: str | None
    head: int
    session: SessionOut
    turn: TurnOut | None
    queued: list[MessageOut]
    approvals: list[ApprovalOut]


class TurnBegun(ToClient, frozen=True, kw_only=True):
    """The prompt is durable and the turn is there; `repeated` says that the key was used before."""

    turn_id: str
    status: Status
    reason: str | None
    cause: str | None
    repeated: bool


class PromptKept(ToClient, frozen=True, kw_only=True):
    """The session is busy; the prompt is durable and the next turn takes it."""

    prompt_id: str
    turn_id: str
    holder: str


class Steered(ToClient, frozen=True, kw_only=True):
    """The words are durable; without a turn none ran, and they wait for the next."""

    prompt_id: str
    turn_id: str | None


class Stopping(ToClient, frozen=True, kw_only=True):
    """A stop was asked for. `status` says who won, if the turn has ended meanwhile."""

    turn_id: str
    status: Status
    reason: str | None
    cause: str | None


class Done(ToClient, frozen=True, kw_only=True):
    """The seq of the entry that was appended."""

    seq: int


class ContextOut(ToClient, frozen=True, kw_only=True):
    format: str
    system: str | None
    messages: list[dict[str, Any]]
    repairs: list[Repair]


class HitOut(ToClient, frozen=True, kw_only=True):
    session_id: str
    title: str | None
    seq: int
    message_id: str
    turn_id: str | None
    role: str
    state: str
    at: str
    snippet: str
    matches: tuple[tuple[int, int], ...]
    hidden: bool

    @classmethod
    def of(cls, hit: Hit) -> "HitOut":
        return cls(
            session_id=hit.session_id,
            title=hit.title,
            seq=hit.seq,
            message_id=hit.message_id,
            turn_id=hit.turn_id,
            role=hit.role,
            state=hit.state,
            at=time_text(hit.at_us) or "",
            snippet=hit.snippet,
            matches=hit.matches,
            hidden=hit.hidden or hit.rewound,
        )


class HitsOut(ToClient, frozen=True, kw_only=True):
    """`behind` counts entries that the index has not looked at yet.

    `ranked` is how many matches, the newest, were compared when there were more.
    """

    hits: list[HitOut]
    behind: int
    ranked: int | None = None


class UsageDay(ToClient, frozen=True, kw_only=True):
    day: str
    calls: int
    input: int
    output: int
    cost: float | None


class StatsOut(ToClient, frozen=True, kw_only=True):
    """Days in UTC; days without anything are left out.

    `behind` counts sessions of which the figures lack something: they are added up in idle moments.
    """

    activity: list[ActiveDay]
    usage: list[UsageDay]
    models: list[UsageDay]
    behind: int


class About(ToClient, frozen=True, kw_only=True):
    """`lacks` says what to set where no model answers."""

    version: str
    model: str | None
    lacks: str | None
    may: Literal["read", "write"]


class Health(ToClient, frozen=True, kw_only=True):
    status: str


class EntryEvent(ToClient, frozen=True, kw_only=True):
    """An entry, as it was recorded. The event is named after its kind, its id is a cursor."""

    kind: str
    seq: int
    at: str
    body: e.KnownBody


class DeltaEvent(ToClient, frozen=True, kw_only=True):
    """An increment to a part of a streaming message, or to a running tool's output."""

    kind: Literal["delta"] = "delta"
    seq: int
    turn_id: str
    message_id: str
    call_id: str | None
    part: int
    offset: int
    type: Literal["text", "reasoning", "arguments", "output", "part"]
    text: str
    head: Part | None


class ReloadEvent(ToClient, frozen=True, kw_only=True):
    """The reader is too far behind, or its cursor is of no use here: read the session anew."""

    kind: Literal["reload"] = "reload"
    code: str
    message: str
