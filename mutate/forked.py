"""A plugin of pytest that collects tests once, and runs those that it is asked for in a fork each.

A bug is planted in the fork alone: the function with the change takes the place of the one without
it, wherever that is. Starting an interpreter for each bug would take longer than most tests.
"""

import contextlib
import gc
import os
import select
import signal
import sys
import time
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Final

import msgspec
import pytest

from mutate.asking import Answer, Planted, Request
from mutate.measuring import Measuring

_ANSWERS: Final = int(os.environ["MUTATE_ANSWERS"])
_PACKAGE: Final = os.environ["MUTATE_PACKAGE"] + os.sep


# -- functions that run when their module is imported: a change of these comes too late ------------

_imported: set[tuple[str, str]] = set()


def _note_call(frame: FrameType, event: str, _argument: object) -> None:
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(_PACKAGE):
        _imported.add((code.co_filename, code.co_qualname))


sys.setprofile(_note_call)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Answer requests until there are none any more; in a fork, go on with pytest's own loop."""
    sys.setprofile(None)
    items = {item.nodeid: item for item in session.items}
    _tell(Answer())
    for line in sys.stdin:
        request = msgspec.json.decode(line, type=Request)
        names = [*request.tests, *(n for n in items if n.partition("::")[0] == request.file)]
        unknown = [name for name in names if name not in items]
        answer = Answer(unknown=unknown)
        if not unknown:
            reads, writes = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(reads)
                os.setsid()
                session.items = [items[name] for name in names]
                return _prepare(session, request, writes)
            os.close(writes)
            answer = _wait(pid, reads, request.seconds)
        _tell(answer)
    return True


def _tell(answer: Answer) -> None:
    os.write(_ANSWERS, msgspec.json.encode(answer) + b"\n")


def _wait(pid: int, reads: int, seconds: float) -> Answer:
    """Return what a fork has said, once it has ended; end it when its time is over."""
    over = time.monotonic() + seconds
    said = b""
    ended = False
    while not ended and select.select([reads], [], [], max(0.0, over - time.monotonic()))[0]:
        more = os.read(reads, 65_536)
        said += more
        ended = not more
    os.close(reads)
    if not ended:
        os.kill(pid, signal.SIGKILL)  # it may not have a group of its own yet
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # what its tests have left behind
    if not ended:
        return Answer()
    if said:
        return msgspec.json.decode(said, type=Answer)
    return Answer(exit=os.waitstatus_to_exitcode(status) or -1)


# -- in the fork -----------------------------------------------------------------------------------


class _Telling:
    """A plugin that tells which test failed, and how it ended."""

    def __init__(self, writes: int) -> None:
        self._writes = writes
        self._failed: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self._failed is None:
            self._failed = report.nodeid

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        answer = Answer(int(exitstatus), self._failed)
        os.write(self._writes, msgspec.json.encode(answer))


def _prepare(session: pytest.Session, request: Request, writes: int) -> bool | None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    if request.planted is not None and not plant(request.planted):
        os.write(writes, msgspec.json.encode(Answer(planted=False)))
        os._exit(0)
    plugins = session.config.pluginmanager
    plugins.register(_Telling(writes))
    if request.measure is not None:
        plugins.register(Measuring(Path(_PACKAGE), Path(request.measure)))
    else:
        session.config.option.maxfail = 1
    return None


def plant(bug: Planted) -> bool:
    """Put the functions of a changed file in the place of those that were imported from it."""
    if (bug.file, bug.function) in _imported:
        return False
    if all(getattr(module, "__file__", None) != bug.file for module in [*sys.modules.values()]):
        return True  # who imports it, imports it with the change
    changed = _functions(compile(Path(bug.file).read_bytes(), bug.file, "exec"))
    outermost = bug.function.partition(".<locals>")[0]
    found = False
    for one in gc.get_objects():
        if type(one) is not FunctionType:
            continue
        code = one.__code__
        new = changed.get((code.co_qualname, code.co_firstlineno))
        # What stands behind the change may have moved by a line, and is as it was.
        if code.co_filename != bug.file or new is None or code.co_firstlineno > bug.line:
            continue
        if code.co_freevars != new.co_freevars or code.co_flags != new.co_flags:
            return False
        one.__code__ = new
        found = found or code.co_qualname in (outermost, bug.function)
    return found


def _functions(code: CodeType) -> dict[tuple[str, int], CodeType]:
    found = {(code.co_qualname, code.co_firstlineno): code}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found |= _functions(inner)
    return found
