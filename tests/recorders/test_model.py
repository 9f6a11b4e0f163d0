"""A real, small model through the first three shapes: recorded, broken off, and asked again."""

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from killick import Session, Store
from killick.agent.embedded import model_file, serving_model
from killick.recorders import record
from killick.views import validators
from tests.recorders.accumulated import ACCUMULATORS, Plain, recorded

pytestmark = [
    pytest.mark.skipif(model_file() is None, reason="requirements/model.lock is not there"),
    pytest.mark.timeout(300),  # a model shares the cores with whatever else runs
]

SHAPES = ("openai-chat", "openai-responses", "anthropic")
LIMIT = 16


class Asker:
    """The SDKs, pointed at the model."""

    def __init__(self, url: str) -> None:
        self._openai = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
        self._anthropic = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)

    def request(self, shape: Any, session: Session) -> dict[str, Any]:
        messages = session.context(shape).messages
        if shape == "openai-responses":
            return {"model": "smol", "input": messages, "max_output_tokens": LIMIT}
        return {"model": "smol", "messages": messages, "max_tokens": LIMIT}

    def stream(self, shape: str, request: dict[str, Any]) -> Any:
        match shape:
            case "openai-chat":
                return self._openai.chat.completions.create(stream=True, **request)
            case "openai-responses":
                return self._openai.responses.create(stream=True, **request)
        return self._anthropic.messages.create(stream=True, **request)

    def close(self) -> None:
        self._openai.close()
        self._anthropic.close()


class Final:
    """The server leaves out the places of its items, which the SDK's accumulator does not take."""

    def take(self, item: Any) -> None:
        if item.type == "response.completed":
            self.text = item.response.output_text

    def plain(self) -> Plain:
        return [("text", self.text)]


@pytest.fixture(scope="module")
def asker() -> Iterator[Asker]:
    with serving_model() as url:
        opened = Asker(url)
        yield opened
        opened.close()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_models_answer_is_what_its_sdk_built(store: Store, asker: Asker, shape: Any) -> None:
    session = store.create_session()
    accumulator = Final() if shape == "openai-responses" else ACCUMULATORS[shape]()
    with session.turn("Name three colours.") as turn:
        request = asker.request(shape, session)
        for item in record(turn, shape, asker.stream(shape, request), request=request):
            accumulator.take(item)
    message = session.messages()[1]
    assert message.state == "complete"
    assert recorded(message.parts) == accumulator.plain()
    assert len(message.text) > 5


@pytest.mark.parametrize("shape", SHAPES)
def test_a_conversation_goes_on_after_an_answer_that_broke_off(
    store: Store, asker: Asker, shape: Any
) -> None:
    """The model takes the repaired conversation, whichever SDK it is sent with next."""
    session = store.create_session()
    with session.turn("Count from one to twenty, in words.") as turn:
        request = asker.request(shape, session)
        for number, _ in enumerate(record(turn, shape, asker.stream(shape, request))):
            if number == 8:
                break
    assert session.messages()[1].state == "partial"
    following: Any
    for following in SHAPES:
        with session.turn("Go on.") as turn:
            request = asker.request(following, session)
            context = session.context(following)
            validate = getattr(validators, following.replace("-", "_"))
            assert validate(context.messages, context.system, complete=True) == []
            for _ in record(turn, following, asker.stream(following, request)):
                pass
        assert session.messages()[-1].state == "complete"
        assert session.messages()[-1].text
