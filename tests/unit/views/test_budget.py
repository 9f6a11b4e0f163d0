"""Budgets: the running turn's prompt is always sent, then the newest, and what is cut is said."""

import json
import re
import struct
import zlib

import pytest

from killick import BudgetTooSmall, File, Image, Message, Session, Store, Text, ToolCall, ToolResult
from killick.views import validators
from killick.views.budget import estimate_tokens
from killick.views.context import Context
from tests.unit.views.talking import lines, said, send

PROMPT = "Count the kelp in every bay."


def loop(session: Session, steps: int, result: str = "12", prompt: str = PROMPT) -> None:
    """A turn of many steps, each a call and its result."""
    with session.turn(prompt) as turn:
        for number in range(steps):
            step(turn, f"c{number}", result)


def step(turn: object, call_id: str, result: str | list[object]) -> None:
    turn.record(Message(role="assistant", parts=[ToolCall(call_id, "count", "{}")]))  # type: ignore[attr-defined]
    with turn.tool(call_id) as call:  # type: ignore[attr-defined]
        call.finish(result)


def texts(context: Context) -> str:
    return json.dumps(context.messages, ensure_ascii=False)


@pytest.mark.parametrize("format_", ["openai-chat", "openai-responses", "anthropic", "gemini"])
def test_sixty_one_messages_with_a_limit_of_sixty_keep_sixty(
    session: Session, format_: str
) -> None:
    loop(session, 30)
    context = session.context(format_, max_messages=60)  # type: ignore[arg-type]
    assert PROMPT in texts(context)
    assert 58 <= len(context.messages) <= 60
    assert "c29" in texts(context)


def test_every_limit_of_messages_keeps_the_prompt(session: Session) -> None:
    loop(session, 5)
    for limit in range(1, 12):
        context = session.context("openai-chat", max_messages=limit)
        assert PROMPT in texts(context)
        assert len(context.messages) <= limit
        assert validators.openai_chat(context.messages, context.system) == []


def test_nothing_older_is_sent_without_what_came_after_it(session: Session) -> None:
    for prompt, answer in (("Old one.", "Old answer."), ("A long one.", "kelp " * 2000)):
        with session.turn(prompt) as turn:
            turn.record(said(answer))
    with session.turn(PROMPT):
        sent = texts(session.context("openai-chat", max_tokens=300))
    assert PROMPT in sent
    assert "Old" not in sent
    assert "A long one." not in sent


def test_in_the_next_turn_the_answer_before_it_is_kept(session: Session) -> None:
    loop(session, 30)
    with session.turn("Sum it up.") as turn:
        turn.record(said("360."))
        context = session.context("openai-chat", max_messages=20)
    assert "Sum it up." in texts(context)
    assert "c29" in texts(context)


def test_what_waited_is_kept_with_the_prompt_of_its_turn(session: Session) -> None:
    session.queue("And count the limpets.")
    loop(session, 5)
    context = session.context("openai-chat", max_messages=3)
    assert "count the limpets" in texts(context)
    assert PROMPT in texts(context)
    assert "c4" in texts(context)


def test_one_large_result_is_cut_in_the_middle_and_says_so(session: Session) -> None:
    loop(session, 1, "begin" + "x" * 400_000 + "end")
    context = session.context("anthropic", max_tokens=2000)
    assert validators.anthropic(context.messages, context.system) == []
    sent = texts(context)
    assert PROMPT in sent
    assert "begin" in sent
    assert "end" in sent
    told = re.search(r"\[Of the result of the call c0, (\d+) of 400008 characters are left", sent)
    assert told is not None
    assert 390_000 < int(told[1]) < 400_008
    assert [repair.action for repair in context.repairs] == ["cut"]


def test_the_results_of_the_newest_step_are_cut_before_its_text(session: Session) -> None:
    with session.turn(PROMPT) as turn:
        calls = [ToolCall("c0", "count", "{}")]
        turn.record(Message(role="assistant", parts=[Text("words " * 100), *calls]))
        with turn.tool("c0") as call:
            call.finish("kelp " * 1000)
    cut = texts(session.context("openai-chat", max_bytes=2_000))
    assert "words " * 100 in cut
    smaller = texts(session.context("openai-chat", max_bytes=700))
    assert "words " * 100 not in smaller
    assert "characters are left out here" in smaller
    assert PROMPT in smaller


def test_older_messages_go_before_newer_ones_and_summaries_first(session: Session) -> None:
    for number in range(4):
        send(session, f"Question {number}." + "x" * 100, f"Answer {number}.")
    session.compact(summary="S" * 300, through=session.messages()[3].seq)
    whole = session.context("neutral")
    assert any("SSS" in line for line in lines(whole))
    size = len(json.dumps(whole.messages))
    kept = lines(session.context("neutral", max_bytes=size - 1))
    assert not any("SSS" in line for line in kept)
    assert any("Question 2." in line for line in kept)


def test_a_summary_is_sent_where_it_fits_though_an_older_message_did_not(session: Session) -> None:
    send(session, "Zero.", "Nought.")
    send(session, "First.", "x" * 2_000)
    send(session, "Second.", "Short.")
    session.compact(summary="In short.", through=session.messages()[1].seq)
    kept = lines(session.context("neutral", max_bytes=1_000))
    assert not any("xxx" in line for line in kept)
    assert any("In short." in line for line in kept)
    assert any("Second." in line for line in kept)


def test_a_summary_that_stands_for_the_running_prompt_is_kept(session: Session) -> None:
    with session.turn(PROMPT) as turn:
        step(turn, "c0", "12")
        session.compact(summary="The user wants all kelp counted.", through=session.head)
        for number in range(1, 6):
            step(turn, f"c{number}", "12")
        context = session.context("anthropic", max_messages=3)
    assert "all kelp counted" in texts(context)
    assert "c5" in texts(context)
    assert "c1" not in texts(context)


def test_a_prompt_that_does_not_fit_is_an_error_with_both_figures(session: Session) -> None:
    loop(session, 1, prompt="kelp " * 1000)
    with pytest.raises(BudgetTooSmall, match=r"1\d\d\d tokens are needed, and the limit is 50"):
        session.context("anthropic", max_tokens=50)
    with pytest.raises(BudgetTooSmall, match=r"5\d\d\d bytes are needed, and the limit is 400"):
        session.context("anthropic", max_bytes=400)


@pytest.mark.parametrize("limit", ["max_messages", "max_tokens", "max_bytes"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_below_one_is_refused(session: Session, limit: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{limit}={value}"):
        session.context("anthropic", **{limit: value})  # type: ignore[arg-type]


def test_a_counter_that_raises_or_gives_no_count_raises_at_the_call(session: Session) -> None:
    loop(session, 1)

    def broken(text: str) -> int:
        raise LookupError(text)

    with pytest.raises(LookupError):
        session.context("anthropic", max_tokens=10_000, count_tokens=broken)
    for wrong in (None, 1.5, True, "3"):
        with pytest.raises(TypeError, match="count_tokens"):
            session.context(
                "anthropic",
                max_tokens=10_000,
                count_tokens=lambda text, wrong=wrong: wrong,  # type: ignore[misc]
            )
    with pytest.raises(ValueError, match="count_tokens"):
        session.context("anthropic", max_tokens=10_000, count_tokens=lambda text: -1)
    with pytest.raises(TypeError, match="count_tokens"):
        session.context("anthropic", max_tokens=10_000, count_tokens="tokens")  # type: ignore[arg-type]


def test_a_token_counter_decides(session: Session) -> None:
    loop(session, 10, "twelve stalks")
    for limit in (60, 120, 200):
        context = session.context("openai-chat", max_tokens=limit, count_tokens=len)
        words = [message.get("content") or "" for message in context.messages]
        assert sum(map(len, words)) <= limit
    assert len(session.context("openai-chat", max_tokens=10_000, count_tokens=len).messages) == 21


@pytest.mark.parametrize("format_", ["openai-chat", "openai-responses", "anthropic", "gemini"])
def test_a_budget_in_bytes_holds_for_the_whole_request(session: Session, format_: str) -> None:
    with session.turn(Message(role="system", parts=[Text("Be brief. " * 10)])):
        pass
    loop(session, 20, "twelve stalks of kelp")
    for limit in (600, 1000, 2500):
        context = session.context(format_, max_bytes=limit)  # type: ignore[arg-type]
        assert len(json.dumps(context.messages)) + len(json.dumps(context.system)) <= limit
        assert PROMPT in texts(context)


# -- images and files --------------------------------------------------------------------------


def png(width: int, height: int, noise: int = 0) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"\0" * (width + 1) * height)
    blocks = chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"tEXt", b"n\0" + b"x" * noise)
    return b"\x89PNG\r\n\x1a\n" + blocks + chunk(b"IEND", b"")


def picture(store: Store, data: bytes) -> Image:
    return Image(store.put_blob(data), "image/png")


@pytest.mark.parametrize("format_", ["neutral", "openai-chat", "anthropic", "gemini"])
def test_images_count_as_what_they_cost(store: Store, session: Session, format_: str) -> None:
    """A thousand pixels square cost over 700 tokens everywhere, whatever their blob is called."""
    with session.turn([Text("Look."), picture(store, png(1000, 1000))]) as turn:
        turn.record(said("Kelp."))
    with session.turn("And now?"):
        small = session.context(format_, max_tokens=300)  # type: ignore[arg-type]
        large = session.context(format_, max_tokens=3000)  # type: ignore[arg-type]
    assert "Look." not in texts(small)
    assert "And now?" in texts(small)
    assert "Look." in texts(large)


@pytest.mark.parametrize(
    "format_", ["neutral", "openai-chat", "openai-responses", "anthropic", "gemini"]
)
def test_the_bytes_of_an_image_are_no_words(store: Store, session: Session, format_: str) -> None:
    with session.turn([Text("Look."), picture(store, png(100, 100, noise=50_000))]) as turn:
        turn.record(said("Kelp."))
    with session.turn("And now?"):
        context = session.context(format_, max_tokens=1500)  # type: ignore[arg-type]
    assert "Look." in texts(context)


def test_an_image_in_a_result_goes_before_its_text(store: Store, session: Session) -> None:
    with session.turn(PROMPT) as turn:
        turn.record(Message(role="assistant", parts=[ToolCall("c0", "look", "{}")]))
        with turn.tool("c0") as call:
            call.finish([Text("a bay"), picture(store, png(900, 900))])
    context = session.context("anthropic", max_tokens=300)
    assert validators.anthropic(context.messages, context.system) == []
    assert "a bay" in texts(context)
    assert "[Of the result of the call c0, the images and files are left out" in texts(context)


def test_over_the_images_of_a_request_the_oldest_are_a_sentence(
    store: Store, session: Session
) -> None:
    image = picture(store, png(10, 10))
    for number in range(11):
        with session.turn([Text(f"Bay {number}."), *[image] * 10]) as turn:
            turn.record(said("Kelp."))
    context = session.context("anthropic")
    blocks = [block for message in context.messages for block in message["content"]]
    assert sum(block["type"] == "image" for block in blocks) == 100
    assert sum("An older image" in block.get("text", "") for block in blocks) == 10
    assert [block["type"] for block in blocks[-11:-1]] == ["image"] * 10
    assert validators.anthropic(context.messages, context.system) == []
    bedrock = session.context("anthropic", profile="bedrock")
    blocks = [block for message in bedrock.messages for block in message["content"]]
    assert sum(block["type"] == "image" for block in blocks) == 20


@pytest.mark.parametrize("count", [9, 10, 17, 25])
def test_a_server_of_few_images_is_sent_the_newest_of_them(
    store: Store, session: Session, count: int
) -> None:
    with session.turn([Text("Look."), *[picture(store, png(10, 10))] * count]) as turn:
        turn.record(said("Kelp."))
    (blocks,) = [
        message["content"]
        for message in session.context("openai-chat", profile="mistral").messages
        if message["role"] == "user"
    ]
    kinds = [block["type"] for block in blocks]
    assert 6 < kinds.count("image_url") <= 8
    assert kinds[-7:] == ["image_url"] * 7


def test_a_server_of_no_images_is_told_of_each_that_it_is_not_sent(
    store: Store, session: Session
) -> None:
    with session.turn([Text("Look."), picture(store, png(10, 10))]) as turn:
        turn.record(said("Kelp."))
    context = session.context("openai-chat", profile="deepseek")
    assert "[An image (image/png) is left out here.]" in texts(context)
    assert [one.reason for one in context.repairs] == ["an image: the server takes none"]


def test_over_the_bytes_of_a_request_the_oldest_are_a_sentence(
    store: Store, session: Session
) -> None:
    for number in range(8):
        image = picture(store, png(10, 10, 3_500_000 + number))
        with session.turn([Text(f"Bay {number}."), image]) as turn:
            turn.record(said("Kelp."))
    context = session.context("anthropic")
    assert validators.anthropic(context.messages, context.system) == []
    blocks = [block for message in context.messages for block in message["content"]]
    kinds = [
        block["type"] for block in blocks if "An older image" in block.get("text", "An older image")
    ]
    assert kinds == ["text"] + ["image"] * 7
    assert len(json.dumps(context.messages)) <= 32 * 1024 * 1024


def test_a_pdf_costs_its_pages(store: Store, session: Session) -> None:
    paper = File(store.put_blob(b"%PDF-1.4\n" + b"/Type /Page\n" * 10), "application/pdf", "a.pdf")
    with session.turn([Text("Read."), paper]) as turn:
        turn.record(said("Kelp."))
    with session.turn("And now?"):
        assert "Read." not in texts(session.context("anthropic", max_tokens=20_000))
        assert "Read." in texts(session.context("anthropic", max_tokens=40_000))


def test_the_estimate_grows_with_the_text_and_is_never_none() -> None:
    assert estimate_tokens("") == 1
    assert estimate_tokens("kelp") < estimate_tokens("kelp holds on") < estimate_tokens("海藻" * 20)


def test_a_result_keeps_its_failure_when_it_is_cut(session: Session) -> None:
    with session.turn(PROMPT) as turn:
        turn.record(Message(role="assistant", parts=[ToolCall("c0", "count", "{}")]))
        with turn.tool("c0") as call:
            call.finish("x" * 5000, is_error=True)
    context = session.context("neutral", max_bytes=900)
    results = [
        part for message in context.messages for part in message["parts"] if "call_id" in part
    ]
    assert [part["is_error"] for part in results] == [True]
    assert isinstance(ToolResult("c0", results[0]["content"]).content, str)
