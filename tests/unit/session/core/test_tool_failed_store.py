"""An error of ours is never a tool's result; what the tool gave is written when the store can."""

# ruff: noqa: PT012, SIM117  (the blocks that an exception leaves are what is tested)

import asyncio
import contextlib
from pathlib import Path

import apsw
import pytest

from killick import AsyncStore, KillickError, Session, Store, StoreBusy, StoreDegraded, Turn
from killick.stores.memory import MemoryDisk
from killick.stores.sqlite import SqliteDatabase
from killick.testing.faults import Failpoints, crash

PAID = "paid, receipt 4711"


def call_in(turn: Turn) -> None:
    with turn.stream() as reply:
        reply.tool_call("c", name="pay", arguments="{}")


def pay_on_a_failing_disk(session: Session, disk: Failpoints) -> None:
    with session.turn("pay") as turn:
        call_in(turn)
        with turn.tool("c") as call:
            disk.fail_at = 0
            call.finish(PAID)


def results(session: Session) -> list[tuple[object, bool]]:
    tools = [message for message in session.messages() if message.role == "tool"]
    return [(part.content, part.is_error) for tool in tools for part in tool.parts]  # type: ignore[union-attr]


def test_a_result_that_could_not_be_written_is_written_later() -> None:
    disk = Failpoints(MemoryDisk().open(), lasting=True)
    with Store(disk) as store:
        session = store.create_session()
        with pytest.raises(StoreDegraded):
            pay_on_a_failing_disk(session, disk)
        disk.fail_at = None
        with session.turn("next"):
            pass
        assert results(session) == [(PAID, False)]
        assert store.counts()["deltas"] == 0


def test_the_same_result_again_is_the_same() -> None:
    disk = Failpoints(MemoryDisk().open(), lasting=True)
    with Store(disk) as store:
        session = store.create_session()
        with session.turn("pay") as turn:
            call_in(turn)
            with turn.tool("c") as call:
                disk.fail_at = 0
                with pytest.raises(StoreDegraded):
                    call.finish(PAID)
                disk.fail_at = None
                call.finish(PAID)
        assert results(session) == [(PAID, False)]
        assert [turn.status for turn in session.turns()] == ["completed"]


def test_a_block_whose_result_waits_may_be_left() -> None:
    disk = Failpoints(MemoryDisk().open(), lasting=True)
    with Store(disk) as store:
        session = store.create_session()
        with session.turn("pay") as turn:
            call_in(turn)
            with turn.tool("c") as call:
                disk.fail_at = 0
                with pytest.raises(StoreDegraded):
                    call.finish(PAID)
            disk.fail_at = None
        assert results(session) == [(PAID, False)]


@pytest.mark.parametrize(
    "error",
    [
        StoreDegraded("/a/path"),
        KillickError("ours"),
        ExceptionGroup("of tasks", [ExceptionGroup("", [StoreDegraded("/a/path")])]),
        BaseExceptionGroup("", [KillickError("ours"), asyncio.CancelledError()]),
    ],
)
def test_an_error_of_ours_leaves_the_outcome_unknown(error: BaseException) -> None:
    with Store(MemoryDisk().open()) as store:
        session = store.create_session()
        with pytest.raises(type(error)), session.turn("pay") as turn:
            call_in(turn)
            with turn.tool("c"):
                raise error
        assert results(session) == []
        assert "outcome is unknown" in " ".join(map(str, session.context("anthropic").repairs))


def test_tools_that_are_run_keep_their_results_too() -> None:
    disk = Failpoints(MemoryDisk().open(), lasting=True)

    def pay() -> str:
        disk.fail_at = 0
        return PAID

    with Store(disk) as store:
        session = store.create_session()
        with pytest.raises(StoreDegraded), session.turn("pay") as turn:
            with turn.stream() as reply, turn.run_tools(reply, {"pay": pay}):
                reply.tool_call("c", name="pay", arguments="{}")
        disk.fail_at = None
        with session.turn("next"):
            pass
        assert results(session) == [(PAID, False)]


def test_both_faces_keep_a_result_that_waits() -> None:
    disk = Failpoints(MemoryDisk().open(), lasting=True)

    async def pay() -> None:
        async with AsyncStore(disk) as store:
            session = await store.create_session(id="s")
            with pytest.raises(StoreDegraded):
                async with session.turn("pay") as turn:
                    async with turn.stream() as reply:
                        reply.tool_call("c", name="pay", arguments="{}")
                    async with turn.tool("c") as call:
                        disk.fail_at = 0
                        await call.finish(PAID)
            disk.fail_at = None
            async with session.turn("next"):
                pass
            found = [m.parts[0] for m in await session.messages() if m.role == "tool"]
            assert [part.content for part in found] == [PAID]  # type: ignore[union-attr]

    asyncio.run(pay())


def test_a_result_is_kept_if_its_giver_is_cancelled_and_the_store_fails() -> None:
    disk = Failpoints(MemoryDisk().open(), lasting=True)

    async def pay() -> None:
        async with AsyncStore(disk) as store:
            session = await store.create_session(id="s")

            async def turn_of_task() -> None:
                async with session.turn("pay") as turn:
                    async with turn.stream() as reply:
                        reply.tool_call("c", name="pay", arguments="{}")
                    async with turn.tool("c") as call:
                        disk.fail_at = 0
                        asyncio.get_running_loop().call_soon(task.cancel)
                        await call.finish(PAID)

            task = asyncio.create_task(turn_of_task())
            with pytest.raises(asyncio.CancelledError):
                await task
            disk.fail_at = None
            async with session.turn("next"):
                pass
            found = [m.parts[0] for m in await session.messages() if m.role == "tool"]
            assert [part.content for part in found] == [PAID]  # type: ignore[union-attr]

    asyncio.run(pay())


PATH = "/home/ann/secret/store.db"
OURS = StoreDegraded(f"{PATH}: the disk is full")
MIXED = [
    ExceptionGroup("of tasks", [OURS, ValueError("wrong card")]),
    ExceptionGroup("of tasks", [ExceptionGroup("", [OURS, ValueError("wrong card")]), OURS]),
]


@pytest.mark.parametrize("error", MIXED)
def test_nothing_of_ours_in_a_group_goes_into_a_result(error: ExceptionGroup[Exception]) -> None:
    with Store(MemoryDisk().open()) as store:
        session = store.create_session()
        with pytest.raises(ExceptionGroup), session.turn("pay") as turn:
            call_in(turn)
            with turn.tool("c"):
                raise error
        assert results(session) == [("ValueError: wrong card", True)]


@pytest.mark.parametrize("error", [*MIXED, ExceptionGroup("of tasks", [OURS])])
@pytest.mark.parametrize("face", ["synchronous", "asynchronous"])
def test_nothing_of_ours_in_a_group_goes_into_the_result_of_a_tool_that_is_run(
    error: ExceptionGroup[Exception], face: str
) -> None:
    disk = MemoryDisk()
    alone = error not in MIXED

    def pay() -> None:
        raise error

    def in_threads() -> None:
        with Store(disk.open()) as store, store.create_session(id="s").turn("pay") as turn:
            with turn.stream() as reply, turn.run_tools(reply, {"pay": pay}):
                reply.tool_call("c", name="pay", arguments="{}")

    async def in_tasks() -> None:
        async with AsyncStore(disk.open()) as store:
            async with (await store.create_session(id="s")).turn("pay") as turn:
                async with turn.stream() as reply, turn.run_tools(reply, {"pay": pay}):
                    reply.tool_call("c", name="pay", arguments="{}")

    with pytest.raises(ExceptionGroup) if alone else contextlib.nullcontext():
        in_threads() if face == "synchronous" else asyncio.run(in_tasks())
    with Store(disk.open()) as store:
        session = store.session("s")
        assert results(session) == ([] if alone else [("ValueError: wrong card", True)])
        assert PATH not in str(session.context("anthropic").messages)


def test_a_result_that_another_program_kept_from_being_written(tmp_path: Path) -> None:
    """StoreBusy, raised and not recorded; the result is there when the file is free."""
    path = tmp_path / "work.db"
    with Store(SqliteDatabase(path, wait_seconds=0.05)) as store:
        session = store.create_session()
        other = apsw.Connection(str(path))
        with pytest.raises(StoreBusy), session.turn("pay") as turn:
            call_in(turn)
            with turn.tool("c") as call:
                other.execute("BEGIN IMMEDIATE")
                call.finish(PAID)
        other.execute("ROLLBACK")
        with session.turn("next"):
            pass
        assert results(session) == [(PAID, False)]
        other.close()


def test_if_the_process_dies_first_the_outcome_is_unknown_and_can_still_be_recorded() -> None:
    memory = MemoryDisk()
    disk = Failpoints(memory.open(), lasting=True)
    store = Store(disk)
    session = store.create_session(id="s")
    with pytest.raises(StoreDegraded):
        pay_on_a_failing_disk(session, disk)
    crash(store)
    with Store(memory.open()) as store:
        session = store.session("s")
        [turn] = session.turns()
        assert (turn.status, turn.cause) == ("interrupted", "crashed")
        assert results(session) == []
        assert "outcome is unknown" in " ".join(map(str, session.context("anthropic").repairs))
        session.finish_tool(turn.id, "c", PAID)
        assert results(session) == [(PAID, False)]


def test_a_result_that_waits_when_its_holder_is_fenced_out_is_late() -> None:
    memory = MemoryDisk()
    disk = Failpoints(memory.open(), lasting=True)
    with Store(disk) as store, Store(memory.open()) as other:
        session = store.create_session(id="s")
        with pytest.raises(StoreDegraded), session.turn("pay") as turn:
            call_in(turn)
            with turn.tool("c") as call:
                disk.fail_at = 0
                try:
                    call.finish(PAID)
                finally:
                    with other.session("s").turn("mine", if_busy="take_over"):
                        disk.fail_at = None
                        store.create_session()  # behind what waits
        assert results(session) == [(PAID, False)]
        assert [entry.kind for entry in session.entries()].count("late_result") == 1
        assert [turn.cause for turn in session.turns()] == ["taken_over", None]
