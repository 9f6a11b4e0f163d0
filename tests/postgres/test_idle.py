"""What it costs to wait: counted, by the statements that are sent and the threads that wake.

The watcher's questions are the clock of these tests: what else happens between two of them is what
an idle process does.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from killick import Entry, Session, Store
from killick.stores.postgres.connection import Connection
from tests.postgres.proxy import Proxy
from tests.postgres.test_notices import ASKED, SOON
from tests.postgres_fixtures import Shared
from tests.waiting import until

FOLLOWERS = 20
QUESTIONS = 6
LISTENING = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%SET watched%' AND state = 'idle'"


class Statements:
    """How many were sent, by the thread that did; each of the watcher's is a signal."""

    def __init__(self) -> None:
        self.by: Counter[tuple[str, str]] = Counter()
        self.asked = threading.Semaphore(0)

    def pass_on(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        def counted(connection: Connection, sql: bytes | str, *args: Any, **kwargs: Any) -> Any:
            name = threading.current_thread().name
            verb = (sql if isinstance(sql, str) else sql.decode()).split()[0]
            try:
                return execute(connection, sql, *args, **kwargs)
            finally:
                self.by[name, verb] += 1
                if name == "killick-watcher":
                    self.asked.release()

        return counted

    def between_questions(self, count: int) -> Counter[tuple[str, str]]:
        """What was sent until the watcher has asked so many times."""
        while self.asked.acquire(blocking=False):
            pass
        before = self.by.copy()
        for _ in range(count):
            assert self.asked.acquire(timeout=SOON)
        return self.by - before

    def settle(self) -> None:
        """Until those who follow have looked at everything that they were told of."""
        until(lambda: ("follower", "SELECT") not in self.between_questions(2))


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    counting = Statements()
    monkeypatch.setattr(Connection, "execute", counting.pass_on(Connection.execute))
    return counting


@pytest.fixture
def following(server: Shared) -> Iterator[list[Session]]:
    """Sessions of one opening that are followed, each on a thread, and shown all there is."""
    with Store(server.server.url(), indexing=False) as store:
        sessions = [store.create_session() for _ in range(FOLLOWERS)]
        shown = threading.Semaphore(0)

        def follow(session: Session) -> None:
            for _ in session.follow():
                shown.release()

        threads = [
            threading.Thread(target=follow, args=(one,), name="follower") for one in sessions
        ]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert shown.acquire(timeout=SOON)
        until(lambda: len(server.server.execute(ASKED)) == FOLLOWERS)
        yield sessions
    for thread in threads:
        thread.join(SOON)


@pytest.mark.usefixtures("following")
def test_twenty_followers_cost_one_statement_each_time(statements: Statements) -> None:
    """One question for all of them, and nobody looks who was not told to. A lease is renewed."""
    statements.settle()
    sent = statements.between_questions(QUESTIONS)
    sent.pop(("killick-lease", "INSERT"), None)
    assert sent == {("killick-watcher", "SELECT"): QUESTIONS}


@pytest.mark.usefixtures("following")
@pytest.mark.linux
def test_nobody_wakes_between_two_questions(statements: Statements) -> None:
    """Not who listens, nor who follows; who asks waits for the answer."""
    statements.settle()
    before = wakes()
    statements.between_questions(QUESTIONS)
    woken = wakes() - before
    assert woken["killick-listener"] <= 1
    assert woken["follower"] <= 1
    assert woken["killick-watcher"] <= QUESTIONS * 5


def wakes() -> Counter[str]:
    """How often the threads of this process have gone to sleep and come back, by name."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    counted: Counter[str] = Counter()
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        name = names.get(int(task.name))
        if name is not None:
            status = (task / "status").read_text()
            counted[name] += int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return counted


def test_what_a_lost_connection_would_have_told_is_found(
    server: Shared, wire: Callable[[], Proxy]
) -> None:
    """The thread that listens loses its connection, and an entry comes before it has another."""
    way = wire()
    ask = server.server.execute
    with Store(server.server.url(port=way.port)) as store, Store(server.server.url()) as other:
        session, seen = store.create_session(), threading.Semaphore(0)

        def follow() -> None:
            for item in session.follow():
                if isinstance(item, Entry) and item.kind == "note":
                    seen.release()

        thread = threading.Thread(target=follow)
        thread.start()
        elsewhere = other.session(session.id)
        gone: set[Any] = set()
        for number in range(3):
            until(lambda: set(ask(LISTENING)) - gone)
            gone.update(ask(LISTENING))
            way.blink()
            elsewhere.note(f"note {number}")
            assert seen.acquire(timeout=SOON)
    thread.join(SOON)
    assert not thread.is_alive()


def test_whoever_stops_following_on_another_thread_is_not_kept_waiting(server: Shared) -> None:
    with Store(server.server.url()) as store:
        following = store.create_session().follow()
        next(following)
        ended = threading.Event()

        def wait() -> None:
            for _ in following:
                pass
            ended.set()

        thread = threading.Thread(target=wait)
        thread.start()
        following.close()
        assert ended.wait(SOON)
        thread.join()
