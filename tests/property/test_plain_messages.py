"""A message of words takes a shorter way into the journal, and leaves there what the other does."""

import itertools
import re
from binascii import unhexlify
from collections.abc import Iterator
from enum import StrEnum
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from killick.journal import checks
from killick.journal.redaction import Redactor
from killick.model import entries as e
from killick.model.messages import Reasoning, Text, ToolCall, ToolResult
from killick.stores.engine import session_ops, turn_ops
from killick.stores.engine.state import EngineState
from killick.stores.sqlite.database import SqliteDatabase
from killick.stores.sqlite.rows import identity_key

numbers = itertools.count()
few = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


class Spoken(StrEnum):
    """A text of a class of its own."""

    HELLO = "hello"


HEX = "0123456789abcdef"
minted = st.builds(
    lambda prefix, digits: f"{prefix}_{digits}",
    st.sampled_from(["msg", "ent", "turn", "MSG", "m1", "é", ""]),
    st.text(HEX, min_size=31, max_size=33) | st.text(HEX + "ABCDEF _", min_size=32, max_size=32),
)
odd = st.sampled_from([None, 7, True, b"bytes", 1.5, Spoken.HELLO, ["list"]])
ids = minted | st.sampled_from(["a", "a/b", "a%b", "\ud800", "\0", "msg_" + "0" * 32]) | odd
words = st.text(st.characters(codec=None)) | st.just("\ud800") | st.just("long " * 20_000)
parts = (
    st.builds(Text, words)
    | st.builds(Text, odd)
    | st.builds(Text, words, extra=st.sampled_from([{"openai": {"a": 1}}, {}, 0]))
    | st.builds(Reasoning, words)
    | st.builds(ToolCall, st.sampled_from(["c1", "c2"]), st.just("shell"), st.just("{}"))
    | st.builds(ToolResult, st.sampled_from(["c1", "c2"]), words)
)
bodies = st.builds(
    e.MessageRecorded,
    id=ids,
    turn_id=st.sampled_from(["turn", "turn", "turn", "another", Spoken.HELLO]),
    role=st.sampled_from(["user", "assistant", "tool", "system", "nobody", None, Spoken.HELLO]),
    parts=st.lists(parts, max_size=3).map(tuple),
    model_call_id=st.none() | ids,
    provider=st.none() | ids,
    redacted=st.sampled_from([0, 0, 0, 1, True]),
    v=st.sampled_from([1, 1, 1, 2, True]),
)


class Journal:
    """One session on SQLite, with a turn that runs."""

    def __init__(
        self, database: SqliteDatabase, number: int, redactor: Redactor | None, resume: int
    ) -> None:
        self.database = database
        self.engine = EngineState(redactor)
        with self.database.writing() as tx:
            self.engine.begin(tx)
            row = session_ops.create_session(
                self.engine, session_id=f"s{number}", tenant="", created=e.SessionCreated(), at_us=1
            )
            assert row is not None
            self.key = row.key
            start = turn_ops.TurnStart("turn", "holder", None, resume=resume)
            self.claim = turn_ops.start_turn(self.engine, row.key, start, 2).claim
        self.engine.committed()

    def append(self, body: e.MessageRecorded, at_us: int) -> Any:
        """Return the receipt, or the error with its words."""
        try:
            with self.database.writing() as tx:
                self.engine.begin(tx)
                (receipt,) = turn_ops.append(self.engine, self.key, self.claim, (body,), at_us)
        except Exception as error:  # noqa: BLE001  (compared)
            self.engine.rolled_back()
            return type(error), str(error)
        self.engine.committed()
        return receipt

    def stored(self) -> list[Any]:
        with self.database.reading() as reader:
            execute, key = reader.connection.execute, (self.key,)
            return [
                execute("SELECT * FROM entries WHERE session = ?", key).fetchall(),
                execute("SELECT * FROM sessions WHERE key = ?", key).fetchall(),
            ]

    def state(self) -> list[Any]:
        with self.database.writing() as tx:
            self.engine.begin(tx)
            state = self.engine.state(self.key)
            assert state.turn is not None
            calls = [call.call_id for call in state.turn.unanswered()]
            return [state.row, state.turn.messages, calls]


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SqliteDatabase]]:
    folder = tmp_path_factory.mktemp("plain")
    opened = [SqliteDatabase(folder / name, durability="normal") for name in ("short", "general")]
    yield opened
    for database in opened:
        database.close()


@few
@given(
    given_=st.lists(bodies, min_size=1, max_size=4),
    repeats=st.booleans(),
    redacts=st.booleans(),
    resume=st.sampled_from([0, 0, 1]),
)
def test_both_ways_write_the_same(
    databases: list[SqliteDatabase],
    given_: list[e.MessageRecorded],
    repeats: bool,
    redacts: bool,
    resume: int,
) -> None:
    number = next(numbers)
    redactor = Redactor(lambda text: text.replace("long", "short")) if redacts else None
    short, general = (Journal(one, number, redactor, resume) for one in databases)
    for at_us, body in enumerate([*given_, given_[0]] if repeats else given_, 10):
        told = short.append(body, at_us)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checks, "is_plain", lambda _: False)
            assert told == general.append(body, at_us)
    assert short.stored() == general.stored()
    assert short.state() == general.state()


@given(
    st.integers(1, 2**40),
    minted | st.text(st.characters(codec=None)),
    st.sampled_from(["", "/message", "/x/y"]),
)
def test_a_key_is_what_the_expression_makes_of_it(session: int, name: str, rest: str) -> None:
    data = (name + rest).encode("utf-8", "surrogatepass")
    hashed = blake2b(data, digest_size=10, key=session.to_bytes(8)).digest()
    found = re.match(rb"[a-z]+_([0-9a-f]{12})[0-9a-f]{20}/", data)
    begin = hashed[:6] if found is None else unhexlify(found[1])
    assert identity_key(session, name + rest) == begin + hashed
