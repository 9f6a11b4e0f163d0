"""A program in which every thread is a greenlet, all of one thread. Run with a store and a number.

Whatever blocks that thread blocks all of them, those for good that would have ended the wait.
"""

import sys

from gevent import monkey

monkey.patch_all()

import time  # noqa: E402

import gevent  # noqa: E402

from killick import Session, Store  # noqa: E402
from killick.model import entries as e  # noqa: E402

AGENTS = 20
PIECES = int(sys.argv[2])


def talk(store: Store) -> str:
    session = store.create_session()
    with session.turn("Go.") as turn, turn.stream() as reply:
        for _ in range(PIECES):
            reply.text("x")
            time.sleep(0.001)
    return session.id


def follow(session: Session) -> str:
    """The text of a session's first answer, by its deltas and whole."""
    heard = ""
    for item in session.follow():
        if not isinstance(item, e.Entry):
            heard += item.text
        elif item.kind == "turn_ended":
            break
    return heard


def main() -> None:
    with Store(sys.argv[1]) as store:
        agents = [gevent.spawn(talk, store) for _ in range(AGENTS)]
        followed = store.create_session()
        listening = gevent.spawn(follow, followed)
        gevent.joinall(agents, raise_error=True)
        with followed.turn("Go.") as turn, turn.stream() as reply:
            for _ in range(PIECES):
                reply.text("y")
                gevent.sleep(0.08)
        gevent.joinall([listening], raise_error=True)
        print(*{store.session(agent.value).messages()[-1].text for agent in agents})
        print(listening.value)


if __name__ == "__main__":
    main()
