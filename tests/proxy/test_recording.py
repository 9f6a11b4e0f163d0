"""What passes through the proxy, and what is stored of it."""

import gzip
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

import killick
from tests.lab.model import Model
from tests.lab.script import Answer, Call, Drop, Fail, Gate, Text
from tests.proxy.asking import SHAPES, ask, body_of, path_of, stored, text_of
from tests.proxy.bench import Tap, proxy
from tests.waiting import until

CALL = Call("shell", {"command": "ls"}, "call_1")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("stream", [True, False])
def test_a_turn_with_a_tool_is_one_turn(tmp_path: Path, shape: str, stream: bool) -> None:
    script = [Answer(Text("Let me look."), CALL), Answer(Text("Two files."))]
    with Model(script) as model, proxy(tmp_path / "s.db", model.url) as running:
        ask(running.url, shape, ("user", "What is here?"), stream=stream)
        said = [("user", "What is here?"), ("assistant", "Let me look."), ("call", "call_1")]
        if shape in ("anthropic", "gemini", "openai-chat"):
            said = _joined(shape)
        answer = ask(running.url, shape, *said, ("result", ("call_1", "a b")), stream=stream)
        assert text_of(shape, answer) == "Two files."
    (session,) = stored(tmp_path / "s.db")
    assert session["turns"] == [("completed", None)]
    assert session["said"] == [
        ("user", "complete", "What is here?"),
        ("assistant", "complete", "Let me look.[shell]"),
        ("tool", "complete", "a b"),
        ("assistant", "complete", "Two files."),
    ]
    assert session["title"] == "What is here?"


def _joined(shape: str) -> list[Any]:
    """The first answer as one message, as clients of this shape send it."""
    return [("user", "What is here?"), ("assistant+call", ("Let me look.", "call_1"))]


@pytest.fixture(autouse=True)
def _joining(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.proxy import asking

    for name in ("_chat", "_block", "_content"):
        monkeypatch.setattr(asking, name, _with_text(getattr(asking, name)))


def _with_text(make: Any) -> Any:
    def made(said: Any) -> Any:
        if said[0] != "assistant+call":
            return make(said)
        text, call_id = said[1]
        whole, words = make(("call", call_id)), make(("assistant", text))
        if "tool_calls" in whole:
            return {**whole, "content": text}
        if "parts" in whole:
            return {**whole, "parts": [*words["parts"], *whole["parts"]]}
        block = {"type": "text", "text": text}
        return {**whole, "content": [block, *whole["content"]]}

    return made


def test_model_call_has_its_settings_and_usage(tmp_path: Path) -> None:
    with Model([Answer(Text("Seven."))]) as model, proxy(tmp_path / "s.db", model.url) as running:
        ask(running.url, "anthropic", ("user", "How many?"))
    with killick.Store(tmp_path / "s.db") as store:
        (info,) = store.sessions()
        session = store.session(info.id)
        (turn,) = session.timeline()
        (call,) = turn.model_calls
        assert (call.provider, call.model, call.finish_reason) == (
            "anthropic",
            "scripted",
            "end_turn",
        )
        assert call.usage is not None
        assert call.usage.output > 0
        (started,) = [e.body for e in session.entries() if e.kind == "turn_started"]
        assert started.starts == "unseen"  # type: ignore[union-attr]


def test_no_key_is_stored(tmp_path: Path) -> None:
    secrets = {"authorization": "Bearer zebra-1", "x-api-key": "zebra-2", "cookie": "zebra-3"}
    with Model([Answer(Text("Hi."))]) as model, proxy(tmp_path / "s.db", model.url) as running:
        ask(running.url, "openai-chat", ("user", "hello"), headers=secrets)
        assert model.requests[0].header("authorization") == "Bearer zebra-1"
        running.end()
        files = [file.read_bytes() for file in tmp_path.iterdir()]
    assert not any(b"zebra" in data for data in files)


def test_secrets_are_redacted_when_asked(tmp_path: Path) -> None:
    key = "sk-proj-" + "a1B2c3D4" * 6
    with (
        Model([Answer(Text("Noted."))]) as model,
        proxy(tmp_path / "s.db", model.url, "--redact", "secrets") as running,
    ):
        ask(running.url, "openai-chat", ("user", f"my key is {key}"))
        assert key in model.requests[0].body.decode()
    (session,) = stored(tmp_path / "s.db")
    assert key not in session["said"][0][2]


def test_prompt_is_durable_before_the_model_is_asked(tmp_path: Path) -> None:
    with (
        Model([Answer(Gate("asked"), Text("x"))]) as model,
        proxy(tmp_path / "s.db", model.url) as running,
    ):
        asking = threading.Thread(target=_ask_in_vain, args=(running.url,))
        asking.start()
        model.wait("asked")
        running.kill()
        (session,) = stored(tmp_path / "s.db")
        model.open("asked")
        asking.join()
    assert session["said"][0] == ("user", "complete", "first")
    assert session["turns"] == [("interrupted", "crashed")]


def test_text_so_far_survives_kill_of_the_proxy(tmp_path: Path) -> None:
    script = [Answer(Text("Once upon a time"), Gate("half"), Text(" there was"))]
    with Model(script) as model, proxy(tmp_path / "s.db", model.url) as running:
        with _asking(running.url, ("user", "a story")) as asked:
            _read_until(asked, "time")
            _wait_for_text(tmp_path / "s.db", "Once upon a time")
            running.kill()
        model.open("half")
    (session,) = stored(tmp_path / "s.db")
    assert session["said"] == [
        ("user", "complete", "a story"),
        ("assistant", "partial", "Once upon a time"),
    ]
    assert session["turns"] == [("interrupted", "crashed")]


def test_a_client_that_goes_away_is_no_stop(tmp_path: Path) -> None:
    script = [Answer(Text("Once upon a time"), Gate("half"), Text(" there was an end."))]
    with Model(script) as model, proxy(tmp_path / "s.db", model.url) as running:
        with _asking(running.url, ("user", "a story")) as asked:
            _read_until(asked, "time")
        until(lambda: _figure(running.url, "clients_gone") == 1)
        model.open("half")
        assert model.requests[0].done.wait(30)
        until(lambda: _figure(running.url, "running_turns") == 0)
        assert not model.requests[0].cut
    (session,) = stored(tmp_path / "s.db")
    assert session["said"][1] == ("assistant", "complete", "Once upon a time there was an end.")
    assert session["turns"] == [("completed", None)]


def test_with_cancel_upstream_the_answer_is_given_up(tmp_path: Path) -> None:
    script = [Answer(Text("Once upon a time"), Gate("half"), Text(" there was" * 2_000))]
    with (
        Model(script) as model,
        proxy(tmp_path / "s.db", model.url, "--cancel-upstream") as running,
    ):
        with _asking(running.url, ("user", "a story")) as asked:
            _read_until(asked, "time")
        until(lambda: _figure(running.url, "clients_gone") == 1)
        model.open("half")
        assert model.requests[0].done.wait(30)
        running.end()
    (session,) = stored(tmp_path / "s.db")
    assert session["said"][1][:2] == ("assistant", "partial")


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_WORD = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"Once"}}]}\n\n'


@pytest.mark.parametrize(
    "said", [b"", _HEAD + b"%x\r\n%s\r\n" % (len(_WORD), _WORD)], ids=["nothing", "a word"]
)
def test_with_cancel_upstream_a_model_that_thinks_is_given_up_at_once(
    tmp_path: Path, said: bytes
) -> None:
    """It says nothing more, so that nothing but the client's leaving can end the wait."""
    with (
        socket.create_server(("127.0.0.1", 0)) as model,
        proxy(
            tmp_path / "s.db", f"http://127.0.0.1:{model.getsockname()[1]}", "--cancel-upstream"
        ) as running,
    ):
        model.settimeout(30)
        client = socket.create_connection(running.address)
        body = json.dumps(body_of("openai-chat", [("user", "a story")], stream=True)).encode()
        client.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body
        )
        asked, _ = model.accept()
        with asked:
            asked.settimeout(30)
            request = asked.recv(65_536)
            while not request.endswith(body):
                request += asked.recv(65_536)
            asked.sendall(said)
            while said and b"Once" not in client.recv(65_536):
                pass
            client.close()
            with suppress(ConnectionResetError):
                assert asked.recv(1) == b""
        until(lambda: _figure(running.url, "clients_gone") == 1)
        running.end()
    (session,) = stored(tmp_path / "s.db")
    assert session["said"] == [
        ("user", "complete", "a story"),
        *([("assistant", "partial", "Once")] if said else []),
    ]


def test_refusals_and_retries_are_attempts_of_one_turn(tmp_path: Path) -> None:
    script = [Answer(Fail(429)), Answer(Fail(500)), Answer(Text("At last."))]
    with Model(script) as model, proxy(tmp_path / "s.db", model.url) as running:
        statuses = [
            ask(running.url, "openai-chat", ("user", "hello")).status_code for _ in range(3)
        ]
    assert statuses == [429, 500, 200]
    (session,) = stored(tmp_path / "s.db")
    assert session["turns"] == [("completed", None)]
    assert session["session"].count("model_call_started") == 3
    assert session["said"] == [("user", "complete", "hello"), ("assistant", "complete", "At last.")]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_cut_stream_is_cut_for_the_client_too(tmp_path: Path, shape: str) -> None:
    with (
        Model([Answer(Text("Half of"), Drop())]) as model,
        proxy(tmp_path / "s.db", model.url) as running,
    ):
        with pytest.raises(httpx2.RemoteProtocolError):
            ask(running.url, shape, ("user", "hello"))
        running.end()
    (session,) = stored(tmp_path / "s.db")
    assert session["said"][1][1] == "partial"
    assert session["said"][1][2] in "Half of"


@pytest.mark.parametrize("shape", SHAPES)
def test_upstream_that_is_not_there_is_502_in_the_providers_shape(
    tmp_path: Path, shape: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with proxy(tmp_path / "s.db", f"http://127.0.0.1:{port}") as running:
        answer = ask(running.url, shape, ("user", "hello"))
        assert answer.status_code == 502
        error = answer.json()["error"]
        assert error["message"]
        if shape == "anthropic":
            assert answer.json()["type"] == "error"
            assert error["type"] == "api_error"
        if shape == "gemini":
            assert (error["code"], error["status"]) == (502, "UNAVAILABLE")
        running.end()
    (session,) = stored(tmp_path / "s.db")
    assert session["said"] == [("user", "complete", "hello")]


def test_tls_that_is_refused_is_502(tmp_path: Path) -> None:
    with Model([]) as model, proxy(tmp_path / "s.db", f"https://127.0.0.1:{model.port}") as running:
        assert ask(running.url, "openai-chat", ("user", "hello")).status_code == 502


def test_a_websocket_gets_501(tmp_path: Path) -> None:
    with Model([]) as model, proxy(tmp_path / "s.db", model.url) as running:
        headers = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13",
                   "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}  # fmt: skip
        answer = httpx2.get(f"{running.url}/v1/responses", headers=headers)
        assert answer.status_code == 501


def test_an_offer_to_speak_http_2_is_passed_over(tmp_path: Path) -> None:
    """Java's own client makes it in every request over plain HTTP."""
    offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c",
             "http2-settings": "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA"}  # fmt: skip
    script = [Answer(Text("Hi.")), Answer(Text("Again."))]
    with Model(script) as model, proxy(tmp_path / "s.db", model.url) as running:
        with httpx2.Client(base_url=running.url, headers=offer) as client:
            for words in ("one", "two"):
                body = body_of("openai-chat", [("user", words)], stream=True)
                answer = client.post("/v1/chat/completions", json=body)
                assert answer.status_code == 200
        assert [request.header("upgrade") for request in model.requests] == [None, None]
        assert "library" not in running.log.read_text()
    assert len(stored(tmp_path / "s.db")) == 2


def test_what_is_no_model_call_passes_untouched(tmp_path: Path) -> None:
    with Model([]) as model, proxy(tmp_path / "s.db", model.url) as running:
        assert httpx2.get(f"{running.url}/v1/models").json()["object"] == "list"
        counted = httpx2.post(f"{running.url}/v1/messages/count_tokens?x=%2Fy", content=b"\xff\x00")
        assert counted.json()["input_tokens"] == 1
        passed = model.everything[-1]
        assert (passed.path, passed.body) == ("/v1/messages/count_tokens?x=%2Fy", b"\xff\x00")
    assert stored(tmp_path / "s.db") == []


@contextmanager
def _echo(answer: bytes, *headers: tuple[str, str]) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers each request with the same bytes, and keeps the bodies."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", bodies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


_SAID = {"role": "assistant", "content": "Zipped."}
_CHOICE = {"index": 0, "finish_reason": "stop", "message": _SAID}
_CHAT = {"id": "1", "object": "chat.completion", "choices": [_CHOICE]}


def test_gzip_passes_as_it_is_and_is_read(tmp_path: Path) -> None:
    packed = gzip.compress(json.dumps(_CHAT).encode())
    headers = (("Content-Type", "application/json"), ("Content-Encoding", "gzip"))
    with _echo(packed, *headers) as (url, bodies), proxy(tmp_path / "s.db", url) as running:
        body = gzip.compress(
            json.dumps(body_of("openai-chat", [("user", "hi")], stream=False)).encode()
        )
        with httpx2.Client() as client, client.stream(
            "POST", f"{running.url}/v1/chat/completions", content=body,
            headers={"content-encoding": "gzip"},
        ) as answer:  # fmt: skip
            assert b"".join(answer.iter_raw()) == packed
        assert bodies == [body]
    (session,) = stored(tmp_path / "s.db")
    assert [said[2] for said in session["said"]] == ["hi", "Zipped."]


def test_a_big_body_passes(tmp_path: Path) -> None:
    words = "duck " * 2_000_000
    with Model([Answer(Text("Many."))]) as model, proxy(tmp_path / "s.db", model.url) as running:
        ask(running.url, "openai-chat", ("user", words))
        assert len(model.requests[0].body) > 10_000_000
        running.end()
    (session,) = stored(tmp_path / "s.db")
    assert session["said"][0][2] == words


def test_a_name_in_the_path_is_the_session(tmp_path: Path) -> None:
    with (
        Model([Answer(Text("One.")), Answer(Text("Two."))]) as model,
        proxy(tmp_path / "s.db", model.url) as running,
    ):
        for words in ("first", "second"):
            ask(f"{running.url}/s/my-work", "openai-chat", ("user", words))
        assert {r.path for r in model.requests} == {"/v1/chat/completions"}
    (session,) = stored(tmp_path / "s.db")
    assert session["id"] == "my-work"
    assert [said[2] for said in session["said"]] == ["first", "One.", "second", "Two."]


def test_the_longest_stored_history_is_continued_also_after_a_restart(tmp_path: Path) -> None:
    with Model([Answer(Text(f"{n}.")) for n in range(9)]) as model:
        with proxy(tmp_path / "s.db", model.url) as running:
            for words in ("alpha", "beta"):
                ask(running.url, "openai-chat", ("user", words))
            running.end()
        with proxy(tmp_path / "s.db", model.url) as running:
            ask(
                running.url,
                "openai-chat",
                ("user", "alpha"),
                ("assistant", "0."),
                ("user", "go on"),
            )
            ask(running.url, "openai-chat", ("user", "alpha"))  # the same words, another talk
            running.end()
    told = [[said[2] for said in session["said"]] for session in stored(tmp_path / "s.db")]
    assert sorted(told) == [["alpha", "0.", "go on", "2."], ["alpha", "3."], ["beta", "1."]]


def test_an_edited_history_is_a_fork(tmp_path: Path) -> None:
    with (
        Model([Answer(Text(f"{n}.")) for n in range(9)]) as model,
        proxy(tmp_path / "s.db", model.url) as running,
    ):
        head = {"x-claude-code-session-id": "abc"}
        begun = [("user", "alpha"), ("assistant", "0.")]
        ask(running.url, "anthropic", begun[0], headers=head)
        ask(running.url, "anthropic", *begun, ("user", "left"), headers=head)
        ask(running.url, "anthropic", *begun, ("user", "right"), headers=head)
        ask(running.url, "anthropic", *begun, ("user", "right"), ("assistant", "2."),
            ("user", "on"), headers=head)  # fmt: skip
    first, second = stored(tmp_path / "s.db")
    assert [said[2] for said in first["said"]] == ["alpha", "0.", "left", "1."]
    assert [said[2] for said in second["said"]] == ["alpha", "0.", "right", "2.", "on", "3."]
    assert second["fork"].session_id == first["id"]


def test_a_compacted_history_is_a_compaction(tmp_path: Path) -> None:
    summary = "The user wants the ducks counted; seven were seen near the reeds."
    script = [Answer(Text("Seven.")), Answer(Text(summary)), Answer(Text("Still seven."))]
    with Model(script) as model, proxy(tmp_path / "s.db", model.url) as running:
        head = {"session-id": "abc"}
        begun = [("user", "Count ducks"), ("assistant", "Seven.")]
        ask(running.url, "openai-responses", begun[0], headers=head)
        ask(running.url, "openai-responses", *begun, ("user", "Summarize."), headers=head)
        ask(running.url, "openai-responses", ("user", f"Before: {summary}"), ("user", "And now?"),
            headers=head)  # fmt: skip
        running.end()
    (session,) = stored(tmp_path / "s.db")
    assert session["session"].count("compaction") == 1
    assert session["said"][-1][2] == "Still seven."
    assert len(session["turns"]) == 3
    with killick.Store(tmp_path / "s.db") as store:
        context = store.session(session["id"]).context("openai-chat")
    assert summary in json.dumps(context.messages)
    assert "Summarize." not in json.dumps(context.messages)


def test_a_call_for_a_title_is_no_turn_of_the_conversation(tmp_path: Path) -> None:
    with (
        Model([Answer(Text("Ducks")), Answer(Text("Seven."))]) as model,
        proxy(tmp_path / "s.db", model.url) as running,
    ):
        head = {"x-session-id": "ses_1", "user-agent": "opencode/1"}
        ask(running.url, "openai-chat", ("user", "Make a title: count"), tools=False, headers=head)
        ask(running.url, "openai-chat", ("user", "count"), headers=head)
    sessions = {session["type"]: session for session in stored(tmp_path / "s.db")}
    assert sessions["user"]["turns"] == [("completed", None)]
    assert [said[2] for said in sessions["user"]["said"]] == ["count", "Seven."]
    assert [said[2] for said in sessions["hidden"]["said"]] == ["Make a title: count", "Ducks"]


def test_a_subagent_of_the_same_header_is_a_session_of_its_own(tmp_path: Path) -> None:
    script = [Answer(CALL), Answer(Text("Done below.")), Answer(Text("All done."))]
    with Model(script) as model, proxy(tmp_path / "s.db", model.url) as running:
        head = {"x-claude-code-session-id": "abc"}
        ask(running.url, "anthropic", ("user", "Do it"), headers=head)
        ask(running.url, "anthropic", ("user", "You are below: help"), headers=head)
        ask(running.url, "anthropic", ("user", "Do it"), ("call", "call_1"),
            ("result", ("call_1", "ok")), headers=head)  # fmt: skip
    main, below = stored(tmp_path / "s.db")
    assert [said[2] for said in main["said"]] == ["Do it", "[shell]", "ok", "All done."]
    assert below["type"] == "subagent"
    assert below["parent"].session_id == main["id"]


def test_a_turn_that_nobody_goes_on_with_is_abandoned(tmp_path: Path) -> None:
    with (
        Model([Answer(CALL)]) as model,
        proxy(tmp_path / "s.db", model.url, "--abandon-after", "0.2") as running,
    ):
        ask(running.url, "anthropic", ("user", "Do it"))
        until(lambda: _figure(running.url, "abandoned_total") == 1)
        running.end()
    (session,) = stored(tmp_path / "s.db")
    assert session["turns"] == [("interrupted", "abandoned")]


def test_results_that_come_after_a_restart_are_late(tmp_path: Path) -> None:
    with Model([Answer(CALL), Answer(Text("Good."))]) as model:
        with proxy(tmp_path / "s.db", model.url) as running:
            ask(
                running.url,
                "anthropic",
                ("user", "Do it"),
                headers={"x-claude-code-session-id": "a"},
            )
            running.kill()
        with proxy(tmp_path / "s.db", model.url) as running:
            said = [("user", "Do it"), ("call", "call_1"), ("result", ("call_1", "real"))]
            ask(running.url, "anthropic", *said, headers={"x-claude-code-session-id": "a"})
            running.end()
    (session,) = stored(tmp_path / "s.db")
    assert [said[2] for said in session["said"]] == ["Do it", "[shell]", "real", "Good."]
    assert session["turns"] == [("interrupted", "crashed"), ("completed", None)]
    assert "late_result" in session["session"]


@pytest.mark.parametrize("when", ["pass", "refuse"])
def test_a_store_that_cannot_write(tmp_path: Path, when: str) -> None:
    with (
        Model([Answer(Text("Hi."))] * 2) as model,
        proxy(tmp_path / "s.db", model.url, "--when-degraded", when) as running,
    ):
        (tmp_path / "s.db").rename(tmp_path / "gone.db")  # what is at its place is not the store
        (tmp_path / "s.db").mkdir()
        answer = ask(running.url, "anthropic", ("user", "hello"))
        assert _figure(running.url, "degraded_total") >= 1
    assert answer.status_code == (200 if when == "pass" else 503)
    assert len(model.requests) == (1 if when == "pass" else 0)
    if when == "refuse":
        assert answer.json()["type"] == "error"


def test_a_token_in_the_path_or_a_header_is_not_passed_on(tmp_path: Path) -> None:
    with Model([Answer(Text("Hi."))] * 2) as model, proxy(tmp_path / "s.db", model.url) as running:
        ask(f"{running.url}/t/hf_1_secret/s/work", "openai-chat", ("user", "one"))
        ask(running.url, "openai-chat", ("user", "two"), headers={"x-killick-token": "hf_1_secret"})
        seen = [(r.path, r.header("x-killick-token")) for r in model.requests]
    assert seen == [("/v1/chat/completions", None)] * 2


def test_bytes_pass_as_they_came(tmp_path: Path) -> None:
    with Model([Answer(Text("Hi."))]) as model, proxy(tmp_path / "s.db", model.url) as running:
        with Tap(running.address) as tap:
            body = b'{ "messages" :[{"role":"user","content":"h\\u00e4"}],\n"stream":true}'
            headers = {"X-Odd": "a  b", "Accept": "*/*", "Authorization": "Bearer x",
                       "Connection": "keep-alive, X-Hop", "X-Hop": "1"}  # fmt: skip
            httpx2.post(f"{tap.url}/v1/chat/completions?a=%20&b", content=body, headers=headers)
            (sent,) = tap.requests()
        (came,) = model.requests
    assert (came.method, came.path, came.body) == ("POST", "/v1/chat/completions?a=%20&b", body)
    gone = {"host", "connection", "x-hop"}
    expected = [(k.lower(), v) for k, v in sent.headers if k.lower() not in gone]
    assert [(k.lower(), v) for k, v in came.headers if k.lower() != "host"] == expected


def test_a_session_that_another_process_runs_is_passed_and_counted(tmp_path: Path) -> None:
    with Model([Answer(Text("Hi."))]) as model, proxy(tmp_path / "s.db", model.url) as running:
        with (
            killick.Store(tmp_path / "s.db") as store,
            store.create_session(id="work").turn("mine"),
        ):
            answer = ask(f"{running.url}/s/work", "openai-chat", ("user", "one"))
        assert answer.status_code == 200
        assert _figure(running.url, "degraded_total") == 1


def _ask_in_vain(url: str) -> None:
    with pytest.raises(httpx2.TransportError):
        ask(url, "openai-chat", ("user", "first"))


# -- helpers ---------------------------------------------------------------------------------------


@contextmanager
def _asking(url: str, *said: Any, shape: str = "openai-chat") -> Iterator[httpx2.Response]:
    """An answer that is read by hand; leaving the block goes away from it."""
    with httpx2.Client(timeout=30) as client, client.stream(
        "POST", url + path_of(shape, stream=True), json=body_of(shape, said, stream=True)
    ) as answer:  # fmt: skip
        yield answer


def _read_until(answer: httpx2.Response, words: str) -> None:
    """Read an answer of chat completions so far."""
    seen = ""
    for line in answer.iter_lines():
        if line.startswith("data: {"):
            seen += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
        if words in seen:
            return


def _wait_for_text(store: Path, text: str) -> None:
    with killick.Store(store) as opened:
        (info,) = opened.sessions()
        until(lambda: text in "".join(m.text for m in opened.session(info.id).messages()))


def _figure(url: str, name: str) -> float:
    lines = httpx2.get(f"{url}/metrics").text.splitlines()
    return next(
        float(line.split()[1]) for line in lines if line.startswith(f"killick_proxy_{name}")
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_call_is_durable_before_a_client_can_run_it(tmp_path: Path, seed: int) -> None:
    script = [Answer(CALL, Gate("called"), Text("x"))]
    with Model(script) as model, proxy(tmp_path / "s.db", model.url) as running:
        with _asking(running.url, ("user", f"go {seed}"), shape="anthropic") as asked:
            for line in asked.iter_lines():
                if "content_block_stop" in line:
                    break
            running.kill()  # at the moment at which the client has the call
        model.open("called")
    (session,) = stored(tmp_path / "s.db")
    assert session["said"][1] == ("assistant", "partial", "[shell]")
