"""Works on a store in a process of its own, in whatever version is installed there.

It is told by lines on its standard input what to do, and answers each with a line of JSON. It
uses what every version has.
"""

import json
import sys

import killick
from killick import KillickError, Message, Store, Text


def talk(store: Store, session_id: str, name: str, times: int) -> list[str]:
    """Turns in a session, each with an answer; what was acknowledged."""
    said = []
    session = store.open_session(session_id)
    for number in range(times):
        text = f"{name} {number}"
        with session.turn(f"ask {text}", if_busy="wait", wait_seconds=60) as turn:
            with turn.stream() as reply:
                reply.text(f"streamed {text}")
            turn.record(Message(role="assistant", parts=[Text(f"recorded {text}")]))
        said += [f"ask {text}", f"streamed {text}", f"recorded {text}"]
    return said


def read(store: Store, session_id: str) -> list[str]:
    messages = store.session(session_id).messages()
    return [message.text for message in messages]


def main(url: str, name: str) -> None:
    try:
        store = Store(url)
    except KillickError as error:
        print(json.dumps({"refused": type(error).__name__}), flush=True)
        return
    print(json.dumps({"file": killick.__file__}), flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        answer: object = None
        try:
            if word == "talk":
                answer = talk(store, rest[0], name, int(rest[1]))
            elif word == "read":
                answer = read(store, rest[0])
            elif word == "reopen":
                store.close()
                store = Store(url)
        except KillickError as error:
            answer = {"refused": type(error).__name__, "why": str(error)}
        print(json.dumps(answer), flush=True)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
