"""Every write there is, as one operation inside one transaction.

Rule 1: an operation decides first and writes afterwards. Whatever it refuses, it refuses before
        its first write, so that a refusal leaves nothing behind for the others in its commit.
Rule 2: what an operation decides on is read in the same transaction, or was, and nobody else has
        written since (`Transaction.stamp`).
Rule 3: the engine knows no clock and mints no ids; both come with the operation.
Rule 4: a repeated write changes nothing and says so in its receipt.
Rule 5: an operation that keeps something although it lost (a late text) returns the error instead
        of raising it, so that what it kept is committed; the face raises it afterwards.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from killick.errors import (
    IdConflict,
    InvalidEntry,
    KillickError,
    MessageNotFound,
    SessionBusy,
    TurnEnded,
)
from killick.journal import rules, turn_state
from killick.journal.assembly import assemble, merge, output_text
from killick.journal.codec import encode, to_bytes
from killick.journal.kinds import (
    digest,
    ending_identity,
    identity,
    keyed_id,
    message_end_identity,
    message_identity,
    named_identity,
    result_identity,
    same_content,
)
from killick.journal.turn_state import CallState, TurnState
from killick.model import entries as e
from killick.model.messages import Message, Part, Text, ToolCall, ToolResult
from killick.stores.buffers import StreamBuffer
from killick.stores.contract import Claim, Flush, SessionLocked
from killick.stores.engine.import_ops import ImportOperations
from killick.stores.engine.session_ops import crashed, interrupted
from killick.stores.engine.state import Receipt, SessionState

IfBusy = Literal["refuse", "wait", "queue", "interrupt", "take_over"]


class TurnStart(msgspec.Struct, frozen=True):
    """All that the start of a turn needs; the fence is given out by the engine."""

    turn_id: str
    holder: str
    prompt: e.MessageRecorded | None
    key: str | None = None
    continues: str | None = None
    retry_of: str | None = None
    if_busy: IfBusy = "refuse"


class TurnEntered(msgspec.Struct, frozen=True):
    """The outcome: begun now, or there already (`repeated`, with its ending if it has one)."""

    claim: Claim
    seq: int
    head: int
    repeated: bool = False
    ended: e.TurnEnding | None = None
    queued: Receipt | None = None
    busy: tuple[str, str] | None = None


class Engine(ImportOperations):
    """Carries out operations on the transaction it was given by `begin`."""

    # -- turns ---------------------------------------------------------------------------------

    def start_turn(self, key: int, start: TurnStart, at_us: int) -> TurnEntered:
        """Take the lease and record the prompt, or say who has it."""
        standing = self._live(key)
        body = e.TurnStarted(
            turn_id=start.turn_id,
            fence=standing.row.fence + 1,
            holder=start.holder,
            key=start.key,
            prompt_hash=None if start.key is None else _prompt_hash(start.prompt),
            continues=start.continues,
            retry_of=start.retry_of,
        )
        if start.key is not None:
            existing = self._existing_turn(standing, self._turn_of_key(standing, start, body))
            if existing is not None:
                return existing
        if standing.turn is not None:
            if not self._tx.is_alive(standing.turn.holder):
                self._close(standing, crashed(standing.turn.id), at_us)
            elif start.if_busy == "take_over":
                self._close(standing, interrupted(standing.turn.id, "taken_over"), at_us)
            else:
                return self._busy(standing, standing.turn, start, at_us)
        return self._begin_turn(standing, body, start.prompt, at_us)

    def _begin_turn(
        self,
        standing: SessionState,
        body: e.TurnStarted,
        prompt: e.MessageRecorded | None,
        at_us: int,
    ) -> TurnEntered:
        for linked in (body.continues, body.retry_of):
            if linked is not None:
                self._past_turn(standing, linked)
        waiting = self._waiting_prompts(standing)
        receipt = self._write(standing, body, at_us)
        if receipt.repeated:
            raise IdConflict(f"turn {body.turn_id!r} exists already")
        standing.turn = TurnState(receipt.seq, body)
        for queued in waiting.values():
            self._write(standing, e.PromptTaken(id=queued.id, turn_id=body.turn_id), at_us)
            self._write(standing, self._prompt_of(standing, queued, body.turn_id), at_us)
        if prompt is not None:
            self._write(standing, prompt, at_us)
        return TurnEntered(Claim(body.turn_id, body.fence), receipt.seq, standing.row.head)

    def _prompt_of(
        self, standing: SessionState, queued: Message, turn_id: str
    ) -> e.MessageRecorded:
        """A prompt that waited, as a message of the turn that takes it.

        Somebody may have recorded another message under its id meanwhile. It gets another one then:
        a prompt that could never be taken would keep every later turn from beginning.
        """
        message = e.MessageRecorded(
            id=queued.id, turn_id=turn_id, role=queued.role, parts=tuple(queued.parts)
        )
        stored = self._tx.find_entry(standing.row.key, identity(message))
        if stored is None or same_content(stored.body, message):
            return message
        return msgspec.structs.replace(message, id=keyed_id("msg", standing.row.id, queued.id))

    def _turn_of_key(
        self, standing: SessionState, start: TurnStart, body: e.TurnStarted
    ) -> e.TurnStarted:
        """A prompt that was queued under this key ran in the turn that took it."""
        if start.prompt is None:
            return body
        name = named_identity(start.prompt.id, "prompt_taken")
        taken = self._tx.find_entry(standing.row.key, name)
        if taken is None or not isinstance(taken.body, e.PromptTaken):
            return body
        self._repeat(standing, _queued(start.prompt))
        return msgspec.structs.replace(body, turn_id=taken.body.turn_id, prompt_hash=None)

    def _existing_turn(self, standing: SessionState, body: e.TurnStarted) -> TurnEntered | None:
        stored = self._tx.find_entry(standing.row.key, identity(body))
        if stored is None:
            return None
        assert isinstance(stored.body, e.TurnStarted)
        if body.prompt_hash is not None and not same_content(stored.body, body):
            raise IdConflict(f"key {body.key!r} was used for another prompt in this session")
        ended = self._ending(standing, body.turn_id)
        return TurnEntered(
            Claim(body.turn_id, stored.body.fence),
            stored.seq,
            standing.row.head,
            repeated=True,
            ended=ended,
        )

    def _ending(self, standing: SessionState, turn_id: str) -> e.TurnEnding | None:
        end = self._tx.find_entry(standing.row.key, ending_identity(turn_id))
        return end.body if end is not None and isinstance(end.body, e.TurnEnding) else None

    def _busy(
        self, standing: SessionState, turn: TurnState, start: TurnStart, at_us: int
    ) -> TurnEntered:
        if start.if_busy != "queue" or start.prompt is None:
            raise SessionBusy(
                f"session {standing.row.id!r} is busy: turn {turn.id!r} runs in {turn.holder}; "
                'wait, queue, interrupt or take over with if_busy="…"',
                turn_id=turn.id,
                holder=turn.holder,
            )
        receipt = self._queue(standing, start.prompt, at_us)
        claim = Claim(turn.id, turn.fence)
        busy = (turn.id, turn.holder)
        return TurnEntered(claim, turn.seq, standing.row.head, queued=receipt, busy=busy)

    def queue(self, key: int, prompt: e.MessageRecorded, at_us: int) -> Receipt:
        """Keep a prompt for the next turn."""
        return self._queue(self._live(key), prompt, at_us)

    def _queue(self, standing: SessionState, prompt: e.MessageRecorded, at_us: int) -> Receipt:
        # A prompt that was asked already does not wait to be asked again.
        asked = self._repeat(standing, prompt)
        if asked is None and self._repeat(standing, e.PromptWithdrawn(id=prompt.id)):
            raise IdConflict(f"prompt {prompt.id!r} was withdrawn; ask it under another key or id")
        return asked or self._write(standing, _queued(prompt), at_us)

    def withdraw(self, key: int, prompt_id: str, at_us: int) -> Receipt:
        """Take a prompt that waits out of the queue."""
        standing, body = self._live(key), e.PromptWithdrawn(id=prompt_id)
        repeated = self._repeat(standing, body)
        if repeated is None and prompt_id not in self._waiting_prompts(standing):
            raise MessageNotFound(
                f"no prompt {prompt_id!r} waits in session {standing.row.id!r}: it was never "
                "queued, or a turn has taken it"
            )
        return repeated or self._write(standing, body, at_us)

    def _waiting_prompts(self, standing: SessionState) -> dict[str, Message]:
        since = standing.row.queue_seq
        if since is None:
            return {}
        return turn_state.waiting(self._tx.entries(standing.row.key, after=since - 1))

    def stop(self, key: int, body: e.StopAsked, at_us: int) -> tuple[str, int] | None:
        """Ask the running turn to stop: its id and where, or None when it runs no more."""
        standing = self._live(key)
        turn = standing.turn
        if turn is None or body.turn_id not in ("", turn.id):
            if body.turn_id:
                self._past_turn(standing, body.turn_id)
            return None
        body = msgspec.structs.replace(body, turn_id=turn.id)
        return turn.id, self._write(standing, body, at_us).seq

    def end_turn(
        self,
        key: int,
        claim: Claim,
        ending: e.TurnEnding,
        buffers: Sequence[StreamBuffer],
        at_us: int,
    ) -> Receipt | TurnEnded:
        """Close the turn with its one ending, unless it has one already."""
        standing = self._live(key)
        try:
            self._claimed(standing, claim)
        except TurnEnded as lost:
            return self._keep_rest(standing, claim, buffers, at_us, lost)
        seq = self._close(standing, ending, at_us, buffers)
        return Receipt(seq)

    def interrupt_turn(self, key: int, claim: Claim, reason: str, at_us: int) -> bool:
        """End a turn that its holder was interrupted in beginning; True if it still ran."""
        standing = self._standing(key)
        turn = standing.turn
        if turn is None or (turn.id, turn.fence) != (claim.turn_id, claim.fence):
            return False
        self._close(standing, interrupted(turn.id, reason), at_us)
        return True

    def recover(self, key: int, at_us: int) -> bool:
        """Close the running turn if its holder is dead; True when this call closed it."""
        standing = self._standing(key)
        if standing.turn is None or self._tx.is_alive(standing.turn.holder):
            return False
        self._close(standing, crashed(standing.turn.id), at_us)
        return True

    # -- inside a turn -------------------------------------------------------------------------

    def append(self, key: int, claim: Claim, bodies: Sequence[e.Body], at_us: int) -> list[Receipt]:
        """Append fenced entries, all or none."""
        standing = self._live(key)
        try:
            turn = self._claimed(standing, claim)
        except TurnEnded:
            repeated = [self._repeat(standing, body) for body in bodies]
            if None in repeated:
                raise
            return [receipt for receipt in repeated if receipt is not None]
        for body in bodies:
            rules.admit(turn, body)
        return [self._write(standing, body, at_us) for body in bodies]

    def start_tool(
        self, key: int, claim: Claim, call_id: str, at_us: int, of: str | None = None
    ) -> tuple[Receipt, str]:
        """Mark a call as started; from here on it may have effects. Returns its message's id.

        `of` is the ended turn that made the call, if it is not the running one.
        """
        standing = self._live(key)
        turn = self._claimed(standing, claim)
        if of is not None and of != turn.id:
            return self._start_late(standing, turn, of, call_id, at_us)
        call = rules.require_call(turn, call_id)
        body = e.ToolStarted(turn_id=turn.id, message_id=call.message_id, call_id=call_id)
        rules.admit(turn, body)
        rules.admit_approved(call, self._decision(standing, call))
        return self._write(standing, body, at_us), call.message_id

    def _start_late(
        self, standing: SessionState, running: TurnState, of: str, call_id: str, at_us: int
    ) -> tuple[Receipt, str]:
        turn = self._past_turn(standing, of)
        call = rules.require_call(turn, call_id)
        body = e.ToolStarted(turn_id=turn.id, message_id=call.message_id, call_id=call_id)
        self._apply_late(standing, turn, call, body)
        rules.admit_late_start(turn, body, running)
        rules.admit_approved(call, self._decision(standing, call))
        return self._write(standing, body, at_us), call.message_id

    def _apply_late(
        self, standing: SessionState, turn: TurnState, call: CallState, start: e.ToolStarted
    ) -> None:
        """What came for a call after its turn had ended: its start, its result."""
        result = result_identity(call.message_id, call.call_id)
        for name in (identity(start), result):
            entry = self._tx.find_entry(standing.row.key, name)
            if entry is not None:
                turn.apply(entry.seq, entry.body)

    def finish_tool(
        self,
        key: int,
        turn_id: str,
        call_id: str,
        result: ToolResult | None,
        buffer: StreamBuffer | None,
        at_us: int,
    ) -> Receipt:
        """Record a call's one result: in its turn, or as late when the turn has ended.

        Without a result, what the tool printed is the result. No fence is asked for: a call has
        one result, and whoever has it tells the truth about a side effect.
        """
        standing = self._live(key)
        turn = standing.turn
        if turn is None or turn.id != turn_id:
            turn = self._past_turn(standing, turn_id)
        call = rules.require_call(turn, call_id)
        if call.started_seq is None and turn.ended is not None:
            start = e.ToolStarted(turn_id=turn.id, message_id=call.message_id, call_id=call_id)
            late = self._tx.find_entry(standing.row.key, identity(start))
            call.started_seq = None if late is None else late.seq
        left = self._left_output(standing, turn, call.message_id, call_id)
        printed = output_text([*left, *self._deltas(standing, call.started_seq, buffer)])
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
            return self._repeat(standing, body) or _answered(call_id)
        receipt = self._write(standing, body, at_us)
        if call.started_seq is not None and not receipt.repeated:
            self._drop(standing, call.started_seq)
        return receipt

    def leave_tool(
        self, key: int, claim: Claim, call_id: str, buffer: StreamBuffer, at_us: int
    ) -> TurnEnded | None:
        """A tool was left without a result: keep what it printed."""
        standing = self._live(key)
        try:
            turn = self._claimed(standing, claim)
        except TurnEnded as lost:
            return self._keep_rest(standing, claim, [buffer], at_us, lost)
        call = rules.require_call(turn, call_id)
        output = output_text(self._deltas(standing, buffer.seq, buffer))
        if output:
            body = e.ToolOutput(
                turn_id=turn.id, message_id=call.message_id, call_id=call_id, output=output
            )
            self._write_closing(standing, body, at_us)
            self._drop(standing, buffer.seq)
        return None

    def end_message(
        self,
        key: int,
        claim: Claim,
        message_id: str,
        state: Literal["complete", "partial"],
        buffer: StreamBuffer,
        after: e.ModelCallEnded,
        at_us: int,
    ) -> Receipt | TurnEnded:
        """Fold a stream's deltas into its message.

        When the turn was ended by somebody else meanwhile, what was not stored yet is kept as
        late text, and TurnEnded or StaleFence is returned.
        """
        standing = self._live(key)
        try:
            turn = self._claimed(standing, claim)
        except TurnEnded as lost:
            return self._keep_rest(standing, claim, [buffer], at_us, lost)
        parts = assemble(self._deltas(standing, buffer.seq, buffer))
        receipt = Receipt(buffer.seq)
        if parts or state == "complete":
            body = e.MessageEnded(id=message_id, turn_id=turn.id, state=state, parts=parts)
            rules.admit(turn, body)
            write = self._write if state == "complete" else self._write_closing
            receipt = write(standing, body, at_us)
            self._drop(standing, buffer.seq)
        if after.id in turn.model_calls:
            self._write_closing(standing, after, at_us)
        return receipt

    def seal_call(
        self, key: int, claim: Claim, body: e.ToolCalled, buffer: StreamBuffer, at_us: int
    ) -> None:
        """Make a whole call durable while its message still streams, so that its tool can start."""
        standing = self._live(key)
        rules.admit(self._claimed(standing, claim), body)
        flush = self._flush_of(buffer)
        self._tx.put_deltas([] if flush is None else [flush])
        self._write(standing, body, at_us)

    def flush(self, buffers: Sequence[StreamBuffer]) -> dict[int, KillickError | SessionLocked]:
        """Write what streams were given since their last flush. One that is refused stops no other.

        Returns why it was, by the identity of its buffer, which has again what it had.
        """
        self.need({buffer.key for buffer in buffers})
        flushes: list[Flush] = []
        refused: dict[int, KillickError | SessionLocked] = {}
        for buffer in buffers:
            if buffer.closed:
                continue
            mark = self.mark()
            try:
                self._admit_flush(buffer)
                flush = self._flush_of(buffer)
                if flush is not None:
                    flushes.append(flush)
            except (KillickError, SessionLocked) as error:
                self.give_back(mark)
                refused[id(buffer)] = error
        self._tx.put_deltas(flushes)
        return refused

    def _admit_flush(self, buffer: StreamBuffer) -> None:
        tool = self._claimed(self._live(buffer.key), buffer.claim).tool_at(buffer.seq)
        if tool is not None and tool.answered:
            raise IdConflict(
                f"tool call {tool.call_id!r} has a result from elsewhere already; what its tool "
                "prints after that is not kept"
            )

    def add_late_text(
        self, key: int, turn_id: str, message_id: str, text: str, at_us: int
    ) -> Receipt:
        """The whole text of an answer that was cut off, from elsewhere: keep what is new in it."""
        standing = self._live(key)
        turn = self._past_turn(standing, turn_id)
        rules.admit_late(turn, e.LateText(turn_id=turn_id, message_id=message_id, deltas=()))
        stored = self._stored_parts(standing, message_id)
        known = "".join(part.text for part in stored if isinstance(part, Text))
        rest = self._beyond(known, text)
        if rest is None:
            raise IdConflict(
                f"the text does not continue what is stored of message {message_id!r}; "
                "record it in a turn of its own"
            )
        delta = _continuing(stored, rest)
        body = e.LateText(turn_id=turn_id, message_id=message_id, deltas=(delta,), whole=True)
        return self._write(standing, body, at_us)

    def _beyond(self, known: str, text: str) -> str | None:
        """What of a text is not stored yet; None when it is another text."""
        if self._redactor is not None:
            return self._redactor.rest(known, text)
        return text[len(known) :] if text.startswith(known) else None

    def ask_approval(
        self, key: int, claim: Claim, approval_id: str, call_id: str, arguments: str, at_us: int
    ) -> tuple[e.ApprovalAsked, Receipt]:
        """A call waits for a person, bound to the hash of its arguments, as they are recorded."""
        standing = self._live(key)
        call = rules.require_call(self._claimed(standing, claim), call_id)
        made = self._arguments(standing, call)
        forms = (arguments,) if self._redactor is None else self._redactor.forms(arguments)
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
        return body, self._write(standing, body, at_us)

    def _arguments(self, standing: SessionState, call: CallState) -> str:
        """What the model wrote for this call, in a message that is whole or still streams."""
        key = standing.row.key
        for name in (message_end_identity(call.message_id), message_identity(call.message_id)):
            entry = self._tx.find_entry(key, name)
            if entry is None:
                continue
            if isinstance(entry.body, e.MessageStarted):
                parts = assemble(self._stored(standing, entry.seq))
            else:
                assert isinstance(entry.body, e.MessageRecorded | e.MessageEnded)
                parts = entry.body.parts
            for part in parts:
                if isinstance(part, ToolCall) and part.id == call.call_id:
                    return part.arguments
        return ""

    def decide_approval(self, key: int, body: e.ApprovalDecided, at_us: int) -> Receipt:
        """A person's decision on the exact call that was asked about."""
        standing = self._live(key)
        asked = self._tx.find_entry(key, named_identity(body.id, "approval_asked"))
        if asked is None or not isinstance(asked.body, e.ApprovalAsked):
            raise InvalidEntry(f"no approval {body.id!r} was asked for in this session")
        if asked.body.arguments_hash != body.arguments_hash:
            raise InvalidEntry(
                f"approval {body.id!r} was asked for other arguments; decide on what is asked now"
            )
        return self._write(standing, body, at_us)

    # -- blobs ---------------------------------------------------------------------------------

    def put_blob(self, tenant: str, name: str, data: bytes, holder: str) -> str:
        if not self._tx.claim_blob(tenant, name, holder):
            self._tx.put_blob(tenant, name, data, holder)
        return name

    def collect_blobs(self, *, if_due: bool = False) -> int:
        return self._tx.collect_blobs(if_due=if_due)

    def _keep_rest(
        self,
        standing: SessionState,
        claim: Claim,
        buffers: Sequence[StreamBuffer],
        at_us: int,
        lost: TurnEnded,
    ) -> TurnEnded:
        """The turn was ended by somebody else: what its streams still held is late text."""
        turn = self._past_turn(standing, claim.turn_id)
        if turn.ended is not None:
            lost.status, lost.reason = turn.ended.status, turn.ended.reason
        for buffer in buffers:
            deltas = merge(self._take(buffer, last=True))
            if deltas:
                message_id, call_id = turn.stream_at(buffer.seq)
                body = e.LateText(
                    turn_id=turn.id, message_id=message_id, deltas=deltas, call_id=call_id
                )
                try:
                    self._write_closing(standing, body, at_us)
                except IdConflict as conflict:  # whoever was late before us may have known less
                    lost.add_note(f"what came after its end was not kept: {conflict}")
        return lost

    def _left_output(
        self, standing: SessionState, turn: TurnState, message_id: str, call_id: str
    ) -> list[e.Delta]:
        """What was kept of a tool's output when it was left, or its turn was ended."""
        if (message_id, call_id) not in turn.left:
            return []
        body = e.ToolOutput(turn_id=turn.id, message_id=message_id, call_id=call_id, output="")
        entry = self._tx.find_entry(standing.row.key, identity(body))
        assert entry is not None
        assert isinstance(entry.body, e.ToolOutput)
        return [e.Delta(0, 0, "output", entry.body.output)]

    def _stored_parts(self, standing: SessionState, message_id: str) -> tuple[Part, ...]:
        entry = self._tx.find_entry(standing.row.key, message_end_identity(message_id))
        if entry is None or not isinstance(entry.body, e.MessageEnded):
            return ()
        if entry.body.state == "complete":
            raise IdConflict(f"message {message_id!r} is complete; nothing of it can be late")
        return entry.body.parts


def _continuing(stored: Sequence[Part], text: str) -> e.Delta:
    if stored and isinstance(stored[-1], Text):
        return e.Delta(len(stored) - 1, len(stored[-1].text), "text", text)
    return e.Delta(len(stored), 0, "text", text)


def _queued(prompt: e.MessageRecorded) -> e.PromptWaiting:
    return e.PromptWaiting(id=prompt.id, role=prompt.role, parts=prompt.parts)


def _prompt_hash(prompt: e.MessageRecorded | None) -> str:
    return digest(b"" if prompt is None else encode([prompt.role, prompt.parts]))


def _answered(call_id: str) -> Receipt:
    raise IdConflict(f"tool call {call_id!r} has its result in a recorded message already")
