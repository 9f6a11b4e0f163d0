"""Reading: the same messages and entries, whole, in parts and as they come."""

from typing import Any

from killick.model import entries as e
from killick.model.messages import Message
from killick.model.parts import Text, ToolCall
from killick.testing.conformance.world import (
    World,
    check,
)


@check
async def messages_can_be_read_in_parts(world: World) -> None:
    """after, last and limit cut the same list."""
    async with world.store() as store:
        session = await store.create_session()
        for number in range(20):
            async with session.turn(f"prompt {number}") as turn:
                async with turn.stream() as reply:
                    reply.text(f"answer {number}")
                    reply.tool_call("a", name="shell", arguments="{}")
                async with turn.tool("a") as call:
                    await call.finish(f"result {number}")
        everything = await session.messages()
        assert len(everything) == 60
        assert await session.messages(last=7) == everything[-7:]
        assert await session.messages(last=1_000) == everything
        assert await session.messages(limit=7) == everything[:7]
        cut = everything[29].seq
        assert await session.messages(after=cut) == everything[30:]
        assert await session.messages(after=cut, limit=4) == everything[30:34]


@check
async def a_result_from_elsewhere_is_found_in_every_part(world: World) -> None:
    """A call that nobody started is answered; reading a part shows it as reading all does."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            await turn.record(Message("assistant", [ToolCall("a", "shell", "{}")]))
            called = session.head
            await session.finish_tool(turn.id, "a", "from elsewhere")
        everything = await session.messages()
        assert [message.role for message in everything] == ["user", "assistant", "tool"]
        assert await session.messages(after=called) == everything[2:]
        assert await session.messages(last=1) == everything[2:]


@check
async def the_first_messages_are_whole_however_late_they_were_ended(world: World) -> None:
    """limit looks up what ends its messages further on, over more than one page."""
    async with world.store() as store:
        session = await store.create_session()
        try:
            async with session.turn("go") as turn:
                await turn.record(Message("assistant", [ToolCall("a", "shell", "{}")]))
                async with turn.tool("a"):
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
        async with session.turn("next") as other:
            for number in range(1_100):
                await session.note("filler", number)
            await other.record(Message("assistant", [Text("far away")]))
        await session.finish_tool(turn.id, "a", "at last")
        everything = await session.messages()
        assert [message.role for message in everything] == [
            "user",
            "assistant",
            "tool",
            "user",
            "assistant",
        ]
        for limit in range(6):
            assert await session.messages(limit=limit) == everything[:limit]


@check
async def a_streaming_message_can_be_read(world: World) -> None:
    """What was flushed is shown, marked as streaming."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn, turn.stream() as reply:
            reply.text("x" * 10_000)
            reply.tool_call("a", name="shell", arguments="{}")
            async with turn.tool("a") as call:
                await call.finish("done")
            message = (await session.messages())[1]
            assert message.state == "streaming"
            assert message.text == "x" * 10_000


@check
async def following_shows_everything_once_and_in_order(world: World) -> None:
    """Entries by seq, deltas by offset, the deltas make the text, from another opening too."""
    async with world.store() as store, world.store() as other:
        session = await store.create_session()
        watched = await other.session(session.id)
        items: list[Any] = []
        async with session.turn("go") as turn, turn.stream() as reply:
            reply.text("one ")
            reply.tool_call("a", name="shell", arguments="{}")
            async with turn.tool("a") as call:
                await call.finish("r")
            follower = watched.follow()
            async for item in follower:
                items.append(item)
                if isinstance(item, e.FollowedDelta) and item.delta.type == "arguments":
                    break
            await follower.aclose()
        async for item in watched.follow():
            items.append(item)
            if item.kind == "turn_ended":
                break
        deltas = [item for item in items if isinstance(item, e.FollowedDelta)]
        assert "".join(d.text for d in deltas if d.delta.type == "text") == "one "
        seqs = [item.seq for item in items if isinstance(item, e.Entry)]
        first_run = seqs[: seqs.index(1, 1)]
        assert first_run == list(range(1, len(first_run) + 1))
        second_run = seqs[len(first_run) :]
        assert second_run == list(range(1, len(second_run) + 1))
