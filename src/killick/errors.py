"""Every error Killick raises, grouped by what the caller should do about it.

::

    KillickError
    ├── UsageError         the call was wrong; do not repeat it as it is
    │   ├── InvalidEntry       content that cannot be recorded (says which limit or rule)
    │   ├── InvalidQuery       a search in which nothing to look for can be found
    │   ├── InvalidCursor      no place at which a follower could go on
    │   ├── BudgetTooSmall     not even the running turn's prompt fits the limits of a context
    │   ├── SessionNotFound
    │   │   └── SessionDeleted     … any more; it can be restored
    │   ├── SessionAmbiguous   several ids begin like this; names them
    │   ├── TurnNotFound · SeqNotFound · MessageNotFound · CallNotFound · BlobNotFound
    │   ├── HandleClosed       a delta to a closed stream, a store that was closed
    │   ├── ForeignHandle      a turn or stream inherited through fork()
    │   └── ToolNotFinished    a tool block was left without finish()
    ├── ConflictError      another caller was first; read again, then decide
    │   ├── IdConflict         the same id or key was recorded with other content
    │   ├── SessionBusy        a turn is running; names its holder
    │   │   └── PromptQueued       … and the prompt was kept for the next turn, as asked
    │   ├── UndoRefused        something was said since (fork instead), or nothing was done
    │   ├── SessionHasForks    other sessions are made of this one's entries
    │   ├── ToolAlreadyStarted the call was started before; it is never run twice by accident
    │   │   └── OutcomeUnsettled   … and its outcome is unknown: find out, then settle it
    │   ├── CallFinished       the call has its real result; there is nothing to settle
    │   ├── WorkLost           the work lapsed, or another caller went first; take other work
    │   ├── ToolNotApproved    a person was asked about the call, and has not allowed it
    │   └── TurnEnded          the turn has its one ending
    │       └── StaleFence         … and another turn has begun since
    ├── LimitReached       the session or turn has spent what it may; a person allows more
    ├── TurnStopped        this turn was asked to stop; leaving the block ends it
    ├── StreamCut          the provider's stream ended early; what came is kept, ask again
    ├── StoreError         the database cannot serve; the driver's error is the cause
    │   ├── StoreDegraded      the write could not be made durable; nothing was acknowledged
    │   │   └── OutcomeUnknown     … and whether it is stored could not be found out
    │   ├── StoreBusy          another process kept the write lock for too long
    │   ├── StoreReadOnly · StoreNotOurs · StoreNewer · StoreOnNetwork · StoreReplaced
    │   └── SqliteTooOld · ServerTooOld
    ├── SessionDamaged     stored bytes do not decode or verify; other sessions are unaffected
    ├── SearchDamaged      the search index cannot be used; everything else can
    └── ExtraMissing       packages of an extra are not installed; the text says how they are

Interruption is not an error of ours: a cancelled block re-raises what interrupted it.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class KillickError(Exception):
    """Base of everything raised on purpose by this package."""


class UsageError(KillickError):
    """The call broke the contract; repeating it will fail again."""


class InvalidEntry(UsageError, ValueError):
    """The content cannot be recorded; nothing was stored."""


class InvalidQuery(UsageError, ValueError):
    """The search says nothing that could be looked for; the text says what to write instead."""


class InvalidCursor(UsageError, ValueError):
    """The text is no cursor that a follower gave."""


class BudgetTooSmall(UsageError, ValueError):
    """The running turn's prompt alone is more than a context may have; the text names both."""


class SessionNotFound(UsageError, LookupError):
    """No session has this id in this store."""


class SessionDeleted(SessionNotFound):
    """The session was deleted; restore it first. A live writer cannot bring it back."""


class SessionAmbiguous(UsageError):
    """Several sessions have ids that begin like this. `candidates` are some of them."""

    def __init__(self, message: str, *, candidates: tuple[str, ...]) -> None:
        super().__init__(message)
        self.candidates = candidates


class TurnNotFound(UsageError, LookupError):
    """The session has no turn with this id."""


class SeqNotFound(UsageError, LookupError):
    """No entry of the session has that seq yet; `head` is the last that there is."""

    def __init__(self, message: str, head: int = 0) -> None:
        super().__init__(message)
        self.head = head


class MessageNotFound(UsageError, LookupError):
    """The turn has no message with this id."""


class CallNotFound(UsageError, LookupError):
    """No whole tool call with this id was made in the turn."""


class BlobNotFound(UsageError, LookupError):
    """No blob with this hash is stored for this tenant."""


class HandleClosed(UsageError):
    """The stream, tool or store behind this object was closed."""


class ForeignHandle(UsageError):
    """A turn or stream was inherited through fork(); it belongs to the parent process."""


class ToolNotFinished(UsageError):
    """A tool block was left without calling finish()."""


class ConflictError(KillickError):
    """Another caller was first; read again, then decide."""


class IdConflict(ConflictError):
    """The same id or key is already recorded, with other content; nothing was changed."""


class SessionBusy(ConflictError):
    """A turn of the session is running. `turn_id` and `holder` say which, and where."""

    def __init__(self, message: str, *, turn_id: str, holder: str) -> None:
        super().__init__(message)
        self.turn_id = turn_id
        self.holder = holder


class PromptQueued(SessionBusy):
    """A turn is running; the prompt was kept durably and the next turn takes it."""

    def __init__(self, message: str, *, turn_id: str, holder: str, prompt_id: str) -> None:
        super().__init__(message, turn_id=turn_id, holder=holder)
        self.prompt_id = prompt_id


class UndoRefused(ConflictError):
    """Something was said since a rewind (fork instead), or there is nothing to undo."""


class SessionHasForks(ConflictError):
    """Other sessions are made of this one's entries. `forks` are their ids."""

    def __init__(self, message: str, *, forks: tuple[str, ...]) -> None:
        super().__init__(message)
        self.forks = forks


class ToolAlreadyStarted(ConflictError):
    """The call was started before; whether to run it again is for the caller to decide."""


class OutcomeUnsettled(ToolAlreadyStarted):
    """The call was started, left no result, and must not have its effect twice.

    `turn_id` and `call_id` name it: find out what it did, then `session.settle(…)`.
    """

    def __init__(self, message: str, *, turn_id: str, call_id: str) -> None:
        super().__init__(message)
        self.turn_id = turn_id
        self.call_id = call_id


class CallFinished(ConflictError):
    """The call has its real result, which no finding can change."""


class WorkLost(ConflictError):
    """The token stands for no work any more: it lapsed, was used, or a person went first."""


class ToolNotApproved(ConflictError):
    """A person was asked about the call and has not decided yet, or has `denied` it.

    `approval_id` names the question.
    """

    def __init__(self, message: str, *, approval_id: str, denied: bool = False) -> None:
        super().__init__(message)
        self.approval_id = approval_id
        self.denied = denied


class TurnEnded(ConflictError):
    """The turn has ended; it can take late results and text, nothing else.

    `status`, `cause` and `reason` are those of its ending, where they are known.
    """

    status: str | None = None
    reason: str | None = None
    cause: str | None = None


class StaleFence(TurnEnded):
    """The turn has ended and another has begun since; this holder was fenced out."""


class LimitReached(KillickError):
    """A model call would spend more than its turn, its session or a parent of it may.

    `limit` is "calls", "tokens", "seconds" or "cost", `of` the session whose it is, None for the
    turn's own. Of what was `spent`, `estimated` calls had no usage.
    """

    def __init__(
        self,
        text: str,
        *,
        limit: str,
        amount: float,
        spent: float,
        estimated: int,
        of: str | None,
        session_id: str,
    ) -> None:
        super().__init__(text)
        self.limit = limit
        self.amount = amount
        self.spent = spent
        self.estimated = estimated
        self.of = of
        self.session_id = session_id


class TurnStopped(KillickError):
    """This turn was asked to stop. Let it leave the block: the turn ends as interrupted."""

    def __init__(self, message: str, *, reason: str, cause: str = "stopped") -> None:
        super().__init__(message)
        self.reason = reason
        self.cause = cause


class StreamCut(KillickError):
    """The provider's stream ended without its end mark; what came is kept as a partial message.

    `message_id` names it, `characters` counts its text, `calls` are the ids of its whole calls.
    """

    def __init__(
        self, message: str, *, message_id: str, characters: int, calls: tuple[str, ...]
    ) -> None:
        super().__init__(message)
        self.message_id = message_id
        self.characters = characters
        self.calls = calls


class StoreError(KillickError):
    """The database could not serve; the driver's own error is the cause."""


class StoreDegraded(StoreError):
    """The write could not be made durable and was not acknowledged."""


class OutcomeUnknown(StoreDegraded):
    """The server went away during the commit, and did not come back to tell what became of it.

    The write may be stored or not; no caller was told that it is. With an id or key of the caller's
    own it can be made again: what is stored is found and not stored twice.
    """


class StoreBusy(StoreError):
    """Another process kept the write lock longer than this store waits."""


class StoreReadOnly(StoreError):
    """The store, its folder or its file system does not allow writing."""


class StoreNotOurs(StoreError):
    """The file is a database, or something else, that Killick did not make."""


class StoreNewer(StoreError):
    """The store was written by a newer Killick that this one may not open."""


class StoreOnNetwork(StoreError):
    """The file lies on a network file system, where SQLite's locks cannot be trusted."""


class StoreReplaced(StoreError):
    """The store's file was replaced or deleted while open, or the log beside it is another's."""


class SqliteTooOld(StoreError):
    """The SQLite library has a bug that can corrupt the file; a newer one is needed."""


class ServerTooOld(StoreError):
    """The PostgreSQL server is older than what a store needs."""


class SessionDamaged(KillickError):
    """Stored bytes of one session do not decode or verify. `seq` is the first bad entry."""

    def __init__(self, message: str, *, session_id: str, seq: int | None) -> None:
        super().__init__(message)
        self.session_id = session_id
        self.seq = seq


class SearchDamaged(KillickError):
    """The search index cannot be used; store.rebuild_search() makes it anew from the journals."""


class ExtraMissing(KillickError):
    """Packages of an `extra` are not installed; the text says how they are."""

    def __init__(self, message: str, *, extra: str) -> None:
        super().__init__(message)
        self.extra = extra


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Raise ExtraMissing for a package that cannot be imported, and that `what` needs."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "killick":
            raise
        raise ExtraMissing(
            f"{what} needs {error.name or error}; {install_hint(extra)}", extra=extra
        ) from error


def install_hint(extra: str) -> str:
    """Say how the packages of an extra are installed, from a clone until it is published."""
    return f"install it in a clone of Killick: pip install '.[{extra}]'"
