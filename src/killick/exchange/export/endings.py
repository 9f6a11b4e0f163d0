"""Sentences for people: why a turn ended, and what to do about it. Pure.

What a provider wrote in its error may hold a key, an address or what was said: none of it is shown.
"""

import re
from typing import Final

_CAUSES: Final = {
    "stopped": "It was stopped.",
    "cancelled": "It was cancelled.",
    "timed_out": "It took too long.",
    "client_gone": "The client that it ran for went away.",
    "shut_down": "The server was shut down while it ran.",
    "terminated": "The process that ran it ended.",
    "crashed": "The process that ran it died.",
    "taken_over": "Another process took the session over.",
    "abandoned": "The program that ran it let go of it.",
    "deleted": "The session was deleted while it ran.",
    "forked": "It still ran when the session was forked.",
    "other": "It was interrupted.",
}
_WAITED: Final = "It waits for a decision of yours; the process that asked has ended."
_REASONS: Final = {
    "keyboard_interrupt": "It was cancelled with Ctrl+C.",
    "terminal_closed": "The terminal that it ran in was closed.",
    "system_exit": "The program that ran it ended.",
    "process_exit": "The process that ran it ended.",
    "store_closed": "The program closed its store while it ran.",
    "outcome_unknown": "Whether its last write is stored could not be found out.",
    "awaiting_approval": _WAITED,
    "interrupted by the next turn": "The next prompt interrupted it.",
    "on the web page": "It was stopped on the web page.",
    "the server was shut down": "The server was shut down while it ran.",
}
_FAILURES: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), words)
    for pattern, words in (
        (r"LimitReached",
         "What this session may spend is spent. Allow it more, then continue."),
        (r"insufficient_quota|quota|billing|credit balance|\b402\b",
         "The account at the provider is used up. Add credit there, then answer again."),
        (r"rate.?limit|too many requests|\b429\b",
         "The provider takes no more requests for now. Wait a minute, then answer again."),
        (r"authenti|unauthori[sz]ed|api.?key|permission.?denied|\b401\b|\b403\b",
         "The provider refused the key. Check the key that the server was started with, then "
         "answer again."),
        (r"context.?(length|window)|maximum context|prompt is too long|too many tokens|\b413\b",
         "The conversation is longer than the model takes. Compact it, then answer again."),
        (r"model.?not.?found|no such model|does not exist|\b404\b",
         "The provider does not have this model. Check the name that the server was started with."),
        (r"overloaded|unavailable|internal server error|bad gateway|\b50[0234]\b|\b529\b",
         "The provider failed or is overloaded. Answer again in a moment."),
        (r"timed? ?out|TimeoutError|Timeout\b",
         "The provider did not answer in time. Answer again in a moment."),
        (r"connect|network|getaddrinfo|name resolution|unreachable|\bSSL\b|StreamCut",
         "The connection to the provider broke, or there was none. Check the network of the "
         "server, then answer again."),
        (r"\b400\b|invalid_request|bad request",
         "The provider refused the request. Look at what the model was sent, or answer again with "
         "another model."),
    )
)  # fmt: skip
_TYPE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{2,60}(?=:|\(|$)")


def ending_words(
    status: str | None, cause: str | None, reason: str | None, detail: str | None
) -> str | None:
    """Say why a turn ended, and what to do; None when it completed or still runs."""
    if status == "failed":
        return _failed(reason or "", detail or "")
    if status != "interrupted":
        return None
    if reason in _REASONS:
        return _REASONS[reason]
    words = _CAUSES.get(cause or "other", _CAUSES["other"])
    spoken = " ".join((reason or "").split())
    if cause in ("stopped", "other") and spoken and spoken not in (cause, "stopped"):
        return f"{words[:-1]}: {spoken[:200]}."
    return words


def ending_sentences(status: str | None, cause: str | None, reason: str | None) -> str:
    """How a turn ended, and why, for an export."""
    how = "failed" if status == "failed" else "was interrupted"
    return f"The turn {how}. {ending_words(status, cause, reason, None) or ''}"


def _failed(reason: str, detail: str) -> str:
    text = f"{reason} {detail}"
    for pattern, words in _FAILURES:
        if pattern.search(text):
            return words
    kind = _TYPE.match(reason)
    named = f" ({kind[0].rpartition('.')[2]})" if kind and not kind[0].islower() else ""
    where = "The log of the server names the place."
    return f"The agent failed{named}. {where} Answer again, or ask in other words."
