"""Events come from the journal: cursors survive everything, nothing is missed or said twice."""

import contextlib
import random

import httpx2
import pytest

from tests.server.client import Event, Server, parse, texts
from tests.server.conftest import Serve


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def names(events: list[Event]) -> list[str]:
    return [event.name for event in events]


def test_a_client_that_leaves_at_each_of_500_deltas_and_comes_back_reads_the_same_text(
    serve: Serve,
) -> None:
    """And from each of 20 older cursors: the text is the same to the byte every time."""
    server = serve("--window", "0.001")
    session_id = server.create()
    server.begin(session_id, "count 4000 0.011")
    seen: list[Event] = []
    cursor = None
    deltas = 0
    while not seen or seen[-1].name != "turn_ended":
        with contextlib.closing(server.events(session_id, cursor)) as events:
            for event in events:
                seen.append(event)
                cursor = event.id
                deltas += event.name == "delta"
                if event.name == "delta" or event.name == "turn_ended":
                    break
        if deltas == 500:
            server.stop(session_id)
    assert names(seen).count("turn_ended") == 1
    stored = server.get(f"/api/sessions/{session_id}/messages")["messages"][-1]["text"]
    assert stored == "".join(f"w{number} " for number in range(stored.count(" ")))
    assert list(texts(seen).values()) == [stored]
    inside = [n for n, event in enumerate(seen) if event.name == "delta"]
    assert len(inside) >= 500
    for n in random.Random(1).sample(inside, 20):
        rest = server.until_end(session_id, seen[n].id)
        assert list(texts([*seen[: n + 1], *rest]).values()) == [stored]
        assert names(rest).count("turn_ended") == 1


def test_entries_are_not_repeated_after_a_resume(server: Server) -> None:
    session_id = server.create()
    server.begin(session_id, "work")
    seen = server.until_end(session_id)
    whole = [event.data["seq"] for event in seen if event.name != "delta"]
    assert whole == list(range(1, len(whole) + 1))
    for event in seen[:-1]:
        rest = server.until_end(session_id, event.id)
        after = seen.index(event) + 1
        left = [one.data["seq"] for one in seen[after:] if one.name != "delta"]
        assert [one.data["seq"] for one in rest if one.name != "delta"] == left


def test_a_cursor_in_the_middle_of_a_message_survives_kill_9(serve: Serve) -> None:
    first = serve("--lease", "2")
    session_id = first.create()
    first.begin(session_id, "count 1000 0.005")
    seen: list[Event] = []
    with contextlib.closing(first.events(session_id)) as events:
        for event in events:
            seen.append(event)
            if names(seen).count("delta") == 10:
                break
    first.kill()
    second = serve()
    rest = second.until_end(session_id, seen[-1].id)
    assert rest[-1].data["body"]["status"] == "interrupted"
    [text] = texts([*seen, *rest]).values()
    shown = second.get(f"/api/sessions/{session_id}/messages")["messages"][-1]
    assert (shown["state"], shown["text"]) == ("partial", text)
    assert text.startswith("".join(texts(seen).values()))


def test_a_follower_at_one_server_sees_a_turn_at_another(serve: Serve) -> None:
    one, other = serve(), serve()
    session_id = one.create()
    with contextlib.closing(other.events(session_id)) as events:
        assert next(events).name == "session_created"
        one.begin(session_id, "count 20 0.01")
        seen = []
        for event in events:
            seen.append(event)
            if event.name == "turn_ended":
                break
    assert list(texts(seen).values()) == ["".join(f"w{n} " for n in range(20))]


def test_a_stop_at_one_server_ends_a_turn_at_another(serve: Serve) -> None:
    one, other = serve(), serve()
    session_id = one.create()
    one.begin(session_id, "hang")
    stopped = other.stop(session_id, reason="enough", wait_seconds=1)
    assert (stopped.json()["status"], stopped.json()["reason"]) == ("interrupted", "enough")


def test_a_follower_at_another_server_is_told_within_a_second(serve: Serve) -> None:
    """What happens at one server reaches a quiet stream of another before its reader gives up."""
    one, other = serve(), serve()
    session_id = one.create()
    patience = httpx2.Timeout(20, read=1.0)
    with other.http.stream("GET", f"/api/sessions/{session_id}/events", timeout=patience) as answer:
        events = parse(answer.iter_lines())
        assert next(events).name == "session_created"
        for number in range(5):
            one.begin(session_id, f"say {number}")
            found = next(event for event in events if event.name == "turn_ended")
            assert found.data["body"]["status"] == "completed"


def test_a_turn_whose_server_died_is_closed_by_another(serve: Serve) -> None:
    # Where there is no lock that dies with its holder, its lease must run out.
    one, other = serve("--lease", "2"), serve("--lease", "2")
    session_id = one.create()
    one.begin(session_id, "hang")
    with contextlib.closing(other.events(session_id)) as events:
        next(event for event in events if event.name == "delta")
        one.kill()
        ended = next(event for event in events if event.name == "turn_ended")
    assert ended.data["body"]["status"] == "interrupted"
    turns = other.get(f"/api/sessions/{session_id}/transcript")["turns"]
    assert [turn["status"] for turn in turns] == ["interrupted"]


def test_a_client_that_hangs_up_stops_nothing(server: Server) -> None:
    session_id = server.create()
    server.begin(session_id, "count 30 0.01")
    with contextlib.closing(server.events(session_id)) as events:
        next(event for event in events if event.name == "delta")
    ended = server.until_end(session_id)[-1]
    assert ended.data["body"]["status"] == "completed"


def test_a_quiet_stream_has_a_heartbeat(serve: Serve) -> None:
    server = serve("--beat", "0.2")
    session_id = server.create()
    with server.http.stream("GET", f"/api/sessions/{session_id}/events") as answer:
        assert any(line == ": beat" for line in answer.iter_lines())


def test_a_cursor_of_another_store_is_answered_with_reload(server: Server) -> None:
    session_id = server.create()
    [event] = server.events(session_id, "900")
    assert (event.name, event.data["code"]) == ("reload", "invalid_cursor")


def test_a_session_that_is_erased_ends_its_streams(serve: Serve) -> None:
    from killick import Store

    server = serve()
    session_id = server.create()
    with contextlib.closing(server.events(session_id)) as events:
        next(events)
        with Store(server.store) as store:
            store.erase_session(session_id)
        assert [event.data["code"] for event in events] == ["session_not_found"]
