"""One run of `killick chat`: the store, the model, the session, and the signals that end it."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from signal import SIG_IGN, SIGHUP, SIGINT, SIGTERM, signal
from typing import Any

from prompt_toolkit.patch_stdout import patch_stdout

from killick.agent import agent_for
from killick.cli.chat.opening import find_session, new_session
from killick.cli.chat.talk import TERMINAL_CLOSED, TERMINATED, Talk
from killick.cli.frame import Frame
from killick.session.aio import AsyncStore


async def run_chat(
    frame: Frame, *, model: str | None, allowed: Sequence[str], **which: Any
) -> None:
    """Talk until the person leaves, or the terminal does."""
    where = frame.where()
    url = None if where.chosen_by == "default" else where.url
    async with AsyncStore(url) as store:
        found = await find_session(store, **which)
        async with agent_for(model, root=Path.cwd(), allowed=allowed) as agent:
            # Not before there is somebody to talk to: a chat that cannot begin leaves nothing.
            session = found or await new_session(store)
            talk = Talk(session, agent, url=url)
            with patch_stdout(raw=True), ended_by_signals(talk):
                await talk.say("note", f"{agent.name}. /help lists what you can do.")
                await talk.run()
            head = f"killick chat --session {talk.session.id}"
            with contextlib.suppress(OSError):  # a terminal that was closed takes no note
                frame.note(f"kept; '{head}' goes on")


@contextlib.contextmanager
def ended_by_signals(talk: Talk) -> Iterator[None]:
    """A terminal that is closed, or a request to end: leave as the person would.

    Ctrl+C is a key while a line is typed. While something is printed above it, the terminal makes
    a signal of it, which means the same.
    """
    loop = asyncio.get_running_loop()
    handlers: dict[int, Callable[[], None]] = {
        SIGTERM: partial(talk.leave, TERMINATED),
        SIGHUP: partial(talk.leave, TERMINAL_CLOSED),
        SIGINT: talk.interrupt,
    }
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
        # It is leaving already: one more Ctrl+C must not cut short what is being kept.
        signal(SIGINT, SIG_IGN)
