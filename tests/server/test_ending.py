"""A server that is asked to end: turns, then streams, then the process, within ten seconds."""

import asyncio
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from killick import AsyncStore
from killick.server.hub import Hub
from killick.server.log import Log
from killick.server.responses import Refused
from killick.stores.memory import MemoryDisk
from tests.server.conftest import Serve


def test_a_turn_that_can_finish_finishes(serve: Serve) -> None:
    server = serve("--drain", "5")
    session_id = server.create()
    server.begin(session_id, "count 40 0.01")
    assert server.end() == 0
    again = serve()
    assert again.get(f"/api/sessions/{session_id}")["turn"]["status"] == "completed"


def test_a_turn_that_does_not_finish_is_interrupted_with_the_reason(serve: Serve) -> None:
    server = serve("--drain", "0.2")
    session_id = server.create()
    server.begin(session_id, "hang")
    assert server.end() == 0
    turn = serve().get(f"/api/sessions/{session_id}")["turn"]
    assert (turn["status"], turn["reason"]) == ("interrupted", "the server was shut down")


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_call_that_waits_for_approval_waits_after_the_server_ended(
    serve: Serve, name: signal.Signals
) -> None:
    """A request to end keeps what kill -9 keeps."""
    server = serve("--drain", "0.2")
    session_id = server.create()
    server.begin(session_id, "ask")
    events = server.events(session_id)
    asked = next(event for event in events if event.name == "approval_asked")
    events.close()
    server.process.send_signal(name)
    server.process.wait(10)
    again = serve()
    about = again.get(f"/api/sessions/{session_id}")
    assert [waiting["id"] for waiting in about["approvals"]] == [asked.data["body"]["id"]]
    cause = "crashed" if name == signal.SIGKILL else "shut_down"
    assert (about["turn"]["status"], about["turn"]["cause"]) == ("interrupted", cause)


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_streams_end_and_the_process_is_gone_in_time(serve: Serve, name: signal.Signals) -> None:
    server = serve("--drain", "0.2")
    session_id = server.create()
    server.begin(session_id, "hang")
    began = time.monotonic()
    with server.http.stream("GET", f"/api/sessions/{session_id}/events") as answer:
        lines = answer.iter_lines()
        next(lines)
        server.process.send_signal(name)
        kinds = [line for line in lines if line.startswith("event: ")]
    assert kinds[-1] == "event: turn_ended"
    assert server.process.wait(10) == 0
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("drain", ["0.2", "5"])
def test_a_turn_that_clings_does_not_keep_the_process(serve: Serve, drain: str) -> None:
    server = serve("--drain", drain)
    session_id = server.create()
    server.begin(session_id, "cling")
    began = time.monotonic()
    server.end()
    assert time.monotonic() - began < 10
    turn = serve().get(f"/api/sessions/{session_id}")["turn"]
    assert turn["status"] == "interrupted"


def test_a_server_that_is_ending_begins_nothing(serve: Serve) -> None:
    server = serve("--drain", "3")
    session_id, other = server.create(), server.create()
    server.begin(session_id, "hang")
    server.process.send_signal(signal.SIGTERM)
    while (answer := server.http.get("/readyz")).status_code == 200:
        pass
    assert answer.json()["code"] == "shutting_down"
    refused = server.ask(other, "count 1")
    assert (refused.status_code, refused.json()["code"]) == (503, "shutting_down")
    server.process.send_signal(signal.SIGTERM)  # a second one hurries
    assert server.process.wait(10) == 0


def test_who_waits_for_a_busy_session_is_told_that_the_server_ends(serve: Serve) -> None:
    """And what waited is not begun in the moment in which the turn before it is stopped."""
    server = serve("--drain", "0.2")
    session_id = server.create()
    server.begin(session_id, "hang")
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(server.ask, session_id, "say after", if_busy="wait")
        while "killick_store_refused_total 0" in server.http.get("/metrics").text:
            pass  # it has met the busy session when its first try was refused
        server.process.send_signal(signal.SIGTERM)
        refused = asking.result(15)
    assert (refused.status_code, refused.json()["code"]) == (503, "shutting_down")
    assert server.process.wait(10) == 0
    turns = serve().get(f"/api/sessions/{session_id}/transcript")["turns"]
    assert [one["reason"] for one in turns] == ["the server was shut down"]


def test_it_says_how_it_is(serve: Serve) -> None:
    server = serve()
    session_id = server.create()
    server.begin(session_id, "count 3")
    server.until_end(session_id)
    assert server.get("/healthz") == {"status": "ok"}
    assert server.get("/readyz") == {"status": "ok"}
    lines = server.http.get("/metrics").text.splitlines()
    figures = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert int(figures["killick_store_appends_total"]) > 3
    assert figures['killick_turns_total{status="completed"}'] == "1"
    assert figures["killick_open_turns"] == "0"
    assert int(figures['killick_store_commit_seconds_bucket{le="+Inf"}']) > 3
    [began] = server.log_lines("turn_began")
    assert began["session"] == session_id


def test_a_hub_that_was_never_started_can_be_closed() -> None:
    """A signal may come before the server is up: it must not hang for it."""

    async def main() -> None:
        hub = Hub(AsyncStore(MemoryDisk().open()), Log())
        await hub.close()
        with pytest.raises(Refused, match="shutting down"):
            hub.admit("", lambda: True)

    asyncio.run(main())
