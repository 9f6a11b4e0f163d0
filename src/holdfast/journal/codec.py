"""Bodies and deltas to bytes and back, exactly.

Rule 1: bytes are JSON, so that any tool can read a store.
Rule 2: every Python string survives. JSON in UTF-8 has no lone surrogates, so a value that
        contains one is written with all of its non-ASCII escaped, behind one leading space that
        says so; a value without them, which is nearly every one, never starts with a space.
Rule 3: an entry kind that this code does not know is kept as it is and written as it was.
"""

import json
from typing import Any, TypeVar

import msgspec

from holdfast.model.entries import Body, Delta, KnownBody, Unknown
from holdfast.model.parts import Part

T = TypeVar("T")

_ESCAPED = b" "


class CodecError(ValueError):
    """The bytes are not what this module writes."""


class _Tag(msgspec.Struct):
    kind: str
    v: int = 1


_encoder = msgspec.json.Encoder()
_body_decoder: msgspec.json.Decoder[KnownBody] = msgspec.json.Decoder(KnownBody)
_tag_decoder = msgspec.json.Decoder(_Tag)
_deltas_decoder = msgspec.json.Decoder(tuple[Delta, ...])

KNOWN_KINDS = frozenset(str(kind.__struct_config__.tag) for kind in KnownBody.__args__)


def encode(value: Any) -> bytes:
    """The bytes of any value of the model."""
    if isinstance(value, Unknown):
        return value.data
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _ESCAPED + json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def decode_body(data: bytes) -> Body:
    """An entry's body; `Unknown` for a kind that a newer version wrote."""
    try:
        if data[:1] == _ESCAPED:
            return _decode_escaped_body(data)
        return _body_decoder.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        tag = _find_tag(data)
        if tag is None or tag.kind in KNOWN_KINDS:
            raise CodecError(f"not an entry: {error}") from error
        return Unknown(name=tag.kind, version=tag.v, data=bytes(data))


def decode_deltas(data: bytes) -> tuple[Delta, ...]:
    """The deltas of one flush of one stream."""
    return decode(data, tuple[Delta, ...]) if data[:1] == _ESCAPED else _deltas_decoder.decode(data)


def decode(data: bytes, type_: type[T]) -> T:
    """Any other value of the model."""
    if data[:1] == _ESCAPED:
        return msgspec.convert(json.loads(data), type_)
    return msgspec.json.decode(data, type=type_)


def to_bytes(text: str) -> bytes:
    """A string as the database keeps ids and titles: exact, lone surrogates and NUL included."""
    return text.encode("utf-8", "surrogatepass")


def to_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def parts_bytes(parts: tuple[Part, ...]) -> bytes:
    """What a hash of a prompt is taken over."""
    return encode(parts)


def _decode_escaped_body(data: bytes) -> KnownBody:
    body: KnownBody = msgspec.convert(json.loads(data), KnownBody)
    return body


def _find_tag(data: bytes) -> _Tag | None:
    try:
        return _tag_decoder.decode(data.strip())
    except (msgspec.MsgspecError, ValueError):
        return None
