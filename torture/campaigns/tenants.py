"""Several tenants on one database, who use the same ids, keys and words at the same time.

Whatever a tenant writes holds a word that only this tenant knows. Whatever a tenant is told holds
no word of another, and at the end all that it wrote is there, whatever the others changed, deleted
or erased meanwhile.
"""

import contextlib
import random
from collections.abc import Callable
from typing import Any, Final

from killick import Message, Session, Store, ToolCall
from killick.errors import BlobNotFound, ConflictError, InvalidEntry, SessionNotFound
from torture.campaign import Campaign, Round, Sizes

TENANTS: Final = ("ada", "bob", "eve")
_NAMES: Final = ("s0", "s1", "s2")
STEPS: Final = 100
"""Of a schedule; each is a case."""


class Tenant:
    """One tenant's opening of the store, and what it must find there."""

    def __init__(self, store: Store, name: str, chance: random.Random) -> None:
        self.store = store
        self.word = f"{name}secret"
        self._chance = chance
        self.texts: dict[str, list[str]] = {}
        self.blobs: list[str] = []
        self.erased: set[str] = set()
        self.calls: dict[str, int] = {}
        self.turns: dict[str, int] = {}
        self._count = 0
        self.writes: tuple[Callable[[Session], object], ...] = (
            self._ask, self._ask, self._ask_for_approval, self._note, self._rename, self._rewind,
            self._compact, self._queue, self._blob, self._fork, self._delete, self._erase,
        )  # fmt: skip
        self.reads: tuple[Callable[[str], object], ...] = (
            self._messages, self._context, self._entries, self._notes, self._lists, self._finds,
            self._finds_ids, self._sums, self._feed, self._due, self._timeline,
        )  # fmt: skip

    def write(self) -> None:
        name = self._chance.choice((*_NAMES, self.word))
        session = self.store.open_session(name, title=self._text(), tags=[self._text()])
        self.texts.setdefault(session.id, [])
        # A key was used before; there is nothing to compact.
        with contextlib.suppress(ConflictError, InvalidEntry):
            self._chance.choice(self.writes)(session)

    def read(self) -> str:
        """Read something; returns all that it said."""
        look = self._chance.choice(self.reads)
        try:
            return repr(look(self._chance.choice(_NAMES)))
        except SessionNotFound as error:
            return repr(error)

    def _text(self) -> str:
        self._count += 1
        return f"{self.word} {self._count}"

    # -- writing ---------------------------------------------------------------------------------

    def _ask(self, session: Session) -> None:
        prompt, answer = self._text(), self._text()
        with session.turn(prompt) as turn, turn.stream(model=f"{self.word}-model") as reply:
            reply.text(answer)
            reply.finish(finish_reason="stop")
        self.texts[session.id] += [prompt, answer]
        self._add(self.calls, session.id)
        self._add(self.turns, session.id)

    def _add(self, counts: dict[str, int], name: str) -> None:
        counts[name] = counts.get(name, 0) + 1

    def _ask_for_approval(self, session: Session) -> None:
        with contextlib.suppress(ZeroDivisionError), session.turn(self._text()) as turn:
            turn.record(Message("assistant", [ToolCall("c", self.word, "{}")]))
            turn.ask_approval("c", "{}")
            self._add(self.turns, session.id)
            raise ZeroDivisionError

    def _note(self, session: Session) -> None:
        session.note("n", self._text(), key=f"k{self._chance.randrange(3)}")

    def _rename(self, session: Session) -> None:
        session.rename(self._text())

    def _rewind(self, session: Session) -> None:
        turns = session.turns()
        if len(turns) > 1:
            session.compact(summary=self._text(), through=session.head)
            session.undo()

    def _compact(self, session: Session) -> None:
        if session.messages(last=1):
            session.compact(summary=self._text(), through=session.head)

    def _queue(self, session: Session) -> None:
        prompt = session.queue(self._text(), key=f"q{self._chance.randrange(50)}")
        session.withdraw(prompt)

    def _blob(self, session: Session) -> None:
        """The same bytes are a blob of each tenant that put them; others' names find nothing."""
        data = self._chance.choice([b"shared", self._text().encode()])
        name = self.store.put_blob(data)
        session.note("blob", name, blobs=[name])
        if data != b"shared":
            self.blobs.append(name)

    def _fork(self, session: Session) -> None:
        if session.messages(last=1):
            fork = session.fork(at=session.head)
            assert [info.id for info in self.store.sessions(fork_of=session.id)] == [fork.id]
            self.store.delete_session(fork.id)
            self.store.erase_session(fork.id, verify=False)

    def _delete(self, session: Session) -> None:
        self.store.delete_session(session.id)
        self.store.restore_session(session.id)

    def _erase(self, session: Session) -> None:
        if self._chance.random() < 0.3:
            self.store.delete_session(session.id)
            self.store.erase_session(session.id, verify=False)
            self.erased.add(session.id)
            for kept in (self.texts, self.calls, self.turns):
                kept.pop(session.id, None)

    # -- reading ---------------------------------------------------------------------------------

    def _messages(self, name: str) -> object:
        return self.store.session(name).messages()

    def _context(self, name: str) -> object:
        return self.store.session(name).context("openai-chat")

    def _entries(self, name: str) -> object:
        return self.store.session(name).entries()

    def _timeline(self, name: str) -> object:
        session = self.store.session(name)
        return session.timeline(), session.transcript(), session.approvals(), session.queued()

    def _notes(self, name: str) -> object:
        return self.store.session(name).notes()

    def _lists(self, _name: str) -> object:
        """List exactly as many sessions as there are, so that others' would take their places."""
        listed = self.store.sessions(archived=None, limit=max(1, len(self.texts)))
        assert {info.id for info in listed} == set(self.texts)
        for name in (*_NAMES, self.word):
            assert self.store.was_erased(name) == (name in self.erased)
        return listed, self.store.sessions(deleted=True), self.store.counts()

    def _finds_ids(self, _name: str) -> object:
        """Find sessions by the beginning of an id; the words of others begin none."""
        for tenant in TENANTS:
            with contextlib.suppress(SessionNotFound):
                assert self.store.resolve_id(tenant) == self.word
        return self.store.session_ids()

    def _finds(self, _name: str) -> object:
        """Look for the words of all tenants, in messages, titles, tags and models."""
        found: list[object] = []
        for tenant in TENANTS:
            word = f"{tenant}secret"
            hits = self.store.search(word, wait_seconds=5)
            titled = self.store.sessions(title=word)
            tagged = (
                self.store.sessions(tag=f"{word} 1"),
                self.store.sessions(model=f"{word}-model"),
            )
            if word != self.word:
                assert not hits
                assert not titled
                assert not any(tagged)
            found += [hits, titled, *tagged]
        return found

    def _sums(self, _name: str) -> object:
        sums: tuple[Any, ...] = ("session", "model", "project", "day", "all")
        (whole,) = self.store.usage("all") or (None,)
        assert (whole.calls if whole else 0) == sum(self.calls.values())
        activity = self.store.activity()
        assert sum(day.turns for day in activity) == sum(self.turns.values())
        return [self.store.usage(by) for by in sums], activity

    def _feed(self, _name: str) -> object:
        feeds = (self.store.follow(), self.store.follow(waiting=True))
        try:
            return [feed.now() for feed in feeds]
        finally:
            for feed in feeds:
                feed.close()

    def _due(self, _name: str) -> object:
        return self.store.take_due(limit=10), self.store.close_dead_turns()

    # -- what must hold --------------------------------------------------------------------------

    def check(self, others: "list[Tenant]") -> None:
        """Compare all that this tenant wrote with what is there."""
        assert sorted(self.store.session_ids()) == sorted(self.texts)
        for name, texts in self.texts.items():
            session = self.store.session(name)
            bodies = repr([one.body for one in session.entries()])
            missing = [text for text in texts if repr(text) not in bodies]
            assert not missing, (name, missing)
            assert not self.store.verify_session(name).findings
        for name in (name for other in others for name in other.blobs):
            with contextlib.suppress(BlobNotFound):
                raise AssertionError(f"another tenant's blob {self.store.blob(name)!r} was read")
        assert all(repr(self.word) not in repr(other.texts) for other in others)


class Database:
    """One database with all tenants on it."""

    def __init__(self, round_: Round) -> None:
        self._chance = round_.chance
        path = round_.places.at("shared.db")
        self.tenants = [
            Tenant(Store(path, tenant=name, durability="normal"), name, self._chance)
            for name in TENANTS
        ]

    def run(self, steps: int) -> None:
        try:
            for _ in range(steps):
                tenant = self._chance.choice(self.tenants)
                tenant.write()
                self._look(self._chance.choice(self.tenants))
            for tenant in self.tenants:
                self._look(tenant)
                tenant.check([other for other in self.tenants if other is not tenant])
        finally:
            for tenant in self.tenants:
                tenant.store.close()

    def _look(self, tenant: Tenant) -> None:
        told = tenant.read()
        for other in self.tenants:
            assert other is tenant or other.word not in told, told


def run(round_: Round, steps: int = STEPS) -> None:
    database = Database(round_)
    round_.check("tenants on one database", database.run, steps, cases=steps)


CAMPAIGN = Campaign(
    name="tenants",
    tries="three tenants on one database use the same session ids, keys, blobs and words, and "
    "write, fork, delete and erase at random",
    holds="no tenant is told a word of another by any read, and all that a tenant wrote is there, "
    "with whole links",
    sizes=Sizes(slice=200, torture=10_000, long=1_000_000),
    run=run,
)
