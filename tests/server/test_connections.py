"""Clients that open connections and say nothing, or more than the server may open files for."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.client import Server

FILES = 256
"""A machine on which a process may open this many files, and no more."""


def limited(folder: Path, *options: str) -> Server:
    run = f'ulimit -n {FILES}; exec "$0" -m tests.server.scripted "$@"'
    store, tokens = str(folder / "work.db"), str(folder / "tokens.json")
    command = ("bash", "-c", run, sys.executable, store, "--tokens", tokens)
    return Server(folder, *options, command=command)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = limited(tmp_path)
    yield server
    server.close()


@contextlib.contextmanager
def connections(server: Server, count: int, data: bytes) -> Iterator[list[socket.socket]]:
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            one = stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
            with contextlib.suppress(OSError):
                one.sendall(data)
            opened.append(one)
        yield opened


def health(server: Server) -> int:
    with socket.create_connection(_where(server), timeout=10) as one:
        one.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        return int(one.recv(100).split()[1])


def answer(one: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"}"):
        data += one.recv(2_000)
    return data


def _where(server: Server) -> tuple[str, int]:
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    return host, int(port)


def test_half_requests_keep_no_client_out(server: Server) -> None:
    """More of them than files, without a token; each makes room for the next."""
    with connections(server, 3 * FILES, b"GET /api/sessions HTTP/1.1\r\nHost: 127"):
        assert health(server) == 200
        session_id = server.create(title="Still here")
        server.begin(session_id, "say hello")
        assert server.until_end(session_id)[-1].name == "turn_ended"
    assert server.log_lines("library") == []


@pytest.mark.parametrize("path", ["GET /healthz", "POST /api/import?name=a.json"])
def test_half_bodies_keep_no_client_out(server: Server, path: str) -> None:
    """The head is whole and the body never comes; some addresses need no token."""
    head = f"{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: a/b\r\nContent-Length: 9\r\n\r\n1"
    with connections(server, 2 * FILES, head.encode()):
        assert health(server) == 200
        assert server.create(title="Still here")
    assert server.log_lines("library") == []


def test_the_head_of_a_request_comes_in_time_or_the_connection_is_closed(tmp_path: Path) -> None:
    server = limited(tmp_path, "--head", "0.3")
    try:
        half, slow = b"GET /healthz HTTP/1.1\r\nHo", b""
        with connections(server, 1, half) as [one], connections(server, 1, slow) as [other]:
            for silent in (one, other):
                with contextlib.suppress(ConnectionResetError):
                    assert silent.recv(10) == b""
        # A second request on a connection that was answered is waited for no longer.
        with connections(server, 1, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") as [again]:
            assert b"200" in answer(again)
            # Longer than a head may take: between two requests there is none.
            with connections(server, 1, b"") as [silent], contextlib.suppress(OSError):
                assert silent.recv(10) == b""
            again.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b"200" in answer(again)
            again.sendall(b"GET /hea")
            with contextlib.suppress(ConnectionResetError):
                assert again.recv(10) == b""
    finally:
        server.close()


def test_readers_are_bounded_below_the_files_and_health_is_still_told(server: Server) -> None:
    session_id = server.create()
    request = f"GET /api/sessions/{session_id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with connections(server, FILES, request.encode()) as readers:
        answers = []
        for one in readers:
            with contextlib.suppress(OSError):
                answers.append(one.recv(300))
        assert sum(b" 200 " in answer for answer in answers) >= FILES // 3
        refused = [answer for answer in answers if b" 503 " in answer]
        assert refused
        assert b"too_many_connections" in refused[0]
        assert health(server) == 200
        assert health(server) == 200
    server.begin(session_id, "say hello")
    server.until_end(session_id)


def test_the_limit_of_open_files_is_raised_at_the_start() -> None:
    code = (
        "import resource; from killick.server.connections import raise_file_limit as r;"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1];"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard));"
        "print(r(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    told, now = map(int, done.stdout.split())
    assert told > 200
    assert now in (told, -1)
