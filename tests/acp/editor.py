"""An editor: the protocol's own client, and `killick acp` with an agent behind it."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, Final

import acp
from acp.client.connection import ClientSideConnection
from acp.schema import (
    AllowedOutcome,
    PermissionOption,
    RequestPermissionResponse,
    ToolCallUpdate,
)

from killick import Store

AGENT: Final = Path(__file__).with_name("agent.py")
SECONDS: Final = 60


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **named), 4 * SECONDS))

    return run


class Editor:
    """Keeps every update; `watch` is called with each as it comes."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.watch: Callable[[dict[str, Any]], None] = lambda _update: None
        self.allows = True
        self.chooses = "allow"
        self.asked: list[dict[str, Any]] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self._changed = asyncio.Condition()

    async def session_update(self, session_id: str, update: Any, **_kwargs: Any) -> None:
        shown = update.model_dump(by_alias=True, exclude_none=True, mode="json")
        self.watch(shown)
        async with self._changed:
            self.updates.append({**shown, "sessionId": session_id})
            self._changed.notify_all()

    async def request_permission(
        self,
        session_id: str,
        tool_call: ToolCallUpdate,
        options: list[PermissionOption],
        **_kwargs: Any,
    ) -> RequestPermissionResponse:
        self.asked.append(tool_call.model_dump(by_alias=True, exclude_none=True, mode="json"))
        await self.answers.wait()
        kind = self.chooses if self.allows else "reject"
        chosen = next(each for each in options if each.kind.startswith(kind))
        outcome = AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        return RequestPermissionResponse(outcome=outcome)

    def on_connect(self, _connection: Any) -> None:
        pass

    async def until(self, is_met: Callable[[list[dict[str, Any]]], bool]) -> None:
        async with self._changed, asyncio.timeout(SECONDS):
            await self._changed.wait_for(lambda: is_met(self.updates))

    def finished(self) -> int:
        return sum(update.get("status") == "completed" for update in self.updates)


@dataclass
class Script:
    """A script of the agent in `agent.py`, in a file."""

    path: Path
    turns: list[list[list[Any]]]
    load: bool = True
    pids: list[int] = field(default_factory=list)

    def command(self) -> list[str]:
        self.path.write_text(json.dumps({"load": self.load, "turns": self.turns}))
        return [sys.executable, str(AGENT), str(self.path)]

    def log(self, kind: str) -> list[Any]:
        lines = [
            json.loads(line) for line in self.path.with_suffix(".log").read_text().splitlines()
        ]
        return [line[kind] for line in lines if kind in line]


@asynccontextmanager
async def editing(
    store: Path,
    command: list[str],
    *options: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[tuple[Editor, ClientSideConnection, asyncio.subprocess.Process]]:
    """Run `killick acp` with this agent, and say hello to it."""
    editor = Editor()
    words = ["-m", "killick.cli", "acp", "--store", str(store), *options]
    words += ["--", *command] if command else []
    async with acp.spawn_agent_process(
        editor,  # type: ignore[arg-type]
        sys.executable,
        *words,
        cwd=cwd,
        env=dict(env or os.environ),
        transport_kwargs={"limit": 1 << 24, "stderr": asyncio.subprocess.DEVNULL},
    ) as (connection, process):
        await connection.initialize(protocol_version=1)
        yield editor, connection, process


def told(store: Path) -> list[tuple[str, str, str]]:
    """Role, state and text of every message of the one session; calls by their names."""
    with Store(store) as opened:
        (info,) = opened.sessions()
        session = opened.session(info.id)
        return [
            (message.role, message.state, message.text or str(_content(message)))
            for message in session.messages()
        ]


def _content(message: Any) -> str:
    for part in message.parts:
        if hasattr(part, "content"):
            return str(part.content)
    return ""


def endings(store: Path) -> list[tuple[str, str | None]]:
    with Store(store) as opened:
        (info,) = opened.sessions()
        return [(turn.status, turn.cause) for turn in opened.session(info.id).turns()]


def tools(store: Path) -> dict[str, tuple[str, str]]:
    """State and result of every call, by its id."""
    with Store(store) as opened:
        (info,) = opened.sessions()
        shown = opened.session(info.id).transcript()
    return {
        tool.call_id: (tool.state, "" if tool.result is None else str(tool.result.content))
        for item in shown
        for tool in item.tools
    }
