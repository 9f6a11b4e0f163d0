"""What servers do that the documentation does not say, event by event, without an SDK."""

import json
from base64 import b64encode
from typing import Any

import pytest

from killick import Message, Opaque, Store, Text, ToolCall
from killick.model import entries as e
from killick.model.messages import File, Image
from killick.recorders import record
from killick.types import Usage
from tests.recorders.corpora import PIXEL

Event = dict[str, Any]


def take(store: Store, shape: Any, events: list[Any]) -> Message:
    """The message that these events make."""
    session = store.create_session()
    with session.turn("Hi.") as turn:
        assert list(record(turn, shape, iter(events), cut="keep")) == events
    return session.messages()[1]


def call_ended(store: Store) -> e.ModelCallEnded:
    bodies = [entry.body for entry in store.session(store.sessions()[0].id).entries()]
    return next(body for body in bodies if isinstance(body, e.ModelCallEnded))


def calls(message: Message) -> list[tuple[str, str, str]]:
    found = [part for part in message.parts if isinstance(part, ToolCall)]
    return [(call.id, call.name, call.arguments) for call in found]


def kept(message: Message) -> list[Any]:
    return [json.loads(part.data) for part in message.parts if isinstance(part, Opaque)]


# -- OpenAI Chat ---------------------------------------------------------------------------------


def chunk(delta: Event, finish: str | None = None, index: int = 0) -> Event:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def piece(arguments: str, **more: Any) -> Event:
    function: Event = {"arguments": arguments}
    if "name" in more:
        function["name"] = more.pop("name")
    return chunk({"tool_calls": [{"index": 0, "function": function, **more}]})


def test_a_call_whose_id_comes_late_waits_for_it(store: Store) -> None:
    events = [
        piece('{"a"', name="read"),
        piece(": 1"),
        piece("}", id="call_7"),
        chunk({}, "tool_calls"),
    ]
    assert calls(take(store, "openai-chat", events)) == [("call_7", "read", '{"a": 1}')]


def test_a_call_without_an_id_is_given_one(store: Store) -> None:
    events = [piece('{"a": 1}', name="read"), chunk({}, "tool_calls")]
    [(call_id, name, arguments)] = calls(take(store, "openai-chat", events))
    assert (bool(call_id), name, arguments) == (True, "read", '{"a": 1}')


def test_calls_with_the_same_id_and_without_places_are_two_calls(store: Store) -> None:
    two = [{"id": "x", "function": {"name": name, "arguments": "{}"}} for name in ("a", "b")]
    message = take(store, "openai-chat", [chunk({"tool_calls": two}), chunk({}, "tool_calls")])
    assert [call[1] for call in calls(message)] == ["a", "b"]
    assert len({call[0] for call in calls(message)}) == 2


@pytest.mark.parametrize("places", [(0, 0), (None, None)])
@pytest.mark.parametrize("ids", [("c1", "c2"), (None, None)])
def test_calls_that_come_one_after_another_in_one_place_are_two_calls(
    store: Store, places: tuple[int | None, ...], ids: tuple[str | None, ...]
) -> None:
    first = piece('{"a": 1}', name="read", id=ids[0], index=places[0])
    second = [
        piece('{"b"', name="write", id=ids[1], index=places[1]),
        piece(": 2}", index=places[1]),
    ]
    message = take(store, "openai-chat", [first, *second, chunk({}, "tool_calls")])
    found = calls(message)
    assert [call[1:] for call in found] == [("read", '{"a": 1}'), ("write", '{"b": 2}')]
    assert found[0][0] != found[1][0]


def test_an_id_that_changes_in_the_middle_of_a_call_makes_no_second_one(store: Store) -> None:
    events = [piece('{"a"', name="read", id="c1"), piece(": 1}", name="read", id="c2")]
    message = take(store, "openai-chat", [*events, piece("", name="read"), chunk({}, "stop")])
    assert calls(message) == [("c1", "read", '{"a": 1}')]


def test_a_call_that_never_got_a_name_is_kept_beside(store: Store) -> None:
    message = take(store, "openai-chat", [piece('{"a"', id="call_1")])
    assert calls(message) == []
    assert kept(message) == [{"unfinished": [{"id": "call_1", "name": "", "arguments": '{"a"'}]}]


def test_further_choices_are_kept_beside_the_first(store: Store) -> None:
    events = [chunk({"content": "a"}), chunk({"content": "b"}, index=1), chunk({}, "stop")]
    message = take(store, "openai-chat", events)
    assert message.text == "a"
    assert kept(message)[0]["choices"][0]["delta"] == {"content": "b"}


def test_a_function_call_of_old(store: Store) -> None:
    events = [
        chunk({"function_call": {"name": "read", "arguments": ""}}),
        chunk({"function_call": {"arguments": '{"a": 1}'}}),
        chunk({}, "function_call"),
    ]
    assert [call[1:] for call in calls(take(store, "openai-chat", events))] == [
        ("read", '{"a": 1}')
    ]


def test_arguments_that_go_on_after_their_end_are_kept_and_break_nothing(store: Store) -> None:
    events = [piece("{}", id="c", name="read"), piece('{"a": 1}'), chunk({}, "tool_calls")]
    message = take(store, "openai-chat", events)
    assert calls(message) == [("c", "read", "{}")]
    assert kept(message)[0]["refused"]["arguments"] == '{"a": 1}'


def test_images_audio_and_fields_that_nobody_knows(store: Store) -> None:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    sound = b64encode(b"sound").decode()
    events = [
        chunk({"images": [image]}),
        chunk({"audio": {"id": "a1", "transcript": "Hello."}}),
        chunk({"audio": {"data": sound}}),
        chunk({"mood": "good"}, "stop"),
    ]
    message = take(store, "openai-chat", events)
    assert [type(part) for part in message.parts] == [Image, Text, File, Opaque]
    file = message.parts[2]
    assert isinstance(file, File)
    assert store.blob(file.blob) == b"sound"
    assert kept(message)[0]["extra"] == [{"mood": "good"}]


def test_a_custom_tool_of_chat(store: Store) -> None:
    made = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "patch", "input": "*** "}}
    more = {"index": 0, "custom": {"input": "End"}}
    events = [chunk({"tool_calls": [made]}), chunk({"tool_calls": [more]}), chunk({}, "stop")]
    [call] = [
        part for part in take(store, "openai-chat", events).parts if isinstance(part, ToolCall)
    ]
    assert (call.arguments, call.tool_type) == ("*** End", "custom")


# -- Anthropic -----------------------------------------------------------------------------------


def block(index: int, start: Event, *deltas: Event) -> list[Event]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


@pytest.mark.parametrize(("reason", "state"), [("max_tokens", "partial"), ("tool_use", "complete")])
def test_a_call_of_anthropics_that_a_limit_cut_off(store: Store, reason: str, state: str) -> None:
    """A model that writes bad JSON by itself has made its call, and is told so."""
    use = {"type": "tool_use", "id": "t", "name": "read", "input": {}}
    events = [
        *block(0, use, {"type": "input_json_delta", "partial_json": '{"a": '}),
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {}},
        {"type": "message_stop"},
    ]
    assert take(store, "anthropic", events).state == state


def blank_call(index: int) -> list[Event]:
    start = {"type": "tool_use", "id": f"c{index}", "name": "now", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": ""}
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        {"type": "content_block_delta", "index": index, "delta": delta},
        {"type": "content_block_stop", "index": index},
    ]


@pytest.mark.parametrize(
    ("reason", "told", "state"),
    [("tool_use", ["c0", "c1"], "complete"), ("max_tokens", ["c0"], "partial")],
)
def test_a_limit_before_the_arguments_leaves_no_call(
    store: Store, reason: str, told: list[str], state: str
) -> None:
    """A call without arguments looks the same until the end says why it ended there."""
    events = [
        *blank_call(0),
        *blank_call(1),
        {"type": "message_delta", "delta": {"stop_reason": reason}},
        {"type": "message_stop"},
    ]
    session = store.create_session()
    with session.turn("Hi.") as turn:
        reply = record(turn, "anthropic", iter(events))
        assert list(reply) == events
    assert [call.id for call in reply.tool_calls] == told
    assert session.messages()[1].state == state


def test_tokens_of_anthropics_cache_count_as_input(store: Store) -> None:
    """`input_tokens` are those behind the last breakpoint: written and read ones come on top."""
    usage = {
        "input_tokens": 7,
        "cache_creation_input_tokens": 200,
        "cache_read_input_tokens": 3_000,
        "output_tokens": 1,
    }
    events: list[Event] = [
        {"type": "message_start", "message": {"id": "m", "usage": usage}},
        *block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hi."}),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    ]
    take(store, "anthropic", events)
    spent = call_ended(store).usage
    assert spent is not None
    assert (spent.input, spent.cached, spent.output) == (3_207, 3_000, 5)


def test_the_last_signature_is_the_one_that_is_kept(store: Store) -> None:
    events = block(
        0,
        {"type": "thinking", "thinking": ""},
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta", "signature": "old"},
        {"type": "signature_delta", "signature": "new"},
    )
    message = take(store, "anthropic", events)
    assert [getattr(part, "signature", None) for part in message.parts] == ["new"]


def test_a_block_that_nobody_knows_is_kept_as_it_came(store: Store) -> None:
    events = block(
        0,
        {"type": "compaction", "content": None},
        {"type": "compaction_delta", "content": "Summ"},
        {"type": "compaction_delta", "content": "ary"},
    )
    message = take(store, "anthropic", events)
    assert kept(message) == [{"type": "compaction", "content": "Summary"}]


# -- OpenAI Responses ------------------------------------------------------------------------------


def test_events_without_places_belong_to_their_items(store: Store) -> None:
    """As llama.cpp sends them: by the id alone."""
    item = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
    call = {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "read"}
    done = {**call, "arguments": '{"a": 1}', "status": "completed"}
    said = {**item, "content": [{"type": "output_text", "text": "Hello."}]}
    response = {"id": "r", "status": "completed", "output": [said, done]}
    events = [
        {"type": "response.output_item.added", "item": item},
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "Hel"},
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "lo."},
        {"type": "response.output_item.done", "item": said},
        {"type": "response.output_item.added", "item": {**call, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": '{"a"'},
        {"type": "response.output_item.done", "item": done},
        {"type": "response.completed", "response": response},
    ]
    message = take(store, "openai-responses", events)
    assert (message.text, message.state) == ("Hello.", "complete")
    assert calls(message) == [("c", "read", '{"a": 1}')]


def test_built_in_tools_that_the_caller_runs_are_calls(store: Store) -> None:
    action = {"type": "click", "x": 1, "y": 2}
    item = {"id": "cu_1", "type": "computer_call", "call_id": "c", "action": action}
    approval = {"id": "m_1", "type": "mcp_approval_request", "name": "x", "arguments": "{}"}
    response = {"id": "r", "status": "completed", "output": [item, approval]}
    events = [{"type": "response.completed", "response": response}]
    message = take(store, "openai-responses", events)
    [(call_id, name, arguments)] = calls(message)
    assert (call_id, name, json.loads(arguments)) == ("c", "computer_call", {"action": action})
    assert kept(message) == [{"item": item}, {"item": approval}]


def test_reasoning_that_only_its_item_brings(store: Store) -> None:
    summary = [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}]
    item = {"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": "gAAA"}
    response = {"id": "r", "status": "completed", "output": [item]}
    events = [{"type": "response.completed", "response": response}]
    [part] = take(store, "openai-responses", events).parts
    assert getattr(part, "text", "") == "One.\n\nTwo."
    assert getattr(part, "encrypted", "") == "gAAA"


@pytest.mark.parametrize(("arguments", "state"), [('{"a": ', "partial"), ('{"a": 1}', "complete")])
def test_a_response_that_is_incomplete(store: Store, arguments: str, state: str) -> None:
    item = {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "read"}
    item |= {"arguments": arguments, "status": "incomplete"}
    about = {"reason": "max_output_tokens"}
    response = {"id": "r", "status": "incomplete", "incomplete_details": about, "output": [item]}
    events = [{"type": "response.incomplete", "response": response}]
    assert take(store, "openai-responses", events).state == state
    assert call_ended(store).finish_reason == "max_output_tokens"


# -- Gemini --------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_a_custom_tools_input_that_a_limit_cut_off_is_no_call(store: Store, status: str) -> None:
    item = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "patch"}
    place = {"output_index": 0, "item_id": "ctc_1"}
    stem = "response.custom_tool_call_input"
    whole = {**item, "input": "*** Be", "status": status}
    events = [
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "input": ""}},
        {"type": f"{stem}.delta", **place, "delta": "*** Be"},
        {"type": f"{stem}.done", **place, "input": "*** Be"},
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {"type": f"response.{status}", "response": {"status": status, "output": [whole]}},
    ]
    session = store.create_session()
    with session.turn("Hi.") as turn:
        reply = record(turn, "openai-responses", iter(events))
        assert list(reply) == events
    assert [call.id for call in reply.tool_calls] == (["c1"] if status == "completed" else [])
    assert session.messages()[1].state == ("complete" if status == "completed" else "partial")


def test_a_prompt_that_is_blocked_has_an_end_and_no_answer(store: Store) -> None:
    events = [{"prompt_feedback": {"block_reason": "SAFETY"}}]
    message = take(store, "gemini", events)
    assert (message.state, list(message.parts)) == ("complete", [])
    assert call_ended(store).finish_reason == "SAFETY"


def test_further_candidates_and_grounding_are_kept_beside(store: Store) -> None:
    def candidate(text: str, index: int) -> Event:
        return {"index": index, "content": {"parts": [{"text": text}]}, "finish_reason": "STOP"}

    grounded = {**candidate("a", 0), "grounding_metadata": {"queries": ["q"]}}
    message = take(store, "gemini", [{"candidates": [grounded, candidate("b", 1)]}])
    assert message.text == "a"
    assert kept(message)[0]["grounding_metadata"] == [{"queries": ["q"]}]
    assert kept(message)[0]["candidates"][0]["index"] == 1


def growing(*pieces: Event, more: bool = True, **call: Any) -> Event:
    streamed = {"partial_args": list(pieces)} if pieces else {}
    return gemini(
        {"function_call": {**call, **streamed, **({"will_continue": True} if more else {})}}
    )


def gemini(part: Event, finish: str | None = None) -> Event:
    return {"candidates": [{"content": {"parts": [part]}, "finish_reason": finish}]}


def at(path: str, *, more: bool = False, **value: Any) -> Event:
    return {"json_path": path, **value, **({"will_continue": True} if more else {})}


STREAMED = [
    growing(name="order", id="c1"),
    growing(at("$.items[0].name", more=True, string_value="Lasa")),
    growing(at("$.items[0].name", more=True, string_value="gna")),
    growing(at("$.items[0].name", string_value="")),
    growing(),
    growing(
        at("$.items[1]['a name']", string_value="x"), at("$.items[1].left", null_value="NULL_VALUE")
    ),
    growing(at("$.count", number_value=2.0), at("$.price", number_value=0.5)),
    growing(at("$.fresh", bool_value=False)),
]
ORDERED = {
    "items": [{"name": "Lasagna"}, {"a name": "x", "left": None}],
    "count": 2,
    "price": 0.5,
    "fresh": False,
}


@pytest.mark.parametrize("end", ["empty", "with the last value", "missing"])
def test_arguments_that_gemini_streams_make_the_call(store: Store, end: str) -> None:
    """The last piece has no mark that more follows; one server leaves it out before the end."""
    events = list(STREAMED)
    if end == "empty":
        events.append(growing(more=False))
    elif end == "with the last value":
        events[-1] = growing(at("$.fresh", bool_value=False), more=False)
    events += [growing(name="now", more=False), gemini({"text": ""}, "STOP")]
    message = take(store, "gemini", events)
    assert message.state == "complete"
    made = [(name, json.loads(arguments)) for _, name, arguments in calls(message)]
    assert made == [("order", ORDERED), ("now", {})]
    assert calls(message)[0][0] == "c1"


@pytest.mark.parametrize("number", range(len(STREAMED) + 1))
@pytest.mark.parametrize("finish", [None, "MAX_TOKENS"])
def test_a_call_that_gemini_streams_and_that_is_cut_off_is_no_call(
    store: Store, number: int, finish: str | None
) -> None:
    session = store.create_session()
    events = [*STREAMED[:number], *([gemini({"text": ""}, finish)] if finish else [])]
    with session.turn("Hi.") as turn:
        reply = record(turn, "gemini", iter(events), cut="keep")
        list(reply)
    assert reply.tool_calls == []
    assert reply.complete is (finish is not None and number == 0)
    for shape in ("gemini", "anthropic", "openai-chat", "openai-responses"):
        assert "order" not in json.dumps(
            [m for m in session.context(shape).messages if m.get("role") != "user"]
        )
    if number > 1:
        assert kept(session.messages()[1])[-1]["unfinished"][0]["name"] == "order"


def test_events_of_the_wire_are_read_as_the_sdks(store: Store) -> None:
    part = {"functionCall": {"name": "read", "args": {"aPath": {"innerName": 1}}}}
    wire = [
        {"candidates": [{"content": {"parts": [{"text": "hm", "thought": True}, part]}}]},
        {
            "candidates": [{"content": {"parts": [{"text": ""}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 3, "thoughtsTokenCount": 2},
            "responseId": "r1",
        },
    ]
    for events in (wire, [f"data: {json.dumps(event)}\r\n\r\n".encode() for event in wire]):
        message = take(store, "gemini", events)
        assert message.state == "complete"
        [(_, name, arguments)] = calls(message)
        assert (name, json.loads(arguments)) == ("read", {"aPath": {"innerName": 1}})
        ended = call_ended(store)
        assert (ended.usage, ended.provider_ids) == (
            Usage(input=3, output=2, reasoning=2),
            {"response": "r1"},
        )


# -- bytes ---------------------------------------------------------------------------------------


def test_lines_end_in_every_way_and_data_may_have_several(store: Store) -> None:
    text = (
        ": comment\r\n\r\nevent: x\r\nid: 1\r\n"
        'data: {"choices": [{"index": 0,\r\ndata: "delta": {"content": "é"}}]}\r\n\r\n'
        'data:{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    )
    pieces = [bytes([byte]) for byte in text.encode()]
    message = take(store, "openai-chat", pieces)
    assert (message.text, message.state) == ("é", "complete")
