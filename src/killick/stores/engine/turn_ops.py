"""Operations on a turn: begin, stop and end it, write its messages, keep its prompts."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

import msgspec

from killick.errors import (
    IdConflict,
    KillickError,
    MessageNotFound,
    SessionBusy,
    SessionDeleted,
    TurnEnded,
)
from killick.journal import checks, rules, turn_state
from killick.journal.assembly import assemble, merge
from killick.journal.closing import closing, open_streams
from killick.journal.codec import encode
from killick.journal.due import rested_us
from killick.journal.kinds import (
    digest,
    ending_identity,
    identity,
    keyed_id,
    message_end_identity,
    named_identity,
    same_content,
)
from killick.journal.turn_state import TurnState
from killick.model import entries as e
from killick.model.causes import Cause
from killick.model.messages import Message, Part, Text
from killick.model.sessions import Limits, Starts
from killick.stores.buffers import StreamBuffer
from killick.stores.contract import Claim, Flush, SessionLocked, check_doubt
from killick.stores.engine.state import EngineState, Receipt, SessionState
from killick.stores.engine.work_ops import check_work, has_lapsed

IfBusy = Literal["refuse", "wait", "queue", "interrupt", "take_over"]


Over = TurnEnded | SessionDeleted
"""The error with which a holder is told that another caller has ended its turn."""


class TurnStart(msgspec.Struct, frozen=True):
    """All that the start of a turn needs; the fence is given out by the engine."""

    turn_id: str
    holder: str
    prompt: e.MessageRecorded | None
    key: str | None = None
    continues: str | None = None
    retry_of: str | None = None
    if_busy: IfBusy = "refuse"
    starts: Starts = "seen"
    limits: Limits | None = None
    resume: int = 0
    work: str | None = None


class TurnEntered(msgspec.Struct, frozen=True):
    """The outcome: begun now, or there already (`repeated`, with its ending if it has one)."""

    claim: Claim
    seq: int
    head: int
    repeated: bool = False
    ended: e.TurnEnding | None = None
    queued: Receipt | None = None
    busy: tuple[str, str] | None = None


def start_turn(engine: EngineState, key: int, start: TurnStart, at_us: int) -> TurnEntered:
    """Take the lease and record the prompt; if another turn runs, do as `if_busy` says."""
    state = engine.live(key)
    body = e.TurnStarted(
        turn_id=start.turn_id,
        fence=state.row.fence + 1,
        holder=start.holder,
        key=start.key,
        prompt_hash=None if start.key is None else _prompt_hash(start.prompt),
        continues=start.continues,
        retry_of=start.retry_of,
        starts=start.starts,
        limits=start.limits,
        resume=start.resume,
        work=start.work,
    )
    if start.key is not None:
        existing = _existing_turn(engine, state, _turn_of_key(engine, state, start, body))
        if existing is not None:
            return existing
    if start.work is not None:
        continues = check_work(engine, state, start.work, start.continues)
        body = msgspec.structs.replace(body, continues=continues)
    if state.turn is not None:
        if not engine.tx.is_alive(state.turn.holder):
            close_turn(engine, state, crashed(state.turn.id), at_us)
        elif start.if_busy == "take_over":
            close_turn(engine, state, interrupted(state.turn.id, "taken_over"), at_us)
        else:
            check_doubt(engine.tx, state.turn.holder)
            return _queue_or_refuse(engine, state, state.turn, start, at_us)
    return _begin_turn(engine, state, body, start.prompt, at_us)


def _begin_turn(
    engine: EngineState,
    state: SessionState,
    body: e.TurnStarted,
    prompt: e.MessageRecorded | None,
    at_us: int,
) -> TurnEntered:
    for linked in (body.continues, body.retry_of):
        if linked is not None:
            engine.past_turn(state, linked)
    # Prompts that wait were written for the answer that is gone on with (decision 0032).
    waiting = {} if body.work is not None else _waiting_prompts(engine, state)
    receipt = engine.write(state, body, at_us)
    if receipt.repeated:
        raise IdConflict(f"turn {body.turn_id!r} exists already")
    state.turn = TurnState(receipt.seq, body)
    for queued in waiting.values():
        engine.write(state, e.PromptTaken(id=queued.id, turn_id=body.turn_id), at_us)
        engine.write(state, _prompt_of(engine, state, queued, body.turn_id), at_us)
    if prompt is not None:
        engine.write(state, prompt, at_us)
    return TurnEntered(Claim(body.turn_id, body.fence), receipt.seq, state.row.head)


def _prompt_of(
    engine: EngineState, state: SessionState, queued: Message, turn_id: str
) -> e.MessageRecorded:
    """Return a prompt that waited as a message of the turn that takes it.

    Another message may have been recorded under its id meanwhile. It gets another one then: a
    prompt that could never be taken would keep every later turn from beginning.
    """
    message = e.MessageRecorded(
        id=queued.id, turn_id=turn_id, role=queued.role, parts=tuple(queued.parts)
    )
    stored = engine.tx.find_entry(state.row.key, identity(message))
    if stored is None or same_content(stored.body, message):
        return message
    return msgspec.structs.replace(message, id=keyed_id("msg", state.row.id, queued.id))


def _turn_of_key(
    engine: EngineState, state: SessionState, start: TurnStart, body: e.TurnStarted
) -> e.TurnStarted:
    """Return the turn that took the prompt if it was queued under this key; else `body`."""
    if start.prompt is None:
        return body
    name = named_identity(start.prompt.id, "prompt_taken")
    taken = engine.tx.find_entry(state.row.key, name)
    if taken is None or not isinstance(taken.body, e.PromptTaken):
        return body
    engine.repeat(state, _queued(start.prompt))
    return msgspec.structs.replace(body, turn_id=taken.body.turn_id, prompt_hash=None)


def _existing_turn(
    engine: EngineState, state: SessionState, body: e.TurnStarted
) -> TurnEntered | None:
    stored = engine.tx.find_entry(state.row.key, identity(body))
    if stored is None:
        return None
    assert isinstance(stored.body, e.TurnStarted)
    if body.prompt_hash is not None and not same_content(stored.body, body):
        raise IdConflict(f"key {body.key!r} was used for another prompt in this session")
    ended = _ending(engine, state, body.turn_id)
    return TurnEntered(
        Claim(body.turn_id, stored.body.fence),
        stored.seq,
        state.row.head,
        repeated=True,
        ended=ended,
    )


def _ending(engine: EngineState, state: SessionState, turn_id: str) -> e.TurnEnding | None:
    end = engine.tx.find_entry(state.row.key, ending_identity(turn_id))
    return end.body if end is not None and isinstance(end.body, e.TurnEnding) else None


def _queue_or_refuse(
    engine: EngineState, state: SessionState, turn: TurnState, start: TurnStart, at_us: int
) -> TurnEntered:
    if start.if_busy != "queue" or start.prompt is None:
        raise SessionBusy(
            f"session {state.row.id!r} is busy: turn {turn.id!r} runs in {turn.holder}; "
            'wait, queue, interrupt or take over with if_busy="…"',
            turn_id=turn.id,
            holder=turn.holder,
        )
    receipt = _queue(engine, state, start.prompt, at_us)
    claim = Claim(turn.id, turn.fence)
    busy = (turn.id, turn.holder)
    return TurnEntered(claim, turn.seq, state.row.head, queued=receipt, busy=busy)


def queue(engine: EngineState, key: int, prompt: e.MessageRecorded, at_us: int) -> Receipt:
    """Keep a prompt for the next turn."""
    return _queue(engine, engine.live(key), prompt, at_us)


def _queue(
    engine: EngineState,
    state: SessionState,
    prompt: e.MessageRecorded,
    at_us: int,
    steers: str | None = None,
) -> Receipt:
    # A prompt that was asked already does not wait to be asked again.
    asked = engine.repeat(state, prompt)
    if asked is None and engine.repeat(state, e.PromptWithdrawn(id=prompt.id)):
        raise IdConflict(f"prompt {prompt.id!r} was withdrawn; ask it under another key or id")
    return asked or engine.write(state, _queued(prompt, steers), at_us)


def steer(
    engine: EngineState, key: int, prompt: e.MessageRecorded, at_us: int
) -> tuple[Receipt, str | None]:
    """Keep a prompt for the next model call of the running turn; return that turn's id.

    Where none runs it waits for the next turn, and the id is None. One that was kept before is
    where it is: with the turn that took it, or waiting.
    """
    state = engine.live(key)
    turn_id = None if state.turn is None else state.turn.id
    receipt = _queue(engine, state, prompt, at_us, steers=turn_id)
    return receipt, _taker(engine, state, prompt, turn_id) if receipt.repeated else turn_id


def _taker(
    engine: EngineState, state: SessionState, prompt: e.MessageRecorded, running: str | None
) -> str | None:
    """Return the turn that a prompt was asked in, or the running one if it steers that."""
    for name in (identity(prompt), identity(_queued(prompt))):
        stored = engine.tx.find_entry(state.row.key, name)
        if stored is not None and isinstance(stored.body, e.MessageRecorded):
            return stored.body.turn_id
        if stored is not None and isinstance(stored.body, e.PromptWaiting):
            return running if stored.body.steers == running else None
    return None


def take_steers(
    engine: EngineState, key: int, claim: Claim, at_us: int
) -> list[tuple[Message, Receipt]]:
    """Make the prompts that steer the running turn messages of it, each once, in order."""
    state = engine.live(key)
    turn = state.claimed(claim)
    taken = []
    for prompt in _waiting_prompts(engine, state).values():
        if prompt.turn_id == turn.id:
            engine.write(state, e.PromptTaken(id=prompt.id, turn_id=turn.id), at_us)
            message = _prompt_of(engine, state, prompt, turn.id)
            receipt = engine.write(state, message, at_us)
            recorded = Message(message.role, message.parts, message.id, turn_id=turn.id)
            taken.append((recorded, receipt))
    return taken


def withdraw(engine: EngineState, key: int, prompt_id: str, at_us: int) -> Receipt:
    """Take a prompt that waits out of the queue."""
    state, body = engine.live(key), e.PromptWithdrawn(id=prompt_id)
    repeated = engine.repeat(state, body)
    if repeated is None and prompt_id not in _waiting_prompts(engine, state):
        raise MessageNotFound(
            f"no prompt {prompt_id!r} waits in session {state.row.id!r}: it was never "
            "queued, or a turn has taken it"
        )
    return repeated or engine.write(state, body, at_us)


def _waiting_prompts(engine: EngineState, state: SessionState) -> dict[str, Message]:
    since = state.row.queue_seq
    if since is None:
        return {}
    return turn_state.waiting(engine.tx.entries(state.row.key, after=since - 1))


def stop(engine: EngineState, key: int, body: e.StopAsked, at_us: int) -> tuple[str, int] | None:
    """Ask the running turn to stop; return its id and the seq, or None if it runs no more."""
    state = engine.live(key)
    turn = state.turn
    if turn is None or body.turn_id not in ("", turn.id):
        if body.turn_id:
            engine.past_turn(state, body.turn_id)
        return None
    body = msgspec.structs.replace(body, turn_id=turn.id)
    return turn.id, engine.write(state, body, at_us).seq


def end_turn(
    engine: EngineState,
    key: int,
    claim: Claim,
    ending: e.TurnEnding,
    buffers: Sequence[StreamBuffer],
    at_us: int,
) -> Receipt | Over:
    """Close the turn with its one ending, unless it has one already."""
    state = engine.state(key)
    try:
        state.claimed(claim)
    except TurnEnded as lost:
        return keep_rest(engine, state, claim, buffers, at_us, lost)
    seq = close_turn(engine, state, ending, at_us, buffers)
    return Receipt(seq)


def interrupt_turn(
    engine: EngineState, key: int, claim: Claim, ending: e.TurnEnding, at_us: int
) -> bool:
    """End a turn that its holder was interrupted in beginning; True if it still ran."""
    state = engine.state(key)
    turn = state.turn
    if turn is None or (turn.id, turn.fence) != (claim.turn_id, claim.fence):
        return False
    close_turn(engine, state, ending, at_us)
    return True


def recover(engine: EngineState, key: int, at_us: int) -> tuple[bool, int]:
    """Close the running turn if its holder is dead; whether this call closed it, and the head."""
    state = engine.state(key)
    if state.turn is None or engine.tx.is_alive(state.turn.holder):
        return False, state.row.head
    close_turn(engine, state, crashed(state.turn.id), at_us)
    return True, state.row.head


class DueWork(msgspec.Struct, frozen=True):
    """A turn that broke and was taken to be continued: `session.turn(None, work=token)` does."""

    session_id: str
    turn_id: str
    attempt: int
    token: str


def take_work(
    engine: EngineState, key: int, token: str, holder: str, lease_us: int, at_us: int
) -> DueWork | None:
    """Take a session's work, if it is due and no other worker was faster.

    A turn that still seems to run is closed first, if its holder is dead. When all attempts are
    used up, that is recorded.
    """
    state = engine.state(key)
    if state.turn is not None:
        if state.row.due is None or state.row.about.deleted:
            return None
        if engine.tx.is_alive(state.turn.holder):
            check_doubt(engine.tx, state.turn.holder)
            return None
        close_turn(engine, state, crashed(state.turn.id), at_us)
    due = state.row.due
    if due is None or state.row.due_us is None:
        return None
    now_us = engine.tx.now_us()
    if due.token is not None and not has_lapsed(engine, due, now_us):
        return None
    if due.attempts >= due.allowed:
        body = e.AttemptsUsed(turn_id=due.turn_id, attempts=due.attempts)
        engine.write(state, body, at_us)
        return None
    if now_us < rested_us(due):
        return None
    taken = e.WorkTaken(
        id=token,
        turn_id=due.turn_id,
        attempt=due.attempts + 1,
        taker=holder,
        until_us=now_us + lease_us,
    )
    engine.write(state, taken, at_us)
    return DueWork(state.row.id, due.turn_id, taken.attempt, token)


def append(
    engine: EngineState, key: int, claim: Claim, bodies: Sequence[e.Body], at_us: int
) -> list[Receipt]:
    """Append fenced entries, all or none: each may need those before it."""
    state = engine.live(key)
    try:
        turn = state.claimed(claim)
    except TurnEnded:
        repeated = [engine.repeat(state, body) for body in bodies]
        if None in repeated:
            raise
        return [receipt for receipt in repeated if receipt is not None]
    receipts = []
    for body in bodies:
        if checks.is_plain(body):
            receipts.append(engine.write_plain(state, body, at_us))
        else:
            rules.admit(turn, body)
            receipts.append(engine.write(state, body, at_us))
    return receipts


def end_message(
    engine: EngineState,
    key: int,
    claim: Claim,
    message_id: str,
    kind: Literal["complete", "partial"],
    buffer: StreamBuffer,
    after: e.ModelCallEnded,
    at_us: int,
) -> Receipt | Over:
    """Fold a stream's deltas into its message.

    When another process has ended the turn meanwhile, what was not stored yet is kept as
    late text, and TurnEnded, StaleFence or SessionDeleted is returned.
    """
    state = engine.state(key)
    try:
        turn = state.claimed(claim)
    except TurnEnded as lost:
        return keep_rest(engine, state, claim, [buffer], at_us, lost)
    parts = assemble(engine.deltas(state, buffer.seq, buffer))
    receipt = Receipt(buffer.seq)
    if parts or kind == "complete":
        body = e.MessageEnded(id=message_id, turn_id=turn.id, state=kind, parts=parts)
        rules.admit(turn, body)
        write = engine.write if kind == "complete" else engine.write_closing
        receipt = write(state, body, at_us)
        engine.drop_deltas(state, buffer.seq)
    if after.id in turn.model_calls:
        engine.write_closing(state, after, at_us)
    return receipt


def flush(
    engine: EngineState, buffers: Sequence[StreamBuffer]
) -> dict[int, KillickError | SessionLocked]:
    """Write what streams were given since their last flush. One that is refused stops no other.

    Returns why it was, by the identity of its buffer, which has again what it had.
    """
    engine.need({buffer.key for buffer in buffers})
    flushes: list[Flush] = []
    refused: dict[int, KillickError | SessionLocked] = {}
    for buffer in buffers:
        if buffer.closed:
            continue
        mark = engine.savepoint()
        try:
            _admit_flush(engine, buffer)
            flush = engine.flush_of(buffer)
            if flush is not None:
                flushes.append(flush)
        except (KillickError, SessionLocked) as error:
            engine.give_back(mark)
            refused[id(buffer)] = error
    engine.tx.put_deltas(flushes)
    return refused


def _admit_flush(engine: EngineState, buffer: StreamBuffer) -> None:
    """Refuse a stream that has ended. Its deltas were dropped, so nothing would drop these.

    An end whose outcome was unknown gives back what it took, also when it is stored. A stream that
    was admitted is asked again only when an entry, by any process, has come into its session since.
    """
    state = engine.state(buffer.key)
    if buffer.admitted_by is state and buffer.admitted_at == state.row.head:
        return
    turn = engine.live(buffer.key).claimed(buffer.claim)
    if turn.has_ended(buffer.seq):
        raise IdConflict(
            "the stream has ended, and its end is stored; what comes after that is not kept"
        )
    tool = turn.tools.get(buffer.seq)
    if tool is not None and tool.answered:
        raise IdConflict(
            f"tool call {tool.call_id!r} has a result from elsewhere already; what its tool "
            "prints after that is not kept"
        )
    buffer.admitted_by, buffer.admitted_at = state, state.row.head


def add_late_text(
    engine: EngineState, key: int, turn_id: str, message_id: str, text: str, at_us: int
) -> Receipt:
    """Keep what is new in the whole text, from elsewhere, of an answer that was cut off."""
    state = engine.live(key)
    turn = engine.past_turn(state, turn_id)
    rules.admit(turn, e.LateText(turn_id=turn_id, message_id=message_id, deltas=()))
    stored = _stored_parts(engine, state, message_id)
    known = "".join(part.text for part in stored if isinstance(part, Text))
    rest = _beyond(engine, known, text)
    if rest is None:
        raise IdConflict(
            f"the text does not continue what is stored of message {message_id!r}; "
            "record it in a turn of its own"
        )
    delta = _continuing(stored, rest)
    body = e.LateText(turn_id=turn_id, message_id=message_id, deltas=(delta,), whole=True)
    return engine.write(state, body, at_us)


def _beyond(engine: EngineState, known: str, text: str) -> str | None:
    """Return the part of a text that is not stored yet; None when it is another text."""
    if engine.redactor is not None:
        return engine.redactor.rest(known, text)
    return text[len(known) :] if text.startswith(known) else None


def _stored_parts(engine: EngineState, state: SessionState, message_id: str) -> tuple[Part, ...]:
    entry = engine.tx.find_entry(state.row.key, message_end_identity(message_id))
    if entry is None or not isinstance(entry.body, e.MessageEnded):
        return ()
    if entry.body.state == "complete":
        raise IdConflict(f"message {message_id!r} is complete; nothing of it can be late")
    return entry.body.parts


def close_turn(
    engine: EngineState,
    state: SessionState,
    ending: e.TurnEnding,
    at_us: int,
    buffers: Sequence[StreamBuffer] = (),
) -> int:
    """End the running turn; return the seq of its ending."""
    turn = state.turn
    assert turn is not None
    waiting = {buffer.seq: buffer for buffer in buffers}
    streams = open_streams(turn)
    bodies = closing(turn, ending, lambda seq: engine.deltas(state, seq, waiting.get(seq)))
    for body in bodies:
        # Only in a damaged journal has something that is open an end. Then too the turn ends.
        with suppress(IdConflict):
            engine.write_closing(state, body, at_us)
    for seq in streams:
        engine.drop_deltas(state, seq)
    state.turn = None
    return state.row.head


def keep_rest(
    engine: EngineState,
    state: SessionState,
    claim: Claim,
    buffers: Sequence[StreamBuffer],
    at_us: int,
    lost: TurnEnded,
) -> Over:
    """Keep what its streams still hold as late text: another process has ended the turn.

    Also of a deleted session, which may be restored. Returns the error for the holder.
    """
    turn = engine.past_turn(state, claim.turn_id)
    if turn.ended is not None:
        lost.status, lost.reason = turn.ended.status, turn.ended.reason
        lost.cause = turn.ended.cause
    for buffer in buffers:
        deltas = merge(engine.take(buffer, last=True))
        if deltas:
            message_id, call_id = turn.stream_at(buffer.seq)
            body = e.LateText(
                turn_id=turn.id, message_id=message_id, deltas=deltas, call_id=call_id
            )
            try:
                engine.write_closing(state, body, at_us)
            except IdConflict as conflict:  # an earlier late text may be shorter
                lost.add_note(f"what came after its end was not kept: {conflict}")
    return checks.session_deleted(state.row.id) if state.row.about.deleted else lost


def session_busy(session_id: str, turn_id: str, holder: str) -> SessionBusy:
    return SessionBusy(
        f"session {session_id!r} is busy: turn {turn_id!r} runs in {holder}; stop it first, or "
        "fork the session",
        turn_id=turn_id,
        holder=holder,
    )


def interrupted(turn_id: str, cause: Cause, reason: str | None = None) -> e.TurnEnding:
    """Return an interrupted turn's ending; the cause is its reason where no other is given."""
    return e.TurnEnding(turn_id=turn_id, status="interrupted", reason=reason or cause, cause=cause)


def crashed(turn_id: str) -> e.TurnEnding:
    return interrupted(turn_id, "crashed")


def _continuing(stored: Sequence[Part], text: str) -> e.Delta:
    if stored and isinstance(stored[-1], Text):
        return e.Delta(len(stored) - 1, len(stored[-1].text), "text", text)
    return e.Delta(len(stored), 0, "text", text)


def _queued(prompt: e.MessageRecorded, steers: str | None = None) -> e.PromptWaiting:
    return e.PromptWaiting(id=prompt.id, role=prompt.role, parts=prompt.parts, steers=steers)


def _prompt_hash(prompt: e.MessageRecorded | None) -> str:
    return digest(b"" if prompt is None else encode([prompt.role, prompt.parts]))
