"""An exception at each place where CPython could run a signal handler: a KeyboardInterrupt, if
nobody says otherwise.

The interpreter looks for signals when a function begins, when a loop goes back, and after a call.
Whoever is told of every instruction can count these places and visit them one by one; an exception
that it raises appears where the handler's would.

Python 3.12 and newer tell a monitor. Before, it is a trace function, which is taken away when it
has raised. A profile function, which Python keeps, puts it back at the next call or return, so that
a second and a third exception come too.
"""

import _weakrefset
import dis
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

_CHECKS = frozenset(
    name
    for name in dis.opname
    if name in ("RESUME", "CALL_FUNCTION_EX")
    or (name.startswith("CALL") and "INTRINSIC" not in name)
    or "JUMP_BACKWARD" in name
)


_PYTHONS_OWN = tuple(str(module.__file__) for module in (threading, weakref, _weakrefset))
"""A signal that lands in these breaks Python's own locks, or is printed in a finaliser and lost."""


class Interrupter:
    """Counts the places that a function comes by on this thread; raises at those it is given."""

    def __init__(
        self,
        at: set[int],
        here: str,
        kind: type[BaseException] = KeyboardInterrupt,
        *,
        within: str = "",
    ) -> None:
        self.count = 0
        self.fired: list[str] = []
        self._at = at
        self._here = here
        self._kind = kind
        self._within = within
        self._checks: dict[CodeType, set[int]] = {}
        self._last: dict[FrameType, int] = {}

    def run(self, function: Callable[[], object]) -> None:
        """Call the function while every instruction is told of; what it raises goes on."""
        watching = _monitoring if sys.version_info >= (3, 12) else _tracing
        try:
            with watching(self):
                function()
        finally:
            self._last.clear()

    def concerns(self, code: CodeType) -> bool:
        if code.co_name == "__del__":
            return False  # what is raised there is printed and lost
        name = code.co_filename  # neither is the test itself what is tested
        outside = (self._here, __file__, *_PYTHONS_OWN)
        return not name.startswith(outside) and name.startswith(self._within)

    def step(self, frame: FrameType, offset: int) -> None:
        """The instruction at this offset is next. It may come to nothing."""
        last = self._last.get(frame)
        self._last[frame] = offset
        if last is not None and last in self._places(frame.f_code):
            self._visit(frame)

    def leave(self, frame: FrameType) -> None:
        """It returns, or something is raised in it: then nobody looks for signals."""
        self._last.pop(frame, None)

    def _places(self, code: CodeType) -> set[int]:
        found = self._checks.get(code)
        if found is None:
            found = {one.offset for one in dis.get_instructions(code) if one.opname in _CHECKS}
            self._checks[code] = found
        return found

    def _visit(self, frame: FrameType) -> None:
        self.count += 1
        if self.count in self._at:
            self.fired.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
            raise self._kind


@contextmanager
def _tracing(told: Interrupter) -> Iterator[None]:
    before, profiled = sys.gettrace(), sys.getprofile()
    outermost = sys._getframe(2)  # of whoever has the block

    def begin(frame: FrameType, _event: str, _arg: Any) -> Any:
        if not told.concerns(frame.f_code):
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return step

    def step(frame: FrameType, event: str, _arg: Any) -> Any:
        if event in ("return", "exception"):
            told.leave(frame)
        elif event == "opcode":
            told.step(frame, frame.f_lasti)
        return step

    def put_back(frame: FrameType, event: str, _arg: Any) -> None:
        if sys.gettrace() is not None or not told.fired:
            return
        sys.settrace(begin)
        below = frame if event != "return" else frame.f_back
        while below is not None and below is not outermost:
            if below.f_trace is None:
                below.f_trace = begin(below, "call", None)
            below = below.f_back

    sys.settrace(begin)
    sys.setprofile(put_back)
    try:
        yield
    finally:
        sys.setprofile(profiled)
        sys.settrace(before)


@contextmanager
def _monitoring(told: Interrupter) -> Iterator[None]:
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    events, tool, here = monitoring.events, monitoring.DEBUGGER_ID, threading.get_ident()

    def step(code: CodeType, offset: int) -> None:
        if threading.get_ident() == here and told.concerns(code):
            told.step(sys._getframe(1), offset)

    def leave(code: CodeType, *_: object) -> None:
        if threading.get_ident() == here and told.concerns(code):
            told.leave(sys._getframe(1))

    leaving = (events.PY_RETURN, events.PY_YIELD, events.RAISE, events.PY_UNWIND)
    monitoring.use_tool_id(tool, "interrupter")
    monitoring.register_callback(tool, events.INSTRUCTION, step)
    for event in leaving:
        monitoring.register_callback(tool, event, leave)
    monitoring.set_events(tool, events.INSTRUCTION | sum(leaving))
    try:
        yield
    finally:
        monitoring.set_events(tool, events.NO_EVENTS)
        for event in (events.INSTRUCTION, *leaving):
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)
