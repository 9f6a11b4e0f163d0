"""Operations on tool calls: start, finish or leave one, ask a person about it."""

from collections.abc import Iterator

import msgspec

from killick.errors import IdConflict, InvalidEntry, TurnEnded
from killick.journal import rules
from killick.journal.assembly import assemble, output_text
from killick.journal.codec import to_bytes
from killick.journal.kinds import (
    call_key,
    digest,
    ending_identity,
    identity,
    message_end_identity,
    message_identity,
    named_identity,
    result_identity,
    same_content,
    settlement_id,
    start_identity,
    turn_identity,
)
from killick.journal.turn_state import CallState, TurnState
from killick.model import entries as e
from killick.model.effects import Effect
from killick.model.messages import ToolCall, ToolResult
from killick.stores.buffers import StreamBuffer
from killick.stores.contract import Claim, Reader, check_doubt
from killick.stores.engine.state import EngineState, Receipt, SessionState
from killick.stores.engine.turn_ops import Over, close_turn, crashed, keep_rest


def seal_call(
    engine: EngineState,
    key: int,
    claim: Claim,
    body: e.ToolCalled,
    buffer: StreamBuffer,
    at_us: int,
) -> None:
    """Make a whole call durable while its message still streams, so that its tool can start."""
    state = engine.live(key)
    rules.admit(state.claimed(claim), body)
    flush = engine.flush_of(buffer)
    engine.tx.put_deltas([] if flush is None else [flush])
    engine.write(state, body, at_us)


class Giver(msgspec.Struct, frozen=True):
    """The run that gave a result, as far as is known: the call's message, and which of its starts.

    Providers repeat ids; without a message it is the newest call.
    """

    message_id: str | None = None
    started: int | None = None
    number: int = 0


class ToolBegun(msgspec.Struct, frozen=True):
    """A start that is recorded: which call's, which of its starts, and the key for the outside."""

    receipt: Receipt
    message_id: str
    number: int
    key: str


def start_tool(
    engine: EngineState,
    key: int,
    claim: Claim,
    call_id: str,
    at_us: int,
    of: str | None = None,
    effect: Effect = "once",
    outside: str | None = None,
) -> ToolBegun:
    """Mark a call as started; from here on it may have effects.

    `of` is the ended turn that made the call, if it is not the running one. `outside` is the
    caller's key for the outside. Of a repeat, effect and key are those of the first start.
    """
    state = engine.live(key)
    running = state.claimed(claim)
    if of is None or of == running.id:
        turn, later = running, None
        call = rules.require_call(turn, call_id)
    else:
        turn, later = engine.past_turn(state, of), running
        call = rules.require_call(turn, call_id)
        apply_late(engine, state, turn, call)
        if turn.id not in running.line:
            running.line = _line_of(engine, state, running)
    minted = call_key(turn.id, call.message_id, call_id)
    if call.starts and outside is not None and outside != (call.key or minted):
        raise IdConflict(
            f"tool call {call_id!r} was started with the key {call.key or minted!r}; a repeat has "
            "the same"
        )
    body = e.ToolStarted(
        turn_id=turn.id,
        message_id=call.message_id,
        call_id=call_id,
        effect=call.effect if call.starts else effect,
        key=call.key if call.starts else outside,
        number=call.starts + 1,
    )
    rules.admit(turn, body, later)
    if later is not None:
        rules.admit_unseen(turn, call, effect)
    rules.admit_approved(call, _decision(engine, state, call))
    receipt = engine.write(state, body, at_us)
    return ToolBegun(receipt, call.message_id, body.number, body.key or minted)


def _line_of(engine: EngineState, state: SessionState, running: TurnState) -> set[str]:
    """Return the turns that a turn goes on with: the one it names, the one which that names …"""
    line: set[str] = set()
    before = running.continues
    while before is not None and before not in line:
        line.add(before)
        start = engine.tx.find_entry(state.row.key, turn_identity(before))
        body = None if start is None else start.body
        before = body.continues if isinstance(body, e.TurnStarted) else None
    return line


def settlements(reader: Reader, key: int, call: CallState) -> Iterator[e.Entry]:
    """Yield what was found out about a call after so many starts, each in place of the last."""
    replaces: str | None = None
    while True:
        replaces = settlement_id(call.message_id, call.call_id, call.starts, replaces)
        entry = reader.find_entry(key, named_identity(replaces, "settled"))
        if entry is None:
            return
        yield entry


def apply_late(engine: EngineState, state: SessionState, turn: TurnState, call: CallState) -> None:
    """Apply what came for a call after its turn had ended: its starts, a settlement, its result."""
    if turn.ended is None:
        return
    key = state.row.key
    while entry := engine.tx.find_entry(
        key, start_identity(call.message_id, call.call_id, call.starts + 1)
    ):
        turn.apply(entry.seq, entry.body)
    for entry in settlements(engine.tx, key, call):
        turn.apply(entry.seq, entry.body)
    result = engine.tx.find_entry(key, result_identity(call.message_id, call.call_id))
    if result is not None:
        turn.apply(result.seq, result.body)


def settle(
    engine: EngineState,
    key: int,
    body: e.Settled,
    at_us: int,
    turns: list[tuple[TurnState, TurnState]],
) -> Receipt:
    """Record what was found out about a call whose outcome was unknown.

    The message's id and the number of starts are filled in. `turns` has the turn twice, if it had
    ended when the caller read it: other callers do not wait for that. Both are used up here, and
    the turn is read again if this is run again.
    """
    state = engine.live(key)
    running = state.turn
    if running is not None and not engine.tx.is_alive(running.holder):
        close_turn(engine, state, crashed(running.id), at_us)
        running = None
    if running is not None:
        check_doubt(engine.tx, running.holder)
    if running is not None and running.id == body.turn_id:
        rules.admit(running, body)
    has_ended = engine.tx.find_entry(key, ending_identity(body.turn_id)) is not None
    read_before: TurnState | None = None
    if turns and has_ended:
        turn, read_before = turns.pop()
    else:
        turn = engine.past_turn(state, body.turn_id)
    call = rules.require_call(turn, body.call_id)
    apply_late(engine, state, turn, call)
    offered = msgspec.structs.replace(
        body,
        id=settlement_id(call.message_id, call.call_id, call.starts, body.replaces),
        message_id=call.message_id,
        number=call.starts,
    )
    newest, same = call.settled, engine.redacted(offered)
    assert isinstance(same, e.Settled)
    if (
        newest is not None
        and (newest.outcome, newest.result) == (same.outcome, same.result)
        and body.replaces in (None, newest.replaces)
    ):
        stored = engine.tx.find_entry(key, identity(newest))
        assert stored is not None
        return Receipt(stored.seq, repeated=True)
    rules.admit(turn, offered, running)
    with engine.knowing(read_before):
        return engine.write(state, offered, at_us)


def _decision(
    engine: EngineState, state: SessionState, call: CallState
) -> e.ApprovalDecided | None:
    """Return a person's decision on a call, also one made after its turn had ended."""
    if call.asked is None:
        return None
    name = named_identity(call.asked, "approval_decided")
    entry = engine.tx.find_entry(state.row.key, name)
    return entry.body if entry and isinstance(entry.body, e.ApprovalDecided) else None


def finish_tool(
    engine: EngineState,
    key: int,
    turn_id: str,
    call_id: str,
    result: ToolResult | None,
    buffer: StreamBuffer | None,
    at_us: int,
    giver: Giver | None = None,
) -> Receipt:
    """Record a call's one result: in its turn, or as late when the turn has ended.

    Without a result, what the tool printed is the result. No fence is asked for: a call has
    one result, and its giver knows the truth about a side effect. When another start of the call
    has given its result already, this is the second.
    """
    state = engine.live(key)
    turn = state.turn
    if turn is None or turn.id != turn_id:
        turn = engine.past_turn(state, turn_id)
    giver = giver or Giver()
    call = rules.require_call(turn, call_id, giver.message_id)
    apply_late(engine, state, turn, call)
    started, number = giver.started or call.started_seq, giver.number or call.starts
    # A repeat streams nothing; what was left is the first start's.
    left = _left_output(engine, state, turn, call.message_id, call_id) if number <= 1 else []
    printed = output_text([*left, *engine.deltas(state, started, buffer)])
    result = result or ToolResult(call_id, printed)
    output = printed if printed and printed != result.content else None
    make = e.LateResult if turn.ended is not None else e.ToolFinished
    body: e.ToolFinished | e.LateResult = make(
        turn_id=turn.id,
        message_id=call.message_id,
        result=result,
        output=output,
        started=started,
    )
    if call.answered:
        if isinstance(body, e.LateResult) and _is_second(engine, state, body):
            body = msgspec.structs.replace(body, second=number)
            return engine.write(state, body, at_us)
        return engine.repeat(state, body) or _answered(call_id)
    receipt = engine.write(state, body, at_us)
    if started is not None and not receipt.repeated:
        engine.drop_deltas(state, started)
    return receipt


def _is_second(engine: EngineState, state: SessionState, body: e.LateResult) -> bool:
    """Return whether another start of the call has given another result."""
    stored = engine.tx.find_entry(state.row.key, identity(body))
    if stored is None or not isinstance(stored.body, e.ToolFinished | e.LateResult):
        return False
    other = body.started is not None and stored.body.started != body.started
    return other and not same_content(stored.body, engine.redacted(body))


def leave_tool(
    engine: EngineState,
    key: int,
    claim: Claim,
    call_id: str,
    buffer: StreamBuffer,
    at_us: int,
    message_id: str | None = None,
) -> Over | None:
    """Record that a tool was left without a result, with what it had printed."""
    state = engine.state(key)
    try:
        turn = state.claimed(claim)
    except TurnEnded as lost:
        return keep_rest(engine, state, claim, [buffer], at_us, lost)
    call = rules.require_call(turn, call_id, message_id)
    if call.answered:
        return None  # its result is there, though the caller who gave it was not told
    output = output_text(engine.deltas(state, buffer.seq, buffer))
    body = e.ToolOutput(turn_id=turn.id, message_id=call.message_id, call_id=call_id, output=output)
    engine.write_closing(state, body, at_us)
    engine.drop_deltas(state, buffer.seq)
    return None


def _left_output(
    engine: EngineState, state: SessionState, turn: TurnState, message_id: str, call_id: str
) -> list[e.Delta]:
    """Return what was kept of a tool's output when it was left, or its turn was ended."""
    if (message_id, call_id) not in turn.left:
        return []
    body = e.ToolOutput(turn_id=turn.id, message_id=message_id, call_id=call_id, output="")
    entry = engine.tx.find_entry(state.row.key, identity(body))
    assert entry is not None
    assert isinstance(entry.body, e.ToolOutput)
    return [e.Delta(0, 0, "output", entry.body.output)]


def ask_approval(
    engine: EngineState,
    key: int,
    claim: Claim,
    approval_id: str,
    call_id: str,
    arguments: str,
    at_us: int,
) -> tuple[e.ApprovalAsked, Receipt]:
    """Let a call wait for a person, bound to the hash of its recorded arguments."""
    state = engine.live(key)
    call = rules.require_call(state.claimed(claim), call_id)
    made = _arguments(engine, state, call)
    forms = (arguments,) if engine.redactor is None else engine.redactor.forms(arguments)
    if made not in forms:
        raise InvalidEntry(
            f"tool call {call_id!r} was made with other arguments; ask for those that will run"
        )
    body = e.ApprovalAsked(
        id=approval_id,
        turn_id=claim.turn_id,
        message_id=call.message_id,
        call_id=call_id,
        arguments_hash=digest(to_bytes(made)),
    )
    return body, engine.write(state, body, at_us)


def _arguments(engine: EngineState, state: SessionState, call: CallState) -> str:
    """Return the arguments that the model wrote, in a message that is whole or streams."""
    key = state.row.key
    for name in (message_end_identity(call.message_id), message_identity(call.message_id)):
        entry = engine.tx.find_entry(key, name)
        if entry is None:
            continue
        if isinstance(entry.body, e.MessageStarted):
            parts = assemble(engine.stored_deltas(state, entry.seq))
        else:
            assert isinstance(entry.body, e.MessageRecorded | e.MessageEnded)
            parts = entry.body.parts
        for part in parts:
            if isinstance(part, ToolCall) and part.id == call.call_id:
                return part.arguments
    return ""


def decide_approval(engine: EngineState, key: int, body: e.ApprovalDecided, at_us: int) -> Receipt:
    """Record a person's decision on the exact call that was asked about."""
    state = engine.live(key)
    asked = engine.tx.find_entry(key, named_identity(body.id, "approval_asked"))
    if asked is None or not isinstance(asked.body, e.ApprovalAsked):
        raise InvalidEntry(f"no approval {body.id!r} was asked for in this session")
    if asked.body.arguments_hash != body.arguments_hash:
        raise InvalidEntry(
            f"approval {body.id!r} was asked for other arguments; decide on what is asked now"
        )
    return engine.write(state, body, at_us)


def _answered(call_id: str) -> Receipt:
    raise IdConflict(f"tool call {call_id!r} has its result in a recorded message already")
