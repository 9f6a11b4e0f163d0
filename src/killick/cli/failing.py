"""What a failure is called in one line, and its exit code."""

from typing import Final

import click

from killick import errors as e

FAILED: Final = 1
WRONG_USAGE: Final = 2
IN_PART: Final = 3
"""Done, and not all of it is well: damage was met, something is left out."""
NOT_FOUND: Final = 4
CONFLICT: Final = 5
STORE: Final = 6

_CODES: Final[tuple[tuple[type[Exception], int], ...]] = (
    (click.UsageError, WRONG_USAGE),
    (e.SessionDamaged, IN_PART),
    (e.SessionNotFound, NOT_FOUND),
    (e.SessionAmbiguous, NOT_FOUND),
    (e.UsageError, WRONG_USAGE),
    (e.ConflictError, CONFLICT),
    (e.StoreError, STORE),
    (e.SearchDamaged, STORE),
    (e.KillickError, FAILED),
    (OSError, STORE),
    (ValueError, WRONG_USAGE),
)
"""The first that fits."""


def code_of(error: Exception) -> int:
    if isinstance(error, click.ClickException) and not isinstance(error, click.UsageError):
        return FAILED
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)


def explain(error: Exception) -> str:
    """What is wrong, and what to do."""
    match error:
        case click.UsageError():
            return _with_help(error)
        case click.ClickException():
            return error.format_message()
        case e.SessionDeleted():
            return _first_clause(error) + "; 'killick restore ID' brings it back"
        case e.SessionNotFound():
            return _for_people(str(error))
        case e.SessionHasForks():
            return _first_clause(error) + "; --forks erases them with it"
        case e.SessionDamaged():
            return f"{error}; 'killick doctor' says what is left of it"
        case e.UndoRefused():
            return (
                str(error)
                .replace("session.fork(at=", "'killick fork ID --at ")
                .replace(")", "'", 1)
            )
        case e.SessionBusy():
            return _first_clause(error) + "; 'killick stop ID' asks it to end"
        case e.KillickError() | ValueError():
            return _for_people(str(error))
        case PermissionError():
            return f"{error.filename}: you may not; change its permissions, or name another file"
        case OSError():
            name = f"{error.filename}: " if error.filename is not None else ""
            return f"{name}{error.strerror or error}"
        case _:
            return (
                f"unexpected {type(error).__name__}: {error}; KILLICK_TRACEBACK=1 shows where, "
                "please report it"
            )


_WORDS: Final = {
    "store.sessions() lists them": "'killick sessions' lists them",
    "message.seq and entry.seq say which is which": "'killick show ID' has them as #1, #2 …",
    "store.rebuild_search() makes it anew": "'killick doctor --rebuild-search' makes it anew",
    "message.seq says where one is": "'killick show ID' has their places as #1, #2 …",
}
"""What the library tells a program to do, and how a person does the same."""


def _for_people(message: str) -> str:
    for theirs, ours in _WORDS.items():
        message = message.replace(theirs, ours)
    return message


def _first_clause(error: Exception) -> str:
    """What the library says to a program about what to do is left out."""
    return str(error).partition(";")[0]


def _with_help(error: click.UsageError) -> str:
    where = error.ctx.command_path if error.ctx is not None else "killick"
    message = error.format_message().rstrip(".")
    return f"{message}; see '{where} --help'"
