"""Turns of servers that died are closed by whoever is left, also after a store that failed once."""

import asyncio
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from killick import AsyncStore, StoreBusy
from killick.server.log import Log
from killick.server.runner import Recovery

_DIES = """
import os, sys
from killick import Store

session = Store(sys.argv[1]).create_session(id="dead")
turn = session.turn("go")
turn.__enter__()
os._exit(0)
"""


def test_a_dead_turn_is_not_forgotten_when_the_store_was_busy(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    subprocess.run([sys.executable, "-c", _DIES, str(path)], check=True)

    async def main() -> None:
        async with AsyncStore(path, lock_wait_seconds=0.05) as store:
            keeper = Recovery(store, Log())
            somebody = apsw.Connection(str(path))
            somebody.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusy):
                await keeper.look()
            assert (await store.session_info("dead")).status == "running"
            somebody.close()
            await keeper.look()
            assert (await store.session_info("dead")).status == "interrupted"

    asyncio.run(main())
