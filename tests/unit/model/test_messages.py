"""A message as values: what a prompt becomes, what can be asked of its parts."""

from killick.model.messages import Message, Part, Reasoning, Text, ToolCall, as_message


def test_a_prompt_of_text_becomes_a_user_message_with_one_part() -> None:
    assert as_message("hello") == Message(role="user", parts=(Text("hello"),))


def test_a_prompt_of_parts_keeps_their_order() -> None:
    parts: list[Part] = [Text("a"), Reasoning("b"), Text("c")]
    assert as_message(parts).parts == tuple(parts)


def test_a_message_given_as_a_prompt_is_taken_as_it_is() -> None:
    message = Message(role="system", parts=[Text("be brief")], id="mine")
    assert as_message(message) is message


def test_the_text_of_a_message_is_its_text_parts_joined() -> None:
    message = Message("assistant", [Text("a"), Reasoning("hidden"), Text("b")])
    assert message.text == "ab"


def test_the_tool_calls_of_a_message_come_in_order() -> None:
    first, second = ToolCall("1", "x"), ToolCall("2", "y")
    assert Message("assistant", [first, Text("then"), second]).tool_calls == [first, second]
