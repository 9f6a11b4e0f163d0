"""Starts agents, each in a process of its own, and breaks them off."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

_SECONDS = 180
"""After these a process counts as stuck."""


class Agents:
    """The processes of one framework's agent, which a process forks that has imported it."""

    def __init__(self, python: str, name: str, folder: Path) -> None:
        self._name = name
        self._path = str(folder / "agents")
        self._errors = folder / "errors.txt"
        with self._errors.open("w") as errors:
            command = [python, "-m", "peers.child", name, self._path]
            self._server = subprocess.Popen(command, stderr=errors)

    def interrupt(self, scenario: str, how: str, folder: Path) -> bool:
        """Run an agent until it is in the middle; False if its framework refuses to go there."""
        with self._process(scenario, folder) as (talk, process):
            line = talk.readline()
            if line.startswith("REFUSED"):
                print(self._name, scenario, line.strip(), flush=True)
                return False
            if line != "MIDDLE\n":
                raise SystemExit(self._failure(scenario))
            if how == "kill":
                _kill_all(process)
            else:
                talk.write(f"{how}\n")
                talk.flush()
            with contextlib.suppress(ConnectionError):
                talk.read()
        return True

    def ask_again(self, scenario: str, folder: Path) -> dict[str, Any]:
        """Return what the provider is sent with a second prompt."""
        with self._process("ask", folder) as (talk, _):
            lines = talk.read().splitlines()
        if not lines:
            raise SystemExit(self._failure(scenario))
        told: dict[str, Any] = json.loads(lines[-1])
        return told

    @contextmanager
    def _process(self, scenario: str, folder: Path) -> Iterator[tuple[IO[str], int]]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_SECONDS)
            self._connect(connection)
            with connection.makefile("rw") as talk:
                talk.write(f"{scenario} {folder}\n")
                talk.flush()
                process = int(talk.readline())
                try:
                    yield talk, process
                finally:
                    _kill_all(process)

    def _connect(self, connection: socket.socket) -> None:
        while self._server.poll() is None:
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                connection.connect(self._path)
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(0.1)
        raise SystemExit(self._failure("import"))

    def _failure(self, scenario: str) -> str:
        return f"{self._name} {scenario}: {self._errors.read_text(encoding='utf-8')[-2000:]}"

    def close(self) -> None:
        """End the process that forks the others."""
        self._server.kill()
        self._server.wait()


@contextmanager
def agents(python: str, name: str) -> Iterator[Agents]:
    with tempfile.TemporaryDirectory() as folder:
        made = Agents(python, name, Path(folder))
        try:
            yield made
        finally:
            made.close()


def _kill_all(group: int) -> None:
    """Kill a process and the command that it runs, if any."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
