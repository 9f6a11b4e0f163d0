"""Record a turn with asyncio, cancel it by a timeout while the model still talks, read it back."""

import asyncio
from collections.abc import AsyncIterator

from killick import AsyncStore


async def model(prompt: str) -> AsyncIterator[str]:
    """Stands for a provider's stream: it starts to count, and would go on for an hour."""
    yield f"You asked: {prompt}\n"
    for number in range(3600):
        yield f"{number} "
        await asyncio.sleep(0 if number < 10 else 1)


async def main() -> None:
    async with AsyncStore("work.db") as store:
        session = await store.create_session(title="Counting")
        prompt = "Count the seconds of an hour."
        try:
            async with asyncio.timeout(0.3), session.turn(prompt) as turn, turn.stream() as reply:
                async for piece in model(prompt):
                    reply.text(piece)  # a plain call: handing a delta over does not wait
        except TimeoutError:
            print("timed out; what was said is kept:")

        for message in await session.messages():
            print(f"  {message.role}, {message.state}: {message.text!r}")
        for ended in await session.turns():
            print(f"  the turn: {ended.status}, {ended.reason}")


asyncio.run(main())
