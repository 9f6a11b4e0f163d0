"""`killick chat PROMPT`, and a prompt from a pipe: one turn, for a shell and for scripts."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from killick import Store
from killick.agent.choice import VARIABLE
from tests.agent.scripting import begun, calling, newest, refused, said, until_said
from tests.cli.running import COMMAND, Done, environment, run_process
from tests.recorders.server import Scripted

Ask = Callable[..., Done]


@pytest.fixture
def variables(tmp_path: Path, server: Scripted) -> dict[str, str]:
    return {"KILLICK_STORE": str(tmp_path / "work.db"), VARIABLE: f"{server.url}/v1#m"}


@pytest.fixture
def ask(folder: Path, variables: dict[str, str]) -> Ask:
    def asked(*arguments: str, typed: str = "") -> Done:
        return run_process("chat", *arguments, more=variables, folder=folder, typed=typed)

    return asked


def test_a_prompt_is_answered_once(ask: Ask, server: Scripted, store: Store) -> None:
    server.scripts.append(said("Large ", "brown algae."))
    done = ask("What is kelp?")
    assert (done.code, done.out) == (0, "Large brown algae.\n")
    session = newest(store)
    assert session.turns()[-1].status == "completed"
    assert f"killick chat --session {session.id}" in done.err


def test_a_pipe_is_the_prompt_and_only_the_answer_is_printed(
    ask: Ask, server: Scripted, store: Store
) -> None:
    server.scripts += [said("Algae."), said("Urchins.")]
    done = ask("--print", typed="What is kelp?\nIn a word.\n")
    assert done == (0, "Algae.\n", "")
    assert newest(store).messages()[0].text == "What is kelp?\nIn a word.\n"
    again = ask("--resume", "--json", "Who eats it?")
    assert again.json["text"] == "Urchins."
    assert again.json["session"] == newest(store).id
    assert len(server.requests[-1]["messages"]) >= 3  # the conversation goes on


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "the prompt is empty"),
        (("--print", "  "), "the prompt is empty"),
        (("--model", "nobody:has-it", "Hello?"), "nobody"),
    ],
)
def test_nothing_to_ask_or_no_model_is_one_line(
    ask: Ask, store: Store, arguments: tuple[str, ...], why: str
) -> None:
    done = ask(*arguments)
    lines = [line for line in done.err.splitlines() if "one moment" not in line]
    assert (done.code, done.out, len(lines)) == (2, "", 1)
    assert why in lines[0]
    assert store.sessions() == []


def test_a_tool_that_was_not_allowed_waits(
    ask: Ask, server: Scripted, store: Store, folder: Path
) -> None:
    calls = calling(("write_file", {"path": "a.txt", "content": "one"}))
    server.scripts.append(calls)
    done = ask("Write it.")
    assert done.code == 3
    assert "write_file waits for your approval" in done.err
    assert not (folder / "a.txt").exists()
    assert len(newest(store).approvals()) == 1
    server.scripts += [calls, said("Done.")]
    assert ask("--allow", "write_file", "Write it.").code == 0
    assert (folder / "a.txt").read_text() == "one"


def test_a_provider_that_refuses_is_one_line(ask: Ask, server: Scripted, store: Store) -> None:
    server.scripts.append(refused(401, "who are you?"))
    done = ask("--print", "Hello?")
    assert (done.code, done.out) == (1, "")
    assert "401" in done.err
    assert len(done.err.splitlines()) == 1
    assert newest(store).turns()[-1].status == "failed"


@pytest.mark.parametrize(
    ("number", "cause"), [(signal.SIGINT, "stopped"), (signal.SIGTERM, "terminated")]
)
def test_a_signal_stops_it_and_keeps_what_came(
    number: int,
    cause: str,
    server: Scripted,
    store: Store,
    folder: Path,
    variables: dict[str, str],
) -> None:
    server.scripts.append(begun("Once upon ", "a time "))
    with subprocess.Popen(
        [*COMMAND, "chat", "Tell me a story."],
        env=environment(variables),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert server.stalled.acquire(timeout=60)
        assert process.stdout is not None
        assert process.stdout.read(4) == b"Once"
        session = newest(store)
        until_said(session, "Once upon a time ")
        os.kill(process.pid, number)
        assert process.wait(50) == 130
    assert session.turns()[-1].cause == cause
    assert session.messages()[-1].text == "Once upon a time "
