"""fork() with a store open: the child opens its own connections, the parent keeps its."""

import os
import subprocess
import sys

from killick import Store
from tests.crash.journals import endings
from tests.crash.processes import ROOT
from tests.postgres_fixtures import Shared

PROGRAM = """
import os, sys
from killick import ForeignHandle, Message, Store, Text

store = Store(sys.argv[1])
session = store.create_session(id="parent")
with session.turn("go") as turn:
    turn.record(Message("assistant", [Text("before")]))
    pid = os.fork()
    if pid == 0:
        try:
            turn.record(Message("assistant", [Text("stolen")]))
        except ForeignHandle:
            pass
        with store.create_session(id="child").turn("mine"):
            pass
        store.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    turn.record(Message("assistant", [Text("after")]))
print([message.text for message in session.messages()])
store.close()
"""


def test_parent_and_child_go_their_own_ways(server: Shared) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, server.server.url()],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "['go', 'before', 'after']\n"
    with Store(server.server.url()) as store:
        for name in ("parent", "child"):
            assert endings(store.session(name)) == [("completed", None)]
