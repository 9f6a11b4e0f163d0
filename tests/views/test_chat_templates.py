"""Chat templates of real models render a conversation that was interrupted.

They are llama.cpp's (`models/templates`), in the folder that KILLICK_CORPUS names; without it, or
without jinja2, the tests are skipped. A template is given what vLLM and llama.cpp give it: the
messages of a Chat Completions request, with arguments as text or as an object, as it wants them.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from killick import Message, Session, Store, Text, ToolCall
from killick.stores.memory import MemoryDisk
from tests.corpus_figures import keep

jinja2: Any = pytest.importorskip("jinja2", reason="templates need jinja2")
sandbox: Any = pytest.importorskip("jinja2.sandbox")
extensions: Any = pytest.importorskip("jinja2.ext")

CORPUS = Path(os.environ.get("KILLICK_CORPUS", "/nonexistent"))
FOLDER = next(iter(sorted(CORPUS.glob("**/models/templates"))), None)
if FOLDER is None:
    reason = "KILLICK_CORPUS names no folder with llama.cpp's models/templates"
    pytest.skip(reason, allow_module_level=True)
TEMPLATES = sorted(FOLDER.glob("*.jinja"))

PROFILES = ("llama.cpp", "mistral")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "shell",
            "description": "Run a command",
            "parameters": {
                "type": "object",
                "properties": {"command": {"type": "string", "description": "What to run"}},
                "required": ["command"],
            },
        },
    }
]


def environment() -> Any:
    """As transformers and vLLM make it, but that lists may grow, as in llama.cpp's engine."""

    class Generation(extensions.Extension):  # type: ignore[misc, unused-ignore]
        """The tag around what a model wrote; it changes no text."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    made = sandbox.SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    made.filters["tojson"] = lambda value, **options: json.dumps(
        value, ensure_ascii=False, indent=options.get("indent")
    )
    made.filters["from_json"] = json.loads

    def refuse(text: str) -> None:
        raise jinja2.TemplateError(text)

    made.globals.update(raise_exception=refuse, strftime_now=lambda form: "2026-11-16")
    return made


def rendered(template: Path, messages: list[dict[str, Any]]) -> str | None:
    """The text, with arguments in the shape that the template takes; None if it takes neither."""
    source = environment().from_string(template.read_text("utf-8"))
    for as_object in (True, False):
        copied = json.loads(json.dumps(messages))
        for message in copied:
            for call in message.get("tool_calls") or ():
                if as_object:
                    call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        with suppress(jinja2.TemplateError, TypeError, ValueError):
            return str(
                source.render(
                    messages=copied,
                    tools=TOOLS,
                    functions=TOOLS,
                    add_generation_prompt=True,
                    bos_token="<s>",
                    eos_token="</s>",
                    enable_thinking=True,
                )
            )
    return None


def call(session: Session, call_id: str, *, stop: bool) -> None:
    with suppress(KeyboardInterrupt), session.turn("FIRST question") as turn:
        calls = [ToolCall(call_id, "shell", '{"command": "make"}')]
        turn.record(Message(role="assistant", parts=calls))
        with turn.tool(call_id) as tool:
            if stop:
                tool.output("HALF of it\n")
                raise KeyboardInterrupt
            tool.finish("WHOLE result")
        turn.record(Message(role="assistant", parts=[Text("SAID so")]))


def sent(session: Session, profile: str) -> list[dict[str, Any]]:
    with session.turn("LAST question"):
        return session.context("openai-chat", profile=profile).messages


def taking(messages: dict[str, list[dict[str, Any]]], words: tuple[str, ...]) -> set[str]:
    """The templates that take these messages with one of the profiles, and show all words."""
    taken = set()
    for template in TEMPLATES:
        texts = [rendered(template, messages[profile]) for profile in PROFILES]
        if any(text is not None and all(word in text for word in words) for text in texts):
            taken.add(template.stem)
    return taken


def test_every_template_that_takes_tools_takes_an_interrupted_conversation() -> None:
    clean: dict[str, Any] = {}
    broken: dict[str, Any] = {}
    for profile in PROFILES:
        for stop, made in ((False, clean), (True, broken)):
            with Store(MemoryDisk().open()) as store:
                session = store.create_session()
                call(session, "call_0fypS1hVX", stop=stop)
                made[profile] = sent(session, profile)
    able = taking(clean, ("FIRST", "WHOLE", "SAID", "LAST"))
    assert len(able) >= 60, sorted(able)
    taken = taking(broken, ("FIRST", "HALF", "interrupted", "LAST"))
    assert able - taken == set()
    counts = {
        "templates": len(TEMPLATES),
        "take a conversation with tools": len(able),
        "of these, take one that was interrupted": len(able & taken),
    }
    keep("templates", CORPUS, counts)
