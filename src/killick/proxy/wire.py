"""Read off an HTTP message its shape, its session, its headers, its encoding.

Pure functions over what came. Nothing here raises for what an agent or a model sends.
"""

import json
import re
import zlib
from collections.abc import Iterable
from typing import Any, Final, Literal, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from killick.errors import UsageError
from killick.recorders.model_call import Shape

Headers = Iterable[tuple[bytes, bytes]]

# -- which request ---------------------------------------------------------------------------------


class Route(msgspec.Struct, frozen=True):
    """Where a request goes: the path for the model, and what of the path was for the proxy."""

    path: str
    """As it came, percent signs and all, without what was for the proxy."""
    name: str | None = None
    token: str | None = None


_OURS: Final = re.compile(r"^/(?:t/(?P<token>[^/?#]+)(?=/|$))?(?:/?s/(?P<name>[^/?#]+)(?=/|$))?")


def route_of(raw_path: str) -> Route:
    """Take `/t/TOKEN` and `/s/NAME` off the front of a path."""
    prefix = _OURS.match(raw_path)
    if prefix is None or not prefix.group():
        return Route(raw_path)
    token, name = prefix.group("token"), prefix.group("name")
    if token is None and name is None:
        return Route(raw_path)
    rest = raw_path[prefix.end() :] or "/"
    return Route(
        rest, None if name is None else unquote(name), None if token is None else unquote(token)
    )


def shape_of(method: str, path: str) -> Shape | None:
    """Return the shape of a request to a model; None for one that is only passed through."""
    if method != "POST":
        return None
    bare = path.partition("?")[0].rstrip("/")
    if bare.endswith("/chat/completions"):
        return "openai-chat"
    if bare.endswith("/responses"):
        return "openai-responses"
    if bare.endswith("/messages"):
        return "anthropic"
    if bare.endswith((":generateContent", ":streamGenerateContent")):
        return "gemini"
    return None


def gemini_model(path: str) -> str | None:
    """Return the model that a path of Gemini's names."""
    match = re.search(r"/models/([^/:?]+):", path)
    return None if match is None else unquote(match.group(1))


# -- which session ---------------------------------------------------------------------------------


class AgentSource(msgspec.Struct, frozen=True):
    """An agent and the id that it gives the conversation."""

    agent: str
    id: str


_AGENTS: Final[tuple[tuple[bytes, str], ...]] = (
    (b"x-claude-code-session-id", "claude-code"),
    (b"session-id", "codex"),
    (b"session_id", "codex"),
)
_BY_USER_AGENT: Final = (("kilo", "kilo"), ("opencode", "opencode"))


def source_of(headers: Headers) -> AgentSource | None:
    """Return the conversation that an agent's own header names."""
    by_name = {name.lower(): value for name, value in headers}
    for name, agent in _AGENTS:
        value = _id(by_name.get(name))
        if value is not None:
            return AgentSource(agent, value)
    value = _id(by_name.get(b"x-session-id"))
    if value is None:
        return None
    program = by_name.get(b"user-agent", b"").decode("latin-1").lower()
    agent = next((name for mark, name in _BY_USER_AGENT if mark in program), "opencode")
    return AgentSource(agent, value.removeprefix("title-"))  # Kilo asks for a title by such a name


def parent_of(headers: Headers) -> str | None:
    """Return the id of the conversation for which a subagent works, if a header names it."""
    by_name = {name.lower(): value for name, value in headers}
    return _id(by_name.get(b"x-parent-session-id"))


def _id(value: bytes | None) -> str | None:
    text = (value or b"").decode("utf-8", "replace").strip()
    return text if 0 < len(text) <= 200 and text.isprintable() else None


# -- headers ---------------------------------------------------------------------------------------

HOP_BY_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te"}
    | {b"trailer", b"transfer-encoding", b"upgrade", b"proxy-connection"}
)
"""They are about one connection, and are not passed on."""
TOKEN_HEADER: Final = b"x-killick-token"


def passed_on(
    headers: Headers, *, leave_out: frozenset[bytes] = frozenset()
) -> list[tuple[bytes, bytes]]:
    """Return the headers that go on to the other side, in their order."""
    given = list(headers)
    named = {
        name.strip().lower()
        for key, value in given
        if key.lower() == b"connection"
        for name in value.split(b",")
    }
    gone = HOP_BY_HOP | leave_out | {TOKEN_HEADER} | named
    return [(name, value) for name, value in given if name.lower() not in gone]


def header(headers: Headers, name: bytes) -> str:
    """Return a header's value, in lower case; empty without one."""
    for key, value in headers:
        if key.lower() == name:
            return value.decode("latin-1").strip().lower()
    return ""


def is_websocket(headers: Headers) -> bool:
    """Tell whether a client asks for a WebSocket; other protocols are offers, and passed over."""
    given = list(headers)
    return "websocket" in header(given, b"upgrade") and "upgrade" in header(given, b"connection")


# -- encodings -------------------------------------------------------------------------------------


class Unreadable(Exception):
    """A body that cannot be decoded here; its bytes pass all the same."""


DECODED_BYTES: Final = 256 * 1024 * 1024
"""What one piece may become when it is decoded; a body that becomes more passes unrecorded."""


class Decoder(Protocol):
    """Decodes a body piece by piece. Raises Unreadable."""

    def __call__(self, piece: bytes) -> bytes: ...


def _identity(piece: bytes) -> bytes:
    return piece


class _Zlib:
    """Decodes gzip and deflate, of one member or of several."""

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._inner = zlib.decompressobj(bits)

    def __call__(self, piece: bytes) -> bytes:
        out = b""
        try:
            while piece:
                out += self._inner.decompress(piece, DECODED_BYTES + 1 - len(out))
                _check_size(out)
                piece = self._inner.unused_data
                if piece:
                    self._inner = zlib.decompressobj(self._bits)
        except zlib.error as error:
            raise Unreadable(str(error)) from error
        return out


class _Zstd:
    def __init__(self) -> None:
        try:
            from compression import zstd  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            try:
                from backports import zstd  # type: ignore[no-redef, unused-ignore]
            except ImportError as error:
                raise Unreadable("zstd needs the extra 'zstd'") from error
        self._inner = zstd.ZstdDecompressor()
        self._error = zstd.ZstdError

    def __call__(self, piece: bytes) -> bytes:
        try:
            decoded: bytes = self._inner.decompress(piece, DECODED_BYTES + 1)
        except (self._error, EOFError) as error:
            raise Unreadable(str(error)) from error
        _check_size(decoded)
        return decoded


def _check_size(decoded: bytes) -> None:
    if len(decoded) > DECODED_BYTES:
        raise Unreadable("a little that is decoded to very much")


def decoder_of(encoding: str) -> Decoder:
    """Return what decodes a content encoding. Raises Unreadable for one that is not known here."""
    match encoding:
        case "" | "identity":
            return _identity
        case "gzip" | "x-gzip":
            return _Zlib(16 + zlib.MAX_WBITS)
        case "deflate":
            return _Zlib(zlib.MAX_WBITS)
        case "zstd":
            return _Zstd()
    raise Unreadable(f"the encoding {encoding!r} is not known here")


# -- what a client acts on ---------------------------------------------------------------------

_MARKS: Final = re.compile(
    rb"\[DONE\]|message_stop|response\.(?:completed|incomplete|failed)|\"error\""
    rb"|finish_?[rR]eason\"\s*:\s*\"|tool_use|tool_calls?\"|function_?[cC]all"
    rb"|shell_call|patch_call|computer_call"
)


def may_be_relied_on(data: bytes) -> bool:
    """Tell whether a call or the last event of an answer may be in this: a client acts on them."""
    return _MARKS.search(data) is not None


# -- errors ----------------------------------------------------------------------------------------

ErrorKind = Literal["upstream", "degraded", "refused", "mismatch"]


def error_body(shape: Shape | None, status: int, message: str) -> bytes:
    """Return an error as the provider of this shape would write it."""
    body: dict[str, Any]
    if shape == "anthropic":
        body = {"type": "error", "error": {"type": "api_error", "message": message}}
    elif shape == "gemini":
        name = {502: "UNAVAILABLE", 503: "UNAVAILABLE", 409: "ABORTED"}.get(status, "INTERNAL")
        body = {"error": {"code": status, "message": message, "status": name}}
    else:
        body = {"error": {"message": message, "type": "killick_proxy", "param": None, "code": None}}
    return json.dumps(body, ensure_ascii=False).encode()


# -- the upstream ----------------------------------------------------------------------------------


def check_upstream(url: str) -> str:
    """Return the URL without a slash at its end. Raises UsageError for what is none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"--upstream {url!r} is no URL: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--upstream {url!r} is no URL; it looks like https://api.openai.com")
    if parts.query or parts.fragment or parts.username or parts.password:
        raise UsageError("--upstream has no user, no query and no fragment; agents send their key")
    if port == 0:
        raise UsageError(f"--upstream {url!r} has no port that can be reached")
    return url.rstrip("/")
