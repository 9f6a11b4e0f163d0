"""The thread that writes: nothing but closing ends it, and if something does, nobody waits on."""

import ast
import inspect
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import ModuleType

import pytest

from killick import Message, Store, Text
from killick.errors import StoreDegraded
from killick.search import documents
from killick.stores import writer
from killick.stores.writer import Writer


def _said(text: str) -> Message:
    return Message(role="assistant", parts=[Text(text)])


def test_indexing_survives_a_process_without_descriptors(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import os, resource, sys
        from pathlib import Path
        from killick import Message, Store, Text

        with Store(Path(sys.argv[1])) as store:
            with store.create_session().turn("go") as turn:
                soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
                free = os.dup(0)
                os.close(free)
                resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
                store._core.runtime().writer._behind.index()
                turn.record(Message(role="assistant", parts=[Text("needle")]))
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        print("written")
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "s.db")],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "written\n"), done.stderr


@pytest.mark.parametrize("module", [writer, documents])
def test_the_thread_imports_nothing(module: ModuleType) -> None:
    """A fork in the middle of an import leaves its child with a lock that nobody gives back."""
    tree = ast.parse(inspect.getsource(module))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    late = [
        f"{function.name}, line {node.lineno}"
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert late == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_when_it_dies_all_who_wait_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("no room")

    with Store(tmp_path / "s.db") as store:
        session = store.create_session()
        turn = session.turn("go")
        turn.__enter__()
        turn.record(_said("before"))
        monkeypatch.setattr(Writer, "_settle", fail)
        told: list[str] = []

        def write(number: int) -> None:
            try:
                turn.record(_said(f"{number}"))
            except StoreDegraded as error:
                told.append(str(error))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        with pytest.raises(StoreDegraded, match=r"thread that writes has ended.*no room"):
            turn.record(_said("after"))
    assert len(told) == 4
    monkeypatch.undo()
    with Store(tmp_path / "s.db") as store:
        kept = store.session(session.id)
        assert kept.turns()[0].status == "interrupted"
        assert Text("before") in [part for message in kept.messages() for part in message.parts]
