"""Three scenarios, interrupted by a cancel and by kill -9, with each official SDK.

par: one answer with three calls at once; two return, the third hangs.
seq: three answers with one call each; two return, the third hangs.
str: two finished calls, then an answer that stops in the middle, more than ten words in.
"""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from killick import Session, Store, ToolResult
from killick.model import entries as e
from killick.views import validators
from tests.recorders.agent import SESSION, run
from tests.recorders.clients import SHAPES
from tests.recorders.saying import answer
from tests.recorders.server import Script, Scripted

ROOT = Path(__file__).parents[2]
WORDS = [f"word{number} " for number in range(50)]
SHOWN = 12
CELLS = [(shape, name) for shape in SHAPES for name in ("par", "seq", "str")]


def scripts(shape: str, name: str) -> list[Script]:
    one, two, three = [(f"call_{number}", f"t{number}") for number in (1, 2, 3)]
    if name == "par":
        return [answer(shape, ["TURN-TEXT"], [one, two, three])]
    first = [answer(shape, ["TURN-TEXT"], [one]), answer(shape, ["TURN-TEXT"], [two])]
    if name == "seq":
        return [*first, answer(shape, ["TURN-TEXT"], [three])]
    return [*first, answer(shape, WORDS[:SHOWN], stalls=True)]


def wait_for_words(store: Store) -> None:
    """Until the words that were shown are on the disk."""
    said = ""
    while True:
        try:
            session = store.session(SESSION)
        except LookupError:
            continue
        for followed in session.follow():
            said += getattr(followed, "text", "") if followed.kind == "delta" else ""
            if WORDS[SHOWN - 1] in said:
                return


def check(session: Session, shape: str, name: str, reason: str) -> None:
    """The prompt, every finished result, partial text, one ending, a valid next request."""
    messages = session.messages()
    assert messages[0].text == "PROMPT-1"
    results = [
        (part.call_id, part.content)
        for message in messages
        for part in message.parts
        if isinstance(part, ToolResult)
    ]
    assert results == [("call_1", "done here"), ("call_2", "done here")]
    if name == "str":
        assert messages[-1].state == "partial"
        assert messages[-1].text == "".join(WORDS[:SHOWN])
    else:
        assert messages[1].text == "TURN-TEXT"
    endings = [entry.body for entry in session.entries() if isinstance(entry.body, e.TurnEnding)]
    assert [(one.status, one.reason) for one in endings] == [("interrupted", reason)]
    with session.turn("PROMPT-2"):
        pass
    context = session.context(shape)  # type: ignore[arg-type]
    validate = getattr(validators, shape.replace("-", "_"))
    assert validate(context.messages, context.system, complete=True) == []
    sent = str(context.messages)
    assert sent.count("done here") == 2
    assert ("word11" in sent) == (name == "str")
    assert ("unknown" in sent) == (name != "str")


@pytest.mark.parametrize(("shape", "name"), CELLS)
def test_cancelled(tmp_path: Path, server: Scripted, shape: str, name: str) -> None:
    server.scripts.extend(scripts(shape, name))
    path = tmp_path / "work.db"

    async def main() -> None:
        reached = asyncio.Event()
        task = asyncio.create_task(run(str(path), server.url, shape, reached.set))
        if name == "str":
            await asyncio.to_thread(server.stalled.acquire)
            with Store(path) as reader:
                await asyncio.to_thread(wait_for_words, reader)
        else:
            await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if name == "str":
            assert await asyncio.to_thread(server.hung_up.acquire, timeout=10)

    asyncio.run(main())
    with Store(path) as store:
        check(store.session(SESSION), shape, name, "cancelled")


@pytest.mark.crash
@pytest.mark.parametrize(("shape", "name"), CELLS)
def test_killed(tmp_path: Path, server: Scripted, shape: str, name: str) -> None:
    server.scripts.extend(scripts(shape, name))
    path = tmp_path / "work.db"
    command = [sys.executable, "-m", "tests.recorders.agent", str(path), server.url, shape]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        if name == "str":
            server.stalled.acquire()
            with Store(path) as reader:
                wait_for_words(reader)
        else:
            assert child.stdout.readline() == "hanging\n"
        child.kill()
    with Store(path) as store:
        check(store.session(SESSION), shape, name, "crashed")
