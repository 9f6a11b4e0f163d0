"""What each provider takes: arguments, kinds of tools, images and files, odd text."""

import json
from base64 import b64decode
from typing import Any

import pytest

from killick import File, Image, Message, Session, Store, Text, ToolCall
from killick.model.messages import Opaque, Part
from killick.views import validators
from killick.views.context import Format
from killick.views.formats.common import DOCUMENT_BYTES_MAX, IMAGE_BYTES_MAX

PNG = b"\x89PNG\r\n\x1a\n"
PDF = b"%PDF-1.4"
PROVIDERS: list[Format] = ["openai-chat", "openai-responses", "anthropic", "gemini"]
VALIDATORS: dict[str, Any] = {
    "openai-chat": validators.openai_chat,
    "openai-responses": validators.openai_responses,
    "anthropic": validators.anthropic,
    "gemini": validators.gemini,
}


def png(width: int, height: int) -> bytes:
    """The head of an image, which is what providers look at first."""
    return PNG + b"\0\0\0\x0dIHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big")


def sent(session: Session, format_: Format) -> str:
    """The request as text; it has passed the provider's validator."""
    context = session.context(format_)
    assert VALIDATORS[format_](context.messages, context.system) == []
    return json.dumps(context.messages, ensure_ascii=False)


def say(session: Session, *parts: Part) -> None:
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=parts))


# -- calls -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "given"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ("  ", {}),
        ("[1]", {"arguments": "[1]"}),
        ('{"a"', {"arguments": '{"a"'}),
        ('{"a": NaN}', {"arguments": '{"a": NaN}'}),
        ("ls -l", {"arguments": "ls -l"}),
    ],
)
def test_arguments_are_always_an_object(session: Session, written: str, given: Any) -> None:
    say(session, ToolCall("c1", "shell", written))
    for format_ in PROVIDERS:
        sent(session, format_)
    chat = session.context("openai-chat").messages[1]["tool_calls"][0]
    assert json.loads(chat["function"]["arguments"]) == given
    assert json.loads(session.context("openai-responses").messages[1]["arguments"]) == given
    assert session.context("anthropic").messages[1]["content"][0]["input"] == given
    assert session.context("gemini").messages[1]["parts"][0]["function_call"]["args"] == given


def test_arguments_that_are_an_object_are_sent_as_they_were_written(session: Session) -> None:
    say(session, ToolCall("c1", "shell", '{ "b":1,"a" : 1.0 }'))
    call = session.context("openai-chat").messages[1]["tool_calls"][0]
    assert call["function"]["arguments"] == '{ "b":1,"a" : 1.0 }'


def test_a_custom_tool_is_one_where_there_are_such(session: Session) -> None:
    say(session, ToolCall("c1", "run", "print(1)", "custom"))
    asked, answered = session.context("openai-responses").messages[1:]
    assert asked == {
        "type": "custom_tool_call",
        "call_id": "c1",
        "name": "run",
        "input": "print(1)",
    }
    assert (answered["type"], answered["call_id"]) == ("custom_tool_call_output", "c1")
    call = session.context("openai-chat").messages[1]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"]) == {"input": "print(1)"}
    assert session.context("anthropic").messages[1]["content"][0]["input"] == {"input": "print(1)"}
    for format_ in PROVIDERS:
        sent(session, format_)


def test_the_input_of_a_custom_tool_is_text_though_it_looks_like_an_object(
    session: Session,
) -> None:
    say(session, ToolCall("c1", "run", '{"a": 1}', "custom"))
    assert session.context("openai-responses").messages[1]["input"] == '{"a": 1}'
    given = session.context("anthropic").messages[1]["content"][0]["input"]
    assert given == {"input": '{"a": 1}'}


@pytest.mark.parametrize("format_", PROVIDERS)
@pytest.mark.parametrize("content", ["", " \n"])
def test_a_result_is_never_empty(session: Session, format_: Format, content: str) -> None:
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[ToolCall("c1", "shell", "{}")]))
        with turn.tool("c1") as call:
            call.finish(content)
    assert "(no output)" in sent(session, format_)


@pytest.mark.parametrize("format_", ["openai-chat", "openai-responses", "gemini"])
def test_structured_content_stands_in_for_a_result_without_text(
    session: Session, format_: Format
) -> None:
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[ToolCall("c1", "query", "{}")]))
        with turn.tool("c1") as call:
            call.finish("", structured={"rows": 42})
    assert "42" in sent(session, format_)


@pytest.mark.parametrize("format_", PROVIDERS)
def test_data_in_a_users_message_that_is_not_sent_is_reported(
    session: Session, format_: Format
) -> None:
    with session.turn([Text("Go."), Opaque("acme", b'{"a": 1}')]) as turn:
        turn.record(Message(role="assistant", parts=[Text("Yes.")]))
    assert "acme" not in sent(session, format_)
    reasons = [one.reason for one in session.context(format_).repairs]
    assert reasons == ["opaque data of acme"]


@pytest.mark.parametrize("format_", PROVIDERS)
@pytest.mark.parametrize("failed", [False, True])
def test_an_image_alone_is_an_output(
    store: Store, session: Session, format_: Format, *, failed: bool
) -> None:
    image = Image(store.put_blob(png(9, 9)), "image/png")
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[ToolCall("c1", "draw", "{}")]))
        with turn.tool("c1") as call:
            call.finish([image], is_error=failed)
    told = sent(session, format_)
    assert "no output" not in told
    if format_ != "anthropic":
        assert "[What this tool returned has no text.]" in told
    elif failed:  # such a result takes text only
        assert "[An image (image/png) is left out here.]" in told
        assert [one.action for one in session.context(format_).repairs] == ["left out"]
    assert ("iVBOR" in told) is not (failed and format_ == "anthropic")


def test_a_failed_result_is_marked_where_that_is_possible(session: Session) -> None:
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[ToolCall("c1", "shell", "{}")]))
        with turn.tool("c1") as call:
            call.finish("Error 2", is_error=True)
    assert session.context("anthropic").messages[-1]["content"][0]["is_error"] is True
    response = session.context("gemini").messages[-1]["parts"][0]["function_response"]
    assert response["response"] == {"error": "Error 2"}


# -- text --------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", PROVIDERS)
def test_a_lone_surrogate_is_replaced(session: Session, format_: Format) -> None:
    with session.turn("a\ud800b") as turn:
        turn.record(
            Message(role="assistant", parts=[Text("c\udfff"), ToolCall("c1", "shell", "\ud800")])
        )
        with turn.tool("c1") as call:
            call.finish("d\ud800")
    assert "a\ufffdb" in sent(session, format_)


# -- opaque data -------------------------------------------------------------------------------


def test_opaque_data_goes_back_to_its_provider_only(session: Session) -> None:
    block = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    say(session, Opaque("anthropic", json.dumps(block).encode()), Text("Yes."))
    assert session.context("anthropic").messages[1]["content"][0] == block
    for format_ in PROVIDERS:
        assert ("srvtoolu_1" in json.dumps(session.context(format_).messages)) == (
            format_ == "anthropic"
        )


@pytest.mark.parametrize("data", [b"no json", b"[1]"])
def test_opaque_data_that_is_no_object_is_left_out(session: Session, data: bytes) -> None:
    say(session, Opaque("anthropic", data), Text("Yes."))
    assert len(session.context("anthropic").messages[1]["content"]) == 1


# -- images and files --------------------------------------------------------------------------


def show(session: Session, part: Part) -> None:
    with session.turn([Text("Look."), part]):
        pass


@pytest.mark.parametrize("format_", PROVIDERS)
def test_an_image_and_a_file_are_sent(store: Store, session: Session, format_: Format) -> None:
    show(session, Image(store.put_blob(PNG), "image/png"))
    show(session, File(store.put_blob(PDF), "application/pdf", "a.pdf"))
    text = sent(session, format_)
    assert "iVBORw0KGgo=" in text
    assert "JVBERi0xLjQ=" in text
    assert "left out" not in text


@pytest.mark.parametrize("format_", PROVIDERS)
@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"BM", "image/bmp"),
        (b"", "image/png"),
        (PNG.ljust(IMAGE_BYTES_MAX + 1), "image/png"),
        (b"<html>404</html>", "image/png"),
        (png(8001, 9), "image/png"),
        (b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\x00\x09\x1f\x41", "image/jpeg"),
        (b"GIF89a" + (8001).to_bytes(2, "little") + b"\x09\x00", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\x40\x1f\0\x09\0\0", "image/webp"),
        (b"RIFF\0\0\0\0WEBPVP8L" + bytes(5) + b"\x40\x5f\x02\0", "image/webp"),
        (b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + b"\x41\x1f\x09\0", "image/webp"),
    ],
    ids=["type", "empty", "size", "bytes", "png", "jpeg", "gif", "webp", "webp-l", "webp-8"],
)
def test_an_image_that_is_refused_is_replaced_by_a_sentence(
    store: Store, session: Session, format_: Format, data: bytes, media_type: str
) -> None:
    show(session, Image(store.put_blob(data), media_type))
    assert f"[An image ({media_type}) is left out here.]" in sent(session, format_)


def images(session: Session) -> tuple[list[int], list[validators.Violation]]:
    """Which images Anthropic is sent, by their widths; and what it would refuse."""
    messages = session.context("anthropic").messages
    blocks = [block for one in messages for block in one["content"] if one["role"] == "user"]
    nested = [inner for one in blocks for inner in one.get("content", [one])]
    data = [b64decode(one["source"]["data"]) for one in nested if one["type"] == "image"]
    widths = [int.from_bytes(one[16:20], "big") for one in data]
    return widths, validators.anthropic(messages)


def test_among_many_images_none_is_large_for_anthropic(store: Store, session: Session) -> None:
    for number in range(20):
        show(session, Image(store.put_blob(png(3000 + number, 9)), "image/png"))
    assert images(session) == (list(range(3000, 3020)), [])
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[ToolCall("c1", "look", "{}")]))
        with turn.tool("c1") as call:
            call.finish([Image(store.put_blob(png(3020, 9)), "image/png")])
    assert images(session) == (list(range(3010, 3021)), [])  # ten at once, and not the newest
    for number in range(21, 30):
        show(session, Image(store.put_blob(png(3000 + number, 9)), "image/png"))
    assert images(session) == (list(range(3010, 3030)), [])


def test_any_number_of_small_images_is_sent(store: Store, session: Session) -> None:
    for number in range(25):
        show(session, Image(store.put_blob(png(1000 + number, 9)), "image/png"))
    assert images(session) == (list(range(1000, 1025)), [])


@pytest.mark.parametrize("format_", PROVIDERS)
@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"hi", "audio/wav"),
        (b"\xff\xfe", "text/csv"),
        (PDF.ljust(DOCUMENT_BYTES_MAX + 1), "application/pdf"),
    ],
    ids=["type", "bytes", "size"],
)
def test_a_file_that_is_refused_is_replaced_by_a_sentence(
    store: Store, session: Session, format_: Format, data: bytes, media_type: str
) -> None:
    show(session, File(store.put_blob(data), media_type))
    assert f"[A file ({media_type}) is left out here.]" in sent(session, format_)


def test_an_animated_type_is_left_out_for_gemini_alone(store: Store, session: Session) -> None:
    show(session, Image(store.put_blob(b"GIF89a"), "image/gif"))
    refused = [format_ for format_ in PROVIDERS if "left out" in sent(session, format_)]
    assert refused == ["gemini"]


@pytest.mark.parametrize("format_", PROVIDERS)
def test_an_image_of_an_answer_is_left_out(store: Store, session: Session, format_: Format) -> None:
    say(session, Image(store.put_blob(PNG), "image/png"))
    assert "[Something of type image/png is left out here.]" in sent(session, format_)


@pytest.mark.parametrize("format_", PROVIDERS)
def test_an_image_of_a_result_is_sent_where_it_is_taken(
    store: Store, session: Session, format_: Format
) -> None:
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[ToolCall("c1", "look", "{}")]))
        with turn.tool("c1") as call:
            call.finish([Text("a picture"), Image(store.put_blob(PNG), "image/png")])
    assert "iVBORw0KGgo=" in sent(session, format_)
    last = session.context(format_).messages[-1]
    if format_ == "anthropic":
        assert [block["type"] for block in last["content"][0]["content"]] == ["text", "image"]
    else:  # results take text there, so it follows in a message of its own
        assert last["role"] == "user"


def test_the_stored_image_is_as_it_was(store: Store, session: Session) -> None:
    image = Image(store.put_blob(b"BM"), "image/bmp")
    show(session, image)
    session.context("anthropic")
    assert session.messages()[0].parts[1] == image
    assert store.blob(image.blob) == b"BM"
