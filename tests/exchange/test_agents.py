"""The newer formats: what each becomes, as its agent wrote it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from killick import Session, Store
from killick.exchange import import_paths
from killick.exchange.formats.qwen import qwen
from killick.exchange.importer import look_at
from killick.exchange.records import Report
from tests.exchange import made
from tests.exchange.checks import check_sound
from tests.exchange.sources import NOW, bring, jsonl, said


def lines(name: str) -> Callable[[Path], Path]:
    file, records = made.LINES[name]

    def write(folder: Path) -> Path:
        (folder / file).write_bytes(jsonl(*records))
        return folder / file

    return write


def text(name: str, value: object) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        words = value if isinstance(value, str) else json.dumps(value, indent=1)
        (folder / name).write_text(words, encoding="utf-8")
        return folder / name

    return write


SOURCES: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "qwen": ("qwen", lines("qwen")),
    "pi": ("pi", lines("pi")),
    "copilot": ("copilot", lines("copilot")),
    "gemini-lines": ("gemini", lines("gemini-lines")),
    "gemini": ("gemini", text("session-1.json", made.gemini_document())),
    "codex-exec": ("codex-exec", lines("codex-exec")),
    "simple": ("simple", lines("simple")),
    "opencode": ("opencode", lambda folder: made.opencode_database(folder / "opencode.db")),
    "opencode-storage": ("opencode", lambda folder: made.opencode_storage(folder)),
    "opencode-export": ("opencode", text("export.json", made.opencode_export())),
    "crush": ("crush", lambda folder: made.crush_database(folder / "crush.db")),
    "cline-ui": ("cline-ui", text("1767225600000/ui_messages.json", made.ui_rows())),
    "aider": ("aider", text(".aider.chat.history.md", made.AIDER)),
    "specstory": ("specstory", text("2026-01-01.md", made.SPECSTORY)),
}
"""The format, and what writes a source of it; what it writes is to be imported."""

WITH_TOOLS = [
    name for name in SOURCES if name not in ("aider", "specstory", "cline-ui", "codex-exec")
]


def take(store: Store, name: str, folder: Path) -> Report:
    return import_paths(store, [SOURCES[name][1](folder)], clock=lambda: NOW)


def states(session: Session) -> dict[str, str]:
    return {tool.call_id: tool.state for one in session.transcript() for tool in one.tools}


@pytest.mark.parametrize("name", SOURCES)
def test_each_comes_in_whole_and_again_changes_nothing(
    store: Store, tmp_path: Path, name: str
) -> None:
    path = SOURCES[name][1](tmp_path)
    report = import_paths(store, [path], clock=lambda: NOW)
    assert report.problems == []
    assert {one.source for one in report.sessions} == {SOURCES[name][0]}
    assert {one.action for one in report.sessions} == {"new"}
    words = " ".join(
        part for one in report.sessions for part in map(str, said(store.session(one.session_id)))
    )
    assert "The linker is missing." in words
    check_sound(store)
    again = import_paths(store, [path], clock=lambda: NOW)
    assert {one.action for one in again.sessions} == {"unchanged"}
    for one in report.sessions:
        session = store.session(one.session_id)
        assert {turn.starts for turn in session.turns()} == {"unseen"}
        assert {entry.at.year >= 2026 for entry in session.entries()} == {True}


@pytest.mark.parametrize("name", SOURCES)
def test_no_other_format_claims_it(tmp_path: Path, name: str) -> None:
    found = SOURCES[name][1](tmp_path)
    files = [path for path in found.rglob("*") if path.is_file()] if found.is_dir() else [found]
    assert {look_at(path).format for path in files} == {SOURCES[name][0]}


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_tools_are_what_they_were(store: Store, tmp_path: Path, name: str) -> None:
    (outcome,) = take(store, name, tmp_path).sessions
    session = store.session(outcome.session_id)
    tools = {
        tool.call_id: tool
        for one in session.transcript()
        for shown in (one, *one.folded)
        for tool in shown.tools
    }
    assert (tools["c1"].state, tools["c2"].state) == ("failed", "finished")
    assert tools["c2"].result is not None
    assert tools["c2"].result.content == "Makefile"
    assert {state for own, state in states(session).items() if own not in ("c1", "c2")} <= {
        "unknown"
    }
    first = session.entries()
    thoughts = [one for one in first if "Let me think." in str(one.body)]
    assert thoughts
    assert "did not run" not in json.dumps(session.context("anthropic").messages)


TITLES = {
    "qwen": "Fix the build.", "pi": "My build", "copilot": "My build", "gemini": "Fix the build.",
    "gemini-lines": "My build", "simple": "My build", "opencode": "My build", "crush": "My build",
    "cline-ui": "Fix the build.", "specstory": "Fix the build", "codex-exec": None,
}  # fmt: skip


@pytest.mark.parametrize("name", TITLES)
def test_titles(store: Store, tmp_path: Path, name: str) -> None:
    (outcome,) = take(store, name, tmp_path).sessions
    assert store.session(outcome.session_id).title == TITLES[name]


ENDINGS = {
    "qwen": ["completed", "interrupted", "completed", "interrupted"],
    "pi": ["completed", "completed", "interrupted", "completed", "interrupted"],
    "copilot": ["completed", "interrupted", "completed"],
    "gemini": ["completed", "interrupted"],
    "gemini-lines": ["completed", "interrupted"],
    "codex-exec": ["completed", "failed"],
    "simple": ["completed", "interrupted", "interrupted"],
    "opencode": ["completed", "interrupted", "interrupted"],
    "opencode-storage": ["completed", "interrupted", "interrupted"],
    "opencode-export": ["completed", "interrupted", "interrupted"],
    "crush": ["completed", "interrupted"],
    "cline-ui": ["completed", "interrupted"],
}


@pytest.mark.parametrize("name", ENDINGS)
def test_endings(store: Store, tmp_path: Path, name: str) -> None:
    (outcome,) = take(store, name, tmp_path).sessions
    turns = store.session(outcome.session_id).turns()
    assert [turn.status for turn in turns] == ENDINGS[name]


@pytest.mark.parametrize(("answered", "status"), [(False, "failed"), (True, "completed")])
def test_a_request_of_qwens_that_was_refused(
    store: Store, tmp_path: Path, *, answered: bool, status: str
) -> None:
    """The turn has failed, unless the agent asked again and got its answer."""
    event = {"event.name": "qwen-code.api_error", "error_message": "400 the pond is closed"}
    prompt, aside, answer = (
        made.qwen_lines()[0],
        made.qwen_lines()[1] | {"systemPayload": {"uiEvent": event}},
        made.qwen_lines()[5] | {"parentUuid": "q1"},
    )
    path = tmp_path / f"{made.UUID}.jsonl"
    lines = [prompt, aside, *([answer] if answered else [])]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (outcome,) = import_paths(store, [path], clock=lambda: NOW).sessions
    (turn,) = store.session(outcome.session_id).turns()
    assert turn.status == status


def _qwens_answer(words: str, *, tokens: int, line: bool = True) -> list[dict[str, Any]]:
    """An answer as Qwen Code writes it: telemetry, then a line of its own, unless it died first."""
    event = {
        "event.name": "qwen-code.api_response",
        "total_token_count": tokens,
        "response_text": words,
    }
    told = made.qwen_lines()[1] | {"systemPayload": {"uiEvent": event}}
    answer = made.qwen_lines()[5]
    answer["message"] = {"role": "model", "parts": [{"text": words}]}
    if not tokens:
        del answer["usageMetadata"]
    return [told, answer] if line else [told]


WHOLE, CUT, UNWRITTEN = (
    _qwens_answer("Seven.", tokens=9),
    _qwens_answer("Sev", tokens=0),
    _qwens_answer("Sev", tokens=0, line=False),
)


@pytest.mark.parametrize(
    ("answers", "statuses", "said_last"),
    [
        ([WHOLE], ["completed"], "Seven."),
        ([CUT], ["interrupted"], "Sev"),
        ([UNWRITTEN], ["interrupted"], "Sev"),
        ([WHOLE, CUT], ["completed", "interrupted"], "Sev"),
        ([UNWRITTEN, WHOLE], ["interrupted", "completed"], "Seven."),
        ([CUT, CUT], ["interrupted", "completed"], "Sev"),  # that server counts nothing
    ],
)
def test_an_answer_of_qwens_that_was_cut_off(
    store: Store,
    tmp_path: Path,
    answers: list[list[dict[str, Any]]],
    statuses: list[str],
    said_last: str,
) -> None:
    """It is partial, also if telemetry alone has its words."""
    path, lines, last = tmp_path / f"{made.UUID}.jsonl", list[dict[str, Any]](), None
    for answer in answers:
        for line in [made.qwen_lines()[0], *answer]:
            lines.append(line | {"uuid": f"q{len(lines)}", "parentUuid": last})
            last = lines[-1]["uuid"]
    for end in range(1, len(lines) + 1):
        path.write_text("".join(json.dumps(line) + "\n" for line in lines[:end]))
        (outcome,) = bring(store, qwen(path, settled=end == len(lines))).sessions
        assert outcome.action != "forked"
    session = store.session(outcome.session_id)
    assert [turn.status for turn in session.turns()] == statuses
    message = [message for message in session.messages() if message.role == "assistant"][-1]
    assert (message.text, message.state) == (
        said_last,
        "complete" if statuses[-1] == "completed" else "partial",
    )


@pytest.mark.parametrize("name", ["qwen", "pi"])
def test_a_branch_that_was_left_is_rewound(store: Store, tmp_path: Path, name: str) -> None:
    (outcome,) = take(store, name, tmp_path).sessions
    session = store.session(outcome.session_id)
    entries = session.entries()
    assert any("Install it." in str(entry.body) for entry in entries)
    assert "Install it." not in str(said(session))
    assert "Rather build it." in str(said(session))


@pytest.mark.parametrize("name", ["qwen", "pi", "copilot", "simple", "opencode", "crush"])
def test_the_context_begins_with_the_summary(store: Store, tmp_path: Path, name: str) -> None:
    (outcome,) = take(store, name, tmp_path).sessions
    context = json.dumps(store.session(outcome.session_id).context("anthropic").messages)
    assert "a linker." in context
    assert "I look." not in context


def test_simple_of_another_version_is_refused_whole(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_text('{"simple": 2, "id": "t"}\n{"role": "user", "text": "Why?"}\n')
    report = import_paths(store, [path], clock=lambda: NOW)
    assert [problem.reason for problem in report.problems] == [
        "it is Simple 2, and only version 1 can be read"
    ]
    assert store.session_ids() == []


def test_no_session_of_simple_works_for_itself(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_text('{"simple": 1, "id": "t", "parent": "t"}\n{"role": "user", "text": "Why?"}\n')
    (outcome,) = import_paths(store, [path], clock=lambda: NOW).sessions
    info = store.session(outcome.session_id).info()
    assert (info.about.type, info.about.parent) == ("user", None)


def test_what_opencode_injects_is_hidden(store: Store, tmp_path: Path) -> None:
    (outcome,) = take(store, "opencode", tmp_path).sessions
    session = store.session(outcome.session_id)
    assert "A reminder." not in str(session.transcript())
    assert "A reminder." in str([entry.body for entry in session.entries()])


def test_a_session_of_opencode_that_was_undone_is_taken_back(store: Store, tmp_path: Path) -> None:
    value = made.opencode_export()
    value["info"]["revert"] = {"messageID": "msg_4"}
    path = text("export.json", value)(tmp_path)
    (outcome,) = import_paths(store, [path], clock=lambda: NOW).sessions
    assert "Install it." not in str(said(store.session(outcome.session_id)))


def test_kilo_is_named_by_its_folder(store: Store, tmp_path: Path) -> None:
    (tmp_path / "kilo").mkdir()
    path = made.opencode_database(tmp_path / "kilo" / "kilo.db")
    (outcome,) = import_paths(store, [path], clock=lambda: NOW).sessions
    assert outcome.source == "kilo"


@pytest.mark.parametrize("written", [made.AIDER, made.AIDER_BARE], ids=["as-written", "trimmed"])
def test_aider_says_who_spoke(store: Store, tmp_path: Path, written: str) -> None:
    path = tmp_path / ".aider.chat.history.md"
    path.write_text(written)
    report = import_paths(store, [path], clock=lambda: NOW)
    first, second = (store.session(one.session_id) for one in report.sessions)
    code = "The linker is missing.\n\n```python\n# a heading in code\n```"
    assert said(first) == [
        ("user", "Fix the build.\nAnd be quick."), ("assistant", code), ("user", "install it"),
        ("assistant", "I install the linker now."), ("user", "And the tests?"),
    ]  # fmt: skip
    assert [turn.status for turn in first.turns()] == ["completed", "completed", "interrupted"]
    assert said(second) == [("user", "Once more, please."), ("assistant", "It is done already.")]
    assert first.info().models == ("m-1",)


def test_what_the_model_says_is_not_taken_for_aiders_or_the_persons(
    store: Store, tmp_path: Path
) -> None:
    """Two spaces end what aider itself and the person say; seen with aider 0.86.2."""
    edit = "a.py\n```\n<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE\n```"
    answer = f"#### What I do\n\n{edit}\n\n> a quote\n\nDone."
    refused = "# 1 block failed to match!\n\n## SearchReplaceNoExactMatch\n>>>>>>> REPLACE\n\nSo"
    path = tmp_path / ".aider.chat.history.md"
    path.write_text(
        "\n# aider chat started at 2026-01-01 00:00:00\n\n"
        "> aider --message Make x two.\nAnd be quick. a.py  \n> Aider v0.86.2  \n\n"
        "#### Make x two.  \n####   \n#### And be quick.  \n\n"
        f"{answer}\n\n> Tokens: 2.5k sent, 34 received.  \n> {refused}  \n\n"
        "Here it is.\n\n> Tokens: 2.6k sent, 20 received.  \n"
    )
    (outcome,) = import_paths(store, [path], clock=lambda: NOW).sessions
    session = store.session(outcome.session_id)
    assert said(session) == [
        ("user", "Make x two.\n\nAnd be quick."),
        ("assistant", answer),
        ("assistant", "Here it is."),
    ]
    assert [note.data for note in session.notes("aider.aider")][-2] == (
        f"Tokens: 2.5k sent, 34 received.\n{refused}"
    )


def test_specstory_tells_tools_and_thoughts_apart(store: Store, tmp_path: Path) -> None:
    (outcome,) = take(store, "specstory", tmp_path).sessions
    session = store.session(outcome.session_id)
    (tool,) = [tool for one in session.transcript() for tool in one.tools]
    assert (tool.name, tool.state) == ("Bash", "finished")
    assert "make" in tool.arguments
    assert tool.result is not None
    assert "Error 2" in str(tool.result.content)
    assert "Words of a helper." not in str(said(session))
    assert [turn.status for turn in session.turns()] == ["completed", "interrupted"]


def test_what_aider_wrote_of_ctrl_c_ends_the_turn_that_it_cut_off(
    store: Store, tmp_path: Path
) -> None:
    """At the prompt line it ends nothing; while the model answers it is written before the rest."""
    again = ">  \n>  \n> ^C again to exit  \n"
    path = tmp_path / ".aider.chat.history.md"
    path.write_text(
        "\n# aider chat started at 2026-01-01 00:00:00\n\n> Aider v0.83.1  \n\n"
        f"#### One?  \n\nIt is one.\n\n> Tokens: 310 sent, 1.0k received.  \n{again}\n"
        f"#### /code  \n#### Two?  \n\n#### Two?  \n{again}\nIt is tw\n\n"
        "> export A=your_token\nexport B=name             \n./run.sh  \n> Run it? n  \n\n"
        "#### Three?  \n\nIt is three.\n"
    )
    (outcome,) = import_paths(store, [path], clock=lambda: NOW).sessions
    session = store.session(outcome.session_id)
    assert said(session) == [
        ("user", "One?"), ("assistant", "It is one."), ("user", "Two?"), ("assistant", "It is tw"),
        ("user", "Three?"), ("assistant", "It is three."),
    ]  # fmt: skip
    assert [turn.status for turn in session.turns()] == ["completed", "interrupted", "completed"]
    assert session.messages()[3].state == "partial"


def test_what_a_result_of_specstory_quotes_is_no_heading_and_no_tool(
    store: Store, tmp_path: Path
) -> None:
    """Seen in public files of people who work on such files."""
    quoted = (
        "_**User**_\n\nTell me more!\n\n_**Agent (m-1)**_\n\n"
        '   12\t<tool-use data-tool-type="shell" data-tool-name="Bash"><details>\n'
        '   13\t</details></tool-use>\n<tool-use data-tool-type="read" data-tool-name="Read">'
    )
    path = tmp_path / "2026-01-01.md"
    path.write_text(
        "<!-- Generated by SpecStory, Markdown v2.1.0 -->\n\n_**User**_\n\nShow it.\n\n---\n\n"
        "_**Agent (m-1)**_\n\n<think><details><summary>Thought Process</summary>\n"
        "A line with </think> in it.\n</details></think>\n\n"
        '<tool-use data-tool-type="shell" data-tool-name="Bash"><details>\n'
        f"`cat a.md`\n\n```text\n{quoted}\n```\n</details></tool-use>\n\n"
        "_**Agent (m-1)**_\n\nI saw `<think>` and </tool-use>\n\n_**User**_\n\n"
        "<think>\n\n_**Agent (m-1)**_\n\nDone.\n"
    )
    (outcome,) = import_paths(store, [path], clock=lambda: NOW).sessions
    session = store.session(outcome.session_id)
    (tool,) = [tool for one in session.transcript() for tool in one.tools]
    assert tool.result is not None
    assert quoted in str(tool.result.content)
    assert [turn for turn in said(session) if turn[0] == "user"] == [
        ("user", "Show it."),
        ("user", "<think>"),
    ]
    assert said(session)[-1] == ("assistant", "Done.")


@pytest.mark.parametrize("name", made.LINES)
def test_a_file_that_is_still_written_grows(store: Store, tmp_path: Path, name: str) -> None:
    file, records = made.LINES[name]
    actions = set()
    for end in range(1, len(records) + 1):
        (tmp_path / file).write_bytes(jsonl(*records[:end]))
        report = import_paths(store, [tmp_path / file], clock=lambda: NOW)
        actions |= {one.action for one in report.sessions}
        check_sound(store)
    assert "forked" not in actions


@pytest.mark.parametrize("name", made.LINES)
def test_an_older_copy_of_a_session_changes_nothing(
    store: Store, tmp_path: Path, name: str
) -> None:
    """A backup, cut anywhere: what is in it is here, so it is no fork of its own."""
    file, records = made.LINES[name]
    (tmp_path / file).write_bytes(jsonl(*records))
    import_paths(store, [tmp_path / file], clock=lambda: NOW)
    heads = {session_id: store.session(session_id).head for session_id in store.session_ids()}
    for end in range(1, len(records)):
        (tmp_path / file).write_bytes(jsonl(*records[:end]))
        report = import_paths(store, [tmp_path / file], clock=lambda: NOW)
        assert {one.action for one in report.sessions} <= {"unchanged", "left"}, end
    assert heads == {each: store.session(each).head for each in store.session_ids()}


@pytest.mark.parametrize("name", ["session.jsonl", "session.json", "session.md"])
@pytest.mark.parametrize("is_document", [False, True])
def test_gemini_under_another_name_is_the_same_session(
    store: Store, tmp_path: Path, name: str, is_document: bool
) -> None:
    path = tmp_path / name
    if is_document:
        path.write_text(json.dumps(made.gemini_document()))
    else:
        path.write_bytes(jsonl(*made.gemini_lines()))
    report = import_paths(store, [path], clock=lambda: NOW)
    assert report.problems == []
    session = store.session(report.sessions[0].session_id)
    with Store(tmp_path / "other.db") as other:
        usual = tmp_path / ("whole.json" if is_document else "whole.jsonl")
        usual.write_bytes(path.read_bytes())
        import_paths(other, [usual], clock=lambda: NOW)
        assert said(session) == said(other.session(session.id))
