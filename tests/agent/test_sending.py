"""What a model is really sent: images as they are, and nothing that a provider would refuse."""

import asyncio
import json
import os
from base64 import b64encode
from pathlib import Path

import pytest
from pydantic_ai.messages import BinaryContent, ModelRequest, UserContent, UserPromptPart

from killick import AsyncStore, File, Image, Message, Text
from killick.adapters.pydantic_ai import history
from killick.agent import agent_for
from killick.agent.constrained import ConstrainedModel, flat
from killick.agent.embedded import model_file
from killick.model.messages import Part
from tests.agent.scripting import calling, said
from tests.recorders.server import Scripted
from tests.waiting import children

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x09\0\0\0\x09"  # as much of it as anybody looks at


def test_images_of_a_prompt_are_sent(tmp_path: Path, server: Scripted) -> None:
    """And what no provider takes, or what is not what it is called, is mentioned."""
    server.scripts.append(said("A picture."))

    async def main() -> None:
        async with (
            AsyncStore(tmp_path / "w.db") as store,
            agent_for(f"{server.url}/v1#m", root=tmp_path) as agent,
        ):
            session = await store.create_session(title="Pictures")
            prompt: list[Part] = [
                Text("What is this?"),
                Image(await store.put_blob(PNG), "image/png"),
                File(await store.put_blob(b"%PDF-1.7"), "application/pdf"),
                File(await store.put_blob(b"PK"), "application/zip"),
                Image(await store.put_blob(b"%PDF-1.7"), "image/png"),
            ]
            async with session.turn(prompt) as turn:
                await agent.answer(session, turn)

    asyncio.run(main())
    asked, shown, pdf, *mentioned = server.requests[0]["messages"][-1]["content"]
    assert asked == {"type": "text", "text": "What is this?"}
    assert shown["image_url"]["url"] == f"data:image/png;base64,{b64encode(PNG).decode()}"
    assert pdf["file"]["file_data"].startswith("data:application/pdf;base64,")
    assert [one["text"] for one in mentioned] == [
        "[A file (application/zip) is left out here.]",
        "[An image (image/png) is left out here.]",
    ]


def test_a_model_that_cannot_see_is_told_so() -> None:
    shown: list[UserContent] = ["What is this?", BinaryContent(PNG, media_type="image/png")]
    (request,) = flat([ModelRequest(parts=[UserPromptPart(shown)])])
    (part,) = request.parts
    assert isinstance(part, UserPromptPart)
    assert part.content == "What is this?\n[Something that you cannot see is left out here.]"


def test_the_model_on_board_is_called_what_it_is() -> None:
    async def main() -> str:
        async with agent_for("on-board@http://127.0.0.1:1", tools=[]) as agent:
            assert isinstance(agent.model, ConstrainedModel)
            return agent.name

    assert asyncio.run(main()) == "on-board:smollm2-135m"


def test_what_is_no_text_does_not_break_a_session(tmp_path: Path, server: Scripted) -> None:
    """A request with a lone surrogate cannot be sent at all, nor could any that follows it."""
    folder = tmp_path / "files"
    folder.mkdir()
    Path(os.fsdecode(bytes(folder) + b"/\xff.txt")).touch()
    server.scripts.extend([calling(("list_files", {})), said("One file."), said("Yes.")])

    async def main() -> None:
        async with (
            AsyncStore(tmp_path / "w.db") as store,
            agent_for(f"{server.url}/v1#m", root=folder, allowed=["list_files"]) as agent,
        ):
            session = await store.create_session(title="Files")
            async with session.turn("Which files? \udcff") as turn:
                await agent.answer(session, turn)
            async with session.turn("Sure?") as turn:
                await turn.record(Message("assistant", [Text("broken: \udcfe")]))
                await agent.answer(session, turn)
            assert len(await history(session)) == 7

    asyncio.run(main())
    sent = json.dumps(server.requests[-1]["messages"], ensure_ascii=False)
    assert "Which files? \ufffd" in sent
    assert "\ufffd.txt" in sent
    assert "broken: \ufffd" in sent


@pytest.mark.skipif(model_file() is None, reason="the model on board is not installed")
def test_a_model_on_board_whose_start_is_cancelled_is_ended() -> None:
    async def start() -> None:
        async with agent_for("on-board", tools=[]):
            pytest.fail("it was cancelled before")

    async def main() -> None:
        before = children(os.getpid())
        starting = asyncio.ensure_future(start())
        async with asyncio.timeout(30):
            while not children(os.getpid()) - before:  # noqa: ASYNC110  (a process has no event)
                await asyncio.sleep(0.01)
        starting.cancel()
        try:
            await starting
        except asyncio.CancelledError:
            # Here, while the error still holds what it came through.
            assert children(os.getpid()) <= before

    asyncio.run(main())
