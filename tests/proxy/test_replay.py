"""A recorded session answers the requests that it was recorded from."""

from pathlib import Path

import pytest

from killick.proxy.replay import find_answer, steps_of
from killick.types import Message
from tests.lab.model import Model
from tests.lab.script import Answer, Call, Text
from tests.proxy.asking import SHAPES, ask, stored, text_of
from tests.proxy.bench import proxy

CALL = Call("shell", {"command": "ls"}, "call_1")
TURN = [("user", "What is here?"), ("call", "call_1"), ("result", ("call_1", "a b"))]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_requests_get_the_same_answers(tmp_path: Path, shape: str, stream: bool) -> None:
    store = tmp_path / "s.db"
    with Model([Answer(CALL), Answer(Text("Two files."))]) as model, proxy(store, model.url) as p:
        ask(p.url, shape, TURN[0], stream=stream)
        ask(p.url, shape, *TURN, stream=stream)
        p.end()
    (session,) = stored(store)
    with proxy(store, None, "--replay", session["id"][:12]) as p:
        first = ask(p.url, shape, TURN[0], stream=stream)
        assert first.status_code == 200
        assert b"call_1" in first.content
        other = [*TURN[:2], ("result", ("call_1", "another time"))]
        again = ask(p.url, shape, *other, stream=stream)
        assert text_of(shape, again) == "Two files."
        refused = ask(p.url, shape, ("user", "What else?"), stream=stream)
        assert refused.status_code == 409
        message = refused.json()["error"]["message"]
        assert "unit 1" in message
        assert "What else?" in message
        beyond = ask(p.url, shape, *TURN, ("assistant", "Two files."), ("user", "more"))
        assert beyond.status_code == 409
        p.end()


def test_an_answer_that_was_cut_off_is_not_given_again() -> None:
    from killick.types import Text as Words

    steps = steps_of(
        [
            Message("user", [Words("hello")], seq=1),
            Message("assistant", [Words("half")], seq=2, state="partial"),
        ]
    )
    from killick.proxy.request import Brought, unit_of

    asked = Brought(unit_of("user", [Words("hello")]), (Words("hello"),))
    found = find_answer(steps, [asked])
    assert not isinstance(found, Message)
    assert found.place == 1
