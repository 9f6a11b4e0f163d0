"""Validators: they tell what a provider would refuse before it is sent.

One function for each format, written from the provider's published rules and error messages::

    from killick.views.validators import anthropic

    context = session.context("anthropic")
    assert anthropic(context.messages, context.system, complete=True) == []

Each takes the list that the provider's SDK is given and returns a `Violation` for every rule that
is broken, and where. A history may end with the assistant's message; `complete=True` asks
for what a request that is sent now needs besides. `RULES` of each module says, rule by rule, what
the provider publishes. `openai_chat_of` asks for a server that a profile names. A list that passes
can still be refused for what only the provider knows: a signature that is not its own, a model
that takes no images, a context that is too long.

`truth(session.entries(), context)` compares what a context says of tools with the journal.
"""

from killick.views.validators.anthropic_messages import anthropic
from killick.views.validators.chat_completions import openai_chat, openai_chat_of
from killick.views.validators.findings import Violation
from killick.views.validators.gemini_contents import gemini
from killick.views.validators.responses_items import openai_responses
from killick.views.validators.truth import truth

__all__ = [
    "Violation",
    "anthropic",
    "gemini",
    "openai_chat",
    "openai_chat_of",
    "openai_responses",
    "truth",
]
