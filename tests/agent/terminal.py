"""A chat in a terminal of its own, typed to as a person types."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.cli.running import environment

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")
SECONDS = 50.0
"""How long something may take on a machine that does much else; nothing is asserted about it."""


class Terminal:
    """The command in a pty; everything it has shown is kept."""

    def __init__(
        self,
        *arguments: str,
        folder: Path,
        more: Mapping[str, str],
        python: Path = Path(sys.executable),
    ) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
        self.process = subprocess.Popen(
            [python, "-m", "killick.cli", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment({**more, "PROMPT_TOOLKIT_NO_CPR": "1"}),
            cwd=folder,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self._ours = ours
        self._shown = ""
        self._changed = threading.Condition()
        self._over = False
        self._hang_up, self._hung_up = os.pipe()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def enter(self, text: str) -> None:
        """A line, and the key after it."""
        self.type(text + "\r")

    def interrupt(self) -> None:
        self.type("\x03")

    def shows(self, text: str, *, after: int = 0) -> int:
        """Wait until this was shown; where it ends in all that was."""
        self.first_of((text,), after=after)
        return self.text.index(text, after) + len(text)

    def first_of(self, texts: Sequence[str], *, after: int) -> str:
        """Wait until one of these was shown; which."""

        def shown() -> list[str]:
            seen = self.text[after:]
            return [text for text in texts if text in seen]

        with self._changed:
            found = self._changed.wait_for(lambda: shown() or self._over, timeout=SECONDS)
            assert found, f"{texts!r}: not shown:\n{self.text[-3000:]}"
            assert shown(), f"it ended without {texts!r}:\n{self.text[-3000:]}"
            return shown()[0]

    @property
    def text(self) -> str:
        return ESCAPES.sub("", self._shown)

    def leave(self) -> int:
        """Ctrl+C twice; the exit code.

        Two at the same moment can be one for the system, which makes a signal of them; and on a
        machine that does much else, the second may come late. So it is tried again.
        """
        for _ in range(5):
            for wait in (0.5, 10.0):
                self.interrupt()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return self.process.wait(wait)
        raise AssertionError(f"it did not leave:\n{self.text[-3000:]}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(SECONDS)

    def close(self) -> int:
        """Close the window while the command runs in it; the exit code."""
        os.write(self._hung_up, b"x")
        self._reader.join()
        os.close(self._ours)
        return self.process.wait(SECONDS)

    def _read(self) -> None:
        while True:
            try:
                ready, _, _ = select.select([self._ours, self._hang_up], [], [])
                piece = os.read(self._ours, 65536) if self._hang_up not in ready else b""
            except OSError:  # the other side is closed
                piece = b""
            with self._changed:
                self._shown += piece.decode("utf-8", "replace")
                self._over = not piece
                self._changed.notify_all()
            if not piece:
                return
