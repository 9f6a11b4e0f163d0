"""The commands `serve` and `token`, as a person runs them."""

import json
import os
import signal
import subprocess
from pathlib import Path

import httpx2
import pytest

from killick.agent.embedded import model_file
from tests.cli.running import COMMAND, environment
from tests.server.client import Server
from tests.server.nobody import NO_CHAT, NO_MODEL, serve_without


def run(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = environment({"KILLICK_TOKENS": str(folder / "tokens.json"), **more})
    command = [*COMMAND, "--store", str(folder / "work.db"), *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=50)


@pytest.mark.skipif(model_file() is None, reason="the model on board is not installed")
def test_serve_prints_its_address_and_answers_with_the_model_on_board(tmp_path: Path) -> None:
    env = environment({"KILLICK_TOKENS": str(tmp_path / "tokens.json"), "KILLICK_MODEL": ""})
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        env.pop(name, None)
    command = [*COMMAND, "--json", "serve", "--port", "0", "--store", str(tmp_path / "work.db")]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            command, env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdout is not None
    try:
        url = json.loads(process.stdout.readline())["url"]
        with httpx2.Client(base_url=url, trust_env=False, timeout=30) as http:
            assert "<title>Killick</title>" in http.get("/").text
            assert http.get("/api/about").json()["model"].endswith("smollm2-135m")
            session_id = http.post("/api/sessions", json={}).json()["id"]
            asked = http.post(f"/api/sessions/{session_id}/turns", json={"prompt": "Say hello."})
            assert asked.status_code == 201
            stopped = http.post(f"/api/sessions/{session_id}/stop", json={"wait_seconds": 10})
            assert stopped.json()["status"] == "interrupted"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        process.stdout.close()


def test_a_model_that_is_none_is_said_in_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, "serve", "--port", "0", "--model", "nobody:nothing")
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1
    assert "nobody" in done.stderr


def test_a_model_that_the_environment_names_and_that_is_none_is_said_as_well(
    tmp_path: Path,
) -> None:
    done = run(tmp_path, "serve", "--port", "0", KILLICK_MODEL="nobody:nothing")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "nobody" in done.stderr


@pytest.mark.parametrize(
    ("without", "said"), [(NO_MODEL, "--model or KILLICK_MODEL"), (NO_CHAT, "'.[chat]'")]
)
def test_without_a_model_sessions_are_read_and_who_asks_is_told_what_to_set(
    tmp_path: Path, without: dict[str, str], said: str
) -> None:
    server: Server = serve_without(tmp_path, without)
    try:
        session_id = server.create(title="Read me")
        assert server.get(f"/api/sessions/{session_id}/transcript")["shown"] == []
        about = server.get("/api/about")
        assert about["model"] is None
        asked = server.ask(session_id, "Hello?")
        assert (asked.status_code, asked.json()["code"]) == (503, "no_model")
        assert asked.json()["message"] == about["lacks"]
        assert said in about["lacks"]
        assert (about["lacks"][-1], about["lacks"].count(". ")) == (".", 0)
        assert server.get(f"/api/sessions/{session_id}")["head"] == 1
        assert server.end() == 0
    finally:
        server.close()


def test_a_tool_that_is_none_is_not_allowed(tmp_path: Path) -> None:
    done = run(tmp_path, "serve", "--port", "0", "--allow", "run_comand")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "run_command" in done.stderr


def test_options_of_serve_may_stand_before_it(tmp_path: Path) -> None:
    done = run(tmp_path, "--model", "nobody:nothing", "serve", "--port", "0")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "nobody" in done.stderr


def test_an_address_that_is_taken_is_said_in_one_line(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run(tmp_path, "serve", "--port", port)
    assert done.returncode == 2
    assert f"cannot serve on 127.0.0.1:{port}" in done.stderr


def test_elsewhere_needs_a_token(tmp_path: Path) -> None:
    done = run(tmp_path, "serve", "--host", "0.0.0.0", "--port", "0")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "killick token make" in done.stderr


def test_tokens_are_made_listed_and_revoked(tmp_path: Path) -> None:
    made = json.loads(run(tmp_path, "token", "make", "laptop", "--read", "--json").stdout)
    assert (made["name"], made["may"]) == ("laptop", "read")
    shown = run(tmp_path, "token", "list").stdout
    assert "laptop" in shown
    assert made["token"] not in shown
    assert run(tmp_path, "token", "revoke", made["id"]).returncode == 0
    assert json.loads(run(tmp_path, "token", "list", "--json").stdout) == []
    again = run(tmp_path, "token", "revoke", "laptop")
    assert again.returncode == 2
    assert "no token 'laptop'" in again.stderr
    assert not os.environ.get("KILLICK_TOKENS")
