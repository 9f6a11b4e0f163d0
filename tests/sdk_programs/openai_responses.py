"""A context where openai's Responses takes it; checked by mypy and pyright, never run."""

from openai import AsyncOpenAI, OpenAI

from killick import AsyncSession, Session


def answer(session: Session, client: OpenAI) -> str:
    context = session.context("openai-responses")
    response = client.responses.create(
        model="m", input=context.messages, instructions=context.system
    )
    return response.output_text


async def answer_streaming(session: AsyncSession, client: AsyncOpenAI) -> None:
    context = await session.context("openai-responses")
    stream = await client.responses.create(model="m", input=context.messages, stream=True)
    async for event in stream:
        assert event.type
