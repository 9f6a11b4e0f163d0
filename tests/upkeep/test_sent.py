"""What a model was sent is computed again from its journal, and compared."""

import zlib
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest

from killick import AsyncStore, InvalidEntry, Store
from killick.journal.codec import decode_body, encode
from killick.model import entries as e
from killick.recorders import record
from killick.views import sent as sent_module


def ask(session: Any, turn: Any, format_: str = "anthropic", **options: Any) -> None:
    context = session.context(format_, **options)
    request = {"messages": context.messages, "model": "m"}
    with turn.stream(model="m", request=request, settings={"temperature": 0.5}) as reply:
        reply.text("Yes.")


def verdicts(store: Store) -> dict[str, int]:
    found = store.verify_session("s")
    assert [one.kind for one in found.findings] == ["request"] * found.requests.get("different", 0)
    return found.requests


@pytest.mark.parametrize("format_", ["anthropic", "openai-chat", "openai-responses", "gemini"])
def test_what_was_sent_is_equal_to_what_is_computed_again(tmp_path: Path, format_: str) -> None:
    names = {"gemini": "contents", "openai-responses": "input"}
    with Store(tmp_path / "a.db") as store:
        session = store.create_session(id="s")
        for number in range(4):
            with session.turn(f"Is it {number}?") as turn:
                context = session.context(format_)  # type: ignore[arg-type]
                request = {names.get(format_, "messages"): context.messages}
                with turn.stream(system="Be brief.", request=request) as reply:
                    reply.text("Yes.")
                    reply.tool_call("c", name="x", arguments="{}")
                with turn.tool("c") as call:
                    call.finish("done")
        session.compact(summary="It is.", through=session.head - 8)
        with session.turn("And now?") as turn:
            ask(session, turn, "openai-chat", max_messages=3)
        assert verdicts(store) == {"equal": 5}


def test_a_context_before_the_turn_is_computed_again(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as store:
        session = store.create_session(id="s")
        with session.turn("one") as turn:
            ask(session, turn)
        with session.turn("two") as turn:
            ask(session, turn, before_turn=turn.id)
        assert verdicts(store) == {"equal": 2}


def test_a_context_before_the_turn_has_what_was_settled_since(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as store:
        session = store.create_session(id="s")
        with session.turn("one") as first, first.stream() as reply:
            reply.text("Yes.")
            reply.tool_call("c", name="pay", arguments="{}")
        with (
            pytest.raises(KeyboardInterrupt),
            session.turn(None, continues=first.id) as second,
            second.tool("c", of=first.id),
        ):
            raise KeyboardInterrupt
        with session.turn("two") as turn:
            session.settle(first.id, "c", "ran", by="person")
            ask(session, turn, before_turn=turn.id)
        assert verdicts(store) == {"not recorded": 1, "equal": 1}


def test_what_says_something_else_is_found_and_named(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Store(path) as store:
        session = store.create_session(id="s")
        for word in ("one", "two"):
            with session.turn(word) as turn:
                ask(session, turn)
    connection = apsw.Connection(str(path))
    rows: list[Any] = connection.execute("SELECT seq, body FROM entries").fetchall()
    for seq, body in rows:
        decoded = decode_body(bytes(body))
        if isinstance(decoded, e.MessageEnded):
            changed = bytes(body).replace(b"Yes.", b"No!.")
            values = (changed, zlib.crc32(changed), seq)
            connection.execute("UPDATE entries SET body = ?, crc = ? WHERE seq = ?", values)
            break
    with Store(path) as store:
        found = store.verify_session("s")
    assert found.requests == {"equal": 1, "different": 1}
    (request,) = [one for one in found.findings if one.kind == "request"]
    assert "message 2 of 3 is another" in request.what


def test_what_cannot_be_computed_again_is_said_and_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path / "a.db") as store:
        session = store.create_session(id="s")
        with session.turn("one") as turn:
            with turn.stream() as reply:
                reply.text("no request")
            with turn.stream(request={"messages": [{"role": "user", "content": "mine"}]}) as reply:
                reply.text("of my own making")
            ask(session, turn, max_tokens=900, count_tokens=len)
        assert verdicts(store) == {"not recorded": 2, "counter": 1}
        entries = [one.body for one in session.entries()]
        calls = [body for body in entries if isinstance(body, e.ModelCallStarted)]
        assert calls[1].request is not None
        assert calls[2].request is not None
        assert calls[2].request.view is not None
        assert calls[2].request.view.counter == "len"
        with session.turn("two") as turn:
            ask(session, turn)
        assert verdicts(store) == {"not recorded": 2, "counter": 1, "equal": 1}
        monkeypatch.setattr(sent_module, "VIEW_VERSION", 2)
        assert verdicts(store) == {"not recorded": 2, "counter": 1, "another version": 1}
        monkeypatch.setattr(sent_module, "BUDGET_VERSION", 3)
        assert verdicts(store) == {"not recorded": 2, "another version": 2}


def test_the_canonical_form_is_as_it_is_documented() -> None:
    call = e.ModelCallStarted(id="c", turn_id="t", model="m", settings={"b": 1, "a": 0.5})
    messages = [{"role": "user", "content": "é"}]
    text = (
        '{"format":"anthropic","messages":[{"content":"\\u00e9","role":"user"}],"model":"m",'
        '"settings":{"a":0.5,"b":1},"system":null,"tools":null}'
    )
    assert sent_module.hash_request(call, "anthropic", messages) == (
        sha256(text.encode()).hexdigest()
    )


def test_headers_keys_and_flags_change_nothing(tmp_path: Path) -> None:
    hashes = set()
    for number, more in enumerate(
        (
            {},
            {
                "stream": True,
                "stream_options": {"include_usage": True},
                "extra_headers": {"x": "y"},
            },
        )
    ):
        with Store(tmp_path / f"{number}.db") as store:
            session = store.create_session(id="s")
            with session.turn("one") as turn:
                messages = session.context("openai-chat").messages
                request = {"model": "m", "messages": messages, **more}
                chunks = iter([{"choices": [{"delta": {"content": "Yes."}, "index": 0}]}])
                list(record(turn, "openai-chat", chunks, request=request, cut="keep"))
            (call,) = [one.body for one in session.entries() if one.kind == "model_call_started"]
            assert isinstance(call, e.ModelCallStarted)
            assert call.request is not None
            assert call.request.view is not None
            hashes.add(call.request.hash)
            assert verdicts(store) == {"equal": 1}
    assert len(hashes) == 1


def test_a_request_that_is_no_json_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as store, store.create_session(id="s").turn("x") as turn:
        for request in ({}, {"messages": [object()]}, {"messages": [float("nan")]}):
            with pytest.raises(InvalidEntry, match="request"):
                turn.stream(request=request).begin()


@pytest.mark.anyio
async def test_the_other_face_has_it_too(tmp_path: Path) -> None:
    async with AsyncStore(tmp_path / "a.db") as store:
        session = await store.create_session(id="s")
        async with session.turn("one") as turn:
            context = await session.context("gemini")
            async with turn.stream(request={"contents": context.messages}) as reply:
                reply.text("Yes.")
        assert (await store.verify_session("s")).requests == {"equal": 1}


def test_bodies_are_encoded_as_they_were(tmp_path: Path) -> None:
    view = e.SentView(version=1, through=3)
    sent = e.SentRequest(hash="h", format="gemini", messages=1, view=view)
    body = e.ModelCallStarted(id="c", turn_id="t", request=sent)
    assert decode_body(encode(body)) == body
    assert b"request" not in encode(e.ModelCallStarted(id="c", turn_id="t"))
