"""The sentences that a model is told and nobody has said. Short, true, and always the same.

They are in brackets, so that neither a model nor a person takes them for the words of the other.
"""

_REASONS = {
    "cancelled": "it was cancelled",
    "keyboard_interrupt": "the user interrupted it",
    "closed": "the user stopped reading it",
    "system_exit": "the program was ended",
    "process_exit": "the program was ended",
    "store_closed": "the program was ended",
    "abandoned": "the program gave it up",
    "crashed": "the program crashed",
    "terminated": "the program was ended",
    "terminal_closed": "the user's terminal was closed",
    "left": "the user left",
    "taken_over": "another process took over",
    "deleted": "the session was deleted",
    "awaiting_approval": "the program was ended while it waited for an approval",
}


def ended(status: str, reason: str | None, cut: list[str]) -> str:
    """How a turn ended that did not complete."""
    if status == "failed":
        sentence = f"The turn above failed before it was complete: {reason}."
    else:
        why = _REASONS.get(
            reason or "", f"it was stopped ({reason})" if reason else "it was stopped"
        )
        sentence = f"The turn above was interrupted before it was complete: {why}."
    return f"[{sentence}{_cut_calls(cut)}]"


def cut_off(cut: list[str]) -> str:
    """An answer broke off, and its turn went on."""
    return f"[The answer above was cut off before it was complete.{_cut_calls(cut)}]"


def did_not_run() -> str:
    return "[This tool call did not run.]"


def unknown(output: str, *, running: bool) -> str:
    """A tool was started and has no result: nobody may be told that it did not complete."""
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
    """What stands in place of messages that were compacted."""
    return f"[The conversation so far was summarised:]\n{text}"


def left_out(what: str) -> str:
    """Something that this provider does not take, or that is not stored any more."""
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
