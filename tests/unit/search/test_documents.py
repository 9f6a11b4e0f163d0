"""Which entries make a document, and what is in it."""

from typing import Any

from killick.journal.kinds import identity
from killick.model import entries as e
from killick.model.messages import File, Image, Opaque, Reasoning, Text, ToolCall, ToolResult
from killick.search.documents import RESULT_CHARS, document
from killick.search.port import Document


class Journal:
    """Entries, and the document that the last of them makes."""

    def __init__(self) -> None:
        self.entries: list[e.Entry] = []

    def add(self, body: Any) -> Document | None:
        self.entries.append(e.Entry(len(self.entries) + 1, 1_000 + len(self.entries), body))
        named = {identity(entry.body): entry for entry in self.entries}
        return document(self.entries[-1], named.get)


def recorded(*parts: Any) -> Document:
    made = Journal().add(
        e.MessageRecorded(id="m", turn_id="t", role="assistant", parts=tuple(parts))
    )
    assert made is not None
    return made


def test_a_recorded_message_is_a_document() -> None:
    made = recorded(Text("said"), Reasoning("thought"), Text("more"))
    assert (made.place, made.seq, made.id, made.turn_id) == (1, 1, "m", "t")
    assert (made.role, made.state, made.at_us) == ("assistant", "complete", 1_000)
    assert (made.text, made.reasoning) == ("said\nmore", "thought")


def test_arguments_are_words_and_not_json() -> None:
    arguments = '{"command": "make\\nall", "jobs": [2, true], "t": "\\u6771"}'
    made = recorded(ToolCall("c", "shell", arguments))
    assert made.text == "shell\ncommand make\nall jobs 2 True t 東"


def test_arguments_that_were_cut_off_are_taken_as_they_are() -> None:
    assert recorded(ToolCall("c", "shell", '{"command": "ma')).text == 'shell\n{"command": "ma'


def test_of_a_result_the_beginning_is_found() -> None:
    long = "x" * RESULT_CHARS + "end"
    assert len(recorded(ToolResult("c", long)).text) == RESULT_CHARS
    assert len(recorded(ToolResult("c", (Text(long), Text("y")))).text) == RESULT_CHARS


def test_names_and_descriptions_are_found_and_opaque_data_is_not() -> None:
    made = recorded(
        Image("b2:x", "image/png", alt="a crab"),
        File("b2:y", "text/plain", name="notes.txt"),
        Opaque("anthropic", b"secret"),
    )
    assert made.text == "a crab\nnotes.txt"


def test_what_streams_has_no_document_until_it_ends() -> None:
    journal = Journal()
    assert journal.add(e.MessageStarted(id="m", turn_id="t")) is None
    journal.add(e.Note(id="n", name="between"))
    made = journal.add(e.MessageEnded(id="m", turn_id="t", state="partial", parts=(Text("half"),)))
    assert made is not None
    assert (made.place, made.seq, made.state, made.text) == (1, 3, "partial", "half")


def test_late_text_makes_the_document_anew_in_its_place() -> None:
    journal = Journal()
    journal.add(e.MessageStarted(id="m", turn_id="t"))
    journal.add(e.MessageEnded(id="m", turn_id="t", state="partial", parts=(Text("half"),)))
    late = e.LateText(
        turn_id="t", message_id="m", deltas=(e.Delta(0, 4, "text", " and half"),), whole=True
    )
    made = journal.add(late)
    assert made is not None
    assert (made.place, made.seq, made.state, made.text) == (1, 3, "complete", "half and half")


def test_a_result_stands_where_its_tool_was_started() -> None:
    journal = Journal()
    journal.add(e.ToolStarted(turn_id="t", message_id="m", call_id="c"))
    journal.add(e.Note(id="n", name="between"))
    body = e.ToolFinished(turn_id="t", message_id="m", result=ToolResult("c", "done"), started=1)
    made = journal.add(body)
    assert made is not None
    assert (made.place, made.id, made.role, made.text) == (1, "m/c", "tool", "done")
    late = Journal().add(e.LateResult(turn_id="t", message_id="m", result=ToolResult("c", "late")))
    assert late is not None
    assert (late.place, late.role) == (1, "tool")


def test_the_summary_of_a_compaction_is_a_document() -> None:
    made = Journal().add(e.Compacted(id="k", summary="we built it", first=1, through=9))
    assert made is not None
    assert (made.role, made.text, made.turn_id) == ("summary", "we built it", None)


def test_an_end_without_its_beginning_makes_no_document() -> None:
    ended = e.MessageEnded(id="m", turn_id="t", state="complete", parts=(Text("x"),))
    assert Journal().add(ended) is None
