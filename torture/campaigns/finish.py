"""Runs that are killed and continued by workers that are killed too, until each comes to an end.

An agent makes its calls one after another, with tools of each effect; every run of a tool is
counted in a file outside of the store. It is killed at a statement or at a moment that chance
gives, and three workers continue what is due: they are killed as well, and begun again. A call of
unknown outcome that must not run twice is settled, rightly or wrongly.
"""

import json
import os
import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from killick import Session, Store
from killick.errors import KillickError, WorkLost
from killick.journal import due
from killick.model import entries as e
from killick.model.effects import EFFECTS, Effect
from killick.model.messages import Text, ToolCall
from killick.session.sync_blocks import Turn
from killick.views.validators.truth import truth
from tests.crash.processes import Channel, Child, Gone, Nursery
from torture.campaign import Campaign, Places, Round, Sizes
from torture.campaigns.kills import Countdown

_STEPS: Final = 3
_RESUME: Final = 6
_WORKERS: Final = 3
_PATIENCE_SECONDS: Final = 60.0
_NEVER: Final = 10**9
_ASKED_AFTER_SECONDS: Final = 0.25
"""A person comes later than the workers, who have to leave it alone by themselves."""

_STRIDE: Final = 24
"""A round along statements kills at every 24th; as many rounds kill at all."""

_LONG_AGO: Final = datetime(2001, 1, 1, tzinfo=UTC)


# -- the agent -------------------------------------------------------------------------------------


def _calls(seed: int) -> list[list[tuple[str, Effect]]]:
    """Return the calls of each step, the same for all processes of a case."""
    return [
        [(f"s{step}c{n}", EFFECTS[(seed + 2 * step + n) % 3]) for n in range(1 + (seed + step) % 2)]
        for step in range(_STEPS)
    ]


class Ledger:
    """The world outside: a line for each run of a tool, however the store ends."""

    def __init__(self, path: str, fatal: str = "") -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._fatal = fatal

    def note(self, session: str, call: str, key: str) -> None:
        os.write(self._file, (json.dumps([session, call, key]) + "\n").encode())

    def _die(self, moment: str) -> None:
        """Killed before a tool has had its effect, or after it and before its result."""
        if moment == self._fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.002)

    def tools(self, session: str) -> dict[str, Callable[..., str]]:
        def act(call: str, idempotency_key: str) -> str:
            self._die(f"before {call}")
            self.note(session, call, idempotency_key)
            self._die(f"after {call}")
            return f"{call} is done"

        return dict.fromkeys(EFFECTS, act)


def _go_on(session: Session, turn: Turn, ledger: Ledger, seed: int, unfinished: str | None) -> None:
    """Do what is left to do: finish what was begun, then ask for one step after another."""
    tools = ledger.tools(session.id)
    effects: dict[str, Effect] = {name: name for name in EFFECTS}
    if unfinished is not None:
        with turn.run_tools(None, tools, effects=effects, unfinished=unfinished, in_order=True):
            pass
    steps = _calls(seed)
    while True:
        parts = [part for message in session.messages() for part in message.parts]
        made = {part.id for part in parts if isinstance(part, ToolCall)}
        left = [[call for call in step if call[0] not in made] for step in steps]
        wanted = next((step for step in left if step), [])
        with turn.stream() as reply:
            reply.text(f"<{uuid.uuid4().hex}>")
            with turn.run_tools(reply, tools, effects=effects, in_order=True):
                for call_id, effect in wanted:
                    arguments = json.dumps({"call": call_id})
                    reply.tool_call(call_id, name=effect, arguments=arguments, done=True)
                reply.text(f"<{uuid.uuid4().hex}>")
        if not wanted:
            return


def _be_quick() -> None:
    """Rest a millisecond after an attempt in place of a second: the same in every process."""
    due._FIRST_BACKOFF_US = 1_000  # type: ignore[misc]


def agent(
    parent: Channel, path: str, ledger: str, name: str, seed: int, boundary: int, fatal: str
) -> None:
    """Begin the run, and die at the boundary of a statement, or in a tool."""
    _be_quick()
    countdown = Countdown(path, boundary)
    with Store(path, durability="normal") as store:
        session = store.open_session(name)
        parent.send("working")
        with session.turn("Go.", resume=_RESUME) as turn:
            _go_on(session, turn, Ledger(ledger, fatal), seed, None)
    parent.send(countdown.passed)


def worker(parent: Channel, path: str, ledger: str, seed: int, boundary: int, fatal: str) -> None:
    """Continue what is due, for ever, or until the boundary of a statement, or a fatal tool."""
    _be_quick()
    Countdown(path, boundary)
    with Store(path, durability="normal") as store:
        parent.send("working")
        while True:
            taken = store.take_due(limit=1, lease_seconds=600)
            for work in taken:
                session = store.session(work.session_id)
                try:
                    with session.turn(None, continues=work.turn_id, work=work.token) as turn:
                        _go_on(session, turn, Ledger(ledger, fatal), seed, work.turn_id)
                except WorkLost:
                    pass  # somebody went first
            if not taken:
                time.sleep(0.005)


# -- the supervisor --------------------------------------------------------------------------------


class Finish:
    """One case after another: runs of one store, begun, killed, continued and looked at."""

    def __init__(self, nursery: Nursery, folder: Path, places: Places, chance: Any) -> None:
        self._nursery = nursery
        self._folder = folder
        self._places = places
        self._chance = chance
        self._seen: dict[tuple[str, str, int], float] = {}

    def runs(self, number: int, names: list[str], boundary: int) -> int:
        """Begin these runs and see each to its end; how many statements an agent passed."""
        path, ledger = self._places.at(f"{number}.db"), str(self._folder / f"{number}.ledger")
        Path(ledger).touch()
        killed: set[int] = set()
        passed = 0
        for name in names:
            at_random = boundary == _NEVER and len(names) > 1
            fatal = self._fatal(number) if at_random else ""
            child = self._nursery.start(agent, path, ledger, name, number, boundary, fatal)
            if at_random and not fatal:
                child.expect("working")
                time.sleep(self._chance.random() * 0.08)
                child.kill()
                killed.add(child.pid)
            else:
                status = child.wait()
                assert status in (0, -signal.SIGKILL), status
                killed |= {child.pid} if status else set()
                if not status:
                    child.expect("working")
                    passed = int(child.receive())
        self._continue(path, ledger, names, number, killed)
        return passed

    def _continue(
        self, path: str, ledger: str, names: list[str], seed: int, killed: set[int]
    ) -> None:
        kills = self._chance.randrange(6)
        workers: list[Child] = []
        wrong: Counter[str] = Counter()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        with Store(path, durability="normal") as store:
            ids = {info.id for info in store.sessions()}
            begun = [name for name in names if name in ids and store.session(name).turns()]
            try:
                while not all(self._is_over(store, name) for name in begun):
                    assert time.monotonic() < deadline, self._where(store, begun)
                    workers = [each for each in workers if not self._has_ended(each, killed)]
                    while len(workers) < _WORKERS:
                        boundary = self._chance.randrange(1, 120) if kills > 0 else _NEVER
                        fatal = self._fatal(seed) if kills > 0 else ""
                        kills -= boundary != _NEVER
                        arguments = (path, ledger, seed, boundary, fatal)
                        workers.append(self._nursery.start(worker, *arguments))
                    if kills > 0 and self._chance.random() < 0.05:
                        kills -= 1
                        victim = self._chance.choice(workers)
                        victim.kill()
                        killed.add(victim.pid)
                    store.close_dead_turns()
                    for name in begun:
                        self._settle(store, name, ledger, wrong)
            finally:
                for child in workers:
                    if not self._has_ended(child, killed):
                        child.kill()
                        killed.add(child.pid)
            for name in begun:
                _check(store, name, ledger, seed, wrong, killed)

    def _fatal(self, seed: int) -> str:
        """Choose a moment in a tool at which its process dies, now and then."""
        calls = [call for step in _calls(seed) for call, _ in step]
        moment = self._chance.choice(["before", "after", "after"])
        return f"{moment} {self._chance.choice(calls)}" if self._chance.random() < 0.7 else ""

    def _has_ended(self, child: Child, killed: set[int]) -> bool:
        said: Gone
        try:
            while True:
                child.receive(0.0)
        except TimeoutError:
            return False
        except Gone as gone:
            said = gone
        status = child.wait()
        assert status == -signal.SIGKILL, f"a worker ended with {status}: {said}"
        killed.add(child.pid)
        return True

    def _settle(self, store: Store, name: str, ledger: str, wrong: Counter[str]) -> None:
        """A person settles what nobody knows: by the world outside, or against it."""
        session = store.session(name)
        if session.info().status == "running":
            return
        for started in _unsettled(session):
            seen = self._seen.setdefault((name, started.call_id, started.number), time.monotonic())
            if time.monotonic() - seen < _ASKED_AFTER_SECONDS:
                continue
            ran = (name, started.call_id) in {run[:2] for run in _runs(ledger)}
            lies = self._chance.random() < 0.3
            outcome = "ran" if ran != lies else "did_not_run"
            try:
                session.settle(started.turn_id, started.call_id, outcome)  # type: ignore[arg-type]
            except KillickError:
                continue  # a worker was faster: it is running again, or has its result
            if lies:
                wrong[f"{name}/{started.call_id}/{outcome}"] += 1

    def _is_over(self, store: Store, name: str) -> bool:
        session = store.session(name)
        if session.info().status == "completed":
            return True
        return session.entries()[-1].kind == "attempts_used"

    def _where(self, store: Store, names: list[str]) -> str:
        return "\n".join(
            f"{name}: {[entry.kind for entry in store.session(name).entries()][-12:]} "
            f"{[(turn.status, turn.cause) for turn in store.session(name).turns()]}"
            for name in names
        )


def _runs(ledger: str) -> list[tuple[str, str, str]]:
    lines = Path(ledger).read_text(encoding="utf-8").splitlines()
    return [tuple(json.loads(line)) for line in lines]


def _unsettled(session: Session) -> list[e.ToolStarted]:
    """Return the starts with the effect once that nobody knows the outcome of."""
    started: dict[tuple[str, str], e.ToolStarted] = {}
    for entry in session.entries():
        match entry.body:
            case e.ToolStarted(effect="once") as body:
                started[body.message_id, body.call_id] = body
            case e.ToolFinished() | e.LateResult() as body:
                started.pop((body.message_id, body.result.call_id), None)
            case e.Settled() as body:
                started.pop((body.message_id, body.call_id), None)
            case _:
                pass
    return list(started.values())


def _check(
    store: Store, name: str, ledger: str, seed: int, wrong: Counter[str], killed: set[int]
) -> None:
    """Compare a run that is over with the world outside, and with its own journal."""
    session = store.session(name)
    entries = session.entries()
    runs = Counter(call for of, call, _ in _runs(ledger) if of == name)
    keys: dict[str, set[str]] = {}
    for of, call, key in _runs(ledger):
        keys.setdefault(call, set()).update({key} if of == name else ())
    starts = Counter(
        entry.body.call_id for entry in entries if isinstance(entry.body, e.ToolStarted)
    )
    completed = session.info().status == "completed"
    for call, effect in [call for step in _calls(seed) for call in step]:
        assert runs[call] <= starts[call], f"{call} ran {runs[call]} times, started {starts[call]}"
        assert len(keys.get(call, ())) <= 1, f"{call} ran with several keys"
        if effect == "once":
            again = wrong[f"{name}/{call}/did_not_run"]
            assert runs[call] <= 1 + again, f"{call} ran {runs[call]} times"
        if completed:
            missing = wrong[f"{name}/{call}/ran"]
            assert runs[call] >= 1 - missing, f"{call} never ran, and the run is complete"
    texts = Counter(
        piece
        for message in session.messages()
        for part in message.parts
        if isinstance(part, Text) and message.role == "assistant"
        for piece in part.text.replace("><", ">\n<").split("\n")
    )
    assert all(count == 1 for count in texts.values()), "a streamed text is there twice"
    _check_attempts(entries, killed)
    assert store.examine_session(name) == []
    for format_ in ("anthropic", "openai-chat"):
        assert truth(entries, session.context(format_)) == []


def _check_attempts(entries: list[e.Entry], killed: set[int]) -> None:
    """Each is counted, and none is taken while another one that lives has it."""
    taken: e.WorkTaken | None = None
    attempts: list[int] = []
    for entry in entries:
        match entry.body:
            case e.WorkTaken() as body:
                if taken is not None:
                    pid = int(taken.taker.split("/")[1])
                    assert pid in killed, "work was taken twice at once"
                taken = body
                attempts.append(body.attempt)
            case e.TurnStarted() as body if body.work is not None:
                assert taken is not None
                assert taken.id == body.work
                taken = None
            case _:
                pass
    assert attempts == list(range(1, len(attempts) + 1)), attempts
    assert len(attempts) <= _RESUME


def run(round_: Round) -> None:
    nursery = Nursery(round_.places.died)
    rest = due._FIRST_BACKOFF_US
    _be_quick()
    try:
        finish = Finish(nursery, round_.folder, round_.places, round_.chance)
        if round_.seed % 2:
            for number in range(4):
                names = [f"run_{round_.seed}_{number}_{n}" for n in range(3)]
                round_.check("killed at random", finish.runs, number, names, _NEVER, cases=3)
            return
        whole = finish.runs(_NEVER, ["whole"], _NEVER)
        assert whole > 50, "the statements are not counted"
        first = 1 + round_.seed // 2 % _STRIDE
        for boundary in range(first, whole, _STRIDE):
            names = [f"run_{boundary}"]
            round_.check(f"killed at statement {boundary}", finish.runs, boundary, names, boundary)
    finally:
        due._FIRST_BACKOFF_US = rest  # type: ignore[misc]
        nursery.close()


CAMPAIGN = Campaign(
    name="finish",
    tries="agents with tools of each effect, killed at every boundary of a statement and at "
    "random, continued by three workers that are killed too; outcomes settled rightly and wrongly",
    holds="every run completes or has used up its attempts; a tool with the effect once never runs "
    "twice, others only with their key; streamed text is there once; attempts are counted right",
    sizes=Sizes(slice=40, torture=600, long=20_000),
    run=run,
)
