"""OpenAI Responses: what the list given as `input` must be.

The words after each rule are the published text or the error that the API answers with. Items of
hosted tools are known by name and passed on as they came; only their ids are looked at.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from killick.views.validators import chat_completions
from killick.views.validators.findings import NONE, Findings, Shape, Types, Violation, tag

RULES: Mapping[str, str] = {
    "not-json": "the body is JSON",
    "surrogate": "the body is UTF-8 JSON",
    "request-size": "up to 50 MB total payload size per request",
    "shape": "Missing required parameter: 'input[1].call_id'",
    "unknown-key": "Unknown parameter: 'input[1].status' (on a reasoning item), '…metadata'",
    "item-type": "Invalid value: '…'. Supported values are: 'message', 'function_call' …",
    "role": "Invalid value. Supported values are: 'assistant', 'system', 'developer', and 'user'",
    "content-type": "Invalid value: 'input_text'. Supported values are: 'output_text' and "
    "'refusal' (assistant), and the other way round",
    "media-role": "an assistant message takes 'output_text' and 'refusal'",
    "empty-content": "empty array. Expected an array with minimum length 1",
    "empty-text": "an empty text part says nothing; compatible servers refuse it",
    "tool-name": "string does not match pattern '^[a-zA-Z0-9_-]+$'; maximum length 64",
    "item-id": "Expected an ID that begins with 'rs' ('msg', 'fc', 'ctc'); that contains letters, "
    "numbers, underscores, or dashes",
    "duplicate-item-id": "Duplicate item found with id rs_…. Remove duplicate items",
    "call-id": "input[95].call_id: string too long. Expected maximum length 64",
    "duplicate-call-id": "Duplicate 'call_id'",
    "arguments": "a JSON string of the arguments to pass to the function",
    "missing-result": "No tool output found for function call call_…",
    "orphan-result": "No tool call found for function call output with call_id …",
    "duplicate-result": "an identifier used to map this call to one output",
    "misplaced-result": "No tool call found: an output stands after its call",
    "result-kind": "No tool call found for custom tool call output with call_id …",
    "reasoning-follower": "Item 'rs_…' of type 'reasoning' was provided without its required "
    "following item",
    "media-type": "PNG, JPEG, WEBP and non-animated GIF",
    "media-size": "up to 20 MB per image",
    "base64": "a fully qualified URL or base64 encoded image in a data URL",
    "empty-request": "Missing required parameter: 'input'",
    "ends-with-assistant": "the next message is the model's to write",
}

CALL_ID = re.compile(r"[^\x00-\x1f]{1,64}")
ITEM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}

MESSAGE = Shape(
    {"role": str, "content": (str, list)},
    {"type": str, "id": str, "status": str, "phase": (str, NONE)},
)
_CALL: Mapping[str, Types] = {"id": str, "namespace": str, "caller": (dict, NONE), "async": bool}
_OUTPUT: Mapping[str, Types] = {"type": str, "call_id": str, "output": (str, list)}
_OUTPUT_MORE: Mapping[str, Types] = {
    "id": (str, NONE),
    "status": (str, NONE),
    "caller": (dict, NONE),
}
ITEMS: Mapping[str, Shape] = {
    # `status` is in the SDK's type of a reasoning item, and is what the API refuses. What is
    # encrypted needs no `id`, which that type demands.
    "reasoning": Shape(
        {"type": str, "summary": list},
        {"id": str, "encrypted_content": (str, NONE), "content": list},
    ),
    "function_call": Shape(
        {"type": str, "call_id": str, "name": str, "arguments": str}, {**_CALL, "status": str}
    ),
    "custom_tool_call": Shape({"type": str, "call_id": str, "name": str, "input": str}, _CALL),
    "function_call_output": Shape(
        _OUTPUT, {**_OUTPUT_MORE, "name": (str, NONE), "namespace": (str, NONE)}
    ),
    "custom_tool_call_output": Shape(_OUTPUT, _OUTPUT_MORE),
}
PAIRED = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}
OUTPUTS = {output: call for call, output in PAIRED.items()}
HOSTED = frozenset(
    {
        "file_search_call",
        "web_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "local_shell_call",
        "tool_search_call",
        "mcp_call",
        "mcp_list_tools",
        "mcp_approval_request",
        "program",
    }
)
"""Items that the provider ran itself; the model's own output."""
OTHER = frozenset(
    {
        "local_shell_call_output",
        "tool_search_output",
        "mcp_approval_response",
        "program_output",
        "compaction",
        "item_reference",
        "additional_tools",
    }
)

_CACHE: Mapping[str, Types] = {"prompt_cache_breakpoint": (dict, NONE)}
PARTS: Mapping[str, Shape] = {
    "input_text": Shape({"type": str, "text": str}, _CACHE),
    "input_image": Shape(
        {"type": str},
        {"image_url": (str, NONE), "file_id": (str, NONE), "detail": (str, NONE), **_CACHE},
    ),
    "input_file": Shape(
        {"type": str},
        {
            "file_data": (str, NONE),
            "file_id": (str, NONE),
            "file_url": (str, NONE),
            "filename": (str, NONE),
            "detail": str,
            **_CACHE,
        },
    ),
    "output_text": Shape({"type": str, "text": str}, {"annotations": list, "logprobs": list}),
    "refusal": Shape({"type": str, "refusal": str}),
    "summary_text": Shape({"type": str, "text": str}),
    "reasoning_text": Shape({"type": str, "text": str}),
}
INPUT = ("input_text", "input_image", "input_file")
SPOKEN = ("output_text", "refusal")


def openai_responses(
    items: Sequence[Mapping[str, Any]], system: str | None = None, *, complete: bool = False
) -> list[Violation]:
    """Say which rules `items` break; with `complete`, as a request that is sent now."""
    report = Findings(RULES)
    size = report.json(items, "input") + report.json(system, "system")
    if size > chat_completions.REQUEST_BYTES:
        most = chat_completions.REQUEST_BYTES
        report.add("request-size", "input", f"{size} bytes, {most} at most")
    for index, item in enumerate(items):
        _item(report, item, f"input[{index}]")
    _ids(report, items)
    _pairs(report, items)
    _reasoning(report, items)
    if complete:
        _complete(report, items)
    return report.found


def _complete(report: Findings, items: Sequence[Mapping[str, Any]]) -> None:
    if not items:
        report.add("empty-request", "input", "there is no item")
    elif _type(items[-1]) == "message" and items[-1].get("role") == "assistant":
        where = f"input[{len(items) - 1}]"
        report.add("ends-with-assistant", where, "the last item is the assistant's message")


def _type(item: object) -> str:
    """The type of an item; a role without a type is a message."""
    untyped = isinstance(item, dict) and "role" in item and "type" not in item
    return "message" if untyped else tag(item)


def _item(report: Findings, item: object, where: str) -> None:
    name = _type(item)
    if name == "message":
        _message(report, item, where)
    elif name in ITEMS:
        _tool_or_reasoning(report, item, ITEMS[name], where)
    elif not isinstance(item, dict):
        report.fits(item, Shape({}), where)
    elif name not in HOSTED | OTHER | PAIRED.keys() | OUTPUTS.keys():
        report.add("item-type", where, f"{item.get('type')!r} is not a type of item")


def _message(report: Findings, item: object, where: str) -> None:
    if not report.fits(item, MESSAGE, where) or not isinstance(item, dict):
        return
    role = item["role"]
    if role not in ("user", "assistant", "system", "developer"):
        report.add("role", where, f"{role!r} is not a role")
        return
    content = item["content"]
    if not content:
        report.add("empty-content", f"{where}.content", "nothing in it")
    elif isinstance(content, list):
        accepted = SPOKEN if role == "assistant" else INPUT
        _parts(report, content, accepted, f"{where}.content", role)


def _tool_or_reasoning(report: Findings, item: object, shape: Shape, where: str) -> None:
    if not report.fits(item, shape, where) or not isinstance(item, dict):
        return
    name = item["type"]
    if name == "reasoning":
        if "id" not in item and not item.get("encrypted_content"):
            report.add("shape", where, "neither `id` nor `encrypted_content`")
        _parts(report, item["summary"], ("summary_text",), f"{where}.summary", name)
        _parts(report, item.get("content", []), ("reasoning_text",), f"{where}.content", name)
        return
    report.matches("call-id", CALL_ID, item["call_id"], f"{where}.call_id")
    if name in OUTPUTS:
        # A tool that returned nothing: the empty string is a result, the empty array is not.
        if item["output"] == []:
            report.add("empty-content", f"{where}.output", "an empty array")
        elif isinstance(item["output"], list):
            _parts(report, item["output"], INPUT, f"{where}.output", name)
        return
    report.matches("tool-name", chat_completions.TOOL_NAME, item["name"], f"{where}.name")
    if name == "function_call":
        report.arguments(item["arguments"], f"{where}.arguments")


def _parts(
    report: Findings, parts: Sequence[object], accepted: Sequence[str], where: str, of: str
) -> None:
    for index, part in enumerate(parts):
        path = f"{where}[{index}]"
        name = tag(part)
        if isinstance(part, dict) and name not in accepted:
            rule = "media-role" if name in ("input_image", "input_file") else "content-type"
            report.add(rule, path, f"{of} takes no part of type {name!r}")
            continue
        if report.fits(part, PARTS.get(name, Shape({})), path) and isinstance(part, dict):
            _part(report, part, path)


def _part(report: Findings, part: dict[str, Any], where: str) -> None:
    name = part["type"]
    if name == "input_image":
        if part.get("image_url"):
            chat_completions.image(report, part["image_url"], f"{where}.image_url")
        elif not part.get("file_id"):
            report.add("shape", where, "neither `image_url` nor `file_id`")
    elif name == "input_file":
        chat_completions.file(report, part, where)
    elif name in ("input_text", *SPOKEN) and not part["refusal" if name == "refusal" else "text"]:
        report.add("empty-text", where, "an empty string")


def _ids(report: Findings, items: Sequence[Mapping[str, Any]]) -> None:
    """Ids of items are the provider's own: right in form, and each there once."""
    known: set[str] = set()
    for index, item in enumerate(items):
        item_id = item.get("id") if isinstance(item, dict) else None
        name = _type(item)
        if not isinstance(item_id, str) or name == "item_reference":
            continue
        where = f"input[{index}].id"
        prefix = PREFIXES.get(name, "")
        if not ITEM_ID.fullmatch(item_id):
            report.add("item-id", where, f"{item_id!r} does not match {ITEM_ID.pattern}")
        elif not item_id.startswith(prefix):
            report.add("item-id", where, f"{item_id!r} does not begin with {prefix!r}")
        elif item_id in known:
            report.add("duplicate-item-id", where, f"{item_id!r} is there twice")
        known.add(item_id)


def _pairs(report: Findings, items: Sequence[Mapping[str, Any]]) -> None:
    """Every call has one output by its call_id, somewhere after it, of its own kind."""
    calls = _by_call_id(items, PAIRED)
    outputs = _by_call_id(items, OUTPUTS)
    for call_id, places in calls.items():
        for again in places[1:]:
            report.add("duplicate-call-id", f"input[{again}]", f"{call_id!r} is there twice")
        if call_id not in outputs:
            report.add("missing-result", f"input[{places[0]}]", f"no output for {call_id!r}")
    for call_id, places in outputs.items():
        where = f"input[{places[0]}]"
        for again in places[1:]:
            report.add("duplicate-result", f"input[{again}]", f"{call_id!r} has its output")
        if call_id not in calls:
            report.add("orphan-result", where, f"no call {call_id!r}")
            continue
        call = calls[call_id][0]
        if PAIRED[items[call]["type"]] != items[places[0]]["type"]:
            report.add("result-kind", where, f"input[{call}] is a {items[call]['type']}")
        elif places[0] < call:
            report.add("misplaced-result", where, f"its call is input[{call}], after it")


def _by_call_id(
    items: Sequence[Mapping[str, Any]], types: Mapping[str, str]
) -> dict[str, list[int]]:
    indexes: dict[str, list[int]] = {}
    for index, item in enumerate(items):
        if _type(item) in types and isinstance(item.get("call_id"), str):
            indexes.setdefault(item["call_id"], []).append(index)
    return indexes


def _reasoning(report: Findings, items: Sequence[Mapping[str, Any]]) -> None:
    """A run of reasoning items is followed by what the model made of it."""
    follower = False
    for index in range(len(items) - 1, -1, -1):
        item, name = items[index], _type(items[index])
        if name != "reasoning":
            spoken = name == "message" and item.get("role") == "assistant"
            follower = spoken or name in HOSTED | PAIRED.keys() | {"item_reference"}
        elif not follower:
            report.add("reasoning-follower", f"input[{index}]", "no output item follows")
