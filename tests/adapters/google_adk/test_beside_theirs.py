"""What a session service owes the ADK, asked of ours and of those of the installed version."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("google.adk", reason="google-adk is not installed here: make adapters")

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.sessions import InMemorySessionService, Session
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types

from killick import AsyncStore
from killick.adapters.google_adk import KillickSessionService

ANN: Final[dict[str, Any]] = {"app_name": "app", "user_id": "ann"}
BOB: Final[dict[str, Any]] = {"app_name": "app", "user_id": "bob"}
Check = Callable[[BaseSessionService], Awaitable[None]]
CHECKS: Final[dict[str, Check]] = {}


def owed(check: Check) -> Check:
    CHECKS[check.__name__] = check  # type: ignore[attr-defined]
    return check


def event(delta: dict[str, Any] | None = None, **given: Any) -> Event:
    actions = EventActions(state_delta=delta or {})
    return Event(author="user", invocation_id="i", actions=actions, **given)


async def reread(service: BaseSessionService, session: Session) -> Session:
    found = await service.get_session(**ANN, session_id=session.id)
    assert found is not None
    return found


@owed
async def states_are_of_the_app_the_user_and_the_session(service: BaseSessionService) -> None:
    given = {"app:a": {"x": 1, "y": 2}, "user:u": 1, "mine": {"x": 1, "y": 2}, "yes": False}
    session = await service.create_session(**ANN, session_id="s", state=given)
    changed = {"app:a": {"x": 3}, "user:u": None, "mine": {"x": 3}, "temp:t": 1}
    written = event(changed)
    await service.append_event(session, written)
    kept = {"app:a": {"x": 3}, "user:u": None, "mine": {"x": 3}, "yes": False}
    assert session.state == kept | {"temp:t": 1}
    assert (await reread(service, session)).state == kept
    assert "temp:t" not in written.actions.state_delta
    assert (await service.create_session(**ANN)).state == {"app:a": {"x": 3}, "user:u": None}
    assert (await service.create_session(**BOB, session_id="s")).state == {"app:a": {"x": 3}}
    other = await service.create_session(app_name="other", user_id="ann", session_id="s")
    assert other.state == {}


@owed
async def a_user_s_state_is_the_user_s(service: BaseSessionService) -> None:
    assert not await service.get_user_state(**ANN)
    session = await service.create_session(**ANN)
    for number in (1, 2):
        await service.append_event(session, event({"user:n": number, "mine": 1}))
    assert await service.get_user_state(**ANN) == {"n": 2}
    assert not await service.get_user_state(**BOB)
    assert not await service.get_user_state(app_name="other", user_id="ann")


@owed
async def a_name_is_taken_once_padded_or_not(service: BaseSessionService) -> None:
    assert (await service.create_session(**ANN, session_id="  ")).id.strip()
    await service.create_session(**ANN, session_id=" s ", state={"first": 1})
    for name in ("s", "  s"):
        with pytest.raises(AlreadyExistsError):
            await service.create_session(**ANN, session_id=name, state={"second": 1})
        found = await service.get_session(**ANN, session_id=name)
        assert found is not None
        assert found.state == {"first": 1}
    await service.delete_session(**ANN, session_id=" s")
    assert await service.get_session(**ANN, session_id="s") is None
    await service.delete_session(**ANN, session_id="nowhere")


@owed
async def of_two_at_once_one_begins_it(service: BaseSessionService) -> None:
    await service.create_session(**ANN, session_id="first")
    for name in ("a", "b", "c"):
        both = (service.create_session(**ANN, session_id=name) for _ in range(2))
        begun = await asyncio.gather(*both, return_exceptions=True)
        [refused] = [one for one in begun if isinstance(one, BaseException)]
        assert isinstance(refused, AlreadyExistsError)
        assert name in str(refused)


@owed
async def a_session_that_is_not_there_takes_no_event(service: BaseSessionService) -> None:
    session = await service.create_session(**ANN)
    await service.delete_session(**ANN, session_id=session.id)
    for gone in (session, Session(**ANN, id="never")):
        with pytest.raises(SessionNotFoundError):
            await service.append_event(gone, event())


@owed
async def events_come_back_as_they_were(service: BaseSessionService) -> None:
    session = await service.create_session(**ANN)
    picture = types.Part.from_bytes(data=b"\xff\x00", mime_type="image/png")
    asked = {"c": ToolConfirmation(hint="h", confirmed=False, payload={"a": "b"})}
    search = types.SearchEntryPoint(sdk_blob=b"\xfe")
    for given in (
        event(content=types.Content(role="user", parts=[picture]), timestamp=1730613600.0),
        event(grounding_metadata=types.GroundingMetadata(search_entry_point=search)),
        Event(author="a", actions=EventActions(requested_tool_confirmations=asked)),
        Event(author="a", actions=EventActions(artifact_delta={"f": 0}, transfer_to_agent="b")),
        event(turn_complete=True, error_code="e", interrupted=True, custom_metadata={"k": "v"}),
    ):
        await service.append_event(session, given)
    await service.append_event(session, Event(author="user", partial=True))
    assert len(session.events) == 5
    assert sorted((await reread(service, session)).events, key=lambda one: one.timestamp) == sorted(
        session.events, key=lambda one: one.timestamp
    )


@owed
async def some_events_can_be_asked_for(service: BaseSessionService) -> None:
    session = await service.create_session(**ANN)
    for number in range(1, 6):
        await service.append_event(session, event(timestamp=1000.0 + number))
    for config, expected in (
        (GetSessionConfig(num_recent_events=0), []),
        (GetSessionConfig(num_recent_events=2), [1004.0, 1005.0]),
        (GetSessionConfig(after_timestamp=1004), [1004.0, 1005.0]),
        (GetSessionConfig(after_timestamp=1005, num_recent_events=3), [1005.0]),
        (GetSessionConfig(after_timestamp=2000), []),
    ):
        found = await service.get_session(**ANN, session_id=session.id, config=config)
        assert found is not None
        assert [one.timestamp for one in found.events] == expected


@owed
async def lists_are_of_a_user_or_of_all(service: BaseSessionService) -> None:
    for place, name in ((ANN, "a"), (ANN, "b"), (BOB, "c")):
        await service.create_session(**place, session_id=name, state={"name": name})
    first = await service.get_session(**ANN, session_id="a")
    assert first is not None
    await service.append_event(first, event(timestamp=first.last_update_time + 10))
    own = (await service.list_sessions(**ANN)).sessions
    assert [(one.id, one.state, one.events) for one in own] == [
        ("b", {"name": "b"}, []),
        ("a", {"name": "a"}, []),
    ]
    every = (await service.list_sessions(app_name="app")).sessions
    assert [one.id for one in every] == ["b", "c", "a"]
    assert (await service.list_sessions(app_name="other")).sessions == []


@asynccontextmanager
async def made(kind: str, folder: Path) -> AsyncIterator[BaseSessionService]:
    if kind == "theirs in memory":
        yield InMemorySessionService()
    elif kind == "theirs on SQLite":
        yield SqliteSessionService(str(folder / "theirs.db"))
    else:
        async with AsyncStore(folder / "ours.db") as store:
            yield KillickSessionService(store)


@pytest.mark.parametrize("kind", ["theirs in memory", "theirs on SQLite", "ours"])
@pytest.mark.parametrize("check", list(CHECKS))
def test_ours_does_what_theirs_do(tmp_path: Path, check: str, kind: str) -> None:
    async def main() -> None:
        async with made(kind, tmp_path) as service:
            await CHECKS[check](service)

    asyncio.run(main())
