"""How a request's history stands to a stored one."""

from typing import Any

import msgspec
import pytest

from killick.proxy.history import Comparison, compare, sort_fresh
from killick.proxy.request import ModelRequest, read_request

LONG = "A summary of everything that was said about the ducks on the pond."


def _request(*said: Any) -> ModelRequest:
    messages = []
    for one in said:
        match one:
            case ("call", call_id):
                function = {"name": "shell", "arguments": "{}"}
                call = {"id": call_id, "type": "function", "function": function}
                messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
            case ("result", call_id):
                messages.append({"role": "tool", "tool_call_id": call_id, "content": "ok"})
            case (role, text):
                messages.append({"role": role, "content": text})
    return read_request("openai-chat", "", msgspec.json.encode({"messages": messages}))


def _compare(stored: list[Any], asked: list[Any], answers: tuple[str, ...] = ()) -> Comparison:
    units = [piece.unit for piece in _request(*stored).units]
    return compare(units, _request(*asked), answers)


U1, A1, U2, A2 = ("user", "one"), ("assistant", "ONE"), ("user", "two"), ("assistant", "TWO")
C1, R1 = ("call", "c1"), ("result", "c1")


@pytest.mark.parametrize(
    ("stored", "asked", "relation", "shared", "fresh"),
    [
        ([], [U1], "continues", 0, ["user"]),
        ([U1, A1], [U1, A1, U2], "continues", 2, ["user"]),
        ([U1], [U1], "retries", 1, []),
        ([U1, A1], [U1], "retries", 1, []),  # the client never got it
        ([U1, A1], [U1, U2], "forks", 0, None),
        ([U1, C1], [U1, C1, R1], "continues", 2, ["result"]),
        ([U1, C1, R1], [U1, C1, R1], "retries", 3, []),
        ([U1, C1, R1, A1], [U1, C1, R1, U2], "continues", 3, ["user"]),  # it lost an answer
        ([U1, A1, U2, A2], [U1, A1, ("user", "other")], "forks", 2, ["user"]),
        ([U1, A1, U2, A2], [U1, A1], "forks", 2, []),
        ([U1, A1], [("user", "else")], "new", 0, ["user"]),
        (
            [U1, A1],
            [U1, A1, U2, A2, ("user", "three")],
            "continues",
            2,
            ["user", "assistant", "user"],
        ),
        ([U1, A1, U2, A2], [("user", "changed"), A1, U2, A2, U1], "continues", 4, ["user"]),
    ],
)
def test_relation(
    stored: list[Any], asked: list[Any], relation: str, shared: int, fresh: list[str] | None
) -> None:
    found = _compare(stored, asked)
    if fresh is None:  # two prompts in a row are one unit: another one than the stored
        assert found.relation in ("forks", "new")
        return
    assert (found.relation, found.shared) == (relation, shared)
    assert [piece.unit.role for piece in found.fresh] == fresh


def test_a_summary_of_the_models_is_a_compaction() -> None:
    stored = [U1, A1, U2, ("assistant", LONG)]
    found = _compare(stored, [("user", f"So far: {LONG}")], (LONG,))
    assert (found.relation, found.summary) == ("compacts", LONG)


def test_a_summary_before_known_answers_is_a_compaction() -> None:
    stored = [U1, A1, U2, A2, ("user", "three"), ("assistant", "THREE")]
    asked = [("user", "What was said before."), ("assistant", "THREE"), ("user", "four")]
    found = _compare(stored, asked)
    assert (found.relation, found.summary) == ("compacts", "What was said before.")
    assert [piece.text for piece in found.fresh] == ["four"]


def test_reminders_and_cleared_results_are_the_same_history() -> None:
    stored = [("user", "<system-reminder>a</system-reminder>\none"), C1, R1]
    asked = [("user", "<system-reminder>b</system-reminder>\none"), C1, R1, U2]
    assert _compare(stored, asked).relation == "continues"


def test_answers_that_never_passed_here_are_unseen() -> None:
    found = sort_fresh(_compare([U1, A1], [U1, A1, U2, C1, R1]).fresh)
    assert [piece.unit.role for piece in found.unseen] == ["user", "assistant", "result"]
    assert found.results == ()
    assert found.said == ()


def test_a_dropped_call_is_the_same_answer() -> None:
    two = {"id": "c2", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
    one = {**two, "id": "c1"}
    first = {"role": "assistant", "content": "", "tool_calls": [one, two]}
    stored = read_request("openai-chat", "", msgspec.json.encode({"messages": [
        {"role": "user", "content": "one"}, first]}))  # fmt: skip
    found = compare([piece.unit for piece in stored.units], _request(U1, C1, R1, U2))
    assert found.relation == "continues"
