"""What each provider refuses, said before it is sent.

One function for each format, written from the provider's published rules and error messages::

    from killick.testing.validators import anthropic

    context = session.context("anthropic")
    assert anthropic(context.messages, context.system, complete=True) == []

Each takes the list that the provider's SDK is given and returns a `Violation` for every rule that
is broken, with its place. A history may end with the assistant's message; `complete=True` asks
for what a request that is sent now needs besides. `RULES` of each module says, rule by rule, what
the provider publishes. A list that passes can still be refused for what only the provider knows:
a signature that is not its own, a model that takes no images, a context that is too long.
"""

from killick.testing.validators.chat import openai_chat
from killick.testing.validators.contents import gemini
from killick.testing.validators.messages import anthropic
from killick.testing.validators.report import Violation
from killick.testing.validators.responses import openai_responses

__all__ = ["Violation", "anthropic", "gemini", "openai_chat", "openai_responses"]
