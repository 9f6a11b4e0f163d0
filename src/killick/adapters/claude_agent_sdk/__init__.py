"""Sessions of the Claude Agent SDK in a store, from which its command goes on anywhere.

    options = ClaudeAgentOptions(**session_options(store))

The SDK's command writes its own files; the SDK hands their lines over as well, as they are written.
"""

from killick.adapters.frameworks import tested

tested("claude-agent-sdk", "claude-agent-sdk", at_least="0.2.182", below="0.3")

from killick.adapters.claude_agent_sdk.session_store import (  # noqa: E402
    KillickSessionStore,
    session_options,
)

__all__ = ["KillickSessionStore", "session_options"]
