"""The k-th operation of the file system fails, for every k.

A scenario is run once to count its operations. Then it is run again for each of them: that one
fails, once or from then on. Whoever was told that something is durable must find it afterwards, in
the same store object once the disk works again, in the file when it is opened anew, and on the
platter after a power cut: what the kernel could not sync it has forgotten.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from killick import Message, Session, Store, Text, ToolCall, ToolResult
from killick.errors import KillickError, StoreError
from killick.stores.engine.state import Op
from killick.stores.sqlite import connection
from tests.crash.journals import check_sound
from torture.campaign import Campaign, Round, Sizes
from torture.disk import Event, Fault, FaultyDisk, Kind, Platter, faulty_disk

_NEVER: Final = 10**9
WAYS: Final[list[tuple[Kind, bool]]] = [
    ("write", False),
    ("fsync", False),
    ("fsync", True),
    ("open", False),
    ("open", True),
    ("write", True),
    ("read", False),
    ("read", True),
    ("short", False),
    ("short", True),
]
"""What fails, and whether it does for ever."""


class Told:
    """What a caller was told is durable."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.messages: dict[str, str] = {}
        self.turns: dict[str, str] = {}
        self.results: dict[str, str] = {}
        self.refused = 0

    def check(self, session: Session) -> None:
        """Everything is there, once, and nothing is torn or fused with another."""
        check_sound(session)
        entries = session.entries()
        names = [str(getattr(x.body, "name", "")) for x in entries if x.kind == "note"]
        assert len(set(names)) == len(names), "a note is there twice"
        assert set(self.notes) <= set(names), "a note is missing"
        messages = {message.id: message for message in session.messages()}
        for message_id, text in self.messages.items():
            assert messages[message_id].text == text, "a message is missing or another"
        turns = {turn.id: turn for turn in session.turns()}
        for turn_id, status in self.turns.items():
            assert turns[turn_id].status == status or not status, "an ending is another"
        found = {
            str(part.call_id): str(part.content)
            for message in messages.values()
            for part in message.parts
            if isinstance(part, ToolResult)
        }
        for call_id, content in self.results.items():
            assert found[call_id] == content, "a result is missing"


class Agent:
    """What an agent does, and what it does when the store refuses: it goes on with the next."""

    def __init__(self, store: Store, told: Told, chance: random.Random, disk: FaultyDisk) -> None:
        self._store = store
        self._disk = disk
        self._told = told
        self._chance = chance
        self._count = 0

    def work(self) -> None:
        session = None
        for _ in range(2):
            if session is None:  # an agent whose session could not be opened tries again
                session = self._try(lambda: self._store.create_session(id="s"))
        if session is None:
            return
        self._note(session)
        self._turn(session)
        self._note(session)
        self._try(lambda: session.messages())

    def _try(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except StoreError:
            self._told.refused += 1
            return None

    def _name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _note(self, session: Session) -> None:
        name = self._name("note")
        for _ in range(2):  # told that it failed, it tries once more: that must not make two
            if self._try(lambda: session.note(name, "x" * 300, key=name)) is not None:
                self._told.notes.append(name)
                self._disk.ack(name)
                assert self._store.status == "ok"
                return
            assert self._store.status == "degraded", "a write failed and the status says ok"

    def _turn(self, session: Session) -> None:
        turn_id, told = "", self._told
        try:
            with session.turn(self._name("prompt")) as turn:
                turn_id = turn.id
                told.turns[turn_id] = ""
                self._in_turn(turn)
        except StoreError:
            told.refused += 1
        else:
            told.turns[turn_id] = "completed"
            self._disk.ack(turn_id)

    def _in_turn(self, turn: Any) -> None:
        told = self._told
        first, call_id = self._name("m"), self._name("call")
        turn.record(Message("assistant", [Text(f"text of {first}")], id=first))
        told.messages[first] = f"text of {first}"
        with turn.stream() as reply:
            for size in (10, 2_000):
                reply.text(self._chance.choice("abc") * size)
                self._flush()
            text = "".join(delta.text for delta in self._deltas(reply))
            reply.tool_call(call_id, name="shell", arguments="{}")
        told.messages[reply.id] = text
        with turn.tool(call_id) as call:
            call.output("printed")
            self._flush()
            call.finish(f"result of {call_id}")
            told.results[call_id] = f"result of {call_id}"
        turn.record(Message("assistant", [ToolCall(self._name("never"), "shell", "{}")]))

    def _deltas(self, reply: Any) -> list[Any]:
        """What the reply was given so far, as the store has it."""
        core = reply._core
        runtime = core.turn.runtime
        deltas: list[Any] = runtime.read(
            lambda reader: [
                delta
                for _, flush in reader.deltas(core.turn.key, core._buffer.seq)
                for delta in flush
            ]
        )
        return deltas

    def _flush(self) -> None:
        """The window ends now, and not at whatever moment: the same seed does the same again."""
        writer = self._store._core.runtime().writer
        writer.at_once()
        writer.submit(Op(lambda engine: None)).wait()


@contextmanager
def small_log(pages: int) -> Iterator[None]:
    """The log is copied back early, so that failures fall into that as well."""
    usual = connection._CHECKPOINT_PAGES
    connection._CHECKPOINT_PAGES = pages  # type: ignore[misc]
    try:
        yield
    finally:
        connection._CHECKPOINT_PAGES = usual  # type: ignore[misc]


class Trial:
    """One scenario on one disk, to be run with one fault after the other."""

    def __init__(
        self, disk: FaultyDisk, folder: Path, seed: int, pages: int, *, exists: bool
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._seed = seed
        self._pages = pages
        self._files: dict[str, bytes] = {}
        if exists:
            path = folder / "store.db"
            with Store(path) as store, store.create_session(id="s").turn("before"):
                pass
            self._files["store.db"] = path.read_bytes()

    def count(self) -> dict[str, int]:
        """How many operations of each kind the scenario has."""
        self.run(Fault("write", _NEVER, lasting=False))
        return dict(self._disk.counts)

    def run(self, fault: Fault) -> None:
        self._put(self._files)
        path, told = self._folder / "store.db", Told()
        self._disk.reset(fault)
        with small_log(self._pages):
            self._work(path, told, fault)
            trace, counts = list(self._disk.trace), self._disk.counts
            fault.healed = True
            with Store(path) as store:
                if told.notes or told.turns:
                    told.check(store.session("s"))
        verified_again(trace)
        self._after_a_power_cut(trace, told)
        self._disk.counts = counts

    def _work(self, path: Path, told: Told, fault: Fault) -> None:
        chance = random.Random(self._seed)
        try:
            store = Store(path, window_seconds=1_000, indexing=False)
        except KillickError as error:
            assert fault.fired, "nothing failed"
            if not isinstance(error, StoreError):
                raise
            fault.healed = True
            store = Store(path, window_seconds=1_000, indexing=False)
        with store:
            Agent(store, told, chance, self._disk).work()
            fault.healed = True
            session = store.create_session(id="s")
            told.check(session) if _is_idle(session) else None
            with session.turn("the disk works again") as turn:
                turn.record(Message("assistant", [Text("so it goes on")], id="last"))
            assert store.status == "ok"
            told.messages["last"] = "so it goes on"
            told.turns[turn.id] = "completed"
            told.check(session)

    def _after_a_power_cut(self, trace: list[Any], told: Told) -> None:
        """What was synced is there; of what failed to sync, nothing is."""
        platter = Platter(self._files)
        for event in trace:
            platter.apply(event)
        self._put(platter.after_power_cut("nothing", random.Random(0)))
        with Store(self._folder / "store.db", indexing=False) as store:
            told.check(store.session("s"))

    def _put(self, files: dict[str, bytes]) -> None:
        for old in self._folder.iterdir():
            old.unlink()
        for name, data in files.items():
            (self._folder / name).write_bytes(data)


def verified_again(trace: list[Event]) -> None:
    """After a failed fsync nothing is acknowledged until the file was opened anew."""
    failed = False
    for event in trace:
        if event.what == "lost":
            failed = True
        elif event.what == "open" and event.name == "store.db":
            failed = False
        assert not (failed and event.what == "ack"), "acknowledged on a connection that failed"


def _is_idle(session: Session) -> bool:
    """Whether no ending is owed any more; until it is written the turn runs."""
    return all(turn.status != "running" for turn in session.turns())


def run(round_: Round) -> None:
    """One kind of failure at every operation of one scenario."""
    kind, lasting = WAYS[round_.seed % len(WAYS)]
    scenario = round_.seed // len(WAYS)
    with faulty_disk() as disk:
        pages = (4_000, 5, 12)[(scenario + scenario // 3) % 3]
        trial = Trial(disk, round_.quick, scenario, pages, exists=scenario % 3 != 0)
        many = trial.count()["write" if kind == "short" else kind]
        assert many > 1, f"no {kind} was counted"
        for at in range(1, many + 1):
            what = f"{kind} {at} of {many} fails {'for ever' if lasting else 'once'}"
            round_.check(what, trial.run, Fault(kind, at, lasting=lasting))


CAMPAIGN = Campaign(
    name="io_errors",
    tries="the k-th write, half-done write, fsync, read or open fails, for every k, once and for "
    "ever; what could not be synced is forgotten by the disk",
    holds="no false acknowledgement, not after a power cut either; after a failed fsync none at "
    "all until the file was opened anew; the status says it; the same store object goes on when "
    "the disk works again",
    sizes=Sizes(slice=300, torture=10_000, long=250_000),
    run=run,
    rounds=3 * len(WAYS),
)
