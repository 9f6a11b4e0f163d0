"""The sentences that Killick itself tells a model. Short, true, and always the same.

They are in brackets, so that neither a model nor a person takes them for the words of the other.
"""

from typing import Final

from killick.model.entries import Settled, TurnEnding

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


def ended(ending: TurnEnding, cut: list[str], *, waits: bool, errors: str = "type") -> str:
    """Say how a turn ended that did not complete.

    Of the exception that a turn failed with, its type; its text, which may have paths and addresses
    of the machine in it, only with `errors="text"`.
    """
    reason = ending.reason
    if ending.status == "failed":
        why = reason if errors == "text" else ending.error_type
        sentence = "The turn above failed before it was complete" + (f": {why}." if why else ".")
    else:
        stopped = f"it was stopped ({reason})" if reason else "it was stopped"
        why = _CAUSES.get(ending.cause, stopped)
        if waits:
            why = "the program was ended while it waited for an approval"
        sentence = f"The turn above was interrupted before it was complete: {why}."
    return f"[{sentence}{''.join(cut)}]"


def cut_off(cut: list[str]) -> str:
    """Say that an answer broke off, though its turn went on."""
    return f"[The answer above was cut off before it was complete.{''.join(cut)}]"


def cut_call(name: str, *, seen: bool) -> str:
    """Say that a call broke off; that it did not run, only a recorder that sees starts can say."""
    so = ", so it did not run" if seen else ""
    return f" A call to {name} was cut off while its arguments were written{so}."


_CHECK: Final = "Check what it did before repeating it."
_NOTHING: Final = "(no output)"
_RECORDED: Final = "[Recorded as its result:]"
_UNSEEN: Final = "left no result, and whether it ran was not seen"


def outcome(state: str, detail: str, *, started: bool) -> str:
    """Say in place of a call's result why there is none."""
    match state:
        case "not run":
            return "[This tool call did not run.]"
        case "denied":
            return _denied("[This tool call was denied, so it did not run.]", detail)
        case "running":
            sentence = "This tool call is still running and has no result yet."
        case _:
            why = "was started and left no result" if started else _UNSEEN
            sentence = f"The outcome of this tool call is unknown: it {why}. {_CHECK}"
    return _with_output(f"[{sentence}]", detail)


def since(name: str, call_id: str, state: str, detail: str, *, started: bool) -> str:
    """Say what became true of a call after a model was sent something else in its place."""
    call = f"The tool call {call_id} ({name}) above"
    match state:
        case "not run":
            return f"[{call} is not denied any more. It did not run so far.]"
        case "denied":
            return _denied(f"[{call} was denied since, so it did not run.]", detail)
        case "running":
            sentence = f"{call} was started since. It is still running and has no result yet."
        case _:
            why = "was started and left no result" if started else _UNSEEN
            sentence = f"{call} {why}, so its outcome is unknown. {_CHECK}"
    return _with_output(f"[{sentence}]", detail)


def denied_result(reason: str, content: str) -> str:
    """Say that a call was denied for which a result was recorded all the same."""
    return f"{_denied('[This tool call was denied.]', reason)}\n{_RECORDED}\n{content or _NOTHING}"


def denied_result_since(name: str, call_id: str, reason: str, content: str) -> str:
    """Say the same of a call of which a model was told before."""
    sentence = f"[The tool call {call_id} ({name}) above was denied since.]"
    return f"{_denied(sentence, reason)}\n{_RECORDED}\n{content or _NOTHING}"


def settled(finding: Settled, output: str) -> str:
    """Say in place of a call's result what was found out about its unknown outcome."""
    sentence = f"[The outcome of this tool call was unknown. {_finding(finding)}.]"
    return _with_output(_with_findings(sentence, finding), output)


def settled_since(finding: Settled, name: str, call_id: str, output: str) -> str:
    """Say that a call was settled after a model was sent something else in its place."""
    call = f"The tool call {call_id} ({name}) above"
    sentence = f"[{call} was settled since. {_finding(finding)}.]"
    return _with_output(_with_findings(sentence, finding), output)


def had_settled(finding: Settled, name: str, call_id: str) -> str:
    """Say, beside a result that came after all, what had been found out before."""
    call = f"The tool call {call_id} ({name}) above"
    sentence = f"[{call} was settled before its result came. {_finding(finding)}.]"
    return _with_findings(sentence, finding)


def gone_settled(finding: Settled, name: str) -> str:
    """Say what was found out about a call that is not shown."""
    call = f"A tool call that is not shown here, {finding.call_id} ({name}),"
    return _with_findings(f"[{call} was settled since. {_finding(finding)}.]", finding)


def _finding(finding: Settled) -> str:
    who = "A check found out" if finding.by == "check" else "A person found out"
    return f"{who} that it {'did not run' if finding.outcome == 'did_not_run' else 'ran'}"


def _with_findings(sentence: str, finding: Settled) -> str:
    if finding.result:
        sentence = f"{sentence}\nWhat it gave, as was found out:\n{finding.result}"
    if finding.evidence:
        sentence = f"{sentence}\nThe evidence given:\n{finding.evidence}"
    return sentence


def _denied(sentence: str, reason: str) -> str:
    return f"{sentence}\nThe reason given:\n{reason}" if reason.strip() else sentence


def _with_output(sentence: str, output: str) -> str:
    return f"{sentence}\nOutput so far:\n{output}" if output else sentence


def late_result(name: str, call_id: str, content: str, *, is_error: bool) -> str:
    call, outcome = f"The tool call {call_id} ({name}) above", "failed" if is_error else "finished"
    return f"[{call} has {outcome} since. Its result:]\n{content or _NOTHING}"


def failed(content: str) -> str:
    """Say that a tool failed, where a provider's shape has no other way to say it."""
    return f"[This tool call failed.]\n{content}"


def no_output(*, is_error: bool) -> str:
    return "[This tool call failed and gave no output.]" if is_error else _NOTHING


def no_text() -> str:
    """Say in place of a result's text that it is images or files alone."""
    return "[What this tool returned has no text.]"


def hosted(name: str, given: str, *, ended: bool, failed: bool) -> str:
    """Say that the provider ran a tool of its own, and what came of it as far as is recorded."""
    what = f"its own tool {name}" + (f" with {given}" if given else "")
    if not ended:
        return f"[The model's provider began to run {what} here; no result of it stands here.]"
    return f"[The model's provider ran {what} here, and it {'failed' if failed else 'finished'}.]"


def hosted_result(*, failed: bool) -> str:
    state = "failed" if failed else "finished"
    return f"[A tool that the model's provider ran itself {state} here.]"


def late_text(text: str, calls: list[str]) -> str:
    """Say what came of an answer after it was over; what it called then was never run."""
    if not text:
        return f"[The answer that was cut off above went on.{''.join(calls)}]"
    spoken = f"[The answer that was cut off above went on:]\n{text}"
    return f"{spoken}\n[{''.join(calls).strip()}]" if calls else spoken


def late_call(name: str, *, seen: bool) -> str:
    so = "so it did not run" if seen else "and whether it ran was not seen"
    return f" A call to {name} came after the answer was over, {so}."


def orphan_result(call_id: str, name: str | None, content: str, *, is_error: bool) -> str:
    """Say what came for a call that is not shown; `name` is that of its tool, where it is known."""
    if name is None:
        what = "A failed tool result" if is_error else "A tool result"
        return f"[{what} without its call ({call_id}):]\n{content or _NOTHING}"
    outcome = "failed" if is_error else "finished"
    return (
        f"[A tool call that is not shown here, {call_id} ({name}), has {outcome} since. "
        f"Its result:]\n{content or _NOTHING}"
    )


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


def trimmed_after() -> str:
    return "[What followed is left out here.]"


def cut_result(call_id: str, missing: int, total: int, *, media: bool) -> str:
    """Say how much of a result is not sent, and which call has it."""
    left = [f"{missing} of {total} characters"] if missing else []
    left += ["the images and files"] if media else []
    return f"[Of the result of the call {call_id}, {' and '.join(left)} are left out here.]"


def cut_text(missing: int, total: int) -> str:
    return f"[{missing} of {total} characters are left out here.]"


def no_answer() -> str:
    """Stand between results and a user's message, for a server that wants an answer there."""
    return "[There was no answer.]"


def unanswered() -> str:
    return "[The message above was not answered.]"


def file_text(name: str, text: str) -> str:
    """Give a file's text to a provider that takes no such files."""
    return f"[File {name}:]\n{text}"


def system_said(text: str) -> str:
    return f"[System: {text}]"
