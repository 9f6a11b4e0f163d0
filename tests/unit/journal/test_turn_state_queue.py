"""Which prompts wait."""

from killick.journal import turn_state
from killick.model import entries as e
from killick.model.messages import Text


def _entries(*bodies: e.Body) -> list[e.Entry]:
    return [e.Entry(seq, 0, body) for seq, body in enumerate(bodies, start=1)]


def _queued(name: str) -> e.PromptWaiting:
    return e.PromptWaiting(id=name, role="user", parts=(Text(f"text of {name}"),))


def test_what_was_taken_or_withdrawn_waits_no_more() -> None:
    taken = e.PromptTaken(id="b", turn_id="t")
    found = turn_state.waiting(
        _entries(_queued("a"), _queued("b"), _queued("c"), taken, e.PromptWithdrawn(id="a"))
    )
    assert [(name, one.text, one.seq) for name, one in found.items()] == [("c", "text of c", 3)]


def test_they_wait_in_the_order_in_which_they_came() -> None:
    found = turn_state.waiting(_entries(_queued("b"), e.Pinned(id="p", pinned=True), _queued("a")))
    assert list(found) == ["b", "a"]
