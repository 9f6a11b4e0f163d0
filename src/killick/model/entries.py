"""The records a journal is made of.

An `Entry` is a place in a journal (`seq`), a time, and a body. Bodies are tagged by `kind`; a kind
this code does not know is kept as `Unknown`, byte for byte. A body's `v` is the version of its
shape: fields are only ever added, so a reader takes what it knows.
"""

from datetime import datetime
from typing import Any, Literal

import msgspec

from killick.model.messages import Extra, Json, Part, Role, ToolResult
from killick.model.sessions import Fork, Limits, Namer, Parent, Project, Starts, moment


class _Body(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, tag_field="kind"
):
    """Bodies cannot form cycles, so the garbage collector need not look at them.

    `redacted` counts what was taken out of this entry before it was written.
    """

    v: int = 1
    redacted: int = 0


# -- the session -------------------------------------------------------------------------------


class SessionCreated(_Body, frozen=True, kw_only=True, tag="session_created"):
    type: str = "user"
    title: str | None = None
    titled_by: Namer | None = None
    project: Project | None = None
    tags: tuple[str, ...] = ()
    extra: dict[str, Any] = {}
    parent: Parent | None = None
    fork: Fork | None = None
    limits: Limits | None = None


class Renamed(_Body, frozen=True, kw_only=True, tag="renamed"):
    id: str
    title: str | None
    by: Namer = "person"


class LimitsSet(_Body, frozen=True, kw_only=True, tag="limits"):
    """The session may spend so much from now on; None is without limits."""

    id: str
    limits: Limits | None = None


class LimitHit(_Body, frozen=True, kw_only=True, tag="limit_reached"):
    """A model call was refused. `of` is the session whose limit it was; None is the turn itself.

    Of the calls that were counted, `estimated` had no usage.
    """

    id: str
    turn_id: str
    limit: str
    amount: float
    spent: float
    estimated: int = 0
    of: str | None = None


class Archived(_Body, frozen=True, kw_only=True, tag="archived"):
    """Put away, or with `archived=False` brought back."""

    id: str
    archived: bool = True


class Pinned(_Body, frozen=True, kw_only=True, tag="pinned"):
    """Kept from every rule that removes, or with `pinned=False` no longer."""

    id: str
    pinned: bool = True


class Tagged(_Body, frozen=True, kw_only=True, tag="tagged"):
    id: str
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


class Moved(_Body, frozen=True, kw_only=True, tag="moved"):
    """The work lies in another project directory from now on."""

    id: str
    project: Project | None = None


class Deleted(_Body, frozen=True, kw_only=True, tag="deleted"):
    """Taken out of every list; the journal stays until it is erased."""

    id: str
    reason: str | None = None


class Restored(_Body, frozen=True, kw_only=True, tag="restored"):
    id: str


class Note(_Body, frozen=True, kw_only=True, tag="note"):
    """Data that an application keeps beside the conversation; no model is sent it.

    `blobs` names those that are kept as long as the note is, `key` is the caller's own.
    """

    id: str
    name: str
    data: Json = None
    blobs: tuple[str, ...] = ()
    key: str | None = None


class Imported(_Body, frozen=True, kw_only=True, tag="imported"):
    """The origin of an imported session, and the report on what was not taken over."""

    id: str
    source: str
    origin: str
    report: dict[str, Any] = {}


# -- a turn ------------------------------------------------------------------------------------


class TurnStarted(_Body, frozen=True, kw_only=True, tag="turn_started"):
    """The lease begins. `prompt_hash` tells a repeated key from a conflicting one.

    With `starts="unseen"`, a call without a start may have run all the same. `resume` is how often
    workers may continue it; `work` is the token of the work that this turn is.
    """

    turn_id: str
    fence: int
    holder: str
    key: str | None = None
    prompt_hash: str | None = None
    continues: str | None = None
    retry_of: str | None = None
    starts: Starts = "seen"
    limits: Limits | None = None
    resume: int = 0
    work: str | None = None


class StopAsked(_Body, frozen=True, kw_only=True, tag="stop_asked"):
    """A request to end the turn; its `cause` and `reason` become those of the ending."""

    id: str
    turn_id: str
    reason: str
    cause: str | None = None


class TurnEnding(_Body, frozen=True, kw_only=True, tag="turn_ended"):
    """The one ending. Only `cause` decides; `reason` and `detail` are for people.

    `error_type` is the type of the exception that a failed turn was left with.
    A cause that this version does not know, of a newer one, is kept as it is.
    """

    turn_id: str
    status: Literal["completed", "failed", "interrupted"]
    reason: str | None = None
    detail: str | None = None
    cause: str | None = None
    error_type: str | None = None


class WorkTaken(_Body, frozen=True, kw_only=True, tag="work_taken"):
    """A worker took a turn that was due; `id` is the token with which it may be continued.

    It lapses when its taker is dead, or at `until_us` by the database's clock.
    """

    id: str
    turn_id: str
    attempt: int
    taker: str
    until_us: int


class AttemptsUsed(_Body, frozen=True, kw_only=True, tag="attempts_used"):
    """All continuations that a turn was allowed have failed; no worker takes it up any more."""

    turn_id: str
    attempts: int


class ResumeAt(_Body, frozen=True, kw_only=True, tag="resume_at"):
    """Due work is taken no earlier than this; None leaves it to the backoff again."""

    id: str
    at_us: int | None = None


class Paused(_Body, frozen=True, kw_only=True, tag="paused"):
    """No worker takes anything of this session, or with `paused=False` they may again."""

    id: str
    paused: bool = True
    why: str | None = None


class PromptWaiting(_Body, frozen=True, kw_only=True, tag="prompt_queued"):
    """A prompt that waits for the next turn, or with `steers` for the next model call of that one.

    When the turn that it steers ends first, it waits for the next turn as any other.
    """

    id: str
    role: Role
    parts: tuple[Part, ...]
    steers: str | None = None


class PromptTaken(_Body, frozen=True, kw_only=True, tag="prompt_taken"):
    id: str
    turn_id: str


class PromptWithdrawn(_Body, frozen=True, kw_only=True, tag="prompt_withdrawn"):
    """A prompt that waited is not asked any more."""

    id: str


# -- model calls and messages ------------------------------------------------------------------


class Usage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens of one model call: a difference, never a running total."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    cost: float | None = None


class SentView(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """How the messages of a request were computed: `session.context` as of the seq `through`.

    `counter` names a token counter that was handed in; such limits cannot be computed again.
    """

    version: int
    through: int
    profile: str | None = None
    before_turn: str | None = None
    max_messages: int | None = None
    max_tokens: int | None = None
    max_bytes: int | None = None
    counter: str | None = None
    partial: str = "note"
    reasoning: bool = True
    errors: str = "type"


class SentRequest(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The hash of a request's canonical form (`views.sent`), and what made its messages."""

    hash: str
    format: str
    messages: int
    tail: str = ""
    view: SentView | None = None


class ModelCallStarted(_Body, frozen=True, kw_only=True, tag="model_call_started"):
    """One request to a model. The system prompt and the tool definitions are blobs, by hash."""

    id: str
    turn_id: str
    attempt: int = 1
    retry_of: str | None = None
    provider: str | None = None
    model: str | None = None
    settings: dict[str, Any] = {}
    system: str | None = None
    tools: str | None = None
    request: SentRequest | None = None


class ModelCallEnded(_Body, frozen=True, kw_only=True, tag="model_call_ended"):
    """The end of one request. `first_at_us` is when the first piece of its answer came."""

    id: str
    turn_id: str
    finish_reason: str | None = None
    usage: Usage | None = None
    provider_ids: dict[str, str] = {}
    error: str | None = None
    first_at_us: int | None = None


class MessageRecorded(_Body, frozen=True, kw_only=True, tag="message"):
    """A whole message in one entry."""

    id: str
    turn_id: str
    role: Role
    parts: tuple[Part, ...]
    model_call_id: str | None = None
    provider: str | None = None


class MessageStarted(_Body, frozen=True, kw_only=True, tag="message_started"):
    """A streamed message begins; its text is in deltas until it ends."""

    id: str
    turn_id: str
    role: Role = "assistant"
    model_call_id: str | None = None


class MessageEnded(_Body, frozen=True, kw_only=True, tag="message_ended"):
    id: str
    turn_id: str
    state: Literal["complete", "partial"]
    parts: tuple[Part, ...]


# -- tools -------------------------------------------------------------------------------------


class ToolCalled(_Body, frozen=True, kw_only=True, tag="tool_called"):
    """A call became whole while its message still streams, so its tool may start."""

    turn_id: str
    message_id: str
    call_id: str
    name: str


class ToolStarted(_Body, frozen=True, kw_only=True, tag="tool_started"):
    """From here on the tool may have had its effects.

    `effect` says what a second run would do: "none", "idempotent" or "once"; an `Effect` that this
    version does not know counts as "once". `key` is the caller's own for the outside, `number`
    counts the starts of this call.
    """

    turn_id: str
    message_id: str
    call_id: str
    effect: str = "once"
    key: str | None = None
    number: int = 1


class ToolOutput(_Body, frozen=True, kw_only=True, tag="tool_output"):
    """The output of a tool that was left without a result."""

    turn_id: str
    message_id: str
    call_id: str
    output: str


class ToolFinished(_Body, frozen=True, kw_only=True, tag="tool_result"):
    """The real result. `output` is what was streamed before it, where that differs from it.

    `started` is the seq of the call's start, which is the result's place among the messages.
    """

    turn_id: str
    message_id: str
    result: ToolResult
    output: str | None = None
    started: int | None = None


class Settled(_Body, frozen=True, kw_only=True, tag="settled"):
    """A finding of a person or a check about a call whose outcome was unknown; no tool said it.

    It holds for the starts up to `number`. `replaces` names the settlement that it corrects.
    """

    id: str
    turn_id: str
    message_id: str
    call_id: str
    outcome: str
    result: str | None = None
    by: str = "person"
    evidence: str | None = None
    number: int = 0
    replaces: str | None = None


class ApprovalAsked(_Body, frozen=True, kw_only=True, tag="approval_asked"):
    """A call waits for a person; bound to the exact arguments by their hash."""

    id: str
    turn_id: str
    message_id: str
    call_id: str
    arguments_hash: str


class ApprovalDecided(_Body, frozen=True, kw_only=True, tag="approval_decided"):
    id: str
    turn_id: str
    arguments_hash: str
    approved: bool
    by: str | None = None
    reason: str | None = None


# -- history -----------------------------------------------------------------------------------


class Compacted(_Body, frozen=True, kw_only=True, tag="compaction"):
    """A summary in place of the messages from `first` to `through`, in what a model is sent.

    `keep` are the entries in that range that stay: those of messages that were chosen, and of
    messages whose rest the summary cannot know. `rest` are the entries after `through` that go:
    the ends and results of messages in the range.
    """

    id: str
    summary: str
    first: int
    through: int
    keep: tuple[int, ...] = ()
    rest: tuple[int, ...] = ()
    provider: str | None = None
    model: str | None = None
    usage: Usage | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None


class Rewound(_Body, frozen=True, kw_only=True, tag="rewind"):
    """The entries after `through`, up to here, are in no view any more.

    `keep` are the entries there that stay, because they belong to something that began before: the
    rest of a message, the results of its calls. It `encloses` the changes of history there: none
    of them is about anything before them, so that a reader may pass all of them over.
    """

    id: str
    through: int
    keep: tuple[int, ...] = ()
    encloses: bool = False


class Undone(_Body, frozen=True, kw_only=True, tag="undone"):
    """The compaction or rewind with this id, at this seq, is as if it had never been."""

    id: str
    seq: int


class Visibility(_Body, frozen=True, kw_only=True, tag="visibility"):
    """A message is shown to a person and a model, or not; None leaves it as it was.

    `entries` are those that belonged to it by then; what comes for it later is hidden by its id.
    """

    id: str
    seq: int
    message_id: str
    entries: tuple[int, ...] = ()
    person: bool | None = None
    model: bool | None = None


# -- late --------------------------------------------------------------------------------------


class Delta(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, array_like=True):
    """An increment to one part of a streaming message, or to a running tool's output.

    `offset` counts the characters of that part before this increment, so applying a delta twice
    is harmless. `head` opens a part that is more than text (a tool call with no arguments yet, an
    image, opaque data); a signature or encrypted content closes a reasoning part. `extra` are
    further fields of the provider's for this part.
    """

    part: int
    offset: int
    type: Literal["text", "reasoning", "arguments", "output", "part"]
    text: str
    head: Part | None = None
    signature: str | None = None
    encrypted: str | None = None
    extra: Extra | None = None


class LateResult(_Body, frozen=True, kw_only=True, tag="late_result"):
    """A tool's real result, after its turn had ended.

    A call that was started again may give two. The first is the result; with `second`, the number
    of the start that gave it, this is the other one.
    """

    turn_id: str
    message_id: str
    result: ToolResult
    output: str | None = None
    started: int | None = None
    second: int = 0


class LateText(_Body, frozen=True, kw_only=True, tag="late_text"):
    """The rest of an answer, or with a `call_id` of what a tool printed, after its turn had ended.

    Only what goes beyond what is stored. `whole` says that nothing is missing any more.
    """

    turn_id: str
    message_id: str
    deltas: tuple[Delta, ...]
    call_id: str | None = None
    whole: bool = False


# -- the union ---------------------------------------------------------------------------------

KnownBody = (
    SessionCreated | Renamed | Archived | Pinned | Tagged | Moved | Deleted | Restored | Note
    | WorkTaken | AttemptsUsed | ResumeAt | Paused
    | Imported | TurnStarted | StopAsked | TurnEnding | PromptWaiting | PromptTaken
    | PromptWithdrawn | ModelCallStarted | ModelCallEnded | MessageRecorded | MessageStarted
    | MessageEnded | ToolCalled | ToolStarted | ToolOutput | ToolFinished | ApprovalAsked
    | Settled | ApprovalDecided | Compacted | Rewound | Undone | Visibility | LateResult | LateText
    | LimitsSet | LimitHit
)  # fmt: skip


class Unknown(msgspec.Struct, frozen=True, gc=False):
    """An entry of a kind that this version does not know; `data` is its body as it was stored."""

    name: str
    version: int
    data: bytes


Late = LateResult | LateText | Settled
"""Entries that say more of a turn that is over."""

Body = KnownBody | Unknown


def kind_of(body: Body) -> str:
    """The name of an entry's kind, as stored."""
    return body.name if isinstance(body, Unknown) else str(body.__struct_config__.tag)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One record of a journal, in its place."""

    seq: int
    at_us: int
    body: Body

    @property
    def kind(self) -> str:
        return kind_of(self.body)

    @property
    def version(self) -> int:
        return self.body.version if isinstance(self.body, Unknown) else self.body.v

    @property
    def at(self) -> datetime:
        return moment(self.at_us)


class FollowedDelta(msgspec.Struct, frozen=True, gc=False):
    """A delta as a follower sees it: the seq of the message or tool it belongs to, and the text.

    For a message `message_id` is its id; for a running tool's output `call_id` is set too.
    """

    seq: int
    turn_id: str
    message_id: str
    call_id: str | None
    delta: Delta

    @property
    def kind(self) -> str:
        return "delta"

    @property
    def text(self) -> str:
        return self.delta.text

    @property
    def offset(self) -> int:
        return self.delta.offset

    @property
    def part(self) -> int:
        return self.delta.part
