"""What a server is run and watched with: deploy/, and the figures that monitors read."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import prometheus_client.openmetrics.parser as openmetrics
import prometheus_client.parser as classic
import pytest
import yaml

from killick.server.metrics import OPEN_METRICS, PLAIN
from tests.server.client import Server
from tests.server.conftest import Serve

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = (DEPLOY / "killick.service").read_text()
CONTAINER = (DEPLOY / "Containerfile").read_text()
GUIDE = (DEPLOY.parent / "docs" / "how-to" / "operate.md").read_text()
KILLICK = Path(sys.executable).with_name("killick")


def figures_of(server: Server, accept: str) -> Any:
    answer = server.http.get("/metrics", headers={"accept": accept})
    parser = openmetrics if "openmetrics" in accept else classic
    media = OPEN_METRICS if "openmetrics" in accept else PLAIN
    assert answer.headers["content-type"] == media
    return {family.name: family for family in parser.text_string_to_metric_families(answer.text)}


def test_monitors_read_its_figures_in_both_formats(serve: Serve) -> None:
    server = serve()
    session_id = server.create()
    server.begin(session_id, "count 3")
    server.until_end(session_id)
    opened = figures_of(server, "application/openmetrics-text; version=1.0.0,text/plain;q=0.5")
    older = figures_of(server, "text/plain")
    assert {*opened, "killick_server_info"} - {"killick_server"} == set(older)
    for name in ("killick_turns", "killick_store_appends", "killick_store_commit_seconds"):
        assert opened[name].type == older[name].type
        assert [sample.name for sample in opened[name].samples] == [
            sample.name for sample in older[name].samples
        ]
    ended = {one.labels["status"]: one.value for one in opened["killick_turns"].samples}
    assert ended == {"completed": 1, "failed": 0, "interrupted": 0}
    assert opened["killick_server_ready"].samples[0].value == 1
    [info] = opened["killick_server"].samples
    assert info.labels["version"]


def test_a_server_that_is_ending_says_so_in_its_figures(serve: Serve) -> None:
    server = serve("--drain", "3")
    server.begin(server.create(), "hang")
    server.process.terminate()
    while server.http.get("/readyz").status_code == 200:
        pass
    assert figures_of(server, "text/plain")["killick_server_ready"].samples[0].value == 0
    assert server.http.get("/livez").json() == {"status": "ok"}
    server.process.terminate()
    assert server.process.wait(10) == 0


def test_dashboard_and_alerts_name_figures_that_exist(serve: Serve) -> None:
    server = serve()
    told = {
        sample.name
        for family in figures_of(server, "text/plain").values()
        for sample in family.samples
    }
    board = json.loads((DEPLOY / "dashboard.json").read_text())
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [rule["expr"] for rule in rules]
    assert len(asked) > 15
    named = {name for expr in asked for name in re.findall(r"killick_\w+", expr)}
    assert named <= told
    base = {re.sub(r"_(bucket|sum|count)$", "", name) for name in told}
    assert set(re.findall(r"killick_[a-z_]+", GUIDE)) - base - {"killick_store"} == set()
    explained = set(re.findall(r"^\| `(Killick\w+)`", GUIDE, re.MULTILINE))
    assert explained == {rule["alert"] for rule in rules}
    for rule in rules:
        assert set(rule["annotations"]) == {"summary", "action"}


def test_each_alert_comes_when_it_should_and_not_before(tmp_path: Path) -> None:
    """Prometheus' own tool takes the rules, and plays figures of an hour through them."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: it is in the package prometheus")
    rules = (DEPLOY / "alerts.yml").read_text()
    tests = Path(__file__).with_name("alerts.yml").read_text()
    alerts = set(re.findall(r"alert: (\w+)", rules))
    fires = re.findall(r"alertname: (\w+)\n +exp_alerts:\n", tests)
    assert alerts == set(fires), "each is seen to come"
    (tmp_path / "alerts.yml").write_text(rules)
    (tmp_path / "tests.yml").write_text(tests)
    for words in (["check", "rules", "alerts.yml"], ["test", "rules", "tests.yml"]):
        done = subprocess.run(
            ["promtool", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "killick.service"
    unit.write_text(UNIT.replace("/opt/killick/bin/killick", str(KILLICK)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def settings_of(key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", UNIT, re.MULTILINE)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], socket.socket, str]]:
    """The server as the unit starts it, but for its port; with a manager that it tells."""
    [command] = settings_of("ExecStart")
    words = shlex.split(command.replace("/opt/killick/bin/killick", str(KILLICK)))
    words[words.index("--port") + 1] = "0"
    given = dict(line.split("=", 1) for line in settings_of("Environment"))
    own = {name: value.replace("%S", str(tmp_path)) for name, value in given.items()}
    (tmp_path / "killick").mkdir()
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.settimeout(30)
    environment = {**os.environ, **own, "NOTIFY_SOCKET": str(tmp_path / "notify")}
    process = subprocess.Popen(
        words, env=environment, cwd=tmp_path / "killick", stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    url = process.stdout.readline().split()[-1]
    yield process, manager, url
    process.kill()
    process.wait()
    process.stdout.close()
    manager.close()


def test_the_unit_starts_a_server_that_tells_systemd_how_it_is(
    started: tuple[subprocess.Popen[str], socket.socket, str], tmp_path: Path
) -> None:
    process, manager, url = started
    assert manager.recv(100) == b"READY=1"
    assert httpx2.get(f"{url}readyz").status_code == 200
    assert (tmp_path / "killick" / "sessions.db").exists()
    began = time.monotonic()
    process.terminate()
    assert manager.recv(100) == b"STOPPING=1"
    assert process.wait(30) == 0
    assert time.monotonic() - began < int(settings_of("TimeoutStopSec")[0])


def test_the_containers_health_check_tells_a_server_that_lives(
    started: tuple[subprocess.Popen[str], socket.socket, str],
) -> None:
    process, _, url = started
    found = re.search(r"HEALTHCHECK.*?CMD (\[.*?\])\n", CONTAINER, re.DOTALL)
    assert found is not None
    check = json.loads(found[1])
    check[-1] = check[-1].replace("http://127.0.0.1:8420/", url)
    check[0] = sys.executable
    assert subprocess.run(check, check=False, capture_output=True).returncode == 0
    process.kill()
    process.wait()
    assert subprocess.run(check, check=False, capture_output=True).returncode != 0


def test_the_container_runs_a_command_that_needs_a_token(tmp_path: Path) -> None:
    """It listens for others, as another user than root, and says what to do without a token."""
    assert re.findall(r"^USER (\w+)$", CONTAINER, re.MULTILINE) == ["killick"]
    entry, command = (
        json.loads(re.findall(rf"^{name} (\[.*\])$", CONTAINER, re.MULTILINE)[0])
        for name in ("ENTRYPOINT", "CMD")
    )
    own = {name: f"{tmp_path}/{name}" for name in ("KILLICK_STORE", "KILLICK_TOKENS")}
    words = [str(KILLICK.with_name(entry[0])), *command]
    environment = {**os.environ, **own}
    refused = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "killick token make" in refused.stderr
