"""What a model is sent keeps its laws, for every prefix of every journal a store can leave."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from killick.model import entries as e
from killick.model.messages import ToolCall, ToolResult
from killick.testing.strategies import journals
from killick.views.budget import Budget
from killick.views.context import FORMATS, Context, compute
from killick.views.neutral import build
from torture.campaigns.contexts import VALIDATORS, stays, within

PROVIDERS = [name for name in FORMATS if name != "neutral"]

many = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
most = settings(many, max_examples=200)
"""Of journals with about thirty prefixes each, in four formats: over twenty thousand contexts."""


def context(entries: list[e.Entry], format_: str) -> Context:
    return compute(entries, format_, blobs=lambda name: b"Be brief.")


@pytest.mark.parametrize("format_", PROVIDERS)
@most
@given(journal=journals())
def test_every_prefix_is_accepted(format_: str, journal: list[e.Entry]) -> None:
    """Whatever state a conversation was left in, the provider takes it."""
    judge_every_prefix(format_, journal)


def judge_every_prefix(format_: str, journal: list[e.Entry]) -> None:
    for end in range(len(journal) + 1):
        found = context(journal[:end], format_)
        assert VALIDATORS[format_](found.messages, found.system) == [], found.messages


@pytest.mark.parametrize("format_", PROVIDERS)
@settings(many, max_examples=25)
@given(journal=journals(), limit=st.integers(1, 400))
def test_a_budget_of_every_size_keeps_the_running_prompt(
    format_: str, journal: list[e.Entry], limit: int
) -> None:
    """It is accepted, it holds, and only where the prompt alone is too large it is refused."""
    for budget in (Budget(messages=limit), Budget(tokens=limit), Budget(bytes=limit * 5)):
        within(journal, format_, budget)


@many
@given(journals())
def test_every_call_has_exactly_one_result_directly_behind_it(journal: list[e.Entry]) -> None:
    for end in range(len(journal) + 1):
        asked: list[str] = []
        seen: set[str] = set()
        for message in build(journal[:end]).finish():
            calls = [part.id for part in message.parts if isinstance(part, ToolCall)]
            results = [part.call_id for part in message.parts if isinstance(part, ToolResult)]
            assert results == asked
            assert not seen & set(calls), "an id occurs twice"
            seen |= set(calls)
            asked = calls
        assert asked == []


@pytest.mark.parametrize("format_", PROVIDERS)
@many
@given(journal=journals())
def test_what_was_sent_is_a_prefix_of_what_is_sent_next(
    format_: str, journal: list[e.Entry]
) -> None:
    """But for what means to change it: compacting, rewinding, hiding, and undoing these."""
    stays(journal, format_)


@pytest.mark.parametrize("format_", PROVIDERS)
@many
@given(journal=journals())
def test_the_same_entries_give_the_same_bytes(format_: str, journal: list[e.Entry]) -> None:
    first, again = context(journal, format_), context(journal, format_)
    assert json.dumps(first.messages) == json.dumps(again.messages)
    assert len(first.origins) == len(first.messages)


@many
@given(journals(history=False))
def test_each_ending_that_was_not_completed_is_told_once(journal: list[e.Entry]) -> None:
    endings = [entry.body for entry in journal if isinstance(entry.body, e.TurnEnding)]
    told = json.dumps(context(journal, "neutral").messages).count("[The turn above ")
    assert told == len([body for body in endings if body.status != "completed"])


@many
@given(journals(history=False))
def test_the_truth_about_each_tool_is_told(journal: list[e.Entry]) -> None:
    """A result that was recorded is there, in its place or as text, once its call is said."""
    text = json.dumps(context(journal, "neutral").messages)
    bodies = [entry.body for entry in journal]
    said = {body.id for body in bodies if isinstance(body, e.MessageRecorded | e.MessageEnded)}
    for entry in journal:
        if isinstance(entry.body, e.ToolFinished | e.LateResult) and entry.body.message_id in said:
            content = entry.body.result.content
            assert isinstance(content, str)
            assert json.dumps(content)[1:-1] in text
