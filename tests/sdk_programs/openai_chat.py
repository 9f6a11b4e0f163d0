"""A context where openai's Chat Completions takes it; checked by mypy and pyright, never run."""

from openai import AsyncOpenAI, OpenAI

from killick import AsyncSession, Session


def answer(session: Session, client: OpenAI) -> str | None:
    context = session.context("openai-chat")
    completion = client.chat.completions.create(model="m", messages=context.messages)
    return completion.choices[0].message.content


async def answer_streaming(session: AsyncSession, client: AsyncOpenAI) -> None:
    context = await session.context("openai-chat")
    stream = await client.chat.completions.create(
        model="m",
        messages=[{"role": "system", "content": context.system or ""}, *context.messages],
        stream=True,
    )
    async for chunk in stream:
        assert chunk.choices
