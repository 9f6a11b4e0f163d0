"""A small round of the campaign of servers: three behind one address, one dies after the other."""

import contextlib
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from torture.campaign import Places, Round
from torture.campaigns import served_hour, servers
from torture.campaigns.on_postgres import lacks, places

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.mark.parametrize("stores", [None, places], ids=["sqlite", "postgres"])
def test_clients_are_told_all_whatever_dies(
    tmp_path: Path, stores: Callable[[], Places] | None
) -> None:
    if stores is not None and lacks() is not None:
        pytest.skip(lacks() or "")
    made = None if stores is None else stores()
    round_ = Round("servers", 1, tmp_path, tmp_path, places=made)
    servers.run(round_, servers.Plan(clients=3, prompts=8))
    assert not round_.failures, round_.failures[0].error


def test_what_a_server_was_asked_is_not_left_to_another() -> None:
    """A server that is killed resets its connections: its client is told, and asks again."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(servers.SERVERS)]
    address = servers.Address()
    address.ports = [one.getsockname()[1] for one in listeners]
    with contextlib.closing(address), contextlib.ExitStack() as stack:
        for one in listeners:
            stack.enter_context(one)
        host, port = address.url.removeprefix("http://").split(":")
        client = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
        client.sendall(b"a question")
        killed, _ = listeners[0].accept()
        assert killed.recv(100) == b"a question"
        killed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        killed.close()
        assert client.recv(100) == b""


def test_the_hour_goes_on_until_enough_servers_have_died(tmp_path: Path) -> None:
    round_ = Round("served_hour", 1, tmp_path, tmp_path)
    served_hour.run(round_, minutes=2, minute_seconds=2.0)
    assert not round_.failures, round_.failures[0].error
    assert round_.cases > 6, "each client has asked more than once"
