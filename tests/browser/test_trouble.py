"""What the page says when something is wrong, and what a person types is not lost."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from killick import Message, Store, Text
from killick.server.auth import Tokens
from tests.browser.conftest import Keep, OpenPage, Serve, ask, said
from tests.server.client import Server
from tests.server.nobody import NO_MODEL, serve_without


@pytest.fixture
def server(serve: Serve) -> Server:
    return serve()


def test_without_a_model_the_page_says_what_to_set(
    tmp_path: Path, open_page: OpenPage, keep: Keep
) -> None:
    server = serve_without(tmp_path, NO_MODEL)
    try:
        page = open_page(server)
        expect(page.locator(".lacks")).to_contain_text("name one with --model or KILLICK_MODEL")
        page.locator(".welcome").get_by_role("button", name="New session").click()
        expect(page.get_by_role("note")).to_contain_text("There is no model")
        ask(page, "Hello?")
        expect(page.get_by_role("alert")).to_contain_text("There is no model")
        expect(page.get_by_label("Your message")).to_have_value("Hello?")
        expect(page.locator(".lacks")).to_contain_text("killick model install")
        keep(page, "no-model")
    finally:
        server.close()


def test_a_session_without_a_title_is_called_by_its_first_prompt(
    server: Server, open_page: OpenPage
) -> None:
    page = open_page(server, f"/s/{server.create()}")
    expect(page.locator(".row .name")).to_have_text("Untitled")
    ask(page, "hang on a moment")
    expect(page.locator(".message.assistant")).to_contain_text("I wait")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".row .name")).to_have_text("hang on a moment")
    expect(page).to_have_title("hang on a moment · Killick")
    page.reload()
    expect(page.get_by_role("button", name="hang on a moment", exact=True)).to_be_visible()


def test_a_server_that_is_gone_is_said_once_and_the_page_comes_back(
    serve: Serve, open_page: OpenPage, keep: Keep
) -> None:
    server = serve()
    first, second = said(server, "say one", title="First"), said(server, "say two", title="Second")
    page = open_page(server, f"/s/{first}")
    expect(page.get_by_text("one", exact=True)).to_be_visible()
    server.end()
    expect(page.locator(".offline")).to_be_visible()
    page.get_by_role("link", name="Second").click()
    expect(page.get_by_role("heading", name="The server does not answer")).to_be_visible()
    keep(page, "server-gone")
    page.get_by_role("link", name="Killick").click()
    expect(page.locator(".offline")).to_be_visible()
    assert page.locator(".toast").count() == 0
    page.go_back()
    serve("--port", server.url.rpartition(":")[2])
    expect(page.get_by_text("two", exact=True)).to_be_visible()
    expect(page.locator(".offline")).to_have_count(0)
    expect(page).to_have_url(re.compile(second))


def test_a_prompt_whose_answer_was_lost_is_asked_once(server: Server, open_page: OpenPage) -> None:
    """The server has taken it and the connection broke: sending it again is the same prompt."""
    page = open_page(server, f"/s/{server.create()}")

    def lose(route: Route) -> None:
        route.fetch()
        route.abort()

    page.route("**/turns", lose, times=1)
    ask(page, "say once")
    expect(page.locator(".toast")).to_contain_text("The server does not answer")
    expect(page.get_by_label("Your message")).to_have_value("say once")
    page.get_by_label("Your message").press("Enter")
    expect(page.get_by_label("Your message")).to_have_value("")
    expect(page.locator(".message.assistant")).to_have_text(re.compile("once"))
    expect(page.locator(".message.user")).to_have_count(1)


def test_what_is_typed_survives_a_reload_and_another_session(
    server: Server, open_page: OpenPage
) -> None:
    one, other = said(server, "say one", title="One"), said(server, "say two", title="Other")
    page = open_page(server, f"/s/{one}")
    field = page.get_by_label("Your message")
    field.fill("half a thought")
    page.get_by_role("link", name="Other").click()
    expect(page).to_have_url(re.compile(other))
    expect(field).to_have_value("")
    page.go_back()
    expect(field).to_have_value("half a thought")
    page.reload()
    expect(field).to_have_value("half a thought")


def test_a_session_that_is_not_there_and_one_that_is_deleted_are_said(
    server: Server, open_page: OpenPage, keep: Keep
) -> None:
    page = open_page(server, "/s/none")
    expect(page.get_by_role("heading", name="There is nothing here")).to_be_visible()
    expect(page.locator(".welcome p")).to_contain_text("No session of this server")
    keep(page, "not-found")
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_role("button", name="Sessions").click()
    expect(page.get_by_role("button", name="New session")).to_be_visible()
    page.set_viewport_size({"width": 1280, "height": 860})
    session_id = said(server, "say one")
    page.goto(f"/s/{session_id}")
    expect(page.get_by_text("one", exact=True)).to_be_visible()
    server.http.delete(f"/api/sessions/{session_id}")
    expect(page.locator(".welcome p")).to_contain_text("was deleted")


def test_what_is_refused_is_said_in_the_words_of_the_server(
    server: Server, open_page: OpenPage
) -> None:
    """409: a rewind while a turn runs."""
    session_id = said(server, "say one")
    server.begin(session_id, "hang")
    page = open_page(server, f"/s/{session_id}")
    message = page.locator(".message.user").first
    message.hover()
    message.get_by_role("button", name="Rewind to here").click()
    expect(page.locator(".toast")).to_contain_text(re.compile("busy|runs"))


def test_who_may_only_read_is_offered_nothing_else(
    server: Server, open_page: OpenPage, keep: Keep
) -> None:
    session_id = said(server, "work", "fail", title="Read me")
    _, secret = Tokens(server.folder / "tokens.json").make("dashboard", "read", 0)
    page = open_page(server, f"/s/{session_id}#token={secret}")
    expect(page.locator(".ending")).to_be_visible()
    expect(page.get_by_role("button", name="New session")).to_have_count(0)
    writing = re.compile("^(Pin|Pin Read me|Send|Fork from here|Rewind.*|Continue|Answer again)$")
    expect(page.get_by_role("button", name=writing)).to_have_count(0)
    page.get_by_role("button", name="More").click()
    assert page.get_by_role("menuitem").all_inner_texts() == [
        "Look back in time",
        "Markdown",
        "One page of HTML",
        "Everything, as JSON lines",
    ]
    keep(page, "read-only")


def test_a_token_that_is_revoked_is_asked_for_again(
    server: Server, open_page: OpenPage, keep: Keep
) -> None:
    session_id = said(server, "say one")
    tokens = Tokens(server.folder / "tokens.json")
    _, secret = tokens.make("laptop", "write", 0)
    tokens.make("other", "write", 0)
    page = open_page(server, f"/s/{session_id}#token={secret}")
    expect(page.get_by_text("one", exact=True)).to_be_visible()
    tokens.revoke("laptop")
    ask(page, "say two")
    expect(page.get_by_role("heading", name="That token is not valid")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("mistyped, or it was revoked")
    keep(page, "token")


def test_escape_closes_what_is_open_and_stops_only_then(
    server: Server, open_page: OpenPage
) -> None:
    page = open_page(server, f"/s/{server.create()}")
    ask(page, "hang")
    expect(page.locator(".message.assistant")).to_contain_text("I wait")
    stop = page.get_by_role("button", name="Stop")
    page.get_by_role("button", name="More").click()
    expect(page.get_by_role("menuitem", name="Fork")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("menuitem", name="Compact")).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("menuitem", name="Delete")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("menu")).to_have_count(0)
    expect(page.get_by_role("button", name="More")).to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", name="Keys")).to_have_count(0)
    page.keyboard.press("Control+k")
    page.keyboard.type("x")
    page.keyboard.press("Escape")
    expect(page.get_by_label("Search sessions")).to_have_value("")
    expect(stop).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".ending")).to_be_visible()


def test_a_session_of_5000_messages_is_shown_from_its_end_and_searched_to_its_beginning(
    server: Server, open_page: OpenPage
) -> None:
    with Store(server.store, durability="normal") as store:
        session = store.create_session(title="Long")
        with session.turn("Where was the xylophone?") as turn:
            for number in range(5_000):
                turn.record(Message("assistant", [Text(f"Answer **{number}** of many.")]))
    page = open_page(server, f"/s/{session.id}")
    expect(page.get_by_text("Answer 4999 of many.")).to_be_in_viewport()
    assert page.locator(".message").count() <= 160
    ask(page, "say still here")
    expect(page.locator(".message.assistant").last).to_have_text(re.compile("still here"))
    page.keyboard.press("Control+k")
    page.keyboard.type("xylophone")
    page.locator(".hit").first.click()
    found = page.locator(".message.found")
    expect(found).to_be_in_viewport(timeout=30_000)  # all pages before it are read
    expect(found).to_contain_text("xylophone")


def focused(page: Page) -> str:
    return str(
        page.evaluate(
            """() => { const one = document.activeElement;
              return one.getAttribute("aria-label") || one.innerText.trim() || one.placeholder; }"""
        )
    )


def test_tab_goes_through_the_page_in_the_order_in_which_it_is_read(
    server: Server, open_page: OpenPage
) -> None:
    page = open_page(server, f"/s/{said(server, 'say one', title='Only')}")
    expect(page.get_by_label("Your message")).to_be_focused()
    page.locator(".skip").focus()
    order = [focused(page)]
    for _ in range(22):
        page.keyboard.press("Tab")
        order.append(focused(page).splitlines()[0])
    wanted = ["To the conversation", "Killick", "Needs you", "Figures", "Light or dark", "Keys"]
    assert order[: len(wanted)] == wanted
    rest = ["Search", "All", "Only", "Pin Only", "Pin", "What the model is sent", "More"]
    places = [order.index(name) for name in rest]
    assert places == sorted(places)
    assert order.index("Conversation") > order.index("More")
