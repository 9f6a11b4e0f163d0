"""What is in view after any changes of history equals a model that is too simple to be wrong."""

from collections.abc import Iterable, Iterator

import msgspec
from hypothesis import HealthCheck, given, settings

from killick.journal.audit import audit
from killick.journal.fold import fold_messages
from killick.journal.kinds import HISTORY, lookup_class
from killick.journal.visibility import History, in_view
from killick.model import entries as e
from killick.model.messages import Message, Text, ToolCall
from killick.testing.strategies import journals
from killick.views.context import compute, for_model
from killick.views.neutral import build
from killick.views.transcript import Shown, transcript

many = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def no_deltas(_: int) -> list[e.Delta]:
    return []


class Model:
    """The rules as a person would say them, about messages and not about entries."""

    def __init__(self, entries: list[e.Entry]) -> None:
        self.messages = fold_messages(entries, no_deltas)
        self._places = {message.id: message.seq for message in self.messages}
        undone = {entry.body.seq for entry in entries if isinstance(entry.body, e.Undone)}
        self._operations = {entry.seq: entry.body for entry in entries if entry.seq not in undone}
        self._looks = [entry.body for entry in entries if isinstance(entry.body, e.Visibility)]

    def began_at(self, message: Message) -> int:
        """A result began with the message that asked for it."""
        owner = (message.id or "").rpartition("/")[0] if message.role == "tool" else message.id
        return self._places.get(owner, message.seq)

    def is_rewound(self, message: Message) -> bool:
        return any(
            message.seq < seq and self.began_at(message) > body.through
            for seq, body in self._operations.items()
            if isinstance(body, e.Rewound)
        )

    def compactions(self) -> Iterator[e.Compacted]:
        """Those that no later rewind reaches into."""
        for at, body in self._operations.items():
            if isinstance(body, e.Compacted) and not any(
                seq > at and isinstance(other, e.Rewound) and other.through < body.through
                for seq, other in self._operations.items()
            ):
                yield body

    def is_compacted(self, message: Message) -> bool:
        place = self.began_at(message)
        return any(
            body.first <= place <= body.through and place not in body.keep
            for body in self.compactions()
        )

    def is_hidden(self, message: Message, audience: str) -> bool:
        looks = [getattr(look, audience) for look in self._looks if look.seq == message.seq]
        said = [look for look in looks if look is not None]
        return bool(said) and not said[-1]


def opened(shown: Iterable[Shown]) -> Iterator[Shown]:
    for one in shown:
        yield one
        yield from opened(one.folded)


def says_something(message: Message) -> bool:
    return message.state == "complete" and any(
        (isinstance(part, Text) and part.text.strip()) or isinstance(part, ToolCall)
        for part in message.parts
    )


@many
@given(journals())
def test_a_rewind_takes_out_what_began_later_and_nothing_else(journal: list[e.Entry]) -> None:
    model = Model(journal)
    expected = [message for message in model.messages if not model.is_rewound(message)]
    assert fold_messages(in_view(History(journal), journal), no_deltas) == expected


@many
@given(journals())
def test_a_person_sees_what_is_not_rewound_and_not_hidden(journal: list[e.Entry]) -> None:
    model = Model(journal)
    expected = {
        message.seq
        for message in model.messages
        if message.role != "tool"
        and not model.is_rewound(message)
        and not model.is_hidden(message, "person")
    }
    shown = list(opened(transcript(journal, no_deltas)))
    assert {one.seq for one in shown if one.kind == "message"} == expected
    assert len([one for one in shown if one.kind == "message"]) == len(expected)
    folds = [one for one in shown if one.kind == "compaction"]
    assert len(folds) == len(list(model.compactions()))


@many
@given(journals())
def test_a_model_is_sent_what_no_summary_stands_for(journal: list[e.Entry]) -> None:
    model = Model(journal)
    allowed = [
        message
        for message in model.messages
        if message.role != "tool"
        and not model.is_rewound(message)
        and not model.is_hidden(message, "model")
        and not model.is_compacted(message)
    ]
    built = list(build(for_model(History(journal), journal)).finish())
    sent = {one.seqs[0] for one in built if not one.synthetic and one.role != "tool"}
    assert sent <= {message.seq for message in allowed}
    late = {one.body.message_id for one in journal if isinstance(one.body, e.LateText)}
    said = {one.seq for one in allowed if says_something(one) and one.id not in late}
    assert said <= sent, "but for what came after a model was asked: that is told as text"
    summaries = [one for one in built if one.synthetic and "summarised" in str(one.parts)]
    assert len(summaries) == len(History(journal).summaries())


@many
@given(journals())
def test_what_need_not_be_read_changes_nothing(journal: list[e.Entry]) -> None:
    """A long journal is read from its last summary on; what is sent is the same."""
    history = History(journal)
    reach, kept = history.skipped()
    few = [entry for entry in journal if entry.seq > reach or entry.seq in kept]
    all_, some = (
        compute(entries, "neutral", blobs=lambda name: None, history=history)
        for entries in (journal, few)
    )
    assert (all_.messages, all_.origins, all_.repairs) == (
        some.messages,
        some.origins,
        some.repairs,
    )


def taken_back(journal: list[e.Entry]) -> list[e.Entry]:
    """The journal, with everything undone that can be undone."""
    bodies: list[e.Body] = []
    for entry in journal:
        match entry.body:
            case e.Compacted() | e.Rewound() as body:
                bodies.append(e.Undone(id=body.id, seq=entry.seq))
            case e.Visibility() as body:
                shown = msgspec.structs.replace(body, id=f"{body.id}-back", person=True, model=True)
                bodies.append(shown)
            case _:
                pass
    head = journal[-1].seq
    return [*journal, *(e.Entry(head + n, 0, body) for n, body in enumerate(bodies, start=1))]


@many
@given(journals())
def test_undoing_everything_shows_everything(journal: list[e.Entry]) -> None:
    plain = [entry for entry in journal if lookup_class(entry.body) != HISTORY]
    back = taken_back(journal)
    assert fold_messages(in_view(History(back), back), no_deltas) == fold_messages(plain, no_deltas)
    assert transcript(back, no_deltas) == transcript(plain, no_deltas)


@many
@given(journals())
def test_every_journal_passes_the_audit(journal: list[e.Entry]) -> None:
    assert audit(journal) == []
