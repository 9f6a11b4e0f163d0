"""A context where google-genai takes it; checked by mypy and pyright, never run."""

from google import genai
from google.genai import types

from killick import AsyncSession, Session


def answer(session: Session, client: genai.Client) -> str | None:
    context = session.context("gemini")
    config = types.GenerateContentConfig(system_instruction=context.system)
    response = client.models.generate_content(model="m", contents=context.messages, config=config)
    return response.text


async def answer_streaming(session: AsyncSession, client: genai.Client) -> None:
    context = await session.context("gemini")
    stream = await client.aio.models.generate_content_stream(model="m", contents=context.messages)
    async for chunk in stream:
        assert chunk.candidates
