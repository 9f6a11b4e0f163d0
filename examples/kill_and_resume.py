"""Run it twice: the first run kills itself with -9, the second prints the next request."""

import json
import os
import signal

from killick import Store

with Store() as store:
    session = store.open_session("readme", title="Fix the build")
    if not session.turns():  # the first run
        with session.turn("Why does the build fail?") as turn:
            with turn.stream() as reply:
                reply.text("Let me look.")
                reply.tool_call("call_1", name="shell", arguments='{"command": "make"}')
            with turn.tool("call_1"):
                os.kill(os.getpid(), signal.SIGKILL)
    print(json.dumps(session.context("openai-chat").messages, indent=2))
