"""A real client before the chat agent: acpx, which talks to any ACP agent from a shell.

It is found by `KILLICK_LAB`, as the agents are (see tests/lab/agents.py).
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from killick import Store
from killick.agent.choice import VARIABLE
from tests.agent.scripting import begun, calling, said
from tests.lab.agents import VERSIONS, folder
from tests.lab.cells import end_left_behind
from tests.recorders.server import Scripted, serving
from tests.waiting import processes, until

pytestmark = [pytest.mark.slow, pytest.mark.linux, pytest.mark.timeout(240)]
SECONDS: Final = 120


@dataclass
class Client:
    """acpx, with `killick acp` as its agent, in a home and a folder of its own."""

    program: Path
    server: Scripted
    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / "s.db"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def command(self, *words: str) -> list[str]:
        agent = f"{sys.executable} -m killick.cli acp --store {self.store}"
        return [str(self.program), "--agent", agent, "--cwd", str(self.work), *words]

    def start(self, *words: str) -> subprocess.Popen[str]:
        variables = {**os.environ, "HOME": str(self.folder), VARIABLE: f"{self.server.url}/v1#m"}
        return subprocess.Popen(
            self.command(*words), env=variables, cwd=self.work, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, *words: str) -> str:
        with self.start(*words) as process:
            return process.communicate(timeout=SECONDS)[0]

    def kill_agents(self) -> None:
        """Kill every `killick acp` of this store; the client's own process lives on."""
        for pid in processes():
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if words[1:3] == [b"-m", b"killick.cli"] and str(self.store).encode() in words:
                    os.kill(pid, signal.SIGKILL)

    def turns(self) -> list[tuple[str, str | None]]:
        with Store(self.store) as store:
            (info,) = store.sessions()
            return [(turn.status, turn.cause) for turn in store.session(info.id).turns()]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    place = folder() / "acpx"
    stamp = place / ".version"
    if not stamp.exists() or stamp.read_text("utf-8") != VERSIONS["acpx"]:
        pytest.skip("acpx is not installed; KILLICK_LAB names its folder")
    (tmp_path / "work").mkdir()
    with serving() as server:
        running = Client(place / "node_modules/.bin/acpx", server, tmp_path)
        yield running
        running.run("sessions", "close")
        end_left_behind(tmp_path)


def test_a_prompt_is_answered_and_a_tool_is_allowed_or_refused(client: Client) -> None:
    one = ("write_file", {"path": "kelp.txt", "content": "brown"})
    client.server.scripts += [calling(one), said("Then not."), calling(one), said("Written.")]
    denied = client.run("--deny-all", "exec", "Write it.")
    assert "[tool] write_file: kelp.txt (failed)" in denied
    assert "Then not." in denied
    assert not (client.work / "kelp.txt").exists()
    allowed = client.run("--approve-all", "exec", "Write it.")
    assert "[tool] write_file: kelp.txt (completed)" in allowed
    assert (client.work / "kelp.txt").read_text() == "brown"


def test_a_session_is_cancelled_killed_and_gone_on_with(client: Client) -> None:
    client.server.scripts += [said("One."), begun("Half of it"), said("Three.")]
    made = next(word for word in client.run("sessions", "new").split() if word.startswith("ses_"))
    assert made in client.run("sessions", "list")
    assert "One." in client.run("prompt", "First.")
    with client.start("prompt", "Second.") as prompting:
        until(lambda: _has_text(client.store, "Half of it"), SECONDS)
        client.run("cancel")
        assert "cancelled" in prompting.communicate(timeout=SECONDS)[0]
    client.kill_agents()
    assert "Three." in client.run("prompt", "Third.")
    assert client.turns() == [("completed", None), ("interrupted", "stopped"), ("completed", None)]
    sent = [message["content"] for message in client.server.requests[-1]["messages"]]
    assert sent[-6:-2] == ["First.", "One.", "Second.", "Half of it"]
    with Store(client.store) as store:
        assert [info.id for info in store.sessions()] == [made]


def _has_text(path: Path, text: str) -> bool:
    with Store(path) as store:
        return any(
            text in message.text
            for info in store.sessions()
            for message in store.session(info.id).messages()
        )
