"""A context where anthropic's Messages takes it; checked by mypy and pyright, never run."""

from anthropic import Anthropic, AsyncAnthropic

from killick import AsyncSession, Session


def answer(session: Session, client: Anthropic) -> str | None:
    context = session.context("anthropic")
    message = client.messages.create(
        model="m", max_tokens=1024, messages=context.messages, system=context.system or ""
    )
    return message.stop_reason


async def answer_streaming(session: AsyncSession, client: AsyncAnthropic) -> None:
    context = await session.context("anthropic")
    async with client.messages.stream(
        model="m", max_tokens=1024, messages=context.messages
    ) as stream:
        async for event in stream:
            assert event.type
