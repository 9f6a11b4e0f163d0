"""The sentences that Killick itself tells a model. Short, true, and always the same.

They are in brackets, so that neither a model nor a person takes them for the words of the other.
"""

from killick.model.entries import TurnEnding

_CAUSES: dict[str | None, str] = {
    "cancelled": "it was cancelled",
    "timed_out": "it took too long",
    "client_gone": "the user's connection was closed",
    "shut_down": "the server was shut down",
    "terminated": "the program was ended",
    "crashed": "the program crashed",
    "taken_over": "another process took over",
    "abandoned": "the program gave it up",
    "deleted": "the session was deleted",
}
"""Of a person's stop, and of a cause that is not here, the model is told the reason."""


def ended(ending: TurnEnding, cut: list[str], *, waits: bool) -> str:
    """Say how a turn ended that did not complete."""
    reason = ending.reason
    if ending.status == "failed":
        sentence = f"The turn above failed before it was complete: {reason}."
    else:
        stopped = f"it was stopped ({reason})" if reason else "it was stopped"
        why = _CAUSES.get(ending.cause, stopped)
        if waits:
            why = "the program was ended while it waited for an approval"
        sentence = f"The turn above was interrupted before it was complete: {why}."
    return f"[{sentence}{_cut_calls(cut)}]"


def cut_off(cut: list[str]) -> str:
    """Say that an answer broke off, though its turn went on."""
    return f"[The answer above was cut off before it was complete.{_cut_calls(cut)}]"


def did_not_run() -> str:
    return "[This tool call did not run.]"


def unknown(output: str, *, running: bool) -> str:
    """Say that a tool was started and has no result; it may have completed."""
    state = (
        "This tool call is still running and has no result yet."
        if running
        else "The outcome of this tool call is unknown: it was started and left no result. Check "
        "what it did before repeating it."
    )
    return f"[{state}]" + (f"\nOutput so far:\n{output}" if output else "")


def late_result(name: str, call_id: str, content: str, *, is_error: bool) -> str:
    outcome = "failed" if is_error else "finished"
    return f"[The tool call {call_id} ({name}) above has {outcome} since. Its result:]\n{content}"


def late_text(text: str) -> str:
    return f"[The answer that was cut off above went on:]\n{text}"


def orphan_result(call_id: str, content: str) -> str:
    return f"[A tool result without its call ({call_id}):]\n{content}"


def hidden_result() -> str:
    return "[What this tool returned is hidden.]"


def summary(text: str) -> str:
    """Say that this stands in place of messages that were compacted."""
    return f"[The conversation so far was summarised:]\n{text}"


def left_out(what: str) -> str:
    """Say that something is not sent: the provider does not take it, or it is not stored."""
    return f"[{what} is left out here.]"


def beginning() -> str:
    return "[The conversation begins here.]"


def trimmed() -> str:
    return "[Earlier messages are left out here.]"


def system_said(text: str) -> str:
    return f"[System: {text}]"


def _cut_calls(names: list[str]) -> str:
    return "".join(
        f" A call to {name} was cut off while its arguments were written, so it did not run."
        for name in names
    )
