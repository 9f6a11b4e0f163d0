"""Turns of a session as the events of AG-UI, for front ends that speak it.

    async for event in run_events(session, turn.id):
        yield event.encode()  # in a route of your own, as text/event-stream

`run_events` gives a turn as one run: the same events live, from the middle on and when all is over.
`snapshot` gives the conversation so far. Both are made of the journal, so that a client that was
away misses nothing. They need no package: the events are plain objects.
"""

from killick.adapters.ag_ui.run_events import RunEvent, find_run, run_events
from killick.adapters.ag_ui.translate import snapshot

__all__ = ["RunEvent", "find_run", "run_events", "snapshot"]
