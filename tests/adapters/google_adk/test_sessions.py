"""The ADK's sessions on a store, by its own tests where they are here."""

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("google.adk", reason="google-adk is not installed here: make adapters")

from google.adk.agents import LlmAgent
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

from killick import AsyncStore
from killick.adapters.google_adk import KillickSessionService
from killick.model.messages import Text
from tests.adapters.google_adk.scripted import PLACE, Scripted, events, run
from tests.adapters.upstreams import named_failures, run_theirs, suite_of

OTHER: Final[dict[str, Any]] = {"app_name": "app", "user_id": "bob"}


def said(text: str, delta: dict[str, Any] | None = None, *, at: float = 1.0) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    actions = EventActions(state_delta=delta or {})
    return Event(author="user", content=content, timestamp=at, actions=actions)


def with_service(tmp_path: Path, check: Any) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            await check(store, KillickSessionService(store))

    asyncio.run(main())


def test_events_and_states_come_back_in_another_opening(tmp_path: Path) -> None:
    async def write(_: AsyncStore, service: KillickSessionService) -> None:
        session = await service.create_session(**PLACE, session_id=" s ", state={"mine": 1})
        shared = {"app:a": 1, "user:u": 2, "temp:t": 3, "mine": 2}
        await service.append_event(session, said("One", shared))
        await service.append_event(session, said("Two", at=2.0))
        assert session.state["temp:t"] == 3

    async def read(_: AsyncStore, service: KillickSessionService) -> None:
        session = await service.get_session(**PLACE, session_id="s")
        assert session is not None
        assert [event.content.parts[0].text for event in session.events] == ["One", "Two"]
        assert session.state == {"mine": 2, "app:a": 1, "user:u": 2}
        assert session.last_update_time == 2.0
        assert await service.get_user_state(**PLACE) == {"u": 2}
        bob = await service.create_session(**OTHER, session_id="s")
        assert bob.state == {"app:a": 1}
        few = GetSessionConfig(num_recent_events=1)
        late = GetSessionConfig(after_timestamp=1.5)
        for config in (few, late):
            newest = await service.get_session(**PLACE, session_id="s", config=config)
            assert newest is not None
            assert [event.timestamp for event in newest.events] == [2.0]

    with_service(tmp_path, write)
    with_service(tmp_path, read)


def test_an_event_that_comes_again_is_there_once(tmp_path: Path) -> None:
    async def check(store: AsyncStore, service: KillickSessionService) -> None:
        session = await service.create_session(**PLACE, session_id="s")
        event = said("One")
        for _ in range(2):
            await service.append_event(session, event)
        kept = await service.get_session(**PLACE, session_id="s")
        assert kept is not None
        assert (len(kept.events), len(session.events)) == (1, 1)
        journal = await service.journal(**PLACE, session_id="s")
        assert [message.text for message in await journal.messages()] == ["One"]

    with_service(tmp_path, check)


def test_a_deleted_session_is_gone_and_its_name_free(tmp_path: Path) -> None:
    async def check(store: AsyncStore, service: KillickSessionService) -> None:
        session = await service.create_session(**PLACE, session_id="s", state={"user:u": 1})
        await service.append_event(session, said("Secret"))
        with pytest.raises(AlreadyExistsError):
            await service.create_session(**PLACE, session_id="s")
        await service.delete_session(**PLACE, session_id="s")
        assert await service.get_session(**PLACE, session_id="s") is None
        assert (await service.list_sessions(app_name="app")).sessions == []
        with pytest.raises(SessionNotFoundError):
            await service.append_event(session, said("More"))
        journal = await service.journal(**PLACE, session_id="s")
        assert (await journal.context("anthropic")).messages == []
        again = await service.create_session(**PLACE, session_id="s")
        assert (again.events, again.state) == ([], {"user:u": 1})

    with_service(tmp_path, check)


def test_of_two_that_begin_a_session_at_once_one_is_refused(tmp_path: Path) -> None:
    """As with SqliteSessionService; nothing of the refused one is kept, its states neither."""

    async def check(_: AsyncStore, service: KillickSessionService) -> None:
        for name in ("a", "b", "c", "a"):
            states = [{"app:who": who, "mine": who} for who in ("first", "second")]
            begun = await asyncio.gather(
                *(service.create_session(**PLACE, session_id=name, state=one) for one in states),
                return_exceptions=True,
            )
            [made] = [one for one in begun if not isinstance(one, BaseException)]
            [refused] = [one for one in begun if isinstance(one, BaseException)]
            assert isinstance(refused, AlreadyExistsError)
            assert await service.get_session(**PLACE, session_id=name) == made
            assert made.state["app:who"] == made.state["mine"]
            await service.delete_session(**PLACE, session_id=name)

    with_service(tmp_path, check)


def test_another_event_with_the_id_of_one_is_kept_with_its_states(tmp_path: Path) -> None:
    async def check(_: AsyncStore, service: KillickSessionService) -> None:
        async def add(number: int) -> list[str]:
            session = await service.get_session(**PLACE, session_id="s")
            assert session is not None
            event = said(str(number), {"app:n": number, "user:n": number})
            event.id = "same"
            await service.append_event(session, event)
            kept = await service.get_session(**PLACE, session_id="s")
            assert kept is not None
            assert kept.state == {"app:n": number, "user:n": number}
            journal = await service.journal(**PLACE, session_id="s")
            shown = [one.parts for one in await journal.transcript() if one.kind == "message"]
            return [part.text for parts in shown for part in parts if isinstance(part, Text)]

        await service.create_session(**PLACE, session_id="s")
        assert await add(1) == ["1"]
        assert await add(2) == ["1", "2"]
        await service.delete_session(**PLACE, session_id="s")
        await service.create_session(**PLACE, session_id="s")
        assert await add(2) == ["2"]

    with_service(tmp_path, check)


def test_sessions_are_listed_by_their_last_event(tmp_path: Path) -> None:
    async def check(_: AsyncStore, service: KillickSessionService) -> None:
        for place, name in ((PLACE, "a"), (PLACE, "b"), (OTHER, "a")):
            await service.create_session(**place, session_id=name)
        first = await service.get_session(**PLACE, session_id="a")
        assert first is not None
        await service.append_event(first, said("Late", at=first.last_update_time + 99))
        listed = (await service.list_sessions(app_name="app")).sessions
        assert [(one.user_id, one.id) for one in listed] == [
            ("ann", "b"),
            ("bob", "a"),
            ("ann", "a"),
        ]
        own = (await service.list_sessions(**OTHER)).sessions
        assert [(one.user_id, one.id) for one in own] == [("bob", "a")]

    with_service(tmp_path, check)


@pytest.mark.parametrize("recorded", [True, False])
def test_what_was_said_is_a_message_once_with_a_recorder_and_without(
    tmp_path: Path, recorded: bool
) -> None:
    async def check(_: AsyncStore, service: KillickSessionService) -> None:
        model = Scripted(lambda _: ["Yes."])
        made = LlmAgent(name="agent", model=model)
        journal = await service.journal(**PLACE, session_id="s")
        for prompt in ("One?", "Two?"):
            if recorded:
                await run(journal, made, prompt, service)
            else:
                await events(made, prompt, service)
        said = [(one.role, one.text.strip()) for one in await journal.messages()]
        asked = [("user", "One?"), ("assistant", "Yes."), ("user", "Two?"), ("assistant", "Yes.")]
        assert said == asked
        texts = [content.parts[0].text.strip() for content in model.asked]
        assert texts == ["One?", "Yes.", "Two?"]
        kept = await service.get_session(**PLACE, session_id="s")
        assert kept is not None
        assert len(kept.events) == 4

    with_service(tmp_path, check)


# -- their own tests -----------------------------------------------------------------------------


FILE: Final = "tests/unittests/sessions/test_session_service.py"
_FILE: Final = "looks at the file that SqliteSessionService opens by a URL of its own"
ALLOWED: Final = {
    "test_sqlite_session_service_accepts_sqlite_urls": _FILE,
    "test_sqlite_session_service_accepts_absolute_sqlite_urls": _FILE,
    "test_sqlite_session_service_preserves_uri_query_parameters": _FILE,
    "test_append_event_when_session_is_same_ref_as_storage_session": (
        "changes what InMemorySessionService keeps in its attribute `sessions`"
    ),
}
"""Their tests that fail with ours and not with theirs, each with the reason."""


def test_the_page_names_each_with_its_reason() -> None:
    assert named_failures("google-adk") == ALLOWED


@pytest.mark.timeout(600)
def test_their_own_tests_pass_as_with_their_own_services() -> None:
    """Those in memory and on SQLite are ours; those of the one on SQLAlchemy are left out."""
    folder = suite_of("adk-python")
    given = ("-o", "asyncio_mode=auto", "-k", "not DATABASE", FILE)
    ran = run_theirs(folder, Path(__file__).parent, *given)
    theirs = run_theirs(folder, Path(__file__).parent, *given, KILLICK_ADK_SERVICE="theirs")
    assert set(ran.failed) - set(theirs.failed) == set(ALLOWED)
    assert ran.passed == theirs.passed - len(ALLOWED)
    assert ran.counted("services were Killick's") >= 52
