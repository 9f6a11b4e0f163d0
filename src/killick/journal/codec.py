"""Bodies and deltas to bytes and back, exactly.

Rule 1: bytes are JSON, so that any tool can read a store.
Rule 2: every Python string survives. JSON in UTF-8 has no lone surrogates, so a value that
        contains one has them as three bytes each, as UTF-8 would if it had any, behind one leading
        space that says so; a value without them, which is nearly every one, starts with none.
Rule 3: an entry kind that this code does not know is kept as it is and written as it was.
Rule 4: a text of a class of its own is written as its text.
Rule 5: an ending or a stop that was stored before there were causes is read with one.
"""

import json
from collections.abc import Sequence
from typing import Any, TypeVar
from zlib import crc32

import msgspec

from killick.errors import InvalidEntry
from killick.model.causes import cause_of_words
from killick.model.entries import Body, Delta, KnownBody, StopAsked, TurnEnding, Unknown
from killick.model.messages import Json, plain

T = TypeVar("T")

_WIDE = b" "
_CAUSED = (StopAsked, TurnEnding)


class CodecError(ValueError):
    """The bytes are not what this module writes."""


class _Tag(msgspec.Struct):
    kind: str
    v: int = 1


def _as_text(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


_encoder = msgspec.json.Encoder(enc_hook=_as_text)
_body_decoder: msgspec.json.Decoder[KnownBody] = msgspec.json.Decoder(KnownBody)
_deltas_decoder = msgspec.json.Decoder(tuple[Delta, ...])

KNOWN_KINDS = frozenset(str(kind.__struct_config__.tag) for kind in KnownBody.__args__)


def encode(value: Any) -> bytes:
    """Return the bytes of any value of the model."""
    if isinstance(value, Unknown):
        return value.data
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        text = json.dumps(
            msgspec.to_builtins(value, enc_hook=_as_text), separators=(",", ":"), ensure_ascii=False
        )
        return _WIDE + to_bytes(text)


def decode_body(data: bytes) -> Body:
    """Read an entry's body; `Unknown` for a kind that a newer version wrote. Raises CodecError."""
    try:
        if data[:1] == _WIDE:
            body: KnownBody = msgspec.convert(_wide(data), KnownBody)
        else:
            body = _body_decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        tag = _find_tag(data)
        if tag is None or tag.kind in KNOWN_KINDS:
            raise CodecError(f"not an entry: {error}") from error
        return Unknown(name=tag.kind, version=tag.v, data=bytes(data))
    if isinstance(body, TurnEnding):
        needs_cause = body.cause is None and body.status != "completed"
        return _with_cause(body) if needs_cause else body
    return _with_cause(body) if isinstance(body, StopAsked) else body


def _with_cause(body: StopAsked | TurnEnding) -> StopAsked | TurnEnding:
    if body.cause is not None:
        return body
    if isinstance(body, StopAsked):
        return msgspec.structs.replace(body, cause=cause_of_words(body.reason, None))
    if body.status == "completed":
        return body
    failed = body.status == "failed"
    cause = "failed" if failed else cause_of_words(body.reason, body.detail)
    return msgspec.structs.replace(body, cause=cause)


def decode_deltas(data: bytes, crc: int | None = None) -> tuple[Delta, ...]:
    """Read the deltas of one flush of one stream, by its checksum if any. Raises CodecError."""
    if crc is not None and crc32(data) != crc:
        raise CodecError("its checksum does not match")
    try:
        return (
            decode(data, tuple[Delta, ...]) if data[:1] == _WIDE else _deltas_decoder.decode(data)
        )
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CodecError(f"not deltas: {error}") from error


def decode(data: bytes, type_: type[T]) -> T:
    """Read any other value of the model."""
    if data[:1] == _WIDE:
        return msgspec.convert(_wide(data), type_)
    return msgspec.json.decode(data, type=type_)


def check_value(value: Any, type_: Any, what: str) -> None:
    """Refuse a value whose fields are not of their types. Raises InvalidEntry."""
    try:
        _check_same(value, decode(encode(value), type_))
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise InvalidEntry(f"this {what} cannot be recorded: {error}") from error


def read_back(body: Body, data: bytes) -> Body:
    """Read these bytes of a body, which must say the same. Raises CodecError."""
    decoded = decode_body(data)
    if decoded != body:
        _check_same(_with_cause(body) if isinstance(body, _CAUSED) else body, decoded)
    return decoded


def _check_same(given: Any, decoded: Any) -> None:
    """Refuse what JSON would make a text of, or nothing: bytes, a date, a number that is none."""
    if given == decoded:
        return
    if isinstance(given, msgspec.Struct) and type(given) is type(decoded):
        for field in msgspec.structs.fields(decoded):
            if field.type != Json:  # data of the application, in whatever form JSON has for it
                _check_same(getattr(given, field.name), getattr(decoded, field.name))
    elif isinstance(decoded, tuple) and isinstance(given, Sequence):
        for item, read in zip(given, decoded, strict=True):
            _check_same(item, read)
    elif decoded is None or isinstance(decoded, str | bytes | msgspec.Struct):
        wanted = "str" if decoded is None else type(decoded).__name__
        raise CodecError(f"Expected `{wanted}`, got `{type(given).__name__}`")


def to_bytes(text: str) -> bytes:
    """Encode ids and titles as the database keeps them, lone surrogates and NUL included."""
    try:
        return text.encode("utf-8", "surrogatepass")
    except AttributeError:  # it comes from outside, and nothing looked at it before
        raise InvalidEntry(f"text belongs here, and this is a {type(text).__name__}") from None


def to_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _wide(data: bytes) -> Any:
    return json.loads(to_text(data))


def _find_tag(data: bytes) -> _Tag | None:
    try:
        return decode(data, _Tag)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
