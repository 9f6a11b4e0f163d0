import gzip
import zlib
from collections.abc import Callable

import pytest

from killick.errors import UsageError
from killick.proxy import wire


@pytest.mark.parametrize(
    ("raw", "path", "name", "token"),
    [
        ("/v1/messages", "/v1/messages", None, None),
        ("/s/work/v1/messages?a=b", "/v1/messages?a=b", "work", None),
        ("/s/a%20b/v1", "/v1", "a b", None),
        ("/t/hf_1/v1", "/v1", None, "hf_1"),
        ("/t/hf_1/s/work/v1/x%2Fy", "/v1/x%2Fy", "work", "hf_1"),
        ("/s/work", "/", "work", None),
        ("/system/v1", "/system/v1", None, None),
        ("/", "/", None, None),
        ("/s", "/s", None, None),
    ],
)
def test_route(raw: str, path: str, name: str | None, token: str | None) -> None:
    assert wire.route_of(raw) == wire.Route(path, name, token)


@pytest.mark.parametrize(
    ("method", "path", "shape"),
    [
        ("POST", "/v1/chat/completions", "openai-chat"),
        ("POST", "/openai/deployments/x/chat/completions?api-version=1", "openai-chat"),
        ("POST", "/v1/responses", "openai-responses"),
        ("POST", "/v1/responses/compact", None),
        ("POST", "/v1/messages?beta=true", "anthropic"),
        ("POST", "/v1/messages/count_tokens", None),
        ("POST", "/v1beta/models/g:streamGenerateContent?alt=sse", "gemini"),
        ("POST", "/v1beta/models/g:generateContent", "gemini"),
        ("POST", "/v1beta/models/g:countTokens", None),
        ("GET", "/v1/responses", None),
    ],
)
def test_shape(method: str, path: str, shape: str | None) -> None:
    assert wire.shape_of(method, path) == shape


@pytest.mark.parametrize(
    ("headers", "source"),
    [
        ([(b"X-Claude-Code-Session-Id", b"u1")], wire.AgentSource("claude-code", "u1")),
        ([(b"session-id", b"u2")], wire.AgentSource("codex", "u2")),
        (
            [(b"x-session-id", b"s"), (b"user-agent", b"opencode/1")],
            wire.AgentSource("opencode", "s"),
        ),
        ([(b"x-session-id", b"s"), (b"user-agent", b"Kilo-Code/7")], wire.AgentSource("kilo", "s")),
        (
            [(b"x-session-id", b"title-s"), (b"user-agent", b"Kilo-Code/7")],
            wire.AgentSource("kilo", "s"),
        ),
        ([(b"session-id", b"")], None),
        ([(b"session-id", b"x" * 300)], None),
        ([(b"session-id", b"a\x00b")], None),
        ([], None),
    ],
)
def test_source(headers: list[tuple[bytes, bytes]], source: wire.AgentSource | None) -> None:
    assert wire.source_of(headers) == source


def test_headers_about_the_connection_stay_behind() -> None:
    given = [(b"Connection", b"close, X-Mine"), (b"x-mine", b"1"), (b"X-Killick-Token", b"t"),
             (b"TE", b"trailers"), (b"accept", b"a"), (b"Accept", b"b")]  # fmt: skip
    assert wire.passed_on(given) == [(b"accept", b"a"), (b"Accept", b"b")]


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [("", b"words"), ("deflate", zlib.compress(b"words")),
     ("gzip", gzip.compress(b"words", mtime=0)),
     ("gzip", gzip.compress(b"wo", mtime=0) + gzip.compress(b"rds", mtime=0))],
)  # fmt: skip
def test_decoding_byte_by_byte(encoding: str, packed: bytes) -> None:
    decode = wire.decoder_of(encoding)
    assert b"".join(decode(packed[i : i + 1]) for i in range(len(packed))) == b"words"


@pytest.mark.parametrize(
    "kind", ["shell_call", "local_shell_call", "apply_patch_call", "computer_call", "function_call"]
)
def test_a_call_that_the_client_runs_may_be_relied_on(kind: str) -> None:
    assert wire.may_be_relied_on(f'data: {{"item": {{"type": "{kind}"}}}}'.encode())
    assert not wire.may_be_relied_on(b'data: {"delta": "calling"}')


def test_what_cannot_be_decoded_says_so() -> None:
    with pytest.raises(wire.Unreadable):
        wire.decoder_of("br")
    with pytest.raises(wire.Unreadable):
        wire.decoder_of("gzip")(b"no gzip at all")


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
)
def test_a_little_that_becomes_very_much_is_not_decoded(
    monkeypatch: pytest.MonkeyPatch, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    """It passes unrecorded; decoding it would take the machine's memory."""
    monkeypatch.setattr(wire, "DECODED_BYTES", 1_000)
    assert wire.decoder_of(encoding)(pack(b"0" * 1_000)) == b"0" * 1_000
    with pytest.raises(wire.Unreadable):
        wire.decoder_of(encoding)(pack(b"0" * 1_001))
    with pytest.raises(wire.Unreadable):
        wire.decoder_of(encoding)(pack(b"0" * 800) + pack(b"0" * 800))


@pytest.mark.parametrize(
    "url",
    ["", "api.openai.com", "ftp://x", "http://", "http://u:p@h", "http://h:x", "http://h?k=1"],
)
def test_wrong_upstream(url: str) -> None:
    with pytest.raises(UsageError):
        wire.check_upstream(url)


def test_upstream_without_a_slash() -> None:
    assert wire.check_upstream("https://h/v1/") == "https://h/v1"
