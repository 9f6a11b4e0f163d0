"""Prompts that wait: what becomes of them when a turn is stopped, or its server is killed."""

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import Keep, OpenPage, Serve, ask


def waiting(page: Page) -> list[str]:
    return page.locator(".queue li").all_inner_texts()


def queue_two(page: Page) -> None:
    """An answer that does not end, and two prompts behind it."""
    ask(page, "hang")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    ask(page, "say apples")
    expect(page.locator(".queue li")).to_have_count(1)
    ask(page, "say pears")
    expect(page.locator(".queue li")).to_have_count(2)


def test_what_waited_when_the_server_was_killed_is_there_and_is_sent_or_removed(
    serve: Serve, open_page: OpenPage, keep: Keep
) -> None:
    server = serve()
    page = open_page(server, f"/s/{server.create()}")
    queue_two(page)
    server.kill()
    expect(page.locator(".offline")).to_be_visible()
    again = serve("--port", server.url.rpartition(":")[2])
    expect(page.locator(".ending")).to_contain_text("The process that ran it died")
    assert waiting(page) == ["say apples", "say pears"]
    keep(page, "queue-after-a-crash")
    page.get_by_role("button", name="Remove: say apples").click()
    expect(page.locator(".queue li")).to_have_count(1)
    page.reload()
    expect(page.locator(".queue li")).to_have_text(["say pears"])
    page.get_by_role("button", name="Send now").click()
    expect(page.locator(".message.assistant").last).to_have_text(re.compile("pears"))
    expect(page.locator(".queue")).to_have_count(0)
    assert page.locator(".message.user").all_inner_texts() == ["hang", "say pears"]
    assert again.process.poll() is None


def test_stop_holds_what_waits_and_the_next_prompt_takes_it_along(
    serve: Serve, open_page: OpenPage
) -> None:
    page = open_page(server := serve(), f"/s/{server.create()}")
    queue_two(page)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".ending")).to_be_visible()
    assert waiting(page) == ["say apples", "say pears"]
    ask(page, "say plums")
    expect(page.locator(".message.assistant").last).to_have_text(re.compile("plums"))
    expect(page.locator(".queue")).to_have_count(0)
    asked = page.locator(".message.user").all_inner_texts()
    assert asked == ["hang", "say apples", "say pears", "say plums"]


def test_a_prompt_that_is_removed_while_it_answers_is_never_asked(
    serve: Serve, open_page: OpenPage
) -> None:
    page = open_page(server := serve(), f"/s/{server.create()}")
    other = open_page(server, page.url.removeprefix(server.url))
    ask(page, "count 100 0.02")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    ask(page, "say never")
    other.get_by_role("button", name="Remove: say never").click()
    expect(page.locator(".queue")).to_have_count(0)
    expect(page.locator(".message.assistant").last).to_contain_text("w99")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    assert page.locator(".message.user").all_inner_texts() == ["count 100 0.02"]


def test_words_for_the_answer_that_runs_are_told_at_its_next_step(
    serve: Serve, open_page: OpenPage
) -> None:
    server = serve()
    session_id = server.create()
    page = open_page(server, f"/s/{session_id}")
    ask(page, "listen")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.get_by_label("Your message").fill("also check the tests")
    page.get_by_role("button", name="Tell it now").click()
    expect(page.locator(".message.assistant").last).to_have_text(
        re.compile("I was told: also check the tests")
    )
    expect(page.locator(".queue")).to_have_count(0)
    assert page.locator(".message.user").all_inner_texts() == ["listen", "also check the tests"]
    (turn,) = server.get(f"/api/sessions/{session_id}/transcript")["turns"]
    assert turn["status"] == "completed", "it is one turn"
