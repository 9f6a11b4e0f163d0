"""The description of the interface, made of the same operations and types that serve it."""

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

import msgspec

from killick.server.endpoint import HEADER, Operation
from killick.server.responses import JSON
from killick.server.schemas import DeltaEvent, EntryEvent, Failure, ReloadEvent

_REF: Final = "#/components/schemas/{name}"

_STATUSES: Final = {
    200: "Done.",
    201: "It is there now.",
    202: "It was taken, and will be done.",
    400: "The request is not understood.",
    401: "A token is needed.",
    403: "This token, or this site, may not.",
    404: "There is no such thing.",
    409: "Something else came first; the body says what.",
    410: "The session was deleted; it can be restored.",
    413: "The body is too large.",
    415: "The body is of another type.",
    421: "The server does not go by that name.",
    422: "What was sent cannot be recorded, or cannot be done.",
    500: "The session is damaged, or the server failed.",
    429: "This token asks too often, or has too many streams open; Retry-After says when to ask.",
    503: "Not now: the store cannot serve, or the server is shutting down.",
}

_ALWAYS: Final = (400, 401, 403, 421, 429, 503)
_WITH_BODY: Final = (413, 415)


def describe(operations: Sequence[Operation]) -> dict[str, Any]:
    """The OpenAPI document."""
    types = _types(operations)
    _, components = msgspec.json.schema_components(types, ref_template=_REF)
    paths: dict[str, Any] = {}
    for operation in operations:
        path = paths.setdefault(operation.path, {})
        path[operation.method.lower()] = _operation(operation, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Killick",
            "version": version("killick"),
            "description": "Sessions of LLM agents that lose nothing when they are interrupted.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _types(operations: Sequence[Operation]) -> list[type[msgspec.Struct]]:
    types: list[type[msgspec.Struct]] = [Failure, EntryEvent, DeltaEvent, ReloadEvent]
    for operation in operations:
        types += [answer for answer in operation.answers.values() if not isinstance(answer, str)]
        if operation.body is not None:
            types.append(operation.body)
        if operation.query is not None:
            types.append(operation.query)
    return list(dict.fromkeys(types))


def _operation(operation: Operation, components: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.handler.__name__,
        "summary": operation.summary,
        "parameters": _parameters(operation, components),
        "responses": _responses(operation),
        "security": [] if operation.needs == "open" else [{"token": []}, {}],
    }
    if operation.body is not None:
        schema = components[operation.body.__name__]
        described["requestBody"] = {
            "required": bool(schema.get("required")),
            "content": {JSON: {"schema": _ref(operation.body)}},
        }
    if operation.raw:
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _parameters(operation: Operation, components: dict[str, Any]) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", operation.path)
    ]
    if operation.query is not None:
        schema = (
            components.pop(operation.query.__name__, None)
            or msgspec.json.schema_components([operation.query], ref_template=_REF)[1][
                operation.query.__name__
            ]
        )
        required = schema.get("required", [])
        for name, field in schema["properties"].items():
            parameters.append(
                {"name": name, "in": "query", "required": name in required, "schema": _bare(field)}
            )
    for name in operation.headers:
        text = {"type": "string", "minLength": 1, "maxLength": 1_000, "pattern": HEADER}
        parameters.append({"name": name, "in": "header", "required": False, "schema": text})
    return parameters


def _bare(schema: dict[str, Any]) -> dict[str, Any]:
    """A query cannot say null: a parameter that is null is one that is left out."""
    given = {name: value for name, value in schema.items() if name not in ("default", "anyOf")}
    options = [value for value in schema.get("anyOf", ()) if value != {"type": "null"}]
    if len(options) == 1:
        given |= options[0]
    elif options:
        given["anyOf"] = options
    if schema.get("default") is not None:
        given["default"] = schema["default"]
    if None in given.get("enum", ()):
        given["enum"] = [value for value in given["enum"] if value is not None]
    return given


def _responses(operation: Operation) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, answer in operation.answers.items():
        if isinstance(answer, str):
            content = {answer: {"schema": {} if answer == "*/*" else {"type": "string"}}}
        else:
            content = {JSON: {"schema": _ref(answer)}}
        responses[str(status)] = {"description": _STATUSES[status], "content": content}
    always = () if operation.needs == "open" else (500,)
    with_body = _WITH_BODY if operation.body is not None or operation.raw else (413,)
    for status in sorted({*_ALWAYS, *always, *with_body, *operation.errors}):
        content = {JSON: {"schema": _ref(Failure)}}
        responses[str(status)] = {"description": _STATUSES[status], "content": content}
    return responses


def _ref(kind: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": _REF.format(name=kind.__name__)}
