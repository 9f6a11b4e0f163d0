"""A person, a browser, a real model: stopped, reloaded, closed, killed, nothing shown is lost."""

import re

import pytest
from playwright.sync_api import Page, expect

from killick.agent.embedded import model_file
from tests.browser.conftest import Keep, OpenPage, Serve, ask
from tests.server.client import Server

pytestmark = [
    pytest.mark.skipif(model_file() is None, reason="the model on board is not installed"),
    pytest.mark.timeout(120),
]

MODULE = "tests.server.real"
STORY = "Tell me a long story about a fox who learns to sail a boat across the sea."


def begin(page: Page, prompt: str = STORY) -> None:
    page.locator(".side").get_by_role("button", name="New session").click()
    ask(page, prompt)
    expect(page).to_have_url(re.compile("/s/ses_"))


def shown(page: Page, number: int = -1) -> str:
    """The answer as it stands on the page."""
    texts: list[str] = page.locator(".message.assistant .prose").all_inner_texts()
    return texts[number] if texts else ""


def letters(text: str) -> str:
    return re.sub(r"[^a-z]+", " ", text.lower()).strip()


def wait_for_words(page: Page, count: int) -> str:
    page.wait_for_function(
        "count => [...document.querySelectorAll('.message.assistant .prose')].at(-1)"
        "?.innerText.split(/\\s+/).length >= count",
        arg=count,
        timeout=60_000,
    )
    return shown(page)


def stored(server: Server, page: Page) -> list[dict[str, str]]:
    session_id = page.url.rpartition("/s/")[2]
    messages = server.get(f"/api/sessions/{session_id}/messages")["messages"]
    return [one for one in messages if one["role"] == "assistant"]


def test_stop_then_reload_shows_the_partial_answer_to_the_last_word(
    serve: Serve, open_page: OpenPage, keep: Keep
) -> None:
    server = serve(module=MODULE)
    page = open_page(server)
    begin(page)
    before = wait_for_words(page, 12)
    keep(page, "streaming")
    page.get_by_role("button", name="Stop").click()
    page.wait_for_selector(".ending")
    after = shown(page)
    assert letters(after).startswith(letters(before))
    keep(page, "stopped")
    page.reload()
    page.wait_for_selector(".ending")
    assert shown(page) == after
    expect(page.locator(".message.assistant")).to_have_attribute("data-state", "partial")
    expect(page.locator(".ending")).to_contain_text("It was stopped")
    [message] = stored(server, page)
    assert letters(message["text"]) == letters(after)


def test_a_reload_in_the_middle_goes_on_where_it_was_and_says_nothing_twice(
    serve: Serve, open_page: OpenPage
) -> None:
    server = serve(module=MODULE)
    page = open_page(server)
    begin(page)
    before = wait_for_words(page, 10)
    page.reload()
    more = wait_for_words(page, len(before.split()) + 8)
    assert letters(more).startswith(letters(before))
    page.get_by_role("button", name="Stop").click()
    page.wait_for_selector(".ending")
    [message] = stored(server, page)
    assert letters(message["text"]) == letters(shown(page))


def test_a_closed_tab_stops_nothing_and_another_tab_shows_it(
    serve: Serve, open_page: OpenPage
) -> None:
    server = serve(module=MODULE)
    page = open_page(server)
    begin(page)
    before = wait_for_words(page, 8)
    url = page.url.removeprefix(server.url)
    page.close()
    other = open_page(server, url)
    after = wait_for_words(other, len(before.split()) + 10)
    assert letters(after).startswith(letters(before))
    other.get_by_role("button", name="Stop").click()
    other.wait_for_selector(".ending")


def test_a_killed_server_leaves_a_partial_answer_and_one_interruption(
    serve: Serve, open_page: OpenPage, keep: Keep
) -> None:
    server = serve(module=MODULE)
    page = open_page(server)
    begin(page)
    before = wait_for_words(page, 12)
    server.kill()
    expect(page.locator(".offline")).to_be_visible()
    keep(page, "connection-lost")
    again = serve("--port", server.url.rpartition(":")[2], module=MODULE)
    page.reload()
    page.wait_for_selector(".ending")
    keep(page, "killed")
    assert letters(shown(page)).startswith(letters(before))
    expect(page.locator(".ending")).to_have_count(1)
    expect(page.locator(".message.assistant")).to_have_attribute("data-state", "partial")
    ask(page, "Say hello to the fox.")
    expect(page.locator(".message.assistant")).to_have_count(2)
    wait_for_words(page, 2)
    assert again.process.poll() is None
