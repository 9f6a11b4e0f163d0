"""What the parameters of the public calls mean when they are left out."""

from collections.abc import Iterator

import pytest

from killick import InvalidEntry, Session, Store
from killick.model import entries as e
from killick.stores.memory import MemoryDisk


def created(session: Session) -> e.SessionCreated:
    body = session.entries()[0].body
    assert isinstance(body, e.SessionCreated)
    return body


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(MemoryDisk().open()) as store:
        yield store


def test_a_session_begins_as_a_user_s_without_a_title(store: Store) -> None:
    assert created(store.create_session()) == e.SessionCreated()


def test_a_title_given_at_the_beginning_is_a_person_s(store: Store) -> None:
    assert created(store.create_session(title="T")).titled_by == "person"
    assert created(store.create_session(title="T", titled_by="model")).titled_by == "model"


def test_without_a_title_it_has_no_giver(store: Store) -> None:
    assert created(store.create_session(titled_by="model")).titled_by is None


def test_an_empty_key_is_refused_before_anything_begins(store: Store) -> None:
    session = store.create_session()
    with pytest.raises(InvalidEntry, match="key is empty"):
        session.turn("go", key="")
    assert session.turns() == []


def test_a_model_call_is_a_first_attempt_unless_told(store: Store) -> None:
    session = store.create_session()
    with session.turn("go") as turn, turn.stream() as reply:
        reply.text("hi")
    [call] = [x.body for x in session.entries() if isinstance(x.body, e.ModelCallStarted)]
    assert (call.attempt, call.retry_of, call.settings) == (1, None, {})
    assert session.messages()[-1].role == "assistant"


def test_a_stop_names_the_turn_that_it_asked(store: Store) -> None:
    session = store.create_session()
    assert session.stop() is None
    turn = session.turn("go")
    turn.__enter__()
    assert session.stop() == turn.id
    turn.__exit__(None, None, None)
    assert session.stop(turn.id) is None
