"""The recap: files and commands by the arguments that agents give, and what is open."""

import pytest

from killick.exchange.recap import recap
from killick.model.messages import Role, Text
from killick.views.transcript import Shown, ShownTool, ToolState


def message(
    seq: int, *tools: ShownTool, role: Role = "assistant", text: str = "", turn: str = "t"
) -> Shown:
    parts = (Text(text),) if text else ()
    return Shown("message", role, parts, "complete", seq, turn, 0, tools)


def tool(arguments: str, name: str = "tool", state: ToolState = "finished") -> ShownTool:
    return ShownTool("c", name, arguments, state)


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        ('{"file_path": "/a.py", "old_string": "x"}', ["/a.py"]),
        ('{"filePath": "/a.py"}', ["/a.py"]),
        ('{"absolute_path": "/a.py"}', ["/a.py"]),
        ('{"path": ""}', []),
        ('{"path": 7}', []),
        ("*** Begin Patch\n*** Update File: a.py\n@@\n*** Add File: b.py\n", ["a.py", "b.py"]),
        ('{"input": "*** Begin Patch\\n*** Delete File: a.py\\n"}', ["a.py"]),
        ('{"cmd": "apply_patch <<E\\n*** Update File: a b.py\\nE"}', ["a b.py"]),
        ('["/a.py"]', []),
        ('{"file_path": "/a', []),
    ],
)
def test_files_that_tools_name(arguments: str, paths: list[str]) -> None:
    recapped = recap([message(1, tool(arguments))], "t")
    assert [file.path for file in recapped.files] == paths


@pytest.mark.parametrize(
    ("arguments", "commands"),
    [
        ('{"command": "make all"}', ["make all"]),
        ('{"cmd": "make"}', ["make"]),
        ('{"command": ["bash", "-lc", "make && ls"]}', ["make && ls"]),
        ('{"command": ["/bin/sh", "-c", "make"]}', ["make"]),
        ('{"command": ["ls", "a b"]}', ["ls 'a b'"]),
        ('{"command": [1]}', []),
        ('{"command": " "}', []),
        ("{", []),
    ],
)
def test_commands_that_tools_are_given(arguments: str, commands: list[str]) -> None:
    recapped = recap([message(1, tool(arguments))], "t")
    assert [given.command for given in recapped.commands] == commands


def test_a_file_is_listed_once_where_it_was_named_last() -> None:
    calls = [
        tool('{"path": "a"}', "Read"), tool('{"path": "b"}', "Read"), tool('{"path": "a"}', "Edit")
    ]  # fmt: skip
    files = recap([message(1, *calls)], "t").files
    assert [(file.path, file.tools, file.calls) for file in files] == [
        ("b", ("Read",), 1),
        ("a", ("Read", "Edit"), 2),
    ]


def test_an_earlier_turn_leaves_open_what_is_unknown_and_no_more() -> None:
    shown = [
        message(1, tool("{}", "a", "unknown"), tool("{}", "b", "not started"), turn="first"),
        message(2, tool("{}", "c", "not started"), tool("{}", "d", "denied")),
    ]
    assert [call.tool.name for call in recap(shown, "t").open] == ["a", "c"]


def test_what_is_folded_counts() -> None:
    folded = (message(1, role="user", text="Begin."), message(2, tool('{"path": "a"}')))
    summary = Shown("compaction", "system", (Text("short"),), "complete", 1, None, 0, folded=folded)
    recapped = recap([summary, message(3, text="Done.")], "t")
    assert [prompt.text for prompt in recapped.prompts] == ["Begin."]
    assert [file.path for file in recapped.files] == ["a"]
    assert recapped.answer is not None
    assert recapped.answer.text == "Done."


def test_an_empty_session_has_nothing() -> None:
    recapped = recap([], None)
    assert (recapped.prompts, recapped.answer, recapped.ending, recapped.open) == (
        (),
        None,
        None,
        (),
    )
