"""LangGraph's checkpoints in a store, by its own suites where they are here."""

import asyncio
import operator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph", reason="langgraph is not installed here: make adapters")

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.graph import END, START, StateGraph

from killick import AsyncStore, Store
from killick.adapters.langgraph import KillickSaver
from tests.adapters.upstreams import run_theirs, suite_of


def test_all_capabilities_of_the_conformance_suite(tmp_path: Path) -> None:
    @checkpointer_test(name="killick")
    async def ours() -> Any:
        async with AsyncStore(tmp_path / "w.db") as store:
            yield KillickSaver(store)

    report = asyncio.run(validate(ours))
    by_name = report.results
    assert len(by_name) >= 8
    assert {name for name, found in by_name.items() if not found.passed} == set()
    assert sum(found.tests_passed for found in by_name.values()) >= 81
    assert sum(found.tests_failed for found in by_name.values()) == 0


class State(TypedDict):
    messages: Annotated[list[str], operator.add]


def graph(saver: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("answer", lambda state: {"messages": ["a" * 500]})
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


def test_a_conversation_that_grows_is_stored_once(tmp_path: Path) -> None:
    """Twice the turns take about twice the room; a fresh saver has all of it."""
    sizes = []
    for turns in (20, 40):
        path = tmp_path / f"{turns}.db"
        with Store(path) as store:
            made = graph(KillickSaver(store))
            for number in range(turns):
                said = f"{number:04}" + "q" * 496
                made.invoke({"messages": [said]}, {"configurable": {"thread_id": "t"}})
        with Store(path) as store:
            values = graph(KillickSaver(store)).get_state({"configurable": {"thread_id": "t"}})
            assert len(values.values["messages"]) == 2 * turns
            entries = store.session("t").entries()
            sizes.append(sum(len(str(entry.body)) for entry in entries))
    assert sizes[1] < 2.2 * sizes[0]


def test_threads_of_a_pool_write_at_once(tmp_path: Path) -> None:
    with Store(tmp_path / "w.db") as store:
        saver = KillickSaver(store)
        config: dict[str, Any] = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        stored = saver.put(config, empty_checkpoint(), {"source": "input", "step": -1}, {})
        with ThreadPoolExecutor(8) as pool:
            tasks = [
                pool.submit(saver.put_writes, stored, [("c", number)], f"task-{number:02}")
                for number in range(32)
            ]
            for task in tasks:
                task.result()
        found = saver.get_tuple(config)
        assert found is not None
        assert [value for _, _, value in found.pending_writes or ()] == list(range(32))


def test_pruned_checkpoints_stay_in_the_journal(tmp_path: Path) -> None:
    with Store(tmp_path / "w.db") as store:
        saver = KillickSaver(store)
        made = graph(saver)
        config: dict[str, Any] = {"configurable": {"thread_id": "t"}}
        made.invoke({"messages": ["one"]}, config)
        before = len(store.session("t").entries())
        saver.prune(["t"])
        assert len(list(saver.list(config))) == 1
        assert len(store.session("t").entries()) == before + 1
        saver.delete_thread("t")
        assert saver.get_tuple(config) is None


@pytest.mark.timeout(600)
def test_their_engine_runs_as_with_their_own_saver() -> None:
    """Nothing of theirs fails; those of their AES are left out, which is not the saver's."""
    folder = suite_of(f"langgraph-{version('langgraph')}")
    files = ("tests/test_pregel.py", "tests/test_pregel_async.py")
    ran = run_theirs(
        folder, Path(__file__).parent, "-k", "sqlite and not aes", *files, NO_DOCKER="true"
    )
    assert ran.failed == {}
    assert ran.passed >= 258
    assert ran.counted("savers were Killick's") >= 252
