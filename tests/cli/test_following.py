"""What comes while a session is followed, as text."""

from datetime import UTC, datetime

from killick import Delta, Entry, FollowedDelta, Text, ToolCall, ToolResult
from killick.cli.render import FollowRenderer
from killick.model import entries as e

NOW = datetime(2026, 11, 15, tzinfo=UTC)


def told(*items: e.Entry | e.FollowedDelta) -> str:
    renderer = FollowRenderer(NOW)
    return "".join(span.text for item in items for span in renderer.render(item))


def entry(seq: int, body: e.Body) -> e.Entry:
    return Entry(seq, 1_794_700_800_000_000, body)


def delta(seq: int, text: str, *, part: int = 0, call: str | None = None) -> e.FollowedDelta:
    return FollowedDelta(seq, "t", "m", call, Delta(part, 0, "output" if call else "text", text))


ENDED = e.MessageEnded(id="m", turn_id="t", state="complete", parts=(Text("Hello there"),))


def test_deltas_of_one_part_go_on_in_their_line() -> None:
    assert told(delta(5, "Hello "), delta(5, "there")) == "#5 says: Hello there"


def test_what_streams_at_once_is_told_apart() -> None:
    text = told(delta(5, "Hel"), delta(7, "compiling\n", call="c"), delta(5, "lo"))
    assert text == "#5 says: Hel\n#7 c prints: compiling\n#5 says: lo"


def test_a_message_that_streamed_is_not_told_twice() -> None:
    assert told(delta(5, "Hello there"), entry(6, ENDED)) == "#5 says: Hello there\n"


def test_a_message_that_was_over_before_is_told_whole() -> None:
    assert told(entry(6, ENDED)) == "Hello there\n"


def test_a_message_that_was_cut_off_says_so_behind_its_text() -> None:
    cut = e.MessageEnded(id="m", turn_id="t", state="partial", parts=(Text("Hel"),))
    first, second = told(entry(6, cut)).splitlines()
    assert first == "Hel"
    assert second.endswith("#6 cut off here: a partial message")


def test_a_tool_is_called_by_its_name() -> None:
    called = e.MessageEnded(
        id="m", turn_id="t", state="complete", parts=(ToolCall("c", "shell", "{}"),)
    )
    finished = e.ToolFinished(turn_id="t", message_id="m", result=ToolResult("c", "done"))
    lines = told(
        entry(6, called),
        entry(7, e.ToolStarted(turn_id="t", message_id="m", call_id="c")),
        delta(7, "compiling", call="c"),
        entry(8, finished),
    ).splitlines()
    assert lines[0] == "calls shell {}"
    assert lines[1].endswith("#7 shell runs")
    assert lines[2] == "#7 shell prints: compiling"
    assert lines[3].endswith("#8 shell finished")


def test_a_kind_that_nobody_knows_yet_is_named() -> None:
    assert told(entry(9, e.Unknown("new_thing", 1, b"{}"))).endswith("#9 new thing\n")
