"""Values for the tests of the pure core: journals by hand, and Hypothesis strategies."""

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st

from killick.journal.turn_state import TurnState
from killick.model import entries as e
from killick.model.causes import CAUSES
from killick.model.messages import File, Image, Opaque, Part, Reasoning, Text, ToolCall, ToolResult

TURN = "turn_1"

quick = settings(max_examples=60, deadline=None)
"""The folder has ten seconds; the campaigns look for longer."""

any_text = st.text(st.characters(exclude_categories=()), max_size=20)
"""Every Python string: NUL, lone surrogates, marks of direction, line separators."""

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=5,
)

optional_text = st.none() | any_text
inner_parts = (
    st.builds(Text, any_text)
    | st.builds(Image, any_text, any_text, optional_text)
    | st.builds(File, any_text, any_text, optional_text)
    | st.builds(Opaque, any_text, st.binary(max_size=20))
)
results = st.builds(
    ToolResult,
    any_text,
    any_text | st.lists(inner_parts, max_size=3).map(tuple),
    st.booleans(),
    json_values,
)
parts: st.SearchStrategy[Part] = (
    inner_parts
    | st.builds(Reasoning, any_text, optional_text, optional_text)
    | st.builds(
        ToolCall, any_text, any_text, any_text, st.sampled_from(["function", "custom", "mcp"])
    )
    | results
)
many_parts = st.lists(parts, max_size=4).map(tuple)

bodies: st.SearchStrategy[e.KnownBody] = st.one_of(
    st.builds(
        e.SessionCreated,
        type=any_text,
        title=optional_text,
        tags=st.lists(any_text, max_size=2).map(tuple),
        extra=st.dictionaries(any_text, json_values, max_size=2),
    ),
    st.builds(e.Renamed, id=any_text, title=optional_text),
    st.builds(e.Note, id=any_text, name=any_text, data=json_values),
    st.builds(e.TurnStarted, turn_id=any_text, fence=st.integers(0, 9), holder=any_text),
    st.builds(
        e.TurnEnding,
        turn_id=any_text,
        status=st.just("failed"),
        reason=optional_text,
        cause=st.sampled_from(CAUSES),
    ),
    st.builds(
        e.MessageRecorded, id=any_text, turn_id=any_text, role=st.just("user"), parts=many_parts
    ),
    st.builds(
        e.MessageEnded, id=any_text, turn_id=any_text, state=st.just("partial"), parts=many_parts
    ),
    st.builds(e.ToolStarted, turn_id=any_text, message_id=any_text, call_id=any_text),
    st.builds(e.ToolFinished, turn_id=any_text, message_id=any_text, result=results),
    st.builds(
        e.ModelCallEnded,
        id=any_text,
        turn_id=any_text,
        usage=st.builds(e.Usage, st.integers(0, 9), cost=st.none() | st.just(0.25)),
        provider_ids=st.dictionaries(any_text, any_text, max_size=2),
    ),
)


def entries(*bodies: e.Body, first: int = 1) -> list[e.Entry]:
    """A journal of these bodies; the time of each is its seq."""
    return [e.Entry(seq, seq, body) for seq, body in enumerate(bodies, first)]


def turn_after(*bodies: e.Body) -> TurnState:
    """A turn that started at seq 1, after these entries at 2, 3 …"""
    turn = TurnState(1, begun())
    for seq, body in enumerate(bodies, 2):
        turn.apply(seq, body)
    return turn


def begun(turn_id: str = TURN, fence: int = 1) -> e.TurnStarted:
    return e.TurnStarted(turn_id=turn_id, fence=fence, holder="here")


def ended(
    status: str = "completed", reason: str | None = None, cause: str | None = None
) -> e.TurnEnding:
    return e.TurnEnding(turn_id=TURN, status=status, reason=reason, cause=cause)  # type: ignore[arg-type]


def said(*content: Part, id: str = "m1") -> e.MessageRecorded:  # noqa: A002
    return e.MessageRecorded(id=id, turn_id=TURN, role="assistant", parts=content)


def opened(id: str = "m1") -> e.MessageStarted:  # noqa: A002
    return e.MessageStarted(id=id, turn_id=TURN)


def closed(
    *content: Part,
    id: str = "m1",  # noqa: A002
    state: str = "complete",
) -> e.MessageEnded:
    return e.MessageEnded(id=id, turn_id=TURN, state=state, parts=content)  # type: ignore[arg-type]


def ran(call_id: str = "c1", message_id: str = "m1") -> e.ToolStarted:
    return e.ToolStarted(turn_id=TURN, message_id=message_id, call_id=call_id)


def answered(
    content: str = "done",
    call_id: str = "c1",
    message_id: str = "m1",
    *,
    started: int | None = None,
) -> e.ToolFinished:
    """`started` is the seq at which the tool was started."""
    result = ToolResult(call_id, content)
    return e.ToolFinished(turn_id=TURN, message_id=message_id, result=result, started=started)


def late(
    content: str = "done",
    call_id: str = "c1",
    message_id: str = "m1",
    *,
    started: int | None = None,
) -> e.LateResult:
    result = ToolResult(call_id, content)
    return e.LateResult(turn_id=TURN, message_id=message_id, result=result, started=started)


def no_deltas(_seq: int) -> Sequence[e.Delta]:
    return ()
