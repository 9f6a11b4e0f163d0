"""An agent whose runs finish: start it, kill it, start it again as a worker with `worker.py work`.

Tools say what a second run would do. What may be repeated is, with the same key; a call that must
not have its effect twice waits until somebody has found out what it did: `killick settle`.
"""

import os
import sys
import time

from killick import Effects, Session, Store, Turn

TOOLS = {"read_file": lambda path: f"{path}: 3 lines", "pay": lambda amount: f"paid {amount}"}
EFFECTS: Effects = {"read_file": "none", "pay": "once"}


def think(session: Session, turn: Turn, unfinished: str | None) -> None:
    """Finish what was begun; then ask the model until it calls nothing more."""
    if unfinished is not None:
        with turn.run_tools(None, TOOLS, effects=EFFECTS, unfinished=unfinished):
            pass
    while True:
        request = session.context("openai-chat").messages  # your model is asked with this
        with turn.stream() as reply, turn.run_tools(reply, TOOLS, effects=EFFECTS):
            if not any(message["role"] == "tool" for message in request):
                reply.tool_call("call_1", name="read_file", arguments='{"path": "bill.txt"}')
                reply.tool_call("call_2", name="pay", arguments='{"amount": 7}')
                continue
            reply.text("The bill is paid.")
            return


def work(store: Store, seconds: float) -> None:
    """Continue what is due, whoever began it, for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for due in store.take_due():
            session = store.session(due.session_id)
            with session.turn(None, continues=due.turn_id, work=due.token) as turn:
                think(session, turn, due.turn_id)
                print(f"{session.id}: attempt {due.attempt} went on with it")
        time.sleep(0.2)


with Store(os.environ.get("KILLICK_STORE")) as store:
    if sys.argv[1:] == ["work"]:
        work(store, float(os.environ.get("WORK_SECONDS", "3600")))
    else:
        session = store.create_session(title="Pay the bill")
        with session.turn("Pay the bill in bill.txt.", resume=5) as turn:
            think(session, turn, None)
        print(f"{session.id}: {session.messages(last=1)[0].text}")
