"""The SDK's storage interface on a store, by its own tests where they are here."""

import asyncio
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("agents", reason="openai-agents is not installed here: make adapters")

from agents import Agent, Runner, set_tracing_disabled
from agents.memory import Session

from killick import AsyncStore
from killick.adapters.openai_agents import KillickSession
from tests.adapters.openai_agents.scripted import Scripted
from tests.adapters.upstreams import named_failures, run_theirs, suite_of

HERE: Final = Path(__file__).parent

ITEMS: Final[list[Any]] = [
    {"role": "user", "content": "Hi"},
    {"role": "user", "content": [{"type": "input_text", "text": "Look"}]},
    {
        "type": "message",
        "id": "m1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "I see.", "annotations": []}],
    },
    {"type": "function_call", "id": "f1", "call_id": "c1", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "a wall"},
    {"type": "function_call_output", "call_id": "nobody", "output": [{"type": "input_text"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
    {"something": "else"},
]


def test_items_come_back_exactly_and_can_be_popped_and_added_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = KillickSession("s", store)
            assert isinstance(session, Session)
            await session.add_items(ITEMS)
            assert await session.get_items() == ITEMS
            assert await session.get_items(3) == ITEMS[-3:]
            for item in reversed(ITEMS[3:]):
                assert await session.pop_item() == item
            await session.add_items(ITEMS[3:])
            assert await session.get_items() == ITEMS
            await session.clear_session()
            assert await session.get_items() == []
            assert await session.pop_item() is None

    asyncio.run(main())


def test_what_was_popped_stays_in_the_journal_and_is_sent_to_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = KillickSession("s", store)
            await session.add_items(ITEMS[:2])
            await session.pop_item()
            ours = await store.session("s")
            assert "Look" not in str((await ours.context("anthropic")).messages)
            assert "Look" in str(await ours.entries())

    asyncio.run(main())


def test_each_item_is_popped_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            sessions = [KillickSession("s", store) for _ in range(4)]
            given = [{"role": "user", "content": str(number)} for number in range(12)]
            await sessions[0].add_items(given)
            popped = await asyncio.gather(*(sessions[n % 4].pop_item() for n in range(12)))
            assert sorted(item["content"] for item in popped if item) == sorted(map(str, range(12)))

    asyncio.run(main())


def test_a_run_goes_on_with_what_the_first_stored(tmp_path: Path) -> None:
    set_tracing_disabled(True)

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            model = Scripted(lambda _: ["Yes."])
            agent = Agent(name="agent", model=model)
            for prompt in ("One?", "Two?"):
                await Runner.run(agent, prompt, session=KillickSession("s", store))
            said = [item.get("content") for item in model.asked]
            assert (said[0], said[2]) == ("One?", "Two?")

    asyncio.run(main())


# -- their own tests -----------------------------------------------------------------------------

FILES: Final = [
    *("tests/memory/test_session.py", "tests/memory/test_session_limit.py"),
    *("tests/test_soft_cancel.py", "tests/test_agent_runner.py"),
    *("tests/test_agent_runner_streamed.py", "tests/test_max_turns.py"),
    *("tests/test_hitl_session_scenario.py", "tests/extensions/memory/test_encrypt_session.py"),
    "tests/memory/test_openai_responses_compaction_session.py",
    "tests/memory/test_session_context_wrapper.py",
]
_CONNECTIONS = "looks at the connections, locks and threads that SQLiteSession keeps"
_TABLES = "writes into the tables of SQLiteSession"
_SNAPSHOT = "needs _get_compaction_snapshot, which replaces items; ours are never replaced"

ALLOWED: Final = {
    "test_sqlite_session_close_closes_worker_thread_connections": _CONNECTIONS,
    "test_sqlite_session_reaps_connections_from_exited_worker_threads": _CONNECTIONS,
    "test_sqlite_session_closes_retired_connections_before_the_next_allocation": _CONNECTIONS,
    "test_sqlite_session_keeps_connections_of_live_worker_threads": _CONNECTIONS,
    "test_sqlite_session_closed_rejects_empty_add_items": "compares the words of the error",
    "test_sqlite_session_pop_item_skips_corrupt_most_recent": _TABLES,
    "test_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows": _TABLES,
    "test_sqlite_session_get_items_limit_skips_corrupt_newest_rows": _TABLES,
    "test_sqlite_session_get_items_session_settings_limit_skips_corrupt_rows": _TABLES,
    "test_sqlite_session_file_lock_is_shared_across_instances": _CONNECTIONS,
    "test_sqlite_session_failed_add_items_releases_write_lock": _TABLES,
    "test_sqlite_session_failed_clear_session_rolls_back": _TABLES,
    "test_sqlite_session_failed_pop_item_releases_write_lock": _TABLES,
    "test_sqlite_session_rollback_failure_evicts_connection": _CONNECTIONS,
    "test_sqlite_session_close_retries_quarantined_connection": _CONNECTIONS,
    "test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome": _CONNECTIONS,
    "test_encrypted_compaction_skips_unencrypted_stored_history": _SNAPSHOT,
    "test_encrypted_pop_wrong_key_preserves_row_identity": _TABLES,
    "test_encrypted_pop_authentication_is_atomic_with_concurrent_mutations": _TABLES,
    "test_automatic_compaction_rollback_budget": _SNAPSHOT,
    "test_settled_pop_failure_invalidates_response_chain": _CONNECTIONS,
    "test_settled_clear_failure_invalidates_response_chain": _CONNECTIONS,
}
"""Their tests that may fail, each with the reason; every one of them fails."""


def test_the_page_names_each_with_its_reason() -> None:
    assert named_failures("openai-agents") == ALLOWED


@pytest.mark.timeout(600)
def test_their_own_tests_pass_but_for_those_that_are_named() -> None:
    ran = run_theirs(suite_of(f"openai_agents-{version('openai-agents')}"), HERE, *FILES)
    assert set(ran.failed) == set(ALLOWED)
    assert ran.passed >= 736
