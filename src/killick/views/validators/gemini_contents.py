"""Gemini generateContent: what `contents` must be.

The words after each rule are the published text or the error that the API answers with. Keys may
be written as the SDK's Python types do (`function_call`) or as the wire does (`functionCall`).
Consecutive contents of one role are accepted, and needed: the parts of a function response turn
are function responses only, so what a person says next is a content of its own.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from killick.views.validators.findings import (
    NONE,
    Findings,
    Json,
    MediaLimits,
    Shape,
    Violation,
    is_base64,
    tag,
)

RULES: Mapping[str, str] = {
    "not-json": "Invalid JSON payload received",
    "surrogate": "the body is UTF-8 JSON",
    "request-size": "the maximum total request size is 20 MB",
    "shape": "Invalid value at 'contents[0].parts'; Each Content should have at least one part",
    "unknown-key": 'Invalid JSON payload received. Unknown name "…": Cannot find field',
    "role": "Please use a valid role: user, model",
    "first-role": "First content should be with role 'user'",
    "part-role": "functionCall parts are the model's, functionResponse parts the user's",
    "part-data": "parts[0].data: required oneof field 'data' must have one initialized field",
    "empty-content": "contents.parts must not be empty",
    "empty-text": "Unable to submit request because it has an empty text parameter",
    "tool-name": "Invalid function name. Must start with a letter or an underscore. Must be "
    "a-z, A-Z, 0-9, underscores, dots, colons or dashes, with a maximum length of 64",
    "arguments": "args: the function parameters and values in JSON object format",
    "response": "response: the function response in JSON object format",
    "call-turn": "Please ensure that function call turn comes immediately after a user turn or "
    "after a function response turn",
    "duplicate-call-id": "the unique id of the function call",
    "missing-result": "a function call turn is followed by its function response turn",
    "orphan-result": "Please ensure that function response turn comes immediately after a "
    "function call turn",
    "result-count": "Please ensure that the number of function response parts is equal to the "
    "number of function call parts of the function call turn",
    "result-name": "name matches FunctionCall.name",
    "result-id": "the id of the function call this response is for",
    "result-mixed": "400 for a function response sharing a content with text",
    "thought-signature": "thoughtSignature: decode base64: illegal base64 data",
    "unsigned-call": "Function call is missing a thought_signature in functionCall parts",
    "media-type": "Unsupported MIME type",
    "media-size": "the maximum total request size is 20 MB",
    "base64": "Base64 decoding failed",
    "empty-request": "GenerateContentRequest.contents: contents is not specified",
    "ends-with-assistant": "Requests ending with a model turn are not supported",
    "half-run": "the client should pass this `ToolCall` back to the API along with the "
    "corresponding `ToolResponse` (google-genai 3.1)",
}

TOOL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
REQUEST_BYTES = 20 * 1024 * 1024
MEDIA = MediaLimits(
    frozenset(
        {
            "image/png",
            "image/jpeg",
            "image/webp",
            "image/heic",
            "image/heif",
            "application/pdf",
            "text/plain",
            "text/html",
            "text/css",
            "text/csv",
            "text/xml",
            "text/rtf",
            "text/md",
            "text/markdown",
            "text/javascript",
        }
    ),
    REQUEST_BYTES,
    prefixes=("audio/", "video/"),
    urlsafe=True,
)

CONTENT = Shape({"role": str, "parts": list})
DATA: Mapping[str, type] = {
    "text": str,
    "inline_data": dict,
    "file_data": dict,
    "function_call": dict,
    "function_response": dict,
    "executable_code": dict,
    "code_execution_result": dict,
    "tool_call": dict,
    "tool_response": dict,
}
PART = Shape(
    {},
    {
        **DATA,
        "thought": (bool, NONE),
        "thought_signature": (str, NONE),
        "video_metadata": dict,
        "media_resolution": (dict, str),
        "part_metadata": dict,
    },
)
OF_MODEL = ("function_call", "executable_code", "code_execution_result", "tool_call")
BLOB = Shape({"data": str, "mime_type": str}, {"display_name": str})
FILE = Shape({"file_uri": str}, {"mime_type": str, "display_name": str})
CALL = Shape({"name": str}, {"id": (str, NONE), "args": object})
RESPONSE = Shape(
    {"name": str, "response": object},
    {"id": (str, NONE), "parts": list, "scheduling": str, "will_continue": bool},
)
RESPONSE_PART = Shape({}, {"inline_data": dict, "file_data": dict})


def gemini(
    contents: Sequence[Mapping[str, Any]], system: str | None = None, *, complete: bool = False
) -> list[Violation]:
    """Say which rules `contents` break; with `complete`, as a request that is sent now."""
    report = Findings(RULES)
    size = report.json(contents, "contents") + report.json(system, "system")
    if size > REQUEST_BYTES:
        report.add("request-size", "contents", f"{size} bytes, {REQUEST_BYTES} at most")
    if system == "":
        report.add("empty-text", "system", "an empty string")
    turns = [_content(report, content, f"contents[{at}]") for at, content in enumerate(contents)]
    if turns and turns[0] is not None and turns[0].role != "user":
        report.add("first-role", "contents[0]", "the first content is not the user's")
    for index, turn in enumerate(turns):
        if turn is not None:
            _order(report, turns, turn, index)
            _runs(report, turn, f"contents[{index}]")
    _signed(report, turns)
    if complete:
        _complete(report, contents)
    return report.found


def _complete(report: Findings, contents: Sequence[Mapping[str, Any]]) -> None:
    if not contents:
        report.add("empty-request", "contents", "there is no content")
    elif tag(contents[-1], "role") == "model":
        where = f"contents[{len(contents) - 1}]"
        report.add("ends-with-assistant", where, "the last content is the model's")


class _Turn:
    """A content in the Python spelling, with its function calls and responses."""

    def __init__(self, role: str, parts: list[Json]) -> None:
        self.role = role
        self.parts = parts
        self.calls = [part["function_call"] for part in parts if "function_call" in part]
        self.responses = [
            part["function_response"] for part in parts if "function_response" in part
        ]
        called = [part for part in parts if "function_call" in part]
        self.signed = not called or bool(called[0].get("thought_signature"))


def snake(value: object) -> object:
    """The same object with the SDK's Python spelling of its own keys."""
    if not isinstance(value, dict):
        return value
    return {
        re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", key)
        if isinstance(key, str)
        else key: of
        for key, of in value.items()
    }


def _content(report: Findings, content: object, where: str) -> _Turn | None:
    if not report.fits(content, CONTENT, where) or not isinstance(content, dict):
        return None
    role = content["role"]
    if role not in ("user", "model"):
        report.add("role", where, f"{role!r} is not a role")
        return None
    if not content["parts"]:
        report.add("empty-content", f"{where}.parts", "an empty array")
    parts = []
    for index, raw in enumerate(content["parts"]):
        part = _part(report, snake(raw), role, f"{where}.parts[{index}]")
        if part is not None:
            parts.append(part)
    return _Turn(role, parts)


def _part(report: Findings, part: object, role: str, where: str) -> Json | None:
    """The part in the Python spelling, when it can be looked at for calls and responses."""
    if not report.fits(part, PART, where) or not isinstance(part, dict):
        return None
    data = [key for key in DATA if key in part]
    if len(data) != 1:
        report.add("part-data", where, f"{len(data)} kinds of data in one part, not one")
        return None
    name, signature = data[0], part.get("thought_signature")
    if signature is not None and not is_base64(signature, urlsafe=True):
        report.add("thought-signature", where, "the signature is not base64")
    if (name in OF_MODEL and role != "model") or (name == "function_response" and role != "user"):
        report.add("part-role", where, f"a {role} content takes no {name}")
        return None
    if role == "user" and (part.get("thought") or signature):
        report.add("part-role", where, "a user content has no thoughts")
    # A signature may arrive, and is sent back, in a part whose text is empty.
    if name == "text" and not part["text"] and not signature:
        report.add("empty-text", where, "an empty string")
    inner = snake(part[name])
    path = f"{where}.{name}"
    if name == "function_call":
        if not _call(report, inner, path):
            return None
        return {name: inner, "thought_signature": signature}
    if name == "function_response":
        return {name: inner} if _response(report, inner, path) else None
    _media(report, name, inner, path)
    return {name: inner}


def _media(report: Findings, name: str, value: object, where: str) -> None:
    if name == "inline_data" and report.fits(value, BLOB, where) and isinstance(value, dict):
        report.media(value["data"], value["mime_type"], MEDIA, where)
    elif name == "file_data":
        report.fits(value, FILE, where)


def _call(report: Findings, call: object, where: str) -> bool:
    if not report.fits(call, CALL, where) or not isinstance(call, dict):
        return False
    report.matches("tool-name", TOOL_NAME, call["name"], f"{where}.name")
    if not isinstance(call.get("args", {}), dict):
        report.add("arguments", f"{where}.args", "an object is expected")
    return True


def _response(report: Findings, response: object, where: str) -> bool:
    if not report.fits(response, RESPONSE, where) or not isinstance(response, dict):
        return False
    report.matches("tool-name", TOOL_NAME, response["name"], f"{where}.name")
    if not isinstance(response["response"], dict):
        report.add("response", f"{where}.response", "an object is expected")
    for index, raw in enumerate(response.get("parts", [])):
        part, path = snake(raw), f"{where}.parts[{index}]"
        if report.fits(part, RESPONSE_PART, path) and isinstance(part, dict):
            for name in part:
                _media(report, name, snake(part[name]), f"{path}.{name}")
    return True


def _runs(report: Findings, turn: _Turn, where: str) -> None:
    """A tool that the provider ran goes back with its call and its response, in one content."""
    asked = [part["tool_call"].get("id") for part in turn.parts if "tool_call" in part]
    came = [part["tool_response"].get("id") for part in turn.parts if "tool_response" in part]
    if sorted(map(str, asked)) != sorted(map(str, came)):
        report.add("half-run", where, f"tool calls {asked}, tool responses {came}")


def _order(report: Findings, turns: Sequence[_Turn | None], turn: _Turn, index: int) -> None:
    """Check where calls and responses stand; beside a broken content nothing is reported."""
    where = f"contents[{index}]"
    before = turns[index - 1] if index else None
    after = turns[index + 1] if index + 1 < len(turns) else None
    last = index + 1 == len(turns)
    if turn.calls and before is not None and before.role != "user":
        report.add("call-turn", where, "the content before is the model's too")
    if turn.calls and (last or (after is not None and not after.responses)):
        report.add("missing-result", where, "no function responses in the next content")
    if not turn.responses:
        return
    if len(turn.responses) < len(turn.parts):
        report.add("result-mixed", where, "other parts beside function responses")
    if index == 0 or (before is not None and not before.calls):
        report.add("orphan-result", where, "no function calls in the content before")
    elif before is not None:
        _pairs(report, before.calls, turn.responses, where)


def _signed(report: Findings, turns: Sequence[_Turn | None]) -> None:
    """Newer models demand a signature since the user's last words, of the first call of each."""
    for index in range(len(turns) - 1, -1, -1):
        turn = turns[index]
        if turn is not None and turn.role == "user" and not turn.responses:
            return
        if turn is not None and not turn.signed:
            report.add("unsigned-call", f"contents[{index}]", "the first function call is unsigned")


def _pairs(report: Findings, calls: list[Json], responses: list[Json], where: str) -> None:
    """Responses belong to calls by id where every call has one, by their order otherwise."""
    if len(calls) != len(responses):
        text = f"{len(responses)} function responses for {len(calls)} function calls"
        report.add("result-count", where, text)
        return
    ids = [call.get("id") for call in calls]
    by_id = dict(zip(ids, calls, strict=True))
    if None not in by_id and len(by_id) < len(calls):
        report.add("duplicate-call-id", where, "two function calls before have the same id")
        return
    if None in by_id:
        pairs = list(zip(calls, responses, strict=True))
    elif {response.get("id") for response in responses} != by_id.keys():
        report.add("result-id", where, "the ids are not those of the function calls before")
        return
    else:
        pairs = [(by_id[response["id"]], response) for response in responses]
    for call, response in pairs:
        if call["name"] != response["name"]:
            text = f"{response['name']!r} answers a call of {call['name']!r}"
            report.add("result-name", where, text)
