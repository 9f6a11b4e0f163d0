"""What a server does beside requests: damage is told in its log, rules of retention are applied."""

import asyncio
import logging
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from killick import AsyncStore, Store
from killick.server.log import LOGGER, Log
from killick.server.upkeep import StoreUpkeep


def fill(path: Path) -> None:
    with Store(path) as store:
        for name in ("good", "bad"):
            with store.create_session(id=name).turn("Hello there."):
                pass


def test_damage_is_named_in_the_log_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "work.db"
    fill(path)
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE entries SET crc = crc + 1 WHERE session = 2 AND seq = 2")
    assert connection.changes() == 1
    connection.close()

    counted: list[int] = []

    async def run() -> None:
        async with AsyncStore(path) as store:
            await StoreUpkeep(store, Log(), {}, counted.append).verify()
            assert (await (await store.session("good")).info()).title is None

    with caplog.at_level(logging.INFO, LOGGER.name):
        asyncio.run(run())
    said = {record.getMessage(): record.__dict__["fields"] for record in caplog.records}
    assert said["session_damaged"]["session"] == "bad"
    assert said["verified"]["sessions"] == 2
    assert said["verified"]["damaged"] == 1
    assert counted[-1] == 1


def test_a_store_that_cannot_be_read_now_is_verified_the_next_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path / "work.db")

    async def run() -> None:
        async with AsyncStore(tmp_path / "work.db") as store:
            pass
        task = asyncio.create_task(StoreUpkeep(store, Log(), {}).verify_every(0))
        while len(caplog.records) < 2:
            assert not task.done()
            await asyncio.sleep(0)
        task.cancel()

    with caplog.at_level(logging.INFO, LOGGER.name):
        asyncio.run(run())
    assert {record.getMessage() for record in caplog.records} == {"verify_failed"}


def test_rules_of_retention_are_applied(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "work.db"
    fill(path)

    async def run() -> None:
        async with AsyncStore(path) as store:
            await store.set_retention(idle_after=timedelta(0))
            task = asyncio.create_task(StoreUpkeep(store, Log(), {}).apply_retention_every(3_600))
            while await store.sessions():
                assert not task.done()
                await asyncio.sleep(0)
            task.cancel()

    asyncio.run(run())
