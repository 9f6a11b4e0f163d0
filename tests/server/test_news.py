"""The feed over all sessions, as events, and words for a turn that runs."""

import contextlib
from collections.abc import Generator

import pytest

from tests.server.client import Event, Server, parse
from tests.server.conftest import Serve


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def news(server: Server, after: str | None = None, **query: str) -> Generator[Event, None, None]:
    headers = {} if after is None else {"Last-Event-ID": after}
    with server.http.stream("GET", "/api/news", headers=headers, params=query) as answer:
        if answer.status_code != 200:
            answer.read()
        assert answer.status_code == 200, answer.text
        yield from parse(answer.iter_lines())


def take(server: Server, count: int, after: str | None = None, **query: str) -> list[Event]:
    with contextlib.closing(news(server, after, **query)) as events:
        return [next(events) for _ in range(count)]


def test_a_client_hears_of_every_session_and_goes_on_after_kill_9(serve: Serve) -> None:
    first = serve("--lease", "2")
    sessions = [first.create() for _ in range(3)]
    for session_id in sessions[:2]:
        first.begin(session_id, "hello")
        first.until_end(session_id)
    told = take(first, 2)
    assert [(event.name, event.data["session_id"]) for event in told] == [
        ("turn_ended", session_id) for session_id in sessions[:2]
    ]
    assert take(first, 1, told[0].id) == told[1:]
    first.begin(sessions[2], "count 1000 0.01")
    first.kill()
    second = serve()
    (last,) = take(second, 1, told[1].id)
    assert (last.data["session_id"], last.data["cause"]) == (sessions[2], "crashed")
    assert take(second, 1, waiting="true")[0].data == last.data


def test_a_cursor_that_is_none_is_refused(server: Server) -> None:
    for cursor in ("x", "1.2.3.4.5.6.7"):
        answer = server.http.get("/api/news", headers={"Last-Event-ID": cursor})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor")


def test_the_feed_ends_with_its_server(serve: Serve) -> None:
    server = serve()
    with contextlib.closing(news(server)) as events:
        session_id = server.create()
        server.begin(session_id, "hello")
        assert next(events).name == "turn_ended"
        assert server.end() == 0
        assert list(events) == []


def test_words_are_kept_for_the_turn_that_runs(serve: Serve) -> None:
    server = serve()
    session_id = server.create()
    path = f"/api/sessions/{session_id}/steer"
    turn_id = server.begin(session_id, "count 1000 0.01")
    key = {"Idempotency-Key": "k"}
    said = server.http.post(path, json={"prompt": "also check the tests"}, headers=key)
    assert (said.status_code, said.json()["turn_id"]) == (202, turn_id)
    assert server.http.post(path, json={"prompt": "also check the tests"}, headers=key).json() == (
        said.json()
    )
    server.stop(session_id, wait_seconds=5)
    assert server.get(f"/api/sessions/{session_id}")["queued"][0]["text"] == "also check the tests"
    assert server.http.post(path, json={"prompt": "and this"}).json()["turn_id"] is None
    assert server.http.post(path, json={"prompt": " "}).status_code == 422
