"""A person who is asked sees all of what will run, and is let to allow it only then."""

import json

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage, Serve, ask
from tests.server.client import Server


@pytest.fixture
def server(serve: Serve) -> Server:
    return serve()


def command(text: str) -> str:
    return json.dumps({"command": text})


def prompt_for(arguments: str) -> str:
    """Write the arguments as a JSON string in which every character is escaped."""
    units = arguments.encode("utf-16-be", "surrogatepass")
    pairs = zip(units[::2], units[1::2], strict=True)
    return 'ask "' + "".join(f"\\u{high:02x}{low:02x}" for high, low in pairs) + '"'


def wait_for_question(page: Page, server: Server, arguments: str) -> None:
    page.goto(f"/s/{server.create()}")
    ask(page, prompt_for(arguments))
    expect(page.locator(".ask .whole")).to_be_visible()


SIZES = [{"width": 390, "height": 720}, {"width": 1280, "height": 800}]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: str(size["width"]))
def test_what_stands_behind_many_spaces_is_shown(
    server: Server, open_page: OpenPage, size: dict[str, int]
) -> None:
    page = open_page(server)
    page.set_viewport_size(size)  # type: ignore[arg-type]
    wait_for_question(page, server, command("echo hello" + " " * 260 + "; touch X"))
    expect(page.locator(".ask .whole")).to_contain_text("·" * 260 + "; touch X")
    for name in ("Allow", "Deny"):
        button = page.get_by_role("button", name=name)
        expect(button).to_be_in_viewport(ratio=1)


def test_characters_that_reorder_or_hide_have_marks(server: Server, open_page: OpenPage) -> None:
    page = open_page(server)
    wait_for_question(
        page, server, command("ls \u202ex fr- mr\u2066\u200b\x1b[8m\u00a0e\u034fnd\r")
    )
    whole = page.locator(".ask .whole")
    for mark in ("U+202E", "U+2066", "U+200B", "U+001B", "U+00A0", "U+034F", "U+000D"):
        expect(whole).to_contain_text(mark)
    order = page.evaluate("getComputedStyle(document.querySelector('.ask pre')).unicodeBidi")
    assert order == "bidi-override"


def test_a_name_that_occurs_twice_is_shown_as_it_was_written(
    server: Server, open_page: OpenPage
) -> None:
    page = open_page(server)
    wait_for_question(page, server, '{"command": "echo hi", "command": "rm -rf x"}')
    expect(page.locator(".ask .whole")).to_contain_text('"echo hi", "command": "rm -rf x"')


@pytest.mark.parametrize("number", ["9007199254740993", "1e400", "-0", "0.10000000000000000001"])
def test_a_number_is_shown_with_the_digits_that_it_has(
    server: Server, open_page: OpenPage, number: str
) -> None:
    page = open_page(server)
    wait_for_question(page, server, f'{{"command": "drop", "account": {number}}}')
    expect(page.locator(".ask .whole")).to_contain_text(f'"account": {number}}}')


@pytest.mark.parametrize("size", SIZES, ids=lambda size: str(size["width"]))
@pytest.mark.parametrize("way", ["scroll", "keyboard", "expand"])
def test_what_does_not_fit_is_allowed_after_it_was_seen_whole(
    server: Server, open_page: OpenPage, size: dict[str, int], way: str
) -> None:
    page = open_page(server)
    page.set_viewport_size(size)  # type: ignore[arg-type]
    wait_for_question(page, server, command("\n".join(f"echo {n}" for n in range(400))))
    allow = page.get_by_role("button", name="Allow")
    expect(allow).to_be_in_viewport(ratio=1)
    expect(allow).to_be_disabled()
    whole = page.locator(".ask .whole")
    if way == "scroll":
        whole.evaluate("box => { box.scrollTop = box.scrollHeight / 2; }")
        expect(allow).to_be_disabled()
        whole.evaluate("box => { box.scrollTop = box.scrollHeight; }")
    elif way == "keyboard":
        whole.focus()
        page.keyboard.press("End")
    else:
        page.get_by_role("button", name="Show all").focus()
        page.keyboard.press("Enter")
        expect(whole).to_contain_text("echo 399")
    expect(allow).to_be_enabled()
    expect(allow).to_be_in_viewport(ratio=1)
    allow.click()
    expect(page.locator("details.tool summary")).to_contain_text("done")
