"""What each provider sends, event by event: every kind that a reader knows, and one it does not."""

import copy
from typing import Any

from tests.recorders.server import sse

Event = dict[str, Any]

ARGUMENTS = '{"path": "caf\\u00e9.txt", "lines": [1, 2]}'
PIECES = ['{"path": "caf\\u0', '0e9.txt", "li', 'nes": [1, 2]}']
"""Cut inside an escape of one character, and inside a key."""
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


def _chunk(delta: Event, finish: str | None = None, **more: Any) -> Event:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x"}
    return base | {"choices": [choice]} | more


def _call(index: int, arguments: str, call_id: str | None = None, name: str | None = None) -> Event:
    piece: Event = {"index": index, "function": {"arguments": arguments}}
    if call_id is not None:
        piece |= {"id": call_id, "type": "function"}
        piece["function"]["name"] = name
    return {"tool_calls": [piece]}


CHAT: list[Event] = [
    _chunk({"role": "assistant", "content": ""}),
    _chunk({"reasoning_content": "The user wants "}),
    _chunk({"reasoning_content": "a file."}),
    _chunk({"content": "Let me "}),
    _chunk({"content": "look \U0001f50d."}),
    _chunk(_call(0, "", "call_a", "read")),
    _chunk(_call(0, PIECES[0])),
    _chunk(_call(0, PIECES[1])),
    _chunk(_call(0, PIECES[2])),
    _chunk(_call(1, '{"q":', "call_b", "find")),
    _chunk(_call(1, ' "x"}')),
    _chunk(_call(2, "", "call_c", "now")),
    _chunk({"annotations": [{"type": "url_citation", "url_citation": {"url": "https://e.org"}}]}),
    _chunk({}, "tool_calls"),
    _chunk({}, id="chatcmpl-changed")
    | {
        "choices": [],
        "usage": {
            "prompt_tokens": 12,
            "completion_tokens": 34,
            "total_tokens": 46,
            "prompt_tokens_details": {"cached_tokens": 5},
            "completion_tokens_details": {"reasoning_tokens": 7},
        },
    },
]

REFUSED: list[Event] = [
    _chunk({"role": "assistant", "refusal": "I cannot "}),
    _chunk({"refusal": "help with that."}),
    _chunk({}, "stop"),
]

TOO_LONG: list[Event] = [
    _chunk({"role": "assistant", "content": "Now:"}),
    _chunk(_call(0, '{"path": "ca', "call_a", "read")),
    _chunk({}, "length"),
]


def _block(index: int, block: Event, *deltas: Event) -> list[Event]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _json(piece: str) -> Event:
    return {"type": "input_json_delta", "partial_json": piece}


_CITATION = {
    "type": "char_location",
    "cited_text": "blue",
    "document_index": 0,
    "document_title": "Sky",
    "start_char_index": 0,
    "end_char_index": 4,
    "file_id": None,
}
_SEARCH_RESULT = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {
            "type": "web_search_result",
            "title": "Sky",
            "url": "https://e.org",
            "encrypted_content": "abc",
            "page_age": None,
        }
    ],
}

MESSAGES: list[Event] = [
    {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-x",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 1},
        },
    },
    {"type": "ping"},
    *_block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "The user "},
        {"type": "thinking_delta", "thinking": "asks."},
        {"type": "signature_delta", "signature": "c2lnbmVk"},
    ),
    *_block(1, {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk"}),
    *_block(
        2,
        {"type": "text", "text": ""},
        {"type": "text_delta", "text": "The sky is "},
    ),
    *_block(
        3,
        {"type": "text", "text": "", "citations": []},
        {"type": "text_delta", "text": "blue"},
        {"type": "citations_delta", "citation": _CITATION},
    ),
    *_block(
        4,
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        _json('{"query": "s'),
        _json('ky"}'),
    ),
    *_block(5, _SEARCH_RESULT),
    *_block(
        6,
        {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}},
        _json(""),
        *map(_json, PIECES),
    ),
    *_block(7, {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}}),
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 40},
    },
    {"type": "message_stop"},
]


def _response(status: str, output: list[Event], **more: Any) -> Event:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-x",
        "status": status,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
    } | more


_REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [
        {"type": "summary_text", "text": "First."},
        {"type": "summary_text", "text": "Second."},
    ],
    "encrypted_content": "gAAA",
}
_ANNOTATION = {
    "type": "url_citation",
    "url": "https://e.org",
    "title": "E",
    "start_index": 0,
    "end_index": 3,
}
_MESSAGE = {
    # The id at the end is the one that the item began with; its text was streamed under another.
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [
        {"type": "output_text", "text": "Look here.", "annotations": [_ANNOTATION], "logprobs": []}
    ],
}
_FUNCTION = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "call_a",
    "name": "read",
    "arguments": ARGUMENTS,
    "status": "completed",
}
_CUSTOM = {
    "id": "ctc_1",
    "type": "custom_tool_call",
    "call_id": "call_b",
    "name": "patch",
    "input": "not json",
}
_EMPTY = {
    "id": "fc_2",
    "type": "function_call",
    "call_id": "call_c",
    "name": "now",
    "arguments": "",
    "status": "completed",
}
_SEARCH = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "sky"},
}
_PICTURE = {
    "id": "ig_1",
    "type": "image_generation_call",
    "status": "completed",
    "result": PIXEL,
    "output_format": "png",
}
_ITEMS: list[Event] = [_REASONING, _SEARCH, _MESSAGE, _FUNCTION, _CUSTOM, _EMPTY, _PICTURE]
_USAGE = {
    "input_tokens": 12,
    "output_tokens": 34,
    "total_tokens": 46,
    "input_tokens_details": {"cached_tokens": 5},
    "output_tokens_details": {"reasoning_tokens": 7},
}


def _added(index: int, item: Event, **empty: Any) -> Event:
    item = copy.deepcopy(item) | empty
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def _done(index: int, item: Event) -> Event:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def _on(index: int, item_id: str, kind: str, **more: Any) -> Event:
    return {"type": f"response.{kind}", "output_index": index, "item_id": item_id} | more


def _texts() -> list[Event]:
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    place = {"content_index": 0, "logprobs": []}
    return [
        _added(2, _MESSAGE, content=[], status="in_progress"),
        _on(2, "msg_1", "content_part.added", content_index=0, part=part),
        _on(2, "txt-77", "output_text.delta", delta="Look ", **place),
        _on(2, "txt-77", "output_text.delta", delta="here.", **place),
        _on(
            2,
            "txt-77",
            "output_text.annotation.added",
            content_index=0,
            annotation_index=0,
            annotation=_ANNOTATION,
        ),
        _on(2, "txt-77", "output_text.done", text="Look here.", **place),
        _on(2, "msg_1", "content_part.done", content_index=0, part=_MESSAGE["content"][0]),
        _done(2, _MESSAGE),
    ]


def _thoughts() -> list[Event]:
    events = [_added(0, _REASONING, summary=[], encrypted_content="")]
    for index, text in enumerate(["First.", "Second."]):
        part = {"type": "summary_text", "text": ""}
        full = part | {"text": text}
        place = {"summary_index": index}
        events += [
            _on(0, "rs_1", "reasoning_summary_part.added", part=part, **place),
            _on(0, "rs_1", "reasoning_summary_text.delta", delta=text[:3], **place),
            _on(0, "rs_1", "reasoning_summary_text.delta", delta=text[3:], **place),
            _on(0, "rs_1", "reasoning_summary_text.done", text=text, **place),
            _on(0, "rs_1", "reasoning_summary_part.done", part=full, **place),
        ]
    return [*events, _done(0, _REASONING)]


def _calls() -> list[Event]:
    return [
        _added(3, _FUNCTION, arguments="", status="in_progress"),
        *(_on(3, "fc_1", "function_call_arguments.delta", delta=piece) for piece in PIECES),
        _on(3, "fc_1", "function_call_arguments.done", arguments=ARGUMENTS, name="read"),
        _done(3, _FUNCTION),
        _added(4, _CUSTOM, input=""),
        _on(4, "ctc_1", "custom_tool_call_input.delta", delta="not "),
        _on(4, "ctc_1", "custom_tool_call_input.delta", delta="json"),
        _on(4, "ctc_1", "custom_tool_call_input.done", input="not json"),
        _done(4, _CUSTOM),
        _added(5, _EMPTY, status="in_progress"),
        _on(5, "fc_2", "function_call_arguments.done", arguments="", name="now"),
        _done(5, _EMPTY),
    ]


RESPONSE: Event = _response("completed", _ITEMS, usage=_USAGE)


def _numbered(events: list[Event]) -> list[Event]:
    return [event | {"sequence_number": number} for number, event in enumerate(events)]


RESPONSES: list[Event] = _numbered(
    [
        {"type": "response.created", "response": _response("in_progress", [])},
        {"type": "response.in_progress", "response": _response("in_progress", [])},
        *_thoughts(),
        _added(1, _SEARCH, status="in_progress"),
        _on(1, "ws_1", "web_search_call.in_progress"),
        _on(1, "ws_1", "web_search_call.searching"),
        _on(1, "ws_1", "web_search_call.completed"),
        _done(1, _SEARCH),
        *_texts(),
        *_calls(),
        _added(6, _PICTURE, status="in_progress", result=None),
        _on(6, "ig_1", "image_generation_call.generating"),
        _done(6, _PICTURE),
        {"type": "response.completed", "response": RESPONSE},
    ]
)


def _gemini(parts: list[Event], finish: str | None = None, **more: Any) -> Event:
    candidate: Event = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": "gemini-x", "responseId": "r1"} | more


GEMINI: list[Event] = [
    _gemini([{"text": "The user ", "thought": True}]),
    _gemini([{"text": "asks.", "thought": True}]),
    _gemini([{"text": "Let me "}]),
    _gemini([{"text": "look."}]),
    _gemini([{"executableCode": {"language": "PYTHON", "code": "1 + 1"}}]),
    _gemini([{"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}]),
    _gemini([{"inlineData": {"mimeType": "image/png", "data": PIXEL}}]),
    _gemini(
        [
            {
                "functionCall": {"name": "read", "args": {"path": "café.txt"}},
                "thoughtSignature": "c2lnbmVk",
            },
            {"functionCall": {"name": "read", "args": {"path": "b.txt"}}},
        ]
    ),
    _gemini(
        [{"text": ""}],
        "STOP",
        usageMetadata={
            "promptTokenCount": 12,
            "candidatesTokenCount": 27,
            "thoughtsTokenCount": 7,
            "cachedContentTokenCount": 5,
            "totalTokenCount": 46,
        },
    ),
]


def wire(shape: str, events: list[Event]) -> list[bytes]:
    """Events as bytes; what ends a stream beyond its last event is not part of it."""
    named = shape in ("anthropic", "openai-responses")
    return [sse(event, named=named) for event in events]


EVENTS: dict[str, list[Event]] = {
    "openai-chat": CHAT,
    "openai-responses": RESPONSES,
    "anthropic": MESSAGES,
    "gemini": GEMINI,
}
