"""The guide to the proxy is right: its lines run, its settings are those of the agents."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from killick.proxy.forward import ProxyCounts, families
from killick.server.metrics import render
from tests.cli.running import run_process
from tests.docs.pages import DOCS, blocks
from tests.lab.agents import AGENTS
from tests.lab.model import Model
from tests.lab.script import Answer, Text
from tests.proxy.asking import ask, stored
from tests.proxy.bench import proxy

PAGE = DOCS / "how-to" / "proxy.md"
PROSE = PAGE.read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8421"


def lines(start: str) -> list[str]:
    found = "".join(blocks(PAGE, "text")).splitlines()
    return [line for line in found if line.startswith(start)]


def options(line: str, model: Model, session_id: str = "") -> list[str]:
    """The options of a line that starts a proxy, with a server that is here."""
    line = re.sub(r"https://\S+", model.url, line).replace(" ID", f" {session_id}")
    return shlex.split(line)[2:]


def curl(line: str, url: str) -> tuple[str, str]:
    command = [
        *shlex.split(line.replace(ADDRESS, url)),
        "--silent",
        "--write-out",
        "%{stderr}%{http_code}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    return done.stderr.strip()[-3:], done.stdout


def test_lines_of_the_guide_record_and_replay(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    start, exposed, replay = lines("killick proxy")
    asked, metrics = lines("curl")
    with Model([Answer(Text("The linker is missing."))]) as model:
        with proxy(store, None, *options(start, model)) as running:
            assert running.url.startswith("http://127.0.0.1:")
            code, answer = curl(asked, running.url)
            assert (code, "The linker" in answer) == ("200", True)
            code, figures = curl(metrics, running.url)
            assert (code, "killick_proxy_recorded_total 1" in figures) == ("200", True)
            assert running.end() == 0
        (session,) = stored(store)
        assert (session["id"], session["turns"]) == ("my-work", [("completed", None)])
        with proxy(store, None, *options(replay, model, "my-work")) as running:
            code, again = curl(asked, running.url)
            assert (code, "The linker" in again) == ("200", True)
            code, refused = curl(asked.replace("build", "test"), running.url)
            assert (code, "the build" in refused) == ("409", True)
        assert len(model.requests) == 1
    assert "--host" in exposed


def test_a_proxy_for_others_needs_the_token_of_the_guide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KILLICK_TOKENS", str(tmp_path / "tokens.json"))
    _, exposed, _ = lines("killick proxy")
    (make,) = lines("killick token")
    with Model([Answer(Text("Hi."))] * 2) as model:
        refused = run_process(
            "proxy", *options(exposed, model), "--port", "0", "--store", str(tmp_path / "s.db")
        )
        assert (refused.code, "killick token make" in refused.err) == (2, True)
        token = json.loads(run_process(*shlex.split(make)[1:], "--json").out)["token"]
        with proxy(tmp_path / "s.db", None, *options(exposed, model)) as running:
            url = running.url.replace("0.0.0.0", "127.0.0.1")
            assert ask(url, "openai-chat", ("user", "Hello")).status_code == 401
            head = {"X-Killick-Token": token}
            assert ask(url, "openai-chat", ("user", "one"), headers=head).status_code == 200
            named = f"{url}/t/{token}/s/my-work"
            assert ask(named, "openai-chat", ("user", "two")).status_code == 200
            assert {request.path for request in model.requests} == {"/v1/chat/completions"}
            figures = f"curl {ADDRESS}/metrics"
            assert curl(figures, url)[0] == "401"
            assert curl(f"{figures} -H 'X-Killick-Token: nope'", url)[0] == "401"
            assert curl(f"{figures} -H 'X-Killick-Token: {token}'", url)[0] == "200"
            made = run_process("token", "make", "acme", "--tenant", "acme", "--json")
            head = {"X-Killick-Token": json.loads(made.out)["token"]}
            assert ask(url, "openai-chat", ("user", "three"), headers=head).status_code == 401
            assert (
                curl(f"{figures} -H 'X-Killick-Token: {head['X-Killick-Token']}'", url)[0] == "401"
            )
            only_read = json.loads(run_process("token", "make", "r", "--read", "--json").out)
            bearer = f"Authorization: Bearer {only_read['token']}"
            assert curl(f"{figures} -H '{bearer}'", url)[0] == "200"
            assert curl(f"curl {ADDRESS}/healthz", url)[0] == "200"


def test_a_replay_serves_loopback_clients_only(tmp_path: Path) -> None:
    with Model([Answer(Text("Hi."))]) as model, proxy(tmp_path / "s.db", model.url) as running:
        ask(f"{running.url}/s/my-work", "openai-chat", ("user", "one"))
        assert running.end() == 0
    refused = run_process(
        "proxy", "--replay", "my-work", "--host", "0.0.0.0", "--store", str(tmp_path / "s.db")
    )
    assert (refused.code, "loopback" in refused.err) == (2, True)


def test_settings_of_the_guide_are_those_with_which_agents_were_tried() -> None:
    given = {
        f"`{name}={value}`"
        for agent in AGENTS.values()
        for name, value in agent.environment(ADDRESS).items()
        if ADDRESS in value
    }
    assert len(given) >= 4
    assert {setting for setting in given if setting not in PROSE} == set()


def test_every_figure_is_explained() -> None:
    figures = re.findall(r"^# TYPE (\w+)", render(families(ProxyCounts(), 0))[1], re.MULTILINE)
    assert re.findall(r"^\| `(killick_proxy_\w+)`", PROSE, re.MULTILINE) == figures
