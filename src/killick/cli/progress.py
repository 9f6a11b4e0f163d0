"""How far long work is, for a person who watches; nothing for a program or a file."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from killick.cli.frame import Frame

Tell = Callable[[int, int], None]
"""Called with what is done, and how much there is."""


@contextmanager
def progress(frame: Frame, label: str) -> Iterator[Tell | None]:
    """A bar on the terminal for as long as this lasts."""
    if frame.json or not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=1, label=label, file=sys.stderr, width=0) as bar:

        def tell(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        yield tell
