"""Who is told of a commit: those who asked for it, and whoever is to stop."""

import threading

from killick import Message, Session, Store, Text, TurnStopped
from tests.postgres_fixtures import Shared
from tests.waiting import until

SOON = 20.0
HEARS = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
ASKED = "SELECT 1 FROM killick.sessions WHERE watched > clock_timestamp()"


def stopped(session: Session, elsewhere: Session) -> bool:
    """Whether a turn of the first hears of a stop that is asked for by the second."""
    try:
        with session.turn("Go.") as turn:
            elsewhere.stop()
            until(lambda: turn.stop_asked)
            turn.record(Message("assistant", [Text("Never said.")]))
    except TurnStopped:
        return True
    return False


def test_a_turn_that_nobody_follows_asks_for_no_notices(server: Shared) -> None:
    """Most commits to its session are its own: it would be telling itself."""
    ask = server.server.execute
    with Store(server.server.url()) as store, Store(server.server.url()) as other:
        session = store.create_session()
        with session.turn("Go.") as turn:
            until(lambda: ask(HEARS))
            turn.record(Message("assistant", [Text("Going.")]))
        assert stopped(session, other.session(session.id))
        assert ask(ASKED) == []


def test_a_session_that_is_followed_is_announced(server: Shared) -> None:
    with Store(server.server.url()) as store, Store(server.server.url()) as other:
        session, seen = store.create_session(), []

        def follow() -> None:
            for item in other.session(session.id).follow():
                seen.append(item)
                if len(seen) == 4:  # created, begun, asked, ended
                    return

        thread = threading.Thread(target=follow)
        thread.start()
        until(lambda: server.server.execute(ASKED))
        with session.turn("Go."):
            pass
        thread.join(SOON)
        assert not thread.is_alive()
