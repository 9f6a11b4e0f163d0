"""Texts that are put by while a view is made: what is written is the same."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from killick import Entry, Message, Session, Store
from killick.exchange.export.agents import AGENTS, written
from killick.exchange.export.handover import json_document
from killick.exchange.export.html import render_page
from killick.exchange.export.markdown import render_markdown
from killick.exchange.export.shelf import LONG, JournalFacts, Shelf, person_sees
from killick.exchange.read import read_document, read_listed
from killick.journal.redaction import MASK
from killick.model.messages import Image, Opaque, Reasoning, Text
from killick.stores.memory import MemoryDisk
from killick.testing.strategies import journals
from tests.exchange.checks import PNG, converse
from tests.exchange.test_exporting import evil, torn
from tests.exchange.test_own import _whole_turns
from tests.waiting import until

ALL, NONE = 0, 1 << 62
"""A text is put by when it has more characters than this."""

WORDS = " \n" + "All work and no play. " * 40


def page(session: Session, longer_than: int) -> list[str]:
    shown, words = person_sees(session, longer_than)
    pages = [*render_page("A", shown, words, lambda _name: PNG)]
    return [*pages, *render_markdown("A", shown, words)]


def plain_page(session: Session) -> list[str]:
    """As it was written when a view had all texts."""
    shown = session.transcript()
    pages = [*render_page("A", shown, lambda item: item, lambda _name: PNG)]
    return [*pages, *render_markdown("A", shown, lambda item: item)]


def check_same(store: Store, session_id: str, agents: list[str]) -> None:
    for name in agents:
        by, kept = (written(store, session_id, AGENTS[name], size) for size in (ALL, NONE))
        assert by[0] == kept[0]
        assert b"".join(by[1]) == b"".join(kept[1]), name
    session = store.session(session_id)
    assert page(session, ALL) == plain_page(session)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(journal=journals(), agent=st.sampled_from(sorted(AGENTS)))
def test_what_is_written_is_the_same_with_every_text_put_by(
    journal: list[Entry], agent: str
) -> None:
    with Store(MemoryDisk().open()) as store:
        store.put_blob(b"s")  # the system prompt of every generated journal
        store.import_entries("ses_1", _whole_turns(journal))
        check_same(store, "ses_1", [agent])


def went_wrong(store: Store) -> str:
    """Long texts in all places where a view looks into them."""
    session, blob = store.create_session(), store.put_blob(PNG)
    thought = Reasoning(WORDS, signature=WORDS, encrypted=WORDS)
    masked = Reasoning(WORDS + MASK, signature="s")
    with session.turn([Text(WORDS), Text(" " * 500), Image(blob, "image/png")]) as turn:
        with turn.stream(provider="anthropic", model="m") as reply:
            reply.part(thought)
            reply.part(masked)
            reply.text(WORDS + "\ud800")
            reply.tool_call("c1", name="run", arguments=json.dumps({"a": WORDS, "b": 1.0}))
            reply.tool_call("c2", name="run", arguments="{}")
        with turn.tool("c1") as tool:
            tool.output(WORDS)
            tool.finish((Text(WORDS), Image(blob, "image/png")), structured={"a": WORDS})
        with turn.tool("c2") as tool:
            tool.finish("", structured={"a": WORDS})
        turn.record(Message("assistant", [Opaque("openai", b'{"type": "x_call"}'), Text("Done.")]))
    for call_id in ("c1", "c2"):
        with suppress(KeyboardInterrupt), session.turn("Again.") as turn:
            with turn.stream() as reply:
                reply.tool_call(call_id, name="run", arguments="{}")
            with turn.tool(call_id, effect="none") as tool:
                tool.output(WORDS)
                raise KeyboardInterrupt
        with suppress(KeyboardInterrupt), session.turn("On.", continues=turn.id) as next_turn:
            with next_turn.stream() as reply:
                reply.text(WORDS)
            with next_turn.tool(call_id, of=turn.id, effect="none"):
                raise KeyboardInterrupt
    session.settle(turn.id, "c2", "ran", result=WORDS, evidence=WORDS)
    session.finish_tool(turn.id, "c2", "", structured={"a": "structured words"})
    with suppress(KeyboardInterrupt), session.turn("And now?") as turn, turn.stream() as reply:
        reply.text(WORDS)
        reply.tool_call("c3", name="run", arguments='{"a": "' + WORDS)
        raise KeyboardInterrupt
    session.add_late_text(turn.id, session.messages()[-1].id, WORDS + "and more")
    messages = session.messages()
    session.hide(messages[2], person=False)
    session.compact(WORDS, through=messages[5].seq, first=messages[4].seq)
    with suppress(KeyboardInterrupt), session.turn("Well?") as turn, turn.stream() as reply:
        reply.text("It")
        raise KeyboardInterrupt
    session.add_late_text(turn.id, session.messages()[-1].id, "It ends.")
    return session.id


@pytest.mark.parametrize("make", [went_wrong, converse, evil, torn])
def test_a_session_in_which_everything_went_wrong_is_the_same(store: Store, make: Any) -> None:
    check_same(store, make(store), sorted(AGENTS))


def test_what_a_turn_says_that_runs_is_shown(store: Store) -> None:
    session = store.create_session()
    with session.turn("Go.") as turn:
        with turn.stream() as reply:
            reply.tool_call("c1", name="run", arguments="{}")
        with turn.tool("c1") as tool:
            tool.output(WORDS)
            until(lambda: WORDS.strip() in "".join(page(session, ALL)))
            assert page(session, ALL) == plain_page(session)
            tool.finish("")


def test_a_text_that_looks_like_a_word_of_another_shelf_is_a_text(store: Store) -> None:
    session = store.create_session()
    with session.turn(WORDS):
        pass
    other = Shelf(ALL)
    word = other._put("secret")
    with session.turn(word):
        pass
    assert word in "".join(page(session, ALL))
    assert other.text(f"<{word}>") == "<secret>"


def test_a_result_without_text_says_what_is_structured(store: Store) -> None:
    session_id = went_wrong(store)
    losses, pieces = written(store, session_id, AGENTS["claude-code"], ALL)
    assert b"structured words" in b"".join(pieces)
    assert "thoughts of the model (1)" in losses  # whose text was masked


def test_what_is_written_meanwhile_is_left_for_the_next_time(store: Store) -> None:
    session = store.session(converse(store))
    seen = JournalFacts()
    entries = Shelf().entries(session, seen)
    head = session.head
    session.note("later")
    assert [entry.seq for entry in entries] == [*range(1, head + 1)]
    assert len(session.entries()) == head + 1


def test_a_short_text_stays_where_it_is() -> None:
    shelf = Shelf()
    assert shelf._put("a" * LONG) == "a" * LONG
    assert len(shelf._put("a" * 10_000)) < LONG


# -- documents ----------------------------------------------------------------------------------

ROWS = st.lists(st.dictionaries(st.text(max_size=5), st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
), min_size=1), max_size=6)  # fmt: skip


@given(rows=ROWS, indent=st.sampled_from([1, 2]))
def test_a_document_is_written_row_by_row_as_a_whole(rows: list[Any], indent: int) -> None:
    about = {"info": {"a": [1, {}]}, "empty": []}
    whole = json.dumps(about | {"rows": rows}, ensure_ascii=False, indent=indent) + "\n"
    pieces = json_document(about, "rows", iter(rows), indent=indent)
    assert b"".join(pieces) == whole.encode("utf-8", "surrogatepass")


@given(rows=ROWS, at=st.integers(0, 400), put=st.sampled_from([b"", b"\n    },\n", b"}", b'"']))
def test_a_long_list_is_read_row_by_row_as_a_whole(
    rows: list[Any], at: int, put: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Or not at all, when it is damaged."""
    path = tmp_path_factory.getbasetemp() / "export.json"
    document = {"id": "x", "conversation": rows, "working_dir": "/", "more": {"a": {"b": 1}}}
    whole = json.dumps(document, indent=2).encode() + b"\n"
    for data in (whole, whole[:at] + put + whole[at + 1 :], whole[:-at]):
        path.write_bytes(data)
        listed = read_listed(path, "conversation")
        if listed is not None:
            value = read_document(path).value
            assert value == listed.about | {"conversation": [*listed.rows()]}
        else:
            assert data != whole or not rows


@pytest.mark.parametrize(
    "text",
    [
        '{"a": {\n  "conversation": [\n    {\n"b": 1\n    }\n  ]\n}}\n',
        '{\n  "conversation": [\n    {\n"b": 1\n    },\n',
        '{\n  "conversation": [\n    {\n"b": 1\n    }\n',
        '{\n  "conversation": [\n    {\n"b": 1\n    },\n    {\n',
    ],
)
def test_a_list_elsewhere_or_without_an_end_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "export.json").write_text(text)
    assert read_listed(tmp_path / "export.json", "conversation") is None
