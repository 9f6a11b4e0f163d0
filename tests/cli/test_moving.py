"""Sessions in and out, from a shell."""

import json
import os
from pathlib import Path

import pytest

from killick import Store
from killick.exchange import EXPORTS, FORMATS, NOT_TEXT, usual_places
from tests.cli.running import Runner, run_in_terminal, run_process
from tests.cli.sample import Sample
from tests.exchange.test_claude_code import SESSION
from tests.exchange.test_claude_code import everything as claude_code
from tests.exchange.test_codex import NAME as ROLLOUT
from tests.exchange.test_codex import everything as codex
from tests.exchange.test_message_lists import CHAT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One session of each agent, which nobody writes to any more."""
    folder = tmp_path / "from"
    folder.mkdir()
    (folder / f"{SESSION}.jsonl").write_bytes(claude_code().data())
    (folder / ROLLOUT).write_bytes(codex().data())
    (folder / "chat.json").write_text(json.dumps(CHAT))
    (folder / "settings.json").write_text('{"theme": "dark"}')
    (folder / "notes.txt").write_text("nothing")
    for file in folder.iterdir():
        os.utime(file, (1_700_000_000, 1_700_000_000))
    return folder


def test_a_folder_comes_in_whoever_wrote_what(killick: Runner, folder: Path) -> None:
    done = killick("import", str(folder), "--json")
    assert (done.code, done.err) == (0, "")
    assert sorted((one["source"], one["action"]) for one in done.json["sessions"]) == [
        ("claude-code", "new"), ("claude-code", "new"), ("codex", "new"), ("openai-chat", "new"),
    ]  # fmt: skip
    assert done.json["problems"] == []
    titles = [one["title"] for one in killick("sessions", "--all", "--json").json]
    assert {"My build", "List the files."} <= set(titles)
    assert killick("doctor").code == 0


def test_importing_again_changes_nothing(killick: Runner, folder: Path) -> None:
    killick("import", str(folder))
    done = killick("import", str(folder))
    assert (done.code, done.out) == (
        0,
        "1 file of no known format: settings.json\n0 sessions of 4 came in, 0 entries\n",
    )


def test_a_dry_run_does_nothing(killick: Runner, folder: Path) -> None:
    before = killick("stats", "--json").json["counts"]
    done = killick("import", str(folder), "--dry-run")
    assert "4 sessions of 4 would come in" in done.out
    assert killick("stats", "--json").json["counts"] == before


def test_only_what_was_asked_for(killick: Runner, folder: Path) -> None:
    done = killick("import", str(folder), "--from", "codex", "--json")
    assert [one["source"] for one in done.json["sessions"]] == ["codex"]
    assert killick("import", str(folder), "--since", "1d", "--json").json["sessions"] == []


def test_skipped_records_are_named_and_the_exit_code_is_3(killick: Runner, folder: Path) -> None:
    file = folder / ROLLOUT
    lines = file.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4][:30] + b"\n"
    file.write_bytes(b"".join(lines))
    done = killick("import", str(folder))
    assert done.code == 3
    assert f"skipped: {file}:5: " in done.out
    assert done.err == "killick: 1 record skipped; the others came in\n"


def test_what_is_no_session_is_said_to_be_none(killick: Runner, folder: Path) -> None:
    done = killick("import", str(folder / "settings.json"))
    assert done.code == 3
    assert f"no session in it; known formats: {', '.join(FORMATS)}" in done.out
    assert done.err == "killick: 1 record skipped; nothing came in\n"
    missing = killick("import", str(folder / "nothing.jsonl"))
    assert (missing.code, missing.out) == (6, "")


def test_a_store_that_was_named_is_made(folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "new.db"
    done = run_process("import", str(folder), "--store", str(store))
    assert (done.code, done.err) == (0, "")
    assert store.exists()


def test_without_a_path_it_looks_around_and_asks(tmp_path: Path, folder: Path) -> None:
    home = tmp_path / "home"
    (home / ".codex" / "sessions").mkdir(parents=True)
    (folder / ROLLOUT).rename(home / ".codex" / "sessions" / ROLLOUT)
    store = {"KILLICK_STORE": str(tmp_path / "new.db"), "HOME": str(home)}
    asked = run_in_terminal(80, "import", more=store, typed="n\n")
    assert "codex: " in asked.out
    assert "(1 file)" in asked.out
    assert "Bring these sessions in?" in asked.out
    assert asked.code == 1
    refused = run_process("import", more=store)
    assert refused.code == 2
    assert "say --yes" in refused.err
    assert run_process("import", "--yes", more=store).code == 0
    done = run_in_terminal(80, "import", "--yes", more=store)
    assert "Files" in done.out  # how far it is
    nothing = run_process("import", more={**store, "HOME": str(tmp_path)})
    assert "name a file or a folder" in nothing.err


def test_every_agent_is_looked_for_where_it_is_used_to_be(tmp_path: Path) -> None:
    home = tmp_path / "home"
    rest = {"CODEX_HOME": "c", "GOOSE_PATH_ROOT": "g", "CLAUDE_CONFIG_DIR": "cc",
            "CLINE_DATA_DIR": "cl", "HERMES_HOME": "h", "DEER_FLOW_HOME": "d"}  # fmt: skip
    usual = [".codex/sessions", ".local/share/goose/sessions", ".claude/projects",
             ".cline/data/sessions", ".hermes/sessions", ".deer-flow"]  # fmt: skip
    named = ["c/sessions", "g/data/sessions", "cc/projects", "cl/sessions", "h/sessions", "d"]
    for folder in (*(home / one for one in usual), *(tmp_path / one for one in named)):
        folder.mkdir(parents=True)
    agents = {"codex", "goose", "claude-code", "cline", "hermes", "deerflow"}
    found = usual_places({}, home)
    assert {name for name, _ in found} == agents
    assert {path for _, path in found} == {home / one for one in usual}
    environment = {name: str(tmp_path / path) for name, path in rest.items()}
    found = usual_places(environment, home)
    assert {name for name, _ in found} == agents
    assert {path for _, path in found} == {tmp_path / one for one in named}


def test_a_file_without_a_message_is_named(killick: Runner, tmp_path: Path) -> None:
    title = {"type": "ai-title", "aiTitle": "Nothing was said", "sessionId": SESSION}
    empty = tmp_path / f"{SESSION}.jsonl"
    empty.write_text(json.dumps(title) + "\n")
    os.utime(empty, (1_700_000_000, 1_700_000_000))
    done = killick("import", str(empty))
    assert done.code == 0
    assert "there is no message in it" in done.out
    assert empty.name in done.out


def test_export_import_export_gives_the_same_bytes(
    killick: Runner, sample: Sample, tmp_path: Path
) -> None:
    file, again, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "other.db"
    for session_id in (sample.build, sample.hostile, sample.empty):
        file.unlink(missing_ok=True)
        again.unlink(missing_ok=True)
        assert killick("export", session_id, "-o", str(file)).code == 0
        assert killick("import", str(file), "--store", str(other)).code == 0
        assert killick("export", session_id, "-o", str(again), "--store", str(other)).code == 0
        assert file.read_bytes() == again.read_bytes()


@pytest.mark.parametrize("to", [to for to in EXPORTS if to not in NOT_TEXT])
def test_every_format_is_written(killick: Runner, sample: Sample, tmp_path: Path, to: str) -> None:
    target = tmp_path / "out"
    done = killick("export", sample.build, "--to", to, "--output", str(target), "--json")
    assert done.json["bytes"] == target.stat().st_size > 0
    printed = run_process("export", sample.build, "--to", to, "--store", str(sample.path))
    assert printed.out.encode() == target.read_bytes()
    value = killick("export", sample.build, "--to", to, "--json").json
    assert value["content"] == printed.out


@pytest.mark.parametrize("to", sorted(NOT_TEXT))
def test_a_database_is_written_to_a_file_and_never_shown(
    killick: Runner, sample: Sample, tmp_path: Path, to: str
) -> None:
    target = tmp_path / "out.db"
    done = killick("export", sample.hostile, "--to", to, "--output", str(target), "--json")
    assert done.json["bytes"] == target.stat().st_size > 0
    with Store(tmp_path / "other.db"):
        pass
    report = killick("import", str(target), "--store", str(tmp_path / "other.db"), "--json").json
    assert [session["source"] for session in report["sessions"]] == [to]
    words = ("export", sample.hostile, "--to", to)
    refused = killick(*words, "--json")
    assert (refused.code, refused.out, "--output FILE" in refused.err) == (2, "", True)
    shown = run_in_terminal(80, *words, more={"KILLICK_STORE": str(sample.path)})
    assert (shown.code, "--output FILE" in shown.out) == (2, True)


def test_what_a_format_cannot_hold_is_said_first(
    killick: Runner, sample: Sample, tmp_path: Path
) -> None:
    target = tmp_path / "rollout.jsonl"
    done = killick("export", sample.build, "--to", "codex", "--output", str(target))
    assert done.code == 0
    assert "killick: codex cannot hold: " in done.err
    value = killick("export", sample.build, "--to", "codex", "--json").json
    assert value["losses"]
    other = tmp_path / "other.db"
    again = killick("import", str(target), "--store", str(other), "--json").json
    assert [one["source"] for one in again["sessions"]] == ["codex"]


def test_secrets_stay_behind(killick: Runner, tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2" * 10
    with Store(killick.store) as store:
        session = store.create_session()
        with session.turn(f"Use {secret}."):
            pass
    for to in ("markdown", "killick", "goose"):
        assert secret in killick("export", session.id, "--to", to).out
        done = killick("export", session.id, "--to", to, "--redact")
        assert secret not in done.out
        assert "[redacted: GitHub token 1]" in done.out


def test_a_file_that_is_there_is_not_written_over(
    killick: Runner, sample: Sample, tmp_path: Path
) -> None:
    target = tmp_path / "mine"
    target.write_text("mine")
    done = killick("export", sample.build, "--output", str(target))
    assert done.code == 6
    assert target.read_text() == "mine"


def test_a_terminal_obeys_nothing_of_what_is_exported(sample: Sample) -> None:
    store = {"KILLICK_STORE": str(sample.path)}
    for to in ("markdown", "html"):
        done = run_in_terminal(80, "export", sample.hostile, "--to", to, more=store)
        assert done.code == 0
        assert "\x1b]" not in done.out


def test_what_came_in_can_be_searched_and_gone_on_with(killick: Runner, folder: Path) -> None:
    killick("import", str(folder))
    hit = killick("search", "linker", "--json").json["hits"][0]
    with Store(killick.store) as store, store.session(hit["session_id"]).turn("Go on.") as turn:
        assert turn.id
    assert killick("doctor").code == 0
