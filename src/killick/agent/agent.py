"""The agent: a model that answers in sessions with tools, approvals and compaction."""

import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pydantic_ai
from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.capabilities.abstract import ValidatedToolArgs
from pydantic_ai.exceptions import ToolFailed, UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolCallPart, ToolReturnPart
from pydantic_ai.models import Model, ModelRequestContext, infer_model
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RunUsage, UsageLimits

from killick.adapters.pydantic_ai import Approvals, Granted, Recorder, granted, history
from killick.agent import embedded
from killick.agent.choice import chosen_model
from killick.agent.embedded import ON_BOARD, ModelUnavailable
from killick.agent.summaries import compact_if_long, compact_turn_if_long, summarise, title_of
from killick.agent.workspace import SHOWN_CHARS, Running, Workspace
from killick.session.aio import AsyncSession
from killick.session.aio_blocks import AsyncTurn
from killick.session.drive.drive_async import in_thread
from killick.session.drive.exit_guard import describe_failed_tool, says_nothing

INSTRUCTIONS: Final = (
    "You are a helpful assistant in a terminal. Answer briefly and clearly, in Markdown. Use a "
    "tool when the request is about files or commands. Text in square brackets was put into the "
    "conversation by the program: it says what was interrupted and what is not known. Believe it."
)
WINDOW: Final = 128_000
"""Tokens of a model's window when pydantic-ai does not know it."""

_SENT: Final = 0.75
"""The share of the window that is sent at most; the rest is for the answer."""

_REQUESTS: Final = 200
"""Requests to a model in one turn."""


pydantic_ai.BANNER_ENABLED = False  # the library never prints


class Agent:
    """A model, tools and instructions. One agent can answer in many sessions at once.

    `allowed` names the tools that need no approval; it can be added to while the agent runs.
    """

    def __init__(
        self,
        model: Model | str,
        *,
        tools: Sequence[Any] = (),
        instructions: str = INSTRUCTIONS,
        allowed: Sequence[str] = (),
        window: int | None = None,
    ) -> None:
        self.model = model if isinstance(model, Model) else pydantic_ai.models.infer_model(model)
        self.allowed = set(allowed)
        self.window = window or self.model.context_window or WINDOW
        self._toolset: FunctionToolset[Running] = FunctionToolset(tools)
        self._agent: pydantic_ai.Agent[Running, str] = pydantic_ai.Agent(
            self.model,
            deps_type=Running,
            instructions=instructions,
            toolsets=[self._toolset],
            retries=3,
        )

    @property
    def name(self) -> str:
        """Return the model's name for people."""
        return f"{self.model.system}:{self.model.model_name}"

    async def answer(self, session: AsyncSession, turn: AsyncTurn) -> None:
        """Answer what the turn asks, recording everything; returns when it has answered.

        First it runs the calls that were approved in the turn that this one continues. A session
        that has become too long for the model is compacted before it is sent.

        If interrupted: what came is recorded, and a command that ran is ended with all it had
        started. The turn's block gives the turn its ending.
        """
        recorder = Recorder(turn, streaming=True)
        running = Running(recorder)
        await self._run_granted(session, turn, running)
        await compact_if_long(session, self.model, self.window)
        await self._agent.run(
            message_history=await self.history(session),
            deps=running,
            capabilities=[
                recorder,
                Approvals(session, recorder, allowed=self.allowed),
                _ToolErrors(),
                _FromTheJournal(self, session, turn),
            ],
            usage_limits=UsageLimits(request_limit=_REQUESTS),
        )

    async def title(self, session: AsyncSession) -> str | None:
        """Give a session a title if it has none; a person's is never replaced.

        If interrupted: it has a title or it has none.
        """
        info = await session.info()
        if info.title is not None:
            return info.title
        title = await title_of(session, self.model)
        if title:
            await session.rename(title, by="model")
        return session.title  # a person may have given one meanwhile

    async def prepare(self) -> None:
        """Compute now what the model on board needs for its first answer; others need nothing.

        If interrupted: it is on disk or it is not.
        """
        from killick.agent.constrained import ConstrainedModel

        if isinstance(self.model, ConstrainedModel):
            await self.model.prepare([tool.tool_def for tool in self._toolset.tools.values()])

    async def compact(self, session: AsyncSession) -> bool:
        """Put a summary in place of everything so far; False when there is nothing to summarise.

        If interrupted: it is compacted or it is not.
        """
        return await summarise(session, self.model, self.window)

    async def history(self, session: AsyncSession) -> list[ModelMessage]:
        """Return what the model would be sent now, no more than fits."""
        messages = await history(session, max_tokens=int(self.window * _SENT))
        # A turn that goes on after an answer, without a prompt: the model needs a request.
        if not messages or not isinstance(messages[-1], ModelRequest):
            messages.append(ModelRequest.user_text_prompt("[Go on.]"))
        return messages

    # -- calls that were approved, and that their turn did not live to run ---------------------

    async def _run_granted(self, session: AsyncSession, turn: AsyncTurn, running: Running) -> None:
        continued = next(
            (earlier.continues for earlier in await session.turns() if earlier.id == turn.id), None
        )
        if continued is None:
            return
        for grant in await granted(session, continued):
            async with turn.tool(grant.call.id, of=grant.turn_id) as tool:
                text, failed = await self._perform(grant, running)
                await tool.finish(text, is_error=failed)

    async def _perform(self, grant: Granted, running: Running) -> tuple[str, bool]:
        """Run exactly what was approved; what the model will be told, and whether it failed."""
        call = grant.call
        ctx = RunContext(
            deps=running,
            model=self.model,
            usage=RunUsage(),
            tool_name=call.name,
            tool_call_id=call.id,
            tool_call_approved=True,
        )
        try:
            tools = await self._toolset.get_tools(ctx)
            tool = tools[call.name]
            arguments = tool.args_validator.validate_json(call.arguments or "{}")
            value = await self._toolset.call_tool(call.name, arguments, ctx, tool)
        except ToolFailed as failed:
            return failed.message, True
        except Exception as error:
            if says_nothing(error):
                raise
            return describe_failed_tool(error), True  # the model is told, and can do better
        return ToolReturnPart(call.name, value, call.id).model_response_str(), False


class _FromTheJournal(AbstractCapability[Running]):
    """Takes what a person says while the turn runs, and summarises a turn that becomes too long.

    From then on its requests are made from the journal, where all that was said and done is.
    """

    def __init__(self, agent: Agent, session: AsyncSession, turn: AsyncTurn) -> None:
        self._agent = agent
        self._session = session
        self._turn = turn
        self._changed = False

    async def before_model_request(
        self, ctx: RunContext[Running], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        if ctx.run_step > 1:
            agent, session = self._agent, self._session
            compacted = await compact_turn_if_long(session, agent.model, agent.window)
            steered = await self._turn.steering()
            self._changed = self._changed or compacted or bool(steered)
            if self._changed:
                request_context.messages = await agent.history(session)
        return request_context


class _ToolErrors(AbstractCapability[Running]):
    """A tool that raises does not end the turn: the model is told, and can do better."""

    async def on_tool_execute_error(
        self,
        ctx: RunContext[Running],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        error: Exception,
    ) -> Any:
        if says_nothing(error):
            raise error
        raise ToolFailed(describe_failed_tool(error)) from error


# -- which model an agent gets ---------------------------------------------------------------------

_SMALL_SHOWN: Final = 1500


@asynccontextmanager
async def agent_for(
    model: str | None = None,
    *,
    root: Path | None = None,
    allowed: Sequence[str] = (),
    tools: Sequence[Any] | None = None,
    instructions: str | None = None,
) -> AsyncIterator[Agent]:
    """Open an agent; the embedded model is started and stopped with it.

    `model` is a name as pydantic-ai has them (`openai:…`, `anthropic:…`), the address of a server
    that speaks OpenAI's protocol (`http://host:port/v1`, with `#NAME` for one of its models), or
    `on-board`, also one that runs already (`on-board@http://host:port`). Without one KILLICK_MODEL
    is asked, then the keys in the environment, and then the model on board is taken. `root` is the
    folder its tools work in, `allowed` names the tools that need no approval. Raises
    ModelUnavailable.
    """
    name = chosen_model(model)
    folder = root or Path.cwd()
    settings: dict[str, Any] = {"allowed": allowed}
    if instructions is not None:
        settings["instructions"] = instructions
    if not name.startswith(ON_BOARD):
        made = find_model(name)
        used = Workspace(folder).tools() if tools is None else tools
        async with made:  # closes its connections in the end
            yield Agent(made, tools=used, **settings)
        return
    if embedded.model_file() is None and "@" not in name:
        raise ModelUnavailable(
            "there is no model: name one with --model or KILLICK_MODEL, set ANTHROPIC_API_KEY, "
            "OPENAI_API_KEY or GEMINI_API_KEY, or fetch a small one with 'killick model install'"
        )
    from killick.agent.constrained import ConstrainedModel

    running = name.partition("@")[2]
    serving = contextlib.nullcontext(running) if running else embedded.serving_model()
    with contextlib.ExitStack() as started:
        # A caller that is cancelled while it starts waits until it has: then it is ended.
        url = await in_thread(lambda: started.enter_context(serving))
        used = Workspace(folder, shown_chars=_SMALL_SHOWN).tools() if tools is None else tools
        async with ConstrainedModel(url) as small:
            yield Agent(small, tools=used, window=embedded.WINDOW, **settings)


def find_model(name: str) -> Model:
    """Return the model of this name. Raises ModelUnavailable, in one line."""
    try:
        if name.startswith(("http://", "https://")):
            return _at_address(name)
        return infer_model(name)
    except (UserError, ImportError, ValueError) as error:
        raise ModelUnavailable(_one_line(f"model {name!r}: {error}", SHOWN_CHARS)) from error


def _at_address(address: str) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    base, _, name = address.partition("#")
    key = os.environ.get("OPENAI_API_KEY") or "none"
    return OpenAIChatModel(name or "default", provider=OpenAIProvider(base_url=base, api_key=key))


def _one_line(text: str, limit: int) -> str:
    return " ".join(text.split())[:limit]
