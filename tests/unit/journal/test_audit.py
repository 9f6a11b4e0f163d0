"""What an examination says of a journal whose prompts did not wait as they must."""

from killick.journal.audit import audit
from killick.model import entries as e
from killick.model.messages import Text

CREATED = e.SessionCreated(title=None)
QUEUED = e.PromptWaiting(id="q", role="user", parts=(Text("later"),))
WITHDRAWN = e.PromptWithdrawn(id="q")
BEGUN = e.TurnStarted(turn_id="t", fence=1, holder="h")
TAKEN = e.PromptTaken(id="q", turn_id="t")
ENDED = e.TurnEnding(turn_id="t", status="completed")


def found(*bodies: e.Body) -> list[str]:
    entries = [e.Entry(seq, seq, body) for seq, body in enumerate((CREATED, *bodies), start=1)]
    return [said.partition(": ")[2] for _, said in audit(entries)]


def test_a_prompt_waits_until_it_is_taken_or_withdrawn() -> None:
    assert found(QUEUED, WITHDRAWN, BEGUN, ENDED) == []
    assert found(QUEUED, BEGUN, TAKEN, ENDED) == []


def test_what_never_waited_is_neither_withdrawn_nor_taken() -> None:
    assert found(WITHDRAWN) == ["prompt 'q' was withdrawn and did not wait"]
    assert found(BEGUN, TAKEN, ENDED) == ["prompt 'q' was taken and did not wait"]


def test_what_was_withdrawn_is_not_taken() -> None:
    assert found(QUEUED, WITHDRAWN, BEGUN, TAKEN, ENDED) == [
        "prompt 'q' was taken and did not wait"
    ]
