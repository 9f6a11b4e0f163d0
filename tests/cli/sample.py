"""A store with something of everything in it."""

from pathlib import Path
from typing import NamedTuple

from killick import Project, Session, Store, Usage

HOSTILE = (
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J \u202egnp.exe \u2066x\u2069 \x7f \ud800 \u200b"
)
FORBIDDEN = ("\x1b", "\x07", "\x9b", "\u202e", "\u2066", "\u2069", "\x7f", "\ud800", "\u200b")


class Sample(NamedTuple):
    """Where the store is, and the ids of its sessions, in the order in which they were made."""

    path: Path
    build: str
    hostile: str
    empty: str


def make_sample(path: Path) -> Sample:
    with Store(path) as store:
        build = store.create_session(
            title="Fix the build", project=Project(root="/srv/build"), tags=("release",)
        )
        record_build(build)
        hostile = store.create_session(title=HOSTILE, type="scheduled", tags=(HOSTILE,))
        with hostile.turn(HOSTILE) as turn, turn.stream(model=HOSTILE) as reply:
            reply.text(HOSTILE)
            reply.tool_call("c", name=HOSTILE, arguments='{"x": "\u202e"}')
        empty = store.create_session(title="Nothing yet")
        return Sample(path, build.id, hostile.id, empty.id)


def record_build(session: Session) -> None:
    """A turn with a failed tool and a retried model call, and one that was interrupted."""
    with session.turn("Why does the build fail?") as turn:
        with turn.stream(provider="acme", model="small") as reply:
            reply.reasoning("The log will say.")
            reply.text("Let me look.")
            reply.tool_call("c1", name="shell", arguments='{"command": "make"}')
            reply.finish(usage=Usage(input=1200, output=34, cost=0.25))
        with turn.tool("c1") as call:
            call.output("compiling\n")
            call.finish("\n".join(f"line {n}" for n in range(1, 31)), is_error=True)
        with turn.stream(provider="acme", model="small", attempt=2) as reply:
            reply.text("The linker is missing.")
    try:
        with session.turn("Install it.") as turn:
            with turn.stream(provider="acme", model="big") as reply:
                reply.tool_call("c2", name="apt", arguments="{}")
            with turn.tool("c2") as call:
                call.output("unpacking")
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
