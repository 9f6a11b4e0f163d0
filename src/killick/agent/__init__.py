"""An agent to talk to: a model, a few tools, and everything recorded as it happens.

    async with agent_for(None) as agent, session.turn("What is in this folder?") as turn:
        await agent.answer(session, turn)

pydantic-ai runs the model and the tools; `killick.adapters.pydantic_ai` records them. Names are
loaded when they are asked for: the embedded model runs in a process that needs none of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from killick.agent.agent import Agent, agent_for
    from killick.agent.approvals import Pending, pending_approvals
    from killick.agent.embedded import ModelUnavailable
    from killick.agent.workspace import Workspace

__all__ = [
    "Agent",
    "ModelUnavailable",
    "Pending",
    "Workspace",
    "agent_for",
    "pending_approvals",
]

_MODULES = {
    "Agent": "agent",
    "ModelUnavailable": "embedded",
    "Pending": "approvals",
    "Workspace": "workspace",
    "agent_for": "agent",
    "pending_approvals": "approvals",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"killick.agent.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'killick.agent' has no attribute {name!r}")
