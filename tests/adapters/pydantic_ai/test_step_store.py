"""The harness' step store on a store, beside the harness' own."""

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("pydantic_ai_harness", reason="the harness is not installed: make adapters")

from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai_harness.step_persistence import (
    ContinuableSnapshot,
    InMemoryStepStore,
    RunRecord,
    SqliteStepStore,
    StepEvent,
    StepPersistence,
    ToolEffectRecord,
    continue_run,
)

from killick import AsyncStore, Store
from killick.adapters.pydantic_ai.step_store import KillickStepStore
from tests.adapters import interrupting
from tests.adapters.upstreams import named_failures, run_theirs, suite_of

AT = datetime(2026, 11, 18, 9, 0, tzinfo=UTC)
LATE = "1:d"
KEYS = ["1:a", "2:b", "2:c", LATE, "2:b", "plain", "3:e", "plain"]


def messages(count: int) -> list[Any]:
    pairs = [
        [
            ModelRequest(parts=[UserPromptPart(f"Question {number}", timestamp=AT)], timestamp=AT),
            ModelResponse(parts=[TextPart(f"Answer {number}")], timestamp=AT),
        ]
        for number in range(count)
    ]
    return [message for pair in pairs for message in pair]


async def exercise(store: Any, *, twice: bool) -> list[Any]:
    """Do with a store all that the protocol has; what it answers.

    Their own differ in two points: the one on SQLite refuses a run that is registered twice, and
    takes a snapshot that comes after a newer one. Here it is as in their store in memory.
    """
    answers: list[Any] = [
        await store.get_run(run_id="a"),
        await store.list_events(run_id="a"),
        await store.latest_snapshot(run_id="a"),
        await store.list_unresolved_tool_effects(run_id="a"),
    ]
    for number, (run_id, parent) in enumerate((("b/1", None), ("a", "b/1"), ("c", "b/1"))):
        at = AT - timedelta(minutes=number)
        conversation = "talk" if number else None
        await store.register_run(
            RunRecord(
                run_id=run_id, parent_run_id=parent, conversation_id=conversation, started_at=at
            )
        )
    if twice:
        at, about = AT + timedelta(minutes=1), {"k": "v"}
        await store.register_run(
            RunRecord(run_id="a", parent_run_id="b/1", started_at=at, metadata=about)
        )
    answers += [
        await store.get_run(run_id="a"),
        await store.list_runs(),
        await store.list_runs(parent_run_id="b/1"),
        await store.list_runs(parent_run_id="b/1", conversation_id="talk"),
    ]
    for number, key in enumerate((None, "k1", "k2", "k1", None)):
        at = AT + timedelta(seconds=number)
        await store.append_event(
            StepEvent(
                run_id="a", kind="run_started", step_index=number, timestamp=at, idempotency_key=key
            )
        )
    answers.append(await store.list_events(run_id="a"))
    for number, key in enumerate(key for key in KEYS if twice or key != LATE):
        state: Any = "interrupted" if key == "3:e" else "complete"
        await store.save_snapshot(
            ContinuableSnapshot(
                run_id="a",
                step_index=number,
                messages=messages(number + 1),
                timestamp=AT,
                state=state,
                idempotency_key=key,
            )
        )
    kept = [
        await store.latest_snapshot(run_id="a"),
        await store.latest_snapshot(run_id="a", include_interrupted=True),
        *await store.list_snapshots(run_id="a", include_interrupted=True),
        *await store.list_snapshots(run_id="a"),
    ]
    answers += [(one.step_index, one.messages, one.state, one.timestamp) for one in kept]
    for call, status in (
        ("c1", "started"),
        ("c2", "started"),
        ("c1", "completed"),
        ("c3", "failed"),
    ):
        effect: Any = status
        await store.record_tool_effect(
            ToolEffectRecord(
                tool_call_id=call, tool_name="t", run_id="a", status=effect, started_at=AT
            )
        )
    answers += [
        await store.get_tool_effect(run_id="a", tool_call_id="c1"),
        await store.get_tool_effect(run_id="a", tool_call_id="c9"),
        await store.list_unresolved_tool_effects(run_id="a"),
    ]
    return answers


@pytest.mark.parametrize("theirs", ["memory", "sqlite"])
def test_it_answers_as_the_harness_own_stores_do(tmp_path: Path, theirs: str) -> None:
    async def main() -> None:
        own = (
            InMemoryStepStore()
            if theirs == "memory"
            else SqliteStepStore(database=tmp_path / "t.db")
        )
        twice = theirs == "memory"
        expected = await exercise(own, twice=twice)
        async with AsyncStore(tmp_path / "w.db") as store:
            assert await exercise(KillickStepStore(store), twice=twice) == expected

    asyncio.run(main())


def test_a_message_of_many_snapshots_is_stored_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            steps = KillickStepStore(store)
            for count in range(1, 11):
                await steps.save_snapshot(
                    ContinuableSnapshot(run_id="a", step_index=count, messages=messages(count))
                )
            assert (await store.counts())["blobs"] == 20
            assert len(await steps.list_snapshots(run_id="a")) == 10

    asyncio.run(main())


# -- a run that is killed ------------------------------------------------------------------------


def script(given: Any, _: Any) -> ModelResponse:
    done = sum(part.part_kind == "tool-return" for one in given for part in one.parts)
    return ModelResponse(parts=[ToolCallPart(f"t{done + 1}", "{}", f"c{done + 1}")])


def agent(steps: KillickStepStore) -> Agent[None, str]:
    made = Agent(FunctionModel(script), capabilities=[StepPersistence(store=steps)])

    @made.tool_plain
    async def t1() -> str:
        return "result-1"

    @made.tool_plain
    async def t2() -> str:
        return "result-2"

    @made.tool_plain
    async def t3() -> str:
        await asyncio.Event().wait()
        raise AssertionError("it hangs")

    return made


async def run(store_url: str, run_id: str) -> None:
    async with AsyncStore(store_url) as store:
        await agent(KillickStepStore(store)).run("Go.", run_id=run_id)


def in_the_third(store: Store) -> bool:
    sessions = store.sessions(type="hidden")
    notes = [note for info in sessions for note in store.session(info.id).notes()]
    effects = [note.data for note in notes if note.name == "pydantic_ai_harness.effect"]
    return any(one["tool_call_id"] == "c3" and one["status"] == "started" for one in effects)


def test_a_killed_run_leaves_its_steps_and_what_is_unresolved(tmp_path: Path) -> None:
    module = "tests.adapters.pydantic_ai.test_step_store"
    interrupting.kill_in_the_middle(module, tmp_path / "w.db", "seq", in_the_third)

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            steps = KillickStepStore(store)
            [record] = await steps.list_runs()
            unresolved = await steps.list_unresolved_tool_effects(run_id=record.run_id)
            assert [one.tool_call_id for one in unresolved] == ["c3"]
            before = await continue_run(steps, run_id=record.run_id)
            assert "result-2" in str(before)

    asyncio.run(main())


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], "run-1"))


# -- their own tests -----------------------------------------------------------------------------

_CLASS: Final = "asks that a spec with the backend `memory` makes an `InMemoryStepStore`"
ALLOWED: Final = {
    "test_from_spec_memory_backend": _CLASS,
    "test_from_spec_explicit_memory_backend_with_kwargs": _CLASS,
    "test_memory_backend_still_works": _CLASS,
}
"""Their tests that fail with ours and not with theirs, each with the reason."""


def test_the_page_names_each_with_its_reason() -> None:
    assert named_failures("step-store") == ALLOWED


@pytest.mark.timeout(600)
def test_their_own_tests_pass_as_with_their_own_store() -> None:
    folder = suite_of("pydantic-ai-harness")
    file = "tests/step_persistence/test_step_persistence.py"
    given = ("--noconftest", "-o", "anyio_mode=auto", "-o", "addopts=", file)
    ran = run_theirs(folder, Path(__file__).parent, *given)
    theirs = run_theirs(folder, Path(__file__).parent, *given, KILLICK_STEP_STORE="theirs")
    assert set(ran.failed) - set(theirs.failed) == set(ALLOWED)
    assert ran.passed == theirs.passed - len(ALLOWED)
    assert ran.counted("stores were Killick's") >= 42
