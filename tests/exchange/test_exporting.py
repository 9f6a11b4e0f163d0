"""What goes out to people and to providers."""

import json
import sqlite3
import time
from contextlib import closing, suppress
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from killick import Message, Opaque, Project, Store
from killick.exchange import EXPORTS, NOT_TEXT, export_session, import_paths, prepare_export
from killick.exchange.export.prose import to_html
from killick.model.entries import Note
from killick.model.messages import File, Image, Part, Reasoning, Text, ToolCall, ToolResult
from tests.exchange.checks import PNG, VALIDATORS, converse

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)> & \"'`\ud800\0"


def exported(store: Store, session_id: str, to: str) -> str:
    return b"".join(export_session(store, session_id, to)).decode("utf-8")


class Tags(HTMLParser):
    """The elements and attributes of a page, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {(name, (value or "")[:5]) for name, value in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def evil(store: Store) -> str:
    """A session in which every text would like to be more than text."""
    session = store.create_session(title=EVIL)
    blob = store.put_blob(PNG)
    parts: list[Part] = [
        Text(EVIL),
        Image(blob, "image/png", EVIL),
        File(blob, EVIL, EVIL),
        Image(blob, EVIL),
    ]
    with session.turn(parts) as turn:
        turn.record(Message("assistant", [Reasoning(EVIL), Text(EVIL), ToolCall("c", EVIL, EVIL)]))
        turn.record(Message("tool", [ToolResult("c", (Text(EVIL), Image(blob, "image/svg+xml")))]))
    try:
        with session.turn("Again."):
            raise RuntimeError(EVIL)
    except RuntimeError:
        pass
    session.compact(EVIL, through=session.messages()[1].seq)
    return session.id


def test_a_page_has_no_scripts_and_fetches_nothing(store: Store) -> None:
    page = Tags()
    page.feed(exported(store, evil(store), "html"))
    assert page.tags == {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "time", "article", "pre",
        "details", "summary", "img", "p", "code", "span",
    }  # fmt: skip
    assert {name for name, _ in page.attributes} <= {
        "lang", "charset", "http-equiv", "content", "name", "class", "src", "alt", "datetime"
    }  # fmt: skip
    assert {value for name, value in page.attributes if name == "src"} == {"data:"}
    assert page.text.count("<script>alert(1)</script>") >= 6


def test_a_page_shows_what_was_said_and_what_broke_off(store: Store) -> None:
    page = Tags()
    page.feed(exported(store, converse(store), "html"))
    for text in (
        "Another title",
        "They looked for the linker.",
        "make: *** [all] Error 2",
        "found",
    ):
        assert text in page.text
    assert "interrupted" in page.text
    assert "Assistant, cut off" in page.text


SAID = """# Plan

Do **this** and *that* with `make all`, see [the page](https://example.org/a?b=1&c=2).

1. one
2. two
   - inner

> quoted

| a | b |
|---|---|
| 1 | <b>2</b> |

```sh
echo "<hi>"
```
[bad](javascript:alert(1)) ![x](data:text/html,1)
"""


def test_a_page_renders_markdown_and_says_what_each_call_was(store: Store) -> None:
    session = store.create_session(title="Plan")
    with session.turn("Go **on**.") as turn:
        call = ToolCall("c", "shell", '{"command": "make \\"all\\""}')
        turn.record(Message("assistant", [Text(SAID), call]))
        turn.record(Message("tool", [ToolResult("c", "built")]))
    text = exported(store, session.id, "html")
    for piece in (
        "<h3>Plan</h3>", "<strong>this</strong>", "<em>that</em>", "<code>make all</code>",
        '<a href="https://example.org/a?b=1&amp;c=2" rel="noopener noreferrer nofollow">the page',
        "<ol><li>one</li><li>two\n<ul><li>inner</li></ul></li></ol>", "<blockquote><p>quoted</p>",
        "<td>&lt;b&gt;2&lt;/b&gt;</td>", "echo &quot;&lt;hi&gt;&quot;</pre>", "Go **on**.",
        "<summary><code>shell</code> make &quot;all&quot; <span>finished</span></summary>",
    ):  # fmt: skip
        assert piece in text, piece
    assert 'href="javascript' not in text
    assert 'href="data' not in text
    local = session.transcript()[0].at.astimezone()
    assert f"{local:%H:%M %Z}" in text


@given(st.text(alphabet="#*`>|-+1. \n[]()<&x", max_size=200))
def test_any_text_becomes_html_in_which_every_tag_is_ours(text: str) -> None:
    page = Tags()
    page.feed(to_html(text))
    assert page.tags <= {
        "p", "br", "h3", "h4", "h5", "h6", "hr", "blockquote", "ul", "ol", "li", "pre", "code",
        "strong", "em", "a", "table", "thead", "tbody", "tr", "th", "td",
    }  # fmt: skip
    letters = [one for one in text if one == "x"]
    assert [one for one in page.text if one == "x"] == letters


@pytest.mark.parametrize(
    "text",
    [
        "".join("`" * count + "a" for count in range(1, 200)),
        "a`" + "``" * 5_000 + " ",
        "# x" + " " * 40_000 + "y",
        "|a\n" + " " * 40_000 + "x",
        "[" * 20_000,
        "*a " * 20_000,
        "- " * 20_000 + "x",
    ],
    ids=["runs of ticks", "ticks", "heading", "table", "brackets", "stars", "rule"],
)
def test_no_text_makes_an_export_take_long(text: str) -> None:
    """An attacker may have written it; while it is read, a server does nothing else."""
    began = time.thread_time()
    to_html(text)
    assert time.thread_time() - began < 2.0


def test_arguments_that_are_nested_deeply_are_exported(store: Store) -> None:
    session = store.create_session()
    with session.turn("Go.") as turn:
        turn.record(Message("assistant", [ToolCall("c", "read", "[" * 200_000)]))
    assert "<code>read</code> [[[[" in exported(store, session.id, "html")


def test_markdown_shows_what_was_said_and_what_broke_off(store: Store) -> None:
    text = exported(store, converse(store), "markdown")
    assert text.startswith("# Another title\n")
    assert "\n## You\n\nOnce more.\n" in text
    assert "\n```\nmake: *** [all] Error 2\n```\n" in text
    assert "*The turn was interrupted. " in text
    assert "> They looked for the linker." in text


@pytest.mark.parametrize("to", ["markdown", "html"])
def test_a_failure_is_told_in_words_and_not_in_those_of_a_provider(store: Store, to: str) -> None:
    session = store.create_session()
    with suppress(RuntimeError), session.turn("Go."):
        raise RuntimeError("401 Incorrect API key provided: sk-verysecret")
    text = exported(store, session.id, to)
    assert "The turn failed. The provider refused the key." in text
    assert "sk-verysecret" not in text


def test_a_fence_in_a_result_does_not_end_its_block(store: Store) -> None:
    session = store.create_session(title="two\nlines")
    with session.turn("Go.") as turn:
        turn.record(Message("assistant", [ToolCall("c", "read", "{}")]))
        turn.record(Message("tool", [ToolResult("c", "````\n# not a heading")]))
    text = exported(store, session.id, "markdown")
    assert text.startswith("# two lines\n")
    assert "`````\n````\n# not a heading\n`````" in text


@pytest.mark.parametrize("format_", sorted(VALIDATORS))
def test_provider_formats_are_what_the_provider_takes(store: Store, format_: str) -> None:
    for session_id in (converse(store), evil(store)):
        document = json.loads(exported(store, session_id, format_))
        assert VALIDATORS[format_](document["messages"], document["system"]) == []
        assert document["messages"]


def test_an_unknown_format_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="it is one of killick, markdown, html"):
        export_session(store, converse(store), "word")


def test_every_format_is_known_by_name() -> None:
    assert set(EXPORTS) >= {"killick", "markdown", "html", *VALIDATORS}


LONE = "a\ud800b"


def torn(store: Store) -> str:
    """A session in which every text that a caller gives has half a character in it."""
    blob = store.put_blob(PNG)
    session = store.create_session(
        id=LONE, title=LONE, tags=[LONE], project=Project(LONE, LONE), extra={LONE: LONE}
    )
    with session.turn([Text(LONE), Image(blob, LONE), File(blob, LONE, LONE)], key=LONE) as turn:
        with turn.stream(model=LONE, provider=LONE, system=LONE) as reply:
            reply.reasoning(LONE, signature=LONE)
            reply.text(LONE)
            reply.tool_call(LONE, name=LONE, arguments='{"a": "\\ud800", "\ud800": 1}')
        with turn.tool(LONE) as tool:
            tool.finish(LONE, structured={LONE: LONE})
        turn.record(Message("assistant", [Opaque("openai", b'{"type": "\\ud800"}')], id=LONE))
    with suppress(RuntimeError), session.turn("Again."):
        raise RuntimeError(LONE)
    session.compact(LONE, through=session.messages()[1].seq)
    session.note(LONE, LONE)
    return session.id


@pytest.mark.parametrize("redact", [False, True])
@pytest.mark.parametrize("to", EXPORTS)
def test_half_a_character_keeps_no_session_from_leaving(
    store: Store, to: str, redact: bool
) -> None:
    """What comes out is UTF-8, and what the format cannot hold of it is listed."""
    done = prepare_export(store, torn(store), to, redact=redact)
    data = b"".join(done.pieces)
    text = _texts(data) if to in NOT_TEXT else data.decode("utf-8")
    assert "a" in text
    if to in ("codex", "goose"):
        assert any(loss.startswith("characters that are no Unicode") for loss in done.losses)


def _texts(data: bytes) -> str:
    """The texts of every table of a database; SQLite decodes each as UTF-8."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(data)
        rows = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        tables = [name for (name,) in rows]
        return "".join(str([*connection.execute(f"SELECT * FROM {name}")]) for name in tables)


def test_half_a_character_comes_back_from_our_own_lines(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"".join(export_session(store, torn(store))))
    with Store(tmp_path / "other.db") as other:
        assert not import_paths(other, [path]).skipped
        assert other.session(LONE).messages() == store.session(LONE).messages()


def test_the_blob_of_a_note_leaves_and_comes_back(store: Store, tmp_path: Path) -> None:
    """A note whose blob is missing in the file comes without its name, and the report says so."""
    session = store.create_session(id="s")
    name = store.put_blob(b"seen")
    session.note("screenshot", blobs=[name])
    lines = b"".join(export_session(store, "s", redact=True)).splitlines(keepends=True)
    whole, without = tmp_path / "whole.jsonl", tmp_path / "without.jsonl"
    whole.write_bytes(b"".join(lines))
    without.write_bytes(b"".join(line for line in lines if b"base64" not in line))
    with Store(tmp_path / "whole.db") as other:
        import_paths(other, [whole])
        assert other.blob(name) == b"seen"
    with Store(tmp_path / "without.db") as other:
        report = import_paths(other, [without])
        assert name in str(report.repaired)
        note = next(entry.body for entry in other.session("s").entries() if entry.kind == "note")
        assert isinstance(note, Note)
        assert note.blobs == ()
