"""Secrets are taken out before anything is written, and nothing else is touched."""

import contextlib
import json
import re
from pathlib import Path

import msgspec
import pytest

from killick import File, Image, InvalidEntry, Message, Opaque, Reasoning, Store, Text, ToolCall
from killick.journal.assembly import is_whole_object
from killick.journal.codec import to_bytes
from killick.journal.kinds import digest
from killick.journal.redaction import MASK, SECRETS, Redactor, redact_secrets
from killick.model import entries as e
from killick.model.entries import Delta
from killick.model.messages import Part
from killick.stores.memory import MemoryDisk
from tests.unit.views.talking import stopped
from tests.waiting import until

KEY = "ghp_" + "a1B2" * 9
TOKENS = {
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    "AWS key id": "AKIA" + "A1" * 8,
    "GitHub token": KEY,
    "GitLab token": "glpat-" + "x" * 20,
    "Anthropic key": "sk-ant-api03-" + "x" * 30,
    "OpenAI key": "sk-proj-" + "x" * 40,
    "Google key": "AIza" + "x" * 35,
    "Slack token": "xoxb-" + "1" * 24,
    "Stripe key": "sk_live_" + "x" * 24,
    "Hugging Face token": "hf_" + "x" * 34,
    "npm token": "npm_" + "x" * 36,
    "JSON web token": "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSMeKKF2QT4",
}
HARMLESS = [
    "sk-learn is a library, and so is hf_hub",
    "the commit 4f5e6d7c8b9a0f1e2d3c4b5a69788796a5b4c3d2",
    "ghp_short AKIA123 AIza xoxb- eyJ.eyJ.x",
    "-----BEGIN PUBLIC KEY-----\nMIIE\n-----END PUBLIC KEY-----",
]


def test_every_pattern_has_an_example() -> None:
    assert set(TOKENS) == set(SECRETS)


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_replaced_by_its_name(name: str) -> None:
    assert redact_secrets(f"a {TOKENS[name]} b") == f"a [redacted: {name}] b"
    assert redact_secrets(redact_secrets(f"a {TOKENS[name]} b")) == f"a [redacted: {name}] b"


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact_secrets(text) == text


def test_signed_reasoning_and_opaque_data_are_never_touched() -> None:
    parts = (
        Reasoning(KEY, signature=KEY),
        Reasoning(KEY, encrypted=KEY),
        Opaque("openai", KEY.encode()),
    )
    body = e.MessageRecorded(id="m", turn_id="t", role="assistant", parts=parts)
    assert Redactor(redact_secrets).body(body) is body


@pytest.mark.parametrize("part", [Text("x"), Reasoning("x"), ToolCall("c1", "shell", "{}")])
def test_further_fields_with_a_secret_are_left_out(part: Text | Reasoning | ToolCall) -> None:
    """A provider takes them exactly as they were, or not at all."""
    harmless = msgspec.structs.replace(part, extra={"openai-chat": {"phase": "final"}})
    hostile = msgspec.structs.replace(part, extra={"openai-chat": {"details": [{"text": KEY}]}})
    body = e.MessageRecorded(id="m", turn_id="t", role="assistant", parts=(harmless, hostile))
    redacted = Redactor(redact_secrets).body(body)
    assert isinstance(redacted, e.MessageRecorded)
    assert redacted.parts == (harmless, part)
    assert redacted.redacted == 1
    delta = Delta(0, 0, "text", "x", extra=hostile.extra)
    assert Redactor(redact_secrets).mask([delta])[0].extra is None


def test_what_was_taken_out_is_counted() -> None:
    parts = (Text(f"{KEY} and {KEY}"), Reasoning(KEY), Text("nothing"))
    body = e.MessageRecorded(id="m", turn_id="t", role="user", parts=parts)
    redacted = Redactor(redact_secrets).body(body)
    assert isinstance(redacted, e.MessageRecorded)
    assert redacted.redacted == 3
    assert KEY not in str(redacted)


@pytest.mark.parametrize(
    "arguments",
    [
        '{"user":"ann","password":"4711"}',
        '{"user": "ann", "password": "4711"}',
        '{"half": "\\ud83d", "password": "4711"}',
        '{"half": "\ud83d", "password": "4711"}',
        '{"deep": ' + "[" * 600 + "]" * 600 + ', "password": "4711"}',
    ],
    ids=["dense", "spaced", "escaped", "half a character", "deep"],
)
def test_what_is_taken_out_of_arguments_comes_back_in_no_way(arguments: str) -> None:
    """The redaction knows the text of an object, not its values; what it leaves is no object."""
    redactor = Redactor(lambda text: re.sub(r'"password":\s*"[^"]*"', "(gone)", text))
    found = redactor.arguments(arguments)
    assert is_whole_object(found)
    assert "4711" not in found
    assert "gone" in found


def test_names_in_data_are_redacted_too() -> None:
    data = {KEY: 1, KEY[:-1] + "Z": 2, "harmless": 3}
    note = Redactor(redact_secrets).body(e.Note(id="n", name="n", data=data))
    assert isinstance(note, e.Note)
    named = "[redacted: GitHub token]"
    assert (note.data, note.redacted) == ({named: 1, f"{named} #2": 2, "harmless": 3}, 2)


def test_arguments_stay_a_whole_object() -> None:
    """Even when the redaction knows nothing of JSON."""
    call = ToolCall("c", "f", '{"a": "hush", "n": [1, "hush"]}')
    body = e.MessageRecorded(id="m", turn_id="t", role="assistant", parts=(call,))
    redacted = Redactor(lambda text: text.replace("hush", '"')).body(body)
    assert isinstance(redacted, e.MessageRecorded)
    assert redacted.parts == (ToolCall("c", "f", '{"a":"\\"","n":[1,"\\""]}'),)


def test_a_masked_delta_keeps_its_length() -> None:
    (delta,) = Redactor(redact_secrets).mask([Delta(0, 7, "text", f"see {KEY} there")])
    assert delta.text == f"see {MASK * len(KEY)} there"
    assert delta.offset == 7


def files(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.iterdir())


def test_no_secret_reaches_the_file(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    with Store(path, redact="secrets", window_seconds=0.001) as store:
        session = store.create_session(title=f"about {KEY}")
        with session.turn(f"use {KEY}") as turn:
            with turn.stream() as reply:
                reply.text(f"I use {KEY} ")
                session.note("flush", {"key": KEY})
                reply.text("now")
                reply.tool_call("c", name="f", arguments=f'{{"key": "{KEY}"}}')
            asked = turn.ask_approval("c", f'{{"key": "{KEY}"}}')
            session.decide_approval(asked, approved=True, reason=f"{KEY} is meant")
            with turn.tool("c") as call:
                call.output(f"printed {KEY}")
                call.finish(f"got {KEY}", structured={"key": KEY})
        again = session.finish_tool(turn.id, "c", f"got {KEY}", structured={"key": KEY})
        assert again.repeated
        texts = [message.text for message in session.messages()]
        assert texts[0] == "use [redacted: GitHub token]"
        assert "[redacted" in texts[1]
        assert texts[1].endswith("now")
        assert session.info().redacted >= 7
        assert session.title == "about [redacted: GitHub token]" or KEY not in str(session.title)
        assert store.examine_session(session.id) == []
    assert KEY.encode() not in files(path)


def test_a_function_of_the_user_s_is_asked(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db", redact=lambda text: text.replace("hush", "…")) as store:
        session = store.create_session()
        with session.turn("hush, baby") as turn:
            turn.record(Message("assistant", [Text("hush hush")], id="m"))
            assert turn.record(Message("assistant", [Text("hush hush")], id="m")).repeated
        assert [message.text for message in session.messages()] == ["…, baby", "… …"]


def test_a_redaction_that_fails_stores_nothing_and_ends_the_turn(tmp_path: Path) -> None:
    def fail(text: str) -> str:
        if "secret" in text:
            raise RuntimeError("no")
        return text

    with Store(tmp_path / "work.db", redact=fail) as store:
        session = store.create_session()
        secret = Message("assistant", [Text("secret")])
        with session.turn("go") as turn, pytest.raises(InvalidEntry, match="redaction failed"):
            turn.record(secret)
        stopped = contextlib.suppress(KeyboardInterrupt)
        with stopped, session.turn("on") as turn, turn.stream() as reply:
            reply.text("a secret")
            raise KeyboardInterrupt
        (*_, last) = session.messages()
        assert (last.state, last.text) == ("partial", "[not stored: the redaction failed]")
        assert session.turns()[-1].status == "interrupted"


def test_a_redaction_must_be_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="redact="):
        Store(tmp_path / "work.db", redact="everything")  # type: ignore[arg-type]


def test_a_session_is_begun_twice_with_a_title_that_was_redacted() -> None:
    with Store(MemoryDisk().open(), redact="secrets") as store:
        first = store.create_session(id="mine", title=f"use {KEY}", tags=(KEY,))
        assert store.create_session(id="mine", title=f"use {KEY}", tags=(KEY,)).id == first.id
        first.tag(f"tag {KEY}", remove=[KEY])
        assert KEY not in repr(first.entries())
        assert first.info().tags == ("tag [redacted: GitHub token]",)


@pytest.mark.parametrize("known", [f"use {KEY} and", f"use {KEY[:20]}", "use "])
def test_the_rest_of_an_answer_is_kept_though_its_beginning_was_redacted(known: str) -> None:
    """Also when it broke off in the middle of the secret: then the other half is taken out."""
    with Store(MemoryDisk().open(), redact="secrets") as store:
        session = store.create_session()
        with stopped(session) as turn, turn.stream() as reply:
            reply.text(known)
            raise KeyboardInterrupt
        message = session.messages()[-1]
        session.add_late_text(turn.id, message.id, f"use {KEY} and more")
        text = session.messages()[-1].text
        assert text.endswith(" and more")
        assert "[redacted" in text
        assert KEY[20:] not in repr(session.entries())


def test_what_a_model_is_asked_with_and_names_of_files_are_redacted() -> None:
    with Store(MemoryDisk().open(), redact="secrets") as store:
        session = store.create_session()
        blob = store.put_blob(b"bytes")
        named: list[Part] = [File(blob, "text/plain", name=KEY), Image(blob, "image/png", alt=KEY)]
        with session.turn(named) as turn, turn.stream(system=KEY, tools=[{"name": KEY}]) as reply:
            reply.text("Yes.")
        assert KEY not in str(session.messages())
        assert session.context("neutral").system == "[redacted: GitHub token]"
        [call] = [one.body for one in session.entries() if isinstance(one.body, e.ModelCallStarted)]
        assert KEY.encode() not in store.blob(call.tools or "")
        assert session.info().redacted == 4


def test_the_detail_of_an_ending_is_redacted() -> None:
    """It is a sentence from outside like the reason."""
    ending = e.TurnEnding(turn_id="t", status="failed", reason=f"no {KEY}", detail=f"so {KEY}")
    redacted = Redactor(redact_secrets).body(ending)
    assert isinstance(redacted, e.TurnEnding)
    assert (redacted.reason, redacted.detail) == tuple(
        f"{word} [redacted: GitHub token]" for word in ("no", "so")
    )
    assert redacted.redacted == 2


def test_an_approval_has_the_hash_of_the_arguments_that_are_stored() -> None:
    """A hash of the secret itself would tell whether a guess of it is right."""
    arguments = json.dumps({"token": KEY})
    with Store(MemoryDisk().open(), redact="secrets") as store:
        session = store.create_session()
        with session.turn("go") as turn:
            turn.record(Message("assistant", [ToolCall("c", "curl", arguments)]))
            asked = turn.ask_approval("c", arguments)
            (call,) = session.messages()[1].tool_calls
            assert KEY not in call.arguments
            assert asked.arguments_hash == digest(to_bytes(call.arguments))


def test_streamed_thinking_is_sent_back_exactly_or_not_at_all(tmp_path: Path) -> None:
    """Its signature comes when the thinking is on the disk, where the secret is masked."""
    with Store(tmp_path / "work.db", redact="secrets", window_seconds=0.001) as store:
        session = store.create_session()
        with session.turn("Go.") as turn:
            with turn.stream(provider="anthropic") as reply:
                reply.reasoning(f"I use {KEY} here.")
                until(
                    lambda: (
                        MASK
                        in "".join(getattr(p, "text", "") for p in session.messages()[-1].parts)
                    )
                )
                reply.reasoning(signature="c2ln")
                reply.reasoning("Nothing secret.")
                reply.reasoning(signature="d2ln")
                reply.text("Done.")
            thought = session.messages()[-1].parts[0]
            assert thought == Reasoning("I use [redacted] here.")
            blocks = session.context("anthropic").messages[1]["content"]
            signed = [block for block in blocks if block["type"] == "thinking"]
            assert [block["signature"] for block in signed] == ["d2ln"]
