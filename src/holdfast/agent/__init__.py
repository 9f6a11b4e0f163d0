"""An agent to talk to: a model, a few tools, and everything recorded as it happens.

    async with agent_for(None) as agent, session.turn("What is in this folder?") as turn:
        await agent.answer(session, turn)

pydantic-ai runs the model and the tools; `holdfast.adapters.pydantic_ai` records them. Names are
loaded when they are asked for: the embedded model runs in a process that needs none of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.agent.agent import Agent
    from holdfast.agent.approvals import Pending, pending_approvals
    from holdfast.agent.choosing import agent_for
    from holdfast.agent.embedded import ModelUnavailable
    from holdfast.agent.tools import Workspace

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
    "Workspace": "tools",
    "agent_for": "choosing",
    "pending_approvals": "approvals",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"holdfast.agent.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'holdfast.agent' has no attribute {name!r}")
