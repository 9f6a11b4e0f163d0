"""An exception at each place where CPython could run a signal handler: a KeyboardInterrupt, if
nobody says otherwise.

The interpreter looks for signals when a function begins, when a loop goes back, and after a call.
The trace function sees every instruction, so these places can be counted and visited one by one;
an exception that it raises appears where the handler's would.

Python takes a trace function away that has raised. A profile function, which Python keeps, puts it
back at the next call or return, so that a second and a third exception come too.
"""

import _weakrefset
import dis
import sys
import threading
import weakref
from collections.abc import Callable
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
        self._outermost: FrameType | None = None

    def run(self, function: Callable[[], None]) -> None:
        """Call the function with the trace on; what it raises goes on."""
        before, profiled = sys.gettrace(), sys.getprofile()
        self._outermost = sys._getframe()
        sys.settrace(self._begin)
        sys.setprofile(self._put_back)
        try:
            function()
        finally:
            sys.setprofile(profiled)
            sys.settrace(before)
            self._last.clear()
            self._outermost = None

    def _put_back(self, frame: FrameType, event: str, _arg: Any) -> None:
        if sys.gettrace() is not None or not self.fired:
            return
        sys.settrace(self._begin)
        below = frame if event != "return" else frame.f_back
        while below is not None and below is not self._outermost:
            if below.f_trace is None:
                below.f_trace = self._begin(below, "call", None)
            below = below.f_back

    def _begin(self, frame: FrameType, event: str, _arg: Any) -> Any:
        name = frame.f_code.co_filename
        if name.startswith((self._here, *_PYTHONS_OWN)) or not name.startswith(self._within):
            return None  # neither is the test itself what is tested
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if event in ("return", "exception"):  # a call that raises does not look for signals
            self._last.pop(frame, None)
        elif event == "opcode":
            last = self._last.get(frame)
            self._last[frame] = frame.f_lasti
            if last is not None and last in self._places(frame.f_code):
                self._visit(frame)
        return self._step

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
