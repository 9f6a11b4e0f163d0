"""A server of our own with an agent that does what its prompt says, for tests of everything else.

    python -m tests.server.scripted STORE --tokens FILE [--port N] [--drain SECONDS] …

prints its address and serves until it is ended. What can be prompted is in `ACTS`.
"""

import argparse
import asyncio
import contextlib
import json
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from killick import AsyncStore, File, Image, Message, Text, Usage
from killick.model.entries import ApprovalDecided, PromptWaiting
from killick.server.auth import Tokens
from killick.server.launch import serve
from killick.server.log import configure
from killick.server.runner import Runner
from killick.server.service import ServerSettings
from killick.server.webhooks import Webhook
from killick.session.aio import AsyncSession
from killick.session.aio_blocks import AsyncTurn

Act = Callable[[AsyncSession, AsyncTurn, list[str]], Awaitable[None]]


def png(red: int, green: int, blue: int) -> bytes:
    """A picture of 40 by 24 points in one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    rows = b"".join(b"\0" + bytes([red, green, blue]) * 40 for _ in range(24))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 40, 24, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


async def count(_session: AsyncSession, turn: AsyncTurn, words: list[str]) -> None:
    """`count N SECONDS`: so many numbered words, one after each pause."""
    async with turn.stream(provider="scripted", model="counter") as reply:
        for number in range(int(words[0])):
            reply.text(f"w{number} ")
            await asyncio.sleep(float(words[1]) if len(words) > 1 else 0)
        reply.finish(finish_reason="stop")


async def work(_session: AsyncSession, turn: AsyncTurn, _words: list[str]) -> None:
    """Thinks, calls a tool that prints, and answers."""
    async with turn.stream(provider="scripted", model="worker") as reply:
        reply.reasoning("The log will say. ")
        reply.text("Let me look.")
        reply.tool_call("c1", name="shell", arguments='{"command": "make"}')
    async with turn.tool("c1") as call:
        call.output("compiling…\n")
        await asyncio.sleep(0.05)
        call.output("linking…\n")
        await call.finish("compiling…\nlinking…\nok")
    async with turn.stream(provider="scripted", model="worker") as reply:
        reply.text("It **works** now.\n\n```python\nprint('ok')\n```\n")


async def ask(session: AsyncSession, turn: AsyncTurn, words: list[str]) -> None:
    """`ask [ARGUMENTS [COUNT]]`: calls a tool, and runs it if a person allows it.

    ARGUMENTS is a JSON string without white space, of what the model writes. So many messages come
    between the call and the question.
    """
    arguments = json.loads(words[0]) if words else '{"command": "rm -r build"}'
    async with turn.stream(provider="scripted", model="asker") as reply:
        reply.tool_call("c1", name="shell", arguments=arguments)
    if len(words) > 1:
        await turn.record_all([Message("user", [Text("yes")]) for _ in range(int(words[1]))])
    asked = await turn.ask_approval("c1", arguments)
    async for item in session.follow(after=session.head):
        body = getattr(item, "body", None)
        if isinstance(body, ApprovalDecided) and body.id == asked.id:
            if not body.approved:
                await session.finish_tool(turn.id, "c1", "denied", is_error=True)
                return
            async with turn.tool("c1") as call:
                await call.finish("removed")
            return


async def hang(_session: AsyncSession, turn: AsyncTurn, _words: list[str]) -> None:
    """Says a little, then waits until it is stopped."""
    async with turn.stream(provider="scripted", model="waiter") as reply:
        reply.text("I wait ")
        await asyncio.Event().wait()


async def listen(session: AsyncSession, turn: AsyncTurn, _words: list[str]) -> None:
    """Waits until it is told something while it runs, and says it back."""
    async with turn.stream(provider="scripted", model="listener") as reply:
        reply.text("I listen ")
    async for item in session.follow():
        if isinstance(getattr(item, "body", None), PromptWaiting):
            break
    taken = await turn.steering()
    async with turn.stream(provider="scripted", model="listener") as reply:
        reply.text(f"I was told: {taken[0].text}")


async def cling(_session: AsyncSession, turn: AsyncTurn, _words: list[str]) -> None:
    """Does not let go when it is stopped."""
    async with turn.stream(provider="scripted", model="waiter") as reply:
        reply.text("I stay ")
        for _ in range(1_000):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(30)


async def fail(_session: AsyncSession, turn: AsyncTurn, _words: list[str]) -> None:
    """Breaks in the middle, with a secret in the error."""
    async with turn.stream(provider="scripted", model="breaker") as reply:
        reply.text("So far ")
        raise RuntimeError("the secret is swordfish")


async def say(_session: AsyncSession, turn: AsyncTurn, words: list[str]) -> None:
    """`say TEXT`: says it back, whatever it is."""
    async with turn.stream(provider="scripted", model="parrot") as reply:
        reply.text(" ".join(words))


async def flood(_session: AsyncSession, turn: AsyncTurn, words: list[str]) -> None:
    """`flood N BYTES`: so many large pieces, as fast as they are written."""
    async with turn.stream(provider="scripted", model="flooder") as reply:
        for number in range(int(words[0])):
            reply.text(chr(97 + number % 26) * int(words[1]))
            await asyncio.sleep(0.025)


async def print_much(_session: AsyncSession, turn: AsyncTurn, words: list[str]) -> None:
    """`print N`: a command prints N lines in colours, as fast as it can."""
    async with turn.stream(provider="scripted", model="printer") as reply:
        reply.tool_call("c1", name="shell", arguments='{"command": "make all"}')
    async with turn.tool("c1") as call:
        for number in range(int(words[0])):
            call.output(f"\x1b[3{number % 8}mline {number}\x1b[0m of a build, with some text\n")
            if number % 200 == 0:
                await asyncio.sleep(0.01)
        await call.finish("built")
    async with turn.stream(provider="scripted", model="printer") as reply:
        reply.text("Built.")


async def three(_session: AsyncSession, turn: AsyncTurn, _words: list[str]) -> None:
    """Calls three tools; the first finishes, the second hangs, the third waits for it."""
    async with turn.stream(provider="scripted", model="worker") as reply:
        reply.text("Three steps.")
        for number, command in enumerate(("make", "deploy", "announce"), start=1):
            reply.tool_call(f"c{number}", name="shell", arguments=json.dumps({"command": command}))
        reply.finish(finish_reason="tool_calls", usage=Usage(input=1200, output=34, cost=0.012))
    async with turn.tool("c1") as call:
        await call.finish("made")
    async with turn.tool("c2") as call:
        call.output("half of it is there\n")
        await asyncio.Event().wait()


async def reads(_session: AsyncSession, turn: AsyncTurn, words: list[str]) -> None:
    """`reads N`: N files, one in each answer; then a change of one."""
    for number in range(int(words[0])):
        async with turn.stream(provider="scripted", model="reader") as reply:
            name = json.dumps({"path": f"src/file{number}.py"})
            reply.tool_call(f"r{number}", name="read_file", arguments=name)
        async with turn.tool(f"r{number}") as call:
            await call.finish(f"content {number}")
    change = {"path": "src/file1.py", "old_string": "a\nb\nc", "new_string": "a\nB\nc"}
    async with turn.stream(provider="scripted", model="reader") as reply:
        reply.tool_call("w1", name="edit", arguments=json.dumps(change))
        reply.tool_call("j1", name="query", arguments='{"table": "users"}')
    async with turn.tool("w1") as call:
        await call.finish("done")
    async with turn.tool("j1") as call:
        await call.finish('{"rows": [{"name": "Ada", "age": 36}], "more": false}')
    async with turn.stream(provider="scripted", model="reader") as reply:
        reply.text("Read.")
        reply.finish(finish_reason="stop", usage=Usage(input=15_400, output=210, cost=0.034))


async def draw(_session: AsyncSession, turn: AsyncTurn, _words: list[str]) -> None:
    """Calls a tool that gives a picture and a file, and no text."""
    picture = await turn.put_blob(png(200, 120, 40))
    table = await turn.put_blob(b"a,b\n1,2\n")
    async with turn.stream(provider="scripted", model="painter") as reply:
        reply.tool_call("c1", name="screenshot", arguments='{"window": "main"}')
    async with turn.tool("c1") as call:
        await call.finish(
            (Image(picture, "image/png", alt="The window"), File(table, "text/csv", "table.csv"))
        )


async def refuse(_session: AsyncSession, turn: AsyncTurn, _words: list[str]) -> None:
    """Breaks as a provider does that was shown a wrong key, with the key in its text."""
    async with turn.stream(provider="scripted", model="breaker"):
        raise RuntimeError("Error code: 401 - {'message': 'Incorrect API key: sk-verysecret'}")


ACTS: dict[str, Act] = {
    "print": print_much,
    "three": three,
    "reads": reads,
    "refuse": refuse,
    "draw": draw,
    "flood": flood,
    "count": count,
    "work": work,
    "ask": ask,
    "hang": hang,
    "listen": listen,
    "cling": cling,
    "fail": fail,
    "say": say,
}


async def answer(session: AsyncSession, turn: AsyncTurn) -> None:
    prompts = [one for one in await session.messages(last=5) if one.role == "user"]
    name, *words = (prompts[-1].text if prompts else "say nothing").split(" ")
    await ACTS.get(name, say)(session, turn, words)


@contextlib.asynccontextmanager
async def answering() -> AsyncIterator[Runner]:
    yield Runner(answer, "scripted")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--drain", type=float, default=1.0)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--token-streams", type=int, default=200)
    parser.add_argument("--token-requests", type=float, default=100.0)
    parser.add_argument("--tenants", type=int, default=32)
    parser.add_argument("--beat", type=float, default=15.0)
    parser.add_argument("--head", type=float, default=10.0)
    parser.add_argument("--body-bytes", type=int, default=4 * 1024 * 1024)
    parser.add_argument("--tokens", type=Path, required=True)
    parser.add_argument("--window", type=float, default=0.05)
    parser.add_argument("--lease", type=float, default=10.0)
    parser.add_argument("--webhook", action="append", default=[])
    given = parser.parse_args()
    configure()
    settings = ServerSettings(
        host=given.host,
        port=given.port,
        drain_seconds=given.drain,
        streams=given.streams,
        token_streams=given.token_streams,
        token_requests=given.token_requests,
        tenants=given.tenants,
        beat_seconds=given.beat,
        head_seconds=given.head,
        body_bytes=given.body_bytes,
        look_seconds=0.2,
        webhooks=tuple(Webhook(url=url, secret=b"secret", private=True) for url in given.webhook),
    )
    tokens = Tokens(given.tokens)

    def ready(url: str) -> None:
        print(url, flush=True)

    def store(tenant: str | None) -> AsyncStore:
        return AsyncStore(
            given.store, tenant=tenant, window_seconds=given.window, lease_seconds=given.lease
        )

    asyncio.run(serve(store, answering(), settings, tokens, ready))


if __name__ == "__main__":
    main()
