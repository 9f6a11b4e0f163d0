"""Real processes for tests to interrupt, freeze and kill, and a line to talk to each of them.

Children are forked from a small program with one thread and no store (`tests.crash.nursery`): as
quick as fork(), and as honest as a process of its own. A child runs one function of a test module;
when the function returns the interpreter ends as it always does, exit handlers included.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0
"""Seconds after which something that should have happened is taken not to happen."""


class Gone(Exception):
    """The other end of a channel was closed, or its process failed."""


class Channel:
    """JSON values, one on a line, over one end of a socket."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._read = b""

    def send(self, value: object = None) -> None:
        self._end.sendall(json.dumps(value).encode() + b"\n")

    def receive(self, seconds: float | None = PATIENCE) -> Any:
        """The next value. Raises Gone at the end, TimeoutError when none comes in time."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while b"\n" not in self._read:
            self._wait(deadline)
            data = self._end.recv(65_536)
            if not data:
                raise Gone("the other end was closed")
            self._read += data
        line, self._read = self._read.split(b"\n", 1)
        value = json.loads(line)
        if isinstance(value, dict) and "failed" in value:
            raise Gone(f"the process failed:\n{value['failed']}")
        return value

    def _wait(self, deadline: float | None) -> None:
        # In short rounds: a signal that comes just before a wait begins does not interrupt it.
        while not select.select([self._end], [], [], 0.02)[0]:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError("nothing was said in time")

    def hang(self) -> None:
        """Wait for ever; a signal interrupts it, and so does the end of the other process."""
        self.receive(None)

    def close(self) -> None:
        self._end.close()


class Child:
    """One process, seen from the test."""

    def __init__(self, nursery: "Nursery", pid: int, channel: Channel) -> None:
        self._nursery = nursery
        self.pid = pid
        self.channel = channel
        self.ended_at = 0.0
        """When its end was noticed here."""

    def send(self, value: object = None) -> None:
        self.channel.send(value)

    def receive(self, seconds: float | None = PATIENCE) -> Any:
        return self.channel.receive(seconds)

    def expect(self, value: object, seconds: float = PATIENCE) -> None:
        received = self.receive(seconds)
        assert received == value, f"expected {value!r}, the process said {received!r}"

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9, and wait until nothing is left of the process."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self, seconds: float = PATIENCE) -> int:
        """The exit code, or minus the number of the signal that ended it."""
        status = self._nursery.status_of(self.pid, seconds)
        self.ended_at = time.monotonic()
        if status == -signal.SIGKILL:
            self._nursery.died(self.pid)
        return status


class Nursery:
    """Forks the children of one test process and learns of their ends."""

    def __init__(self, on_death: Callable[[int], None] | None = None) -> None:
        self._control, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.nursery", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=ROOT,
        )
        theirs.close()
        self._lines = self._control.makefile("rb")
        self.on_death = on_death
        """Told of every process that was killed, before anybody goes on."""
        self._alive: dict[int, Child] = {}
        self._statuses: dict[int, int] = {}

    def start(self, body: Callable[..., None], *arguments: object) -> Child:
        """Run `body(channel, *arguments)`, a function of a module, in a process of its own."""
        ours, theirs = socket.socketpair()
        request = {"module": body.__module__, "name": body.__name__, "arguments": arguments}
        socket.send_fds(self._control, [json.dumps(request).encode()], [theirs.fileno()])
        theirs.close()
        while True:
            news = self._news(PATIENCE)
            if news is not None:
                break
        child = Child(self, news, Channel(ours))
        self._alive[news] = child
        return child

    def died(self, pid: int) -> None:
        """A process has ended without giving back what it held."""
        if self.on_death is not None:
            self.on_death(pid)

    def status_of(self, pid: int, seconds: float) -> int:
        deadline = time.monotonic() + seconds
        while pid not in self._statuses:
            self._news(max(0.001, deadline - time.monotonic()))
        return self._statuses[pid]

    def clean_up(self) -> None:
        """Kill what a test has left behind."""
        for child in list(self._alive.values()):
            with contextlib.suppress(ProcessLookupError):
                child.signal(signal.SIGKILL)
            child.wait()
            child.channel.close()
        self._alive.clear()
        self._statuses.clear()

    def close(self) -> None:
        self.clean_up()
        self._lines.close()
        self._control.close()
        self._process.wait()

    def _news(self, seconds: float) -> int | None:
        """The pid of a child that was started, or None for one that has ended."""
        self._control.settimeout(seconds)
        line = self._lines.readline()
        if not line:
            raise Gone("the nursery has ended")
        news = json.loads(line)
        if "started" in news:
            return int(news["started"])
        self._statuses[news["ended"]] = news["status"]
        return None


def run_script(
    source: str, *arguments: str, seconds: float = PATIENCE
) -> subprocess.CompletedProcess[str]:
    """A program of its own, from the command line to the end of the interpreter."""
    return subprocess.run(
        [sys.executable, "-c", source, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def spin_until(moment: float) -> None:
    """Return at one moment of the monotonic clock, which all processes share."""
    while time.monotonic() < moment:
        pass


def soon(seconds: float = 0.01) -> float:
    """A moment far enough away for every process to be told of it."""
    return time.monotonic() + seconds
