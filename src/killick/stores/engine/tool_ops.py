"""Operations on tool calls: start, finish or leave one, ask a person about it."""

from killick.errors import (
    IdConflict,
    InvalidEntry,
    TurnEnded,
)
from killick.journal import rules
from killick.journal.assembly import assemble, output_text
from killick.journal.codec import to_bytes
from killick.journal.kinds import (
    digest,
    identity,
    message_end_identity,
    message_identity,
    named_identity,
    result_identity,
)
from killick.journal.turn_state import CallState, TurnState
from killick.model import entries as e
from killick.model.messages import ToolCall, ToolResult
from killick.stores.buffers import StreamBuffer
from killick.stores.contract import Claim
from killick.stores.engine.state import EngineState, Receipt, SessionState
from killick.stores.engine.turn_ops import Over, keep_rest


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


def start_tool(
    engine: EngineState, key: int, claim: Claim, call_id: str, at_us: int, of: str | None = None
) -> tuple[Receipt, str]:
    """Mark a call as started; from here on it may have effects. Returns its message's id.

    `of` is the ended turn that made the call, if it is not the running one.
    """
    state = engine.live(key)
    turn = state.claimed(claim)
    if of is not None and of != turn.id:
        return _start_late(engine, state, turn, of, call_id, at_us)
    call = rules.require_call(turn, call_id)
    body = e.ToolStarted(turn_id=turn.id, message_id=call.message_id, call_id=call_id)
    rules.admit(turn, body)
    rules.admit_approved(call, _decision(engine, state, call))
    return engine.write(state, body, at_us), call.message_id


def _start_late(
    engine: EngineState, state: SessionState, running: TurnState, of: str, call_id: str, at_us: int
) -> tuple[Receipt, str]:
    turn = engine.past_turn(state, of)
    call = rules.require_call(turn, call_id)
    body = e.ToolStarted(turn_id=turn.id, message_id=call.message_id, call_id=call_id)
    _apply_late(engine, state, turn, call, body)
    rules.admit(turn, body, running)
    rules.admit_approved(call, _decision(engine, state, call))
    return engine.write(state, body, at_us), call.message_id


def _apply_late(
    engine: EngineState, state: SessionState, turn: TurnState, call: CallState, start: e.ToolStarted
) -> None:
    """Apply what came for a call after its turn had ended: its start, its result."""
    result = result_identity(call.message_id, call.call_id)
    for name in (identity(start), result):
        entry = engine.tx.find_entry(state.row.key, name)
        if entry is not None:
            turn.apply(entry.seq, entry.body)


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
    message_id: str | None = None,
) -> Receipt:
    """Record a call's one result: in its turn, or as late when the turn has ended.

    Without a result, what the tool printed is the result. No fence is asked for: a call has
    one result, and its giver knows the truth about a side effect.
    """
    state = engine.live(key)
    turn = state.turn
    if turn is None or turn.id != turn_id:
        turn = engine.past_turn(state, turn_id)
    call = rules.require_call(turn, call_id, message_id)
    if call.started_seq is None and turn.ended is not None:
        start = e.ToolStarted(turn_id=turn.id, message_id=call.message_id, call_id=call_id)
        late = engine.tx.find_entry(state.row.key, identity(start))
        call.started_seq = None if late is None else late.seq
    left = _left_output(engine, state, turn, call.message_id, call_id)
    printed = output_text([*left, *engine.deltas(state, call.started_seq, buffer)])
    result = result or ToolResult(call_id, printed)
    output = printed if printed and printed != result.content else None
    make = e.LateResult if turn.ended is not None else e.ToolFinished
    body = make(
        turn_id=turn.id,
        message_id=call.message_id,
        result=result,
        output=output,
        started=call.started_seq,
    )
    if call.answered:
        return engine.repeat(state, body) or _answered(call_id)
    receipt = engine.write(state, body, at_us)
    if call.started_seq is not None and not receipt.repeated:
        engine.drop_deltas(state, call.started_seq)
    return receipt


def leave_tool(
    engine: EngineState,
    key: int,
    claim: Claim,
    call_id: str,
    buffer: StreamBuffer,
    at_us: int,
    message_id: str | None = None,
) -> Over | None:
    """Keep what a tool printed that was left without a result."""
    state = engine.state(key)
    try:
        turn = state.claimed(claim)
    except TurnEnded as lost:
        return keep_rest(engine, state, claim, [buffer], at_us, lost)
    call = rules.require_call(turn, call_id, message_id)
    output = output_text(engine.deltas(state, buffer.seq, buffer))
    if output:
        body = e.ToolOutput(
            turn_id=turn.id, message_id=call.message_id, call_id=call_id, output=output
        )
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
