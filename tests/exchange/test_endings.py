"""Why a turn ended, in words that say what to do and hold nothing of a provider's text."""

import pytest

from killick.exchange.export.endings import ending_words
from killick.model.causes import CAUSES

KEY = "sk-live-0123456789abcdef"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (f"AuthenticationError: Error code: 401 - invalid x-api-key {KEY}", "refused the key"),
        (f"RateLimitError: 429 Too Many Requests {KEY}", "Wait a minute"),
        (f"APIStatusError: insufficient_quota {KEY}", "Add credit"),
        (f"BadRequestError: 400 prompt is too long: 210000 tokens {KEY}", "Compact it"),
        (f"NotFoundError: model_not_found {KEY}", "does not have this model"),
        (f"APIStatusError: 529 overloaded_error {KEY}", "Answer again in a moment"),
        (f"APITimeoutError: Request timed out. {KEY}", "did not answer in time"),
        (f"ConnectError: All connection attempts failed {KEY}", "Check the network"),
        (f"ValueError: strange {KEY}", "The agent failed (ValueError)."),
        (KEY, "The agent failed."),
    ],
)
def test_a_failure_says_what_to_do_and_never_the_text(reason: str, words: str) -> None:
    said = ending_words("failed", "failed", reason, None) or ""
    assert words in said
    assert KEY not in said


def test_every_cause_has_a_sentence_and_no_code() -> None:
    for cause in CAUSES:
        said = ending_words("interrupted", cause, cause, None)
        assert said
        assert said.endswith(".")
        assert "_" not in said
    assert ending_words("interrupted", "cancelled", "keyboard_interrupt", None) == (
        "It was cancelled with Ctrl+C."
    )
    assert ending_words("interrupted", "stopped", "enough  now", None) == (
        "It was stopped: enough now."
    )


def test_what_completed_or_runs_has_no_words() -> None:
    assert ending_words("completed", None, None, None) is None
    assert ending_words(None, None, None, None) is None
