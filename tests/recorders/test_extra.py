"""What a provider sends in a part is kept whole, and goes back where its shape takes it."""

import json
from typing import Any

import pytest

from killick import Message, Reasoning, Store, Text, ToolCall
from killick.journal.assembly import assemble, merge
from killick.model.entries import Delta
from killick.recorders import record
from killick.views import validators

Event = dict[str, Any]
SIGNED = {"google": {"thought_signature": "c2ln"}}


def chunk(delta: Event, finish: str | None = None) -> Event:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(arguments: str, **more: Any) -> Event:
    function = {"arguments": arguments, **({"name": "read"} if "id" in more else {})}
    return chunk({"tool_calls": [{"index": 0, "function": function, **more}]})


CHAT = {
    "at once": [call('{"a": 1}', id="c1", extra_content=SIGNED)],
    "first": [call("", id="c1", extra_content=SIGNED), call('{"a": 1}')],
    "last": [call('{"a"', id="c1"), call(": 1}", extra_content=SIGNED)],
    "behind": [call('{"a": 1}', id="c1"), call("", extra_content=SIGNED)],
    "before its name": [
        chunk({"tool_calls": [{"index": 0, "id": "c1", "extra_content": SIGNED}]}),
        chunk(
            {"tool_calls": [{"index": 0, "function": {"name": "read", "arguments": '{"a": 1}'}}]}
        ),
    ],
}


def take(store: Store, shape: Any, events: list[Event]) -> tuple[Any, Message]:
    session = store.create_session()
    with session.turn("Hi.") as turn:
        reply = record(turn, shape, iter(events))
        list(reply)
    message = session.messages()[1]
    assert list(reply.answer.parts) == list(message.parts)
    return session, message


@pytest.mark.parametrize("case", CHAT)
def test_the_signature_of_a_call_over_openais_shape_goes_back(store: Store, case: str) -> None:
    session, message = take(store, "openai-chat", [*CHAT[case], chunk({}, "tool_calls")])
    expected = ToolCall("c1", "read", '{"a": 1}', extra={"openai-chat": {"extra_content": SIGNED}})
    assert list(message.parts) == [expected]
    context = session.context("openai-chat")
    assert validators.openai_chat(context.messages, context.system) == []
    assert context.messages[1]["tool_calls"][0]["extra_content"] == SIGNED
    for other in ("anthropic", "gemini", "openai-responses"):
        assert "extra_content" not in json.dumps(session.context(other).messages)


def test_a_call_is_shown_with_what_came_with_it(store: Store) -> None:
    shown: list[ToolCall] = []
    with store.create_session().turn("Hi.") as turn:
        reply = record(turn, "openai-chat", iter([*CHAT["at once"], chunk({}, "tool_calls")]))
        reply.on_call(shown.append)
        list(reply)
    assert shown == reply.tool_calls
    assert shown[0].extra == {"openai-chat": {"extra_content": SIGNED}}


def test_fields_of_a_call_that_are_unknown_are_kept(store: Store) -> None:
    made = {"index": 0, "id": "c1", "mood": 7}
    made["function"] = {"name": "read", "arguments": "{}", "strict": True}
    _, message = take(store, "openai-chat", [chunk({"tool_calls": [made]}), chunk({}, "stop")])
    assert message.tool_calls[0].extra == {"openai-chat": {"mood": 7, "function": {"strict": True}}}


def block(index: int, start: Event, *deltas: Event) -> list[Event]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def test_the_caller_and_unknown_fields_of_anthropics_blocks(store: Store) -> None:
    direct = {"type": "direct"}
    use = {"type": "tool_use", "id": "t", "name": "read", "input": {}, "caller": direct}
    events = [
        *block(
            0,
            {"type": "thinking", "thinking": "", "mood": 1},
            {"type": "thinking_delta", "thinking": "Hm."},
            {"type": "signature_delta", "signature": "c2ln"},
        ),
        *block(1, {"type": "redacted_thinking", "data": "ZW5j", "mood": 2}),
        *block(2, {"type": "text", "text": "", "mood": 3}, {"type": "text_delta", "text": "Yes."}),
        *block(3, use, {"type": "input_json_delta", "partial_json": "{}"}),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}},
        {"type": "message_stop"},
    ]
    session, message = take(store, "anthropic", events)
    assert list(message.parts) == [
        Reasoning("Hm.", "c2ln", extra={"anthropic": {"mood": 1}}),
        Reasoning("", encrypted="ZW5j", extra={"anthropic": {"mood": 2}}),
        Text("Yes.", {"anthropic": {"mood": 3}}),
        ToolCall("t", "read", "{}", extra={"anthropic": {"caller": direct}}),
    ]
    context = session.context("anthropic")
    assert validators.anthropic(context.messages, context.system) == []
    assert context.messages[1]["content"][-1]["caller"] == direct
    assert "mood" not in json.dumps(context.messages)


def test_phase_namespace_and_caller_of_responses_go_back(store: Store) -> None:
    said: Event = {"type": "message", "id": "msg_1", "role": "assistant", "phase": "commentary"}
    text = [{"type": "output_text", "text": "Let me see.", "annotations": []}]
    program = {"type": "program", "caller_id": "prog_1"}
    made: Event = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read"}
    made |= {"namespace": "files", "caller": program}
    custom = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "patch"}
    custom |= {"namespace": "git", "input": "*** End"}
    whole = [{**said, "content": text}, {**made, "arguments": "{}"}, custom]
    place = {"output_index": 0, "item_id": "msg_1", "content_index": 0}
    events: list[Event] = [
        {"type": "response.output_item.added", "output_index": 0, "item": {**said, "content": []}},
        {"type": "response.output_text.delta", **place, "delta": "Let me "},
        {"type": "response.output_text.delta", **place, "delta": "see."},
        {"type": "response.output_item.done", "output_index": 0, "item": whole[0]},
        {
            "type": "response.output_item.added",
            "output_index": 1,
            "item": {**made, "arguments": ""},
        },
        {"type": "response.output_item.done", "output_index": 1, "item": whole[1]},
        {"type": "response.output_item.done", "output_index": 2, "item": custom},
        {"type": "response.completed", "response": {"status": "completed", "output": whole}},
    ]
    for given in (events, events[-1:]):  # streamed, and whole at the end alone
        session, message = take(store, "openai-responses", given)
        context = session.context("openai-responses")
        assert validators.openai_responses(context.messages, context.system) == []
        sent = {item.get("call_id"): item for item in context.messages[1:] if "output" not in item}
        assert context.messages[1]["phase"] == "commentary"
        assert (sent["c1"]["namespace"], sent["c1"]["caller"]) == ("files", program)
        assert sent["c2"]["namespace"] == "git"
        assert message.tool_calls[0].extra == {
            "openai-responses": {"id": "fc_1", "namespace": "files", "caller": program}
        }


def test_unknown_fields_of_reasoning_over_responses_are_kept(store: Store) -> None:
    summary = [{"type": "summary_text", "text": "Hm."}]
    item = {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "ZW5j"}
    whole = {**item, "mood": 7}
    events: list[Event] = [
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "summary": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {"type": "response.completed", "response": {"status": "completed", "output": [whole]}},
    ]
    place = {"output_index": 0, "item_id": "rs_1", "summary_index": 0, "delta": "Hm."}
    streamed = [events[0], {"type": "response.reasoning_summary_text.delta", **place}, *events[1:]]
    for given in (streamed, events, events[-1:]):  # in pieces, in one, and at the end alone
        session, message = take(store, "openai-responses", given)
        kept = {"openai-responses": {"mood": 7}}
        assert list(message.parts) == [Reasoning("Hm.", "rs_1", encrypted="ZW5j", extra=kept)]
        context = session.context("openai-responses")
        assert validators.openai_responses(context.messages, context.system) == []
    sealed = {**whole, "summary": []}
    response = {"status": "completed", "output": [sealed]}
    _, message = take(
        store, "openai-responses", [{"type": "response.completed", "response": response}]
    )
    assert list(message.parts) == [Reasoning("", "rs_1", encrypted="ZW5j", extra=kept)]


def test_a_phase_is_there_when_the_stream_is_cut(store: Store) -> None:
    said = {"type": "message", "id": "m", "role": "assistant", "phase": "final_answer"}
    events = [
        {"type": "response.output_item.added", "output_index": 0, "item": said},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "So"},
    ]
    session = store.create_session()
    with session.turn("Hi.") as turn:
        list(record(turn, "openai-responses", iter(events), cut="keep"))
    assert list(session.messages()[1].parts) == [
        Text("So", {"openai-responses": {"phase": "final_answer"}})
    ]


def test_a_phase_that_comes_with_the_end_of_a_message_is_kept(store: Store) -> None:
    said: Event = {"type": "message", "id": "m", "role": "assistant"}
    whole: Event = {
        **said,
        "content": [{"type": "output_text", "text": "So."}],
        "phase": "final_answer",
    }
    events: list[Event] = [
        {"type": "response.output_item.added", "output_index": 0, "item": {**said, "content": []}},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "So."},
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {"type": "response.completed", "response": {"status": "completed", "output": [whole]}},
    ]
    session, message = take(store, "openai-responses", events)
    assert list(message.parts) == [Text("So.", {"openai-responses": {"phase": "final_answer"}})]
    assert session.context("openai-responses").messages[1]["phase"] == "final_answer"


def test_tools_that_gemini_runs_and_unknown_fields_of_its_parts(store: Store) -> None:
    ran: list[Event] = [
        {"tool_call": {"id": "t1", "tool_type": "GOOGLE_SEARCH_WEB", "args": {"q": "sea"}}},
        {"tool_response": {"id": "t1", "response": {"found": 1}}},
    ]
    parts = [
        *ran,
        {"text": "Blue.", "part_metadata": {"a": 1}},
        {"function_call": {"name": "read", "args": {}, "mood": 1}, "part_metadata": {"b": 2}},
    ]
    events = [{"candidates": [{"content": {"parts": parts}, "finish_reason": "STOP"}]}]
    session, message = take(store, "gemini", events)
    assert message.parts[2] == Text("Blue.", {"gemini": {"part_metadata": {"a": 1}}})
    assert message.tool_calls[0].extra == {"gemini": {"part_metadata": {"b": 2}, "mood": 1}}
    context = session.context("gemini")
    assert validators.gemini(context.messages, context.system) == []
    assert context.messages[1]["parts"][:2] == ran


def test_deltas_keep_the_further_fields_of_their_part() -> None:
    deltas = [
        Delta(0, 0, "text", "a"),
        Delta(0, 1, "text", "", extra={"s": {"x": 1}}),
        Delta(0, 1, "text", "b"),
        Delta(0, 2, "text", "", extra={"s": {"y": 2}, "t": {"z": 3}}),
        Delta(0, 2, "text", "c"),
    ]
    expected = (Text("abc", {"s": {"x": 1, "y": 2}, "t": {"z": 3}}),)
    assert assemble(deltas) == assemble(merge(deltas)) == assemble([*deltas, *deltas]) == expected
    assert assemble(deltas[3:], onto=assemble(deltas[:3])) == expected
