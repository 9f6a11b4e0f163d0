"""Three turns that are cut off while something hangs, on both faces.

par: one reply calls three tools at once; two have finished, the third has started.
seq: three model calls with one tool each; the third tool has started.
str: an answer streams.
"""

import threading
from collections.abc import Awaitable, Callable

import anyio

from killick import AsyncSession, AsyncTurn, Session, ToolResult, Turn
from killick.model import entries as e
from tests.crash.journals import answers, check_sound, endings

PROMPT = "Why does the build fail?"
Hang = Callable[[], None]
HangAsync = Callable[[], Awaitable[None]]
CHUNKS = [f"word{number} " for number in range(40)]


# -- the synchronous face ----------------------------------------------------------------------


def par(session: Session, hang: Hang) -> None:
    with session.turn(PROMPT) as turn:
        with turn.stream() as reply:
            reply.text("Three at once.")
            for call_id in ("call_1", "call_2", "call_3"):
                reply.tool_call(call_id, name="shell", arguments='{"command": "make"}')
        with turn.tool("call_3") as call:
            others = [
                threading.Thread(target=_finish, args=(turn, "call_1", "one")),
                threading.Thread(target=_finish, args=(turn, "call_2", "two")),
            ]
            for other in others:
                other.start()
            for other in others:
                other.join()
            call.output("compiling…\n")
            hang()


def _finish(turn: Turn, call_id: str, result: str) -> None:
    with turn.tool(call_id) as call:
        call.finish(result)


def seq(session: Session, hang: Hang) -> None:
    with session.turn(PROMPT) as turn:
        for number in (1, 2, 3):
            with turn.stream() as reply:
                reply.text(f"Step {number}.")
                reply.tool_call(f"call_{number}", name="shell", arguments="{}")
            with turn.tool(f"call_{number}") as call:
                if number == 3:
                    call.output("compiling…\n")
                    hang()
                call.finish(f"result {number}")


def str_(session: Session, hang: Hang) -> None:
    with session.turn(PROMPT) as turn, turn.stream() as reply:
        for chunk in CHUNKS:
            reply.text(chunk)
        hang()


SYNC = {"par": par, "seq": seq, "str": str_}


# -- the asynchronous face ---------------------------------------------------------------------


async def par_async(session: AsyncSession, hang: HangAsync) -> None:
    async with session.turn(PROMPT) as turn:
        async with turn.stream() as reply:
            reply.text("Three at once.")
            for call_id in ("call_1", "call_2", "call_3"):
                reply.tool_call(call_id, name="shell", arguments='{"command": "make"}')
        async with anyio.create_task_group() as tools:
            done = [anyio.Event(), anyio.Event()]
            tools.start_soon(_hang_in_tool, turn, "call_3", done, hang)
            tools.start_soon(_finish_async, turn, "call_1", "one", done[0])
            tools.start_soon(_finish_async, turn, "call_2", "two", done[1])


async def _finish_async(turn: AsyncTurn, call_id: str, result: str, done: anyio.Event) -> None:
    async with turn.tool(call_id) as call:
        await call.finish(result)
    done.set()


async def _hang_in_tool(
    turn: AsyncTurn, call_id: str, others: list[anyio.Event], hang: HangAsync
) -> None:
    async with turn.tool(call_id) as call:
        call.output("compiling…\n")
        for other in others:
            await other.wait()
        await hang()


async def seq_async(session: AsyncSession, hang: HangAsync) -> None:
    async with session.turn(PROMPT) as turn:
        for number in (1, 2, 3):
            async with turn.stream() as reply:
                reply.text(f"Step {number}.")
                reply.tool_call(f"call_{number}", name="shell", arguments="{}")
            async with turn.tool(f"call_{number}") as call:
                if number == 3:
                    call.output("compiling…\n")
                    await hang()
                await call.finish(f"result {number}")


async def str_async(session: AsyncSession, hang: HangAsync) -> None:
    async with session.turn(PROMPT) as turn, turn.stream() as reply:
        for chunk in CHUNKS:
            reply.text(chunk)
        await hang()


ASYNC = {"par": par_async, "seq": seq_async, "str": str_async}


# -- what must be there afterwards -------------------------------------------------------------


def check(name: str, session: Session, reason: str) -> None:
    """Everything that was done before the cut, and exactly one ending that says why."""
    check_sound(session)
    assert endings(session) == [("interrupted", reason)]
    assert [turn.status for turn in session.turns()] == ["interrupted"]
    prompt = session.messages()[0]
    assert (prompt.role, prompt.text, prompt.state) == ("user", PROMPT, "complete")
    {"par": _check_par, "seq": _check_seq, "str": _check_str}[name](session)


def _check_par(session: Session) -> None:
    [reply] = answers(session)
    assert reply.state == "complete"
    assert [call.id for call in reply.tool_calls] == ["call_1", "call_2", "call_3"]
    assert _results(session) == {"call_1": "one", "call_2": "two"}
    assert _started(session) == {"call_1", "call_2", "call_3"}
    assert _printed(session) == {"call_3": "compiling…\n"}


def _check_seq(session: Session) -> None:
    assert [reply.text for reply in answers(session)] == ["Step 1.", "Step 2.", "Step 3."]
    assert all(reply.state == "complete" for reply in answers(session))
    assert _results(session) == {"call_1": "result 1", "call_2": "result 2"}
    assert _started(session) == {"call_1", "call_2", "call_3"}
    assert _printed(session) == {"call_3": "compiling…\n"}


def _check_str(session: Session) -> None:
    [reply] = answers(session)
    assert (reply.state, reply.text) == ("partial", "".join(CHUNKS))
    assert len(reply.parts) == 1


def _results(session: Session) -> dict[str, object]:
    found = [part for m in session.messages() for part in m.parts if isinstance(part, ToolResult)]
    assert len({part.call_id for part in found}) == len(found)
    return {part.call_id: part.content for part in found}


def _started(session: Session) -> set[str]:
    found = [x.body.call_id for x in session.entries() if isinstance(x.body, e.ToolStarted)]
    assert len(set(found)) == len(found)
    return set(found)


def _printed(session: Session) -> dict[str, str]:
    bodies = [x.body for x in session.entries() if isinstance(x.body, e.ToolOutput)]
    return {body.call_id: body.output for body in bodies}
