"""The recorder: a run's hooks, and a model in the place of every agent's model.

The SDK asks `RunConfig.model` in the place of an agent's own. That is a model of ours, which asks
the agent's own model and records what it answers. Which agent it is, is told by the filter that the
SDK calls before each request; so is what the model is told of calls that no tool ran for.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from agents import Agent, Model, ModelProvider, RunConfig, RunHooks, RunState
from agents.items import ModelResponse
from agents.models.default_models import get_default_model_settings
from agents.run_config import CallModelData, ModelInputData, ToolErrorFormatterArgs
from agents.tracing import get_current_span

from killick.adapters.openai_agents.items import OURS
from killick.adapters.shared_store import open_child
from killick.adapters.tool_journal import ToolJournal, content_of
from killick.model import entries as e
from killick.model.messages import Json
from killick.recorders import AsyncRecording, record
from killick.session.aio import AsyncSession
from killick.session.aio_blocks import AsyncTurn
from killick.session.sync_blocks import plain

STATE: Final = "openai_agents.run_state"
"""The name of the notes that hold a paused run."""


class Recorder(RunHooks[Any]):
    """Records one run of an agent into one turn.

    Give it as `hooks`, and its `run_config`, to `Runner.run` or `Runner.run_streamed`; one for each
    run. `run_config` and `hooks` are yours, which stay in effect. `of` is the turn that this one
    continues, after `paused`.

    If interrupted: what came is in the journal. A message that was cut off is partial, a tool that
    ran has its result or an unknown outcome; the turn's block gives the turn its ending.
    """

    def __init__(
        self,
        turn: AsyncTurn,
        *,
        run_config: RunConfig | None = None,
        hooks: RunHooks[Any] | None = None,
        of: str | None = None,
    ) -> None:
        self.turn = turn
        self.tools = ToolJournal(turn, of=of)
        self._given = run_config or RunConfig()
        self._hooks = hooks
        self._model = _RecordedModel(self, self._given)
        self._failed: set[str] = set()
        self._answered: dict[str, int] = {}
        self._children: dict[str, Recorder] = {}
        self.run_config: RunConfig = replace(
            self._given,
            model=self._model,
            call_model_input_filter=self._before_model,
            tool_error_formatter=self._on_tool_error,
        )
        """What to give as `run_config`: yours, or the SDK's defaults, recorded."""

    # -- before each request ---------------------------------------------------------------------

    async def _before_model(self, data: CallModelData[Any]) -> ModelInputData:
        self._model.announce(data.agent)
        await self._catch_up(data.model_data.input)
        theirs = self._given.call_model_input_filter
        if theirs is None:
            return data.model_data
        made = theirs(data)
        return made if isinstance(made, ModelInputData) else await made

    async def _catch_up(self, items: list[Any]) -> None:
        """Record results that no hook told of: a handoff, a refusal, an unknown tool."""
        seen: dict[str, int] = {}
        for item in items:
            call_id = item.get("call_id") if isinstance(item, dict) else None
            if not call_id or not str(item.get("type")).endswith("_output"):
                continue
            seen[call_id] = seen.get(call_id, 0) + 1
            if call_id in self.tools.calls and seen[call_id] > self._answered.get(call_id, 0):
                self._answered[call_id] = seen[call_id]
                text, _ = content_of(item.get("output"))
                await self.tools.answer(call_id, text, is_error=call_id in self._failed)

    def _on_tool_error(self, args: ToolErrorFormatterArgs[Any]) -> Any:
        self._failed.add(args.call_id)
        theirs = self._given.tool_error_formatter
        return None if theirs is None else theirs(args)

    # -- hooks -----------------------------------------------------------------------------------

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        call_id = getattr(context, "tool_call_id", None)
        if call_id is not None:
            name, arguments = context.tool_name, context.tool_arguments
            own = await self.tools.start(call_id, name, arguments)
            if getattr(tool, "_is_agent_tool", False):
                await self._begin_child(context, own, tool)
        if self._hooks is not None:
            await self._hooks.on_tool_start(context, agent, tool)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        call_id = getattr(context, "tool_call_id", None)
        if call_id is not None:
            own = self.tools.calls.find(call_id) or call_id
            self._answered[call_id] = self._answered.get(call_id, 0) + 1
            text, structured = content_of(result)
            failed = call_id in self._failed or _span_failed()
            await self._end_child(own, failed=failed)
            await self.tools.finish(own, text, is_error=failed, structured=structured)
        if self._hooks is not None:
            await self._hooks.on_tool_end(context, agent, tool, result)

    async def on_llm_start(self, *args: Any) -> None:
        if self._hooks is not None:
            await self._hooks.on_llm_start(*args)

    async def on_llm_end(self, *args: Any) -> None:
        if self._hooks is not None:
            await self._hooks.on_llm_end(*args)

    async def on_agent_start(self, *args: Any) -> None:
        if self._hooks is not None:
            await self._hooks.on_agent_start(*args)

    async def on_agent_end(self, *args: Any) -> None:
        if self._hooks is not None:
            await self._hooks.on_agent_end(*args)

    async def on_handoff(self, *args: Any, **named: Any) -> None:
        if self._hooks is not None:
            await self._hooks.on_handoff(*args, **named)

    # -- agents as tools -------------------------------------------------------------------------

    async def _begin_child(self, context: Any, call_id: str, tool: Any) -> None:
        """Give an agent that is a tool a session of its own, through this call's own config."""
        inner = getattr(tool, "_agent_instance", None)
        child = await open_child(self.turn, call_id, title=getattr(inner, "name", None))
        # Whether the inner run has our hooks is not known: without them starts are not seen.
        turn = await child.turn(context.tool_arguments or "{}", starts="unseen").begin()
        recorder = Recorder(turn, run_config=self._given)
        self._children[call_id] = recorder  # held, so that its turn is not dropped
        context.run_config = recorder.run_config

    async def _end_child(self, call_id: str, *, failed: bool) -> None:
        child = self._children.pop(call_id, None)
        if child is not None:
            await child.turn.end(cause="failed" if failed else None)

    # -- approvals -------------------------------------------------------------------------------

    async def pause(self, result: Any) -> bool:
        """Record that a run waits for a person, and keep it; False if it does not wait.

        Call it with the result of a run. The turn is then over, as interrupted, and waits on:
        `session.decide_approval` decides, from any process, and `paused` gives the run back.

        If interrupted: call it again; what was asked is asked once.
        """
        if not result.interruptions:
            return False
        session = self.tools.session
        state = result.to_state().to_json()
        await session.note(STATE, state, key=f"{STATE}:{self.turn.id}")
        asked = {question.call_id for question in await session.approvals()}
        for item in result.interruptions:
            call_id = str(item.call_id)
            if call_id not in asked:
                await self.turn.ask_approval(call_id, item.arguments or "")
        await self.turn.end(cause="terminated")
        return True


def _span_failed() -> bool:
    """Return whether the SDK's own span of this tool has an error; with tracing off it has none."""
    span = get_current_span()
    return span is not None and span.error is not None


class SubagentHooks(RunHooks[Any]):
    """Records the tools of an agent that is a tool: give it to `agent.as_tool(…, hooks=…)`.

    One serves all agents and runs: it finds the recorder of the run that it is called in.
    """

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        recorder = _recorder_of(context)
        if recorder is not None:
            await recorder.on_tool_start(context, agent, tool)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        recorder = _recorder_of(context)
        if recorder is not None:
            await recorder.on_tool_end(context, agent, tool, result)


def _recorder_of(context: Any) -> "Recorder | None":
    model = getattr(getattr(context, "run_config", None), "model", None)
    return model.recorder if isinstance(model, _RecordedModel) else None


# -- models --------------------------------------------------------------------------------------


class _RecordedModel(Model):
    """Stands in for the models of all agents of a run, and records what they answer."""

    def __init__(self, recorder: Recorder, given: RunConfig) -> None:
        self.recorder = recorder
        self._given = given
        self._agent: Agent[Any] | None = None
        self._attempts: AsyncRecording[Any] | None = None
        self._asked: list[Model] = []

    def announce(self, agent: Agent[Any]) -> None:
        """Say whose request comes next; asked again without it, a request is a retry."""
        self._agent = agent
        self._attempts = None

    def _own(self) -> Model:
        """Return the model that the SDK would have asked."""
        provider: ModelProvider = self._given.model_provider
        named = self._given.model
        if named is None and self._agent is not None:
            named = self._agent.model
        model = named if isinstance(named, Model) else provider.get_model(named)
        if not any(model is known for known in self._asked):
            self._asked.append(model)
        return model

    def _settings(self, settings: Any) -> Any:
        """Return the settings that the SDK would have given: some follow from a model's name."""
        agent = self._agent
        if agent is None or isinstance(self._given.model, Model):
            return settings
        if self._given.model is None and isinstance(agent.model, Model):
            return settings
        own = (
            get_default_model_settings()
            if agent.model is None
            else get_default_model_settings(str(agent.model))
        )
        if agent.model_settings != own:
            return settings
        named = self._given.model
        implicit = get_default_model_settings(named) if isinstance(named, str) else own
        return implicit.resolve(settings)

    def _record(self, model: Model, source: Any, given: "_Given") -> AsyncRecording[Any]:
        recording: AsyncRecording[Any] = record(
            self.recorder.turn,
            "openai-responses",
            source,
            request=_request(model, given),
            provider=_provider(model),
            retry_of=self._attempts,
            cut="keep",
        )
        self._attempts = recording
        return recording

    async def stream_response(self, *args: Any, **named: Any) -> AsyncIterator[Any]:  # type: ignore[override, misc]
        model, given = self._own(), _given(args, named)
        given = given._replace(settings=self._settings(given.settings))
        positional, keywords = given.call()
        recording = self._record(
            model, lambda: model.stream_response(*positional, **keywords), given
        )
        try:
            async for event in recording:
                yield event
        finally:
            await recording.close()
            self.recorder.tools.calls.add(recording.tool_calls)

    async def get_response(self, *args: Any, **named: Any) -> ModelResponse:
        model, given = self._own(), _given(args, named)
        given = given._replace(settings=self._settings(given.settings))
        positional, keywords = given.call()
        made: list[ModelResponse] = []

        async def ask() -> Json:
            response = await model.get_response(*positional, **keywords)
            made.append(response)
            return _whole(response)

        recording = self._record(model, ask, given)
        await recording.whole()
        self.recorder.tools.calls.add(recording.tool_calls)
        return made[0]

    def get_retry_advice(self, request: Any) -> Any:
        return self._asked[-1].get_retry_advice(request) if self._asked else None

    async def _cleanup_on_run_end(self, owner: object) -> None:
        for model in self._asked:
            await model._cleanup_on_run_end(owner)


class _Given(NamedTuple):
    """The arguments of one request, as the SDK gives them."""

    system: str | None
    input: Any
    settings: Any
    tools: list[Any]
    rest: tuple[Any, ...]
    named: dict[str, Any]

    def call(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        first = (self.system, self.input, self.settings, self.tools)
        return (*first, *self.rest), self.named


_NAMES: Final = ("system_instructions", "input", "model_settings", "tools")


def _given(args: tuple[Any, ...], named: dict[str, Any]) -> _Given:
    left = dict(named)
    first = [*args[:4]]
    for name in _NAMES[len(first) :]:
        first.append(left.pop(name))
    return _Given(first[0], first[1], first[2], list(first[3]), args[4:], left)


def _provider(model: Model) -> str:
    return "openai" if type(model).__module__.startswith("agents.models.openai") else OURS


def _request(model: Model, given: _Given) -> dict[str, Any]:
    settings = plain(given.settings.to_json_dict())
    kept = settings if isinstance(settings, dict) else {}
    request: dict[str, Any] = {
        key: value
        for key, value in kept.items()
        if value is not None and not key.startswith("extra_")
    }
    name = getattr(model, "model", None)
    if isinstance(name, str):
        request["model"] = name
    if given.system:
        request["instructions"] = given.system
    offered = [*given.tools, *_handoffs(given)]
    if offered:
        request["tools"] = [_offer(tool) for tool in offered]
    return request


def _handoffs(given: _Given) -> list[Any]:
    handoffs = given.named.get("handoffs", given.rest[1] if len(given.rest) > 1 else ())
    return list(handoffs or ())


def _offer(tool: Any) -> dict[str, Any]:
    """Return what the model is told of a tool, or of a handoff."""
    name = getattr(tool, "name", None) or getattr(tool, "tool_name", None)
    words = getattr(tool, "description", None) or getattr(tool, "tool_description", None)
    schema = getattr(tool, "params_json_schema", None) or getattr(tool, "input_json_schema", None)
    offer = {"name": str(name), "description": words, "parameters": plain(schema)}
    return {key: value for key, value in offer.items() if value}


def _whole(response: ModelResponse) -> dict[str, Any]:
    """Return an answer that came in one piece as the response that the provider sends."""
    usage = response.usage
    return {
        "id": response.response_id,
        "status": "completed",
        "output": [
            item if isinstance(item, dict) else item.model_dump(exclude_unset=True, warnings=False)
            for item in response.output
        ],
        "usage": {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "input_tokens_details": {
                "cached_tokens": getattr(usage.input_tokens_details, "cached_tokens", 0)
            },
            "output_tokens_details": {
                "reasoning_tokens": getattr(usage.output_tokens_details, "reasoning_tokens", 0)
            },
        },
    }


# -- runs that wait ------------------------------------------------------------------------------


class PausedRun(NamedTuple):
    """A run that waited for a person, with what was decided since."""

    turn_id: str
    state: RunState[Any]
    waiting: int
    """The number of its calls that are not decided on yet."""


async def paused(session: AsyncSession, agent: Agent[Any]) -> PausedRun | None:
    """Return the run that waits in this session, with the decisions that the journal has.

    Run its `state` in a turn that continues the first:
    `session.turn(continues=run.turn_id)`, `Recorder(turn, of=run.turn_id)`.
    """
    notes = await session.notes(STATE, last=1)
    if not notes or notes[0].key is None:
        return None
    turn_id = notes[0].key.removeprefix(f"{STATE}:")
    state: RunState[Any] = await RunState.from_json(agent, notes[0].data)  # type: ignore[arg-type]
    asked: dict[str, str] = {}
    decided: dict[str, e.ApprovalDecided] = {}
    for entry in await session.entries():
        match entry.body:
            case e.ApprovalAsked(turn_id=asker) as body if asker == turn_id:
                asked[body.id] = body.call_id
            case e.ApprovalDecided(id=name) as body if name in asked:
                decided[asked[name]] = body
            case _:
                pass
    waiting = 0
    for item in state.get_interruptions():
        decision = decided.get(str(item.call_id))
        if decision is None:
            waiting += 1
        elif decision.approved:
            state.approve(item)
        else:
            state.reject(item, rejection_message=decision.reason or None)
    return PausedRun(turn_id, state, waiting)
