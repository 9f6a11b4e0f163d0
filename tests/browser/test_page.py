"""Everything on the page, in a real browser, with an agent that does what its prompt says."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Keep, OpenPage, Serve, ask, said
from tests.server.client import Server


@pytest.fixture
def server(serve: Serve) -> Server:
    return serve()


def answers(page: Page) -> list[str]:
    return page.locator(".message.assistant .prose").all_inner_texts()


def test_an_answer_streams_with_its_tools_and_reasoning(
    server: Server, open_page: OpenPage, keep: Keep
) -> None:
    page = open_page(server, f"/s/{server.create(title='Fix the build')}")
    ask(page, "work")
    expect(page.locator(".message.assistant")).to_have_count(2)
    expect(page.get_by_text("It works now.")).to_be_visible()
    expect(page.locator(".block")).to_contain_text("print('ok')")
    tool = page.locator("details.tool")
    expect(tool.locator("summary")).to_contain_text("done")
    tool.locator("summary").click()
    expect(tool).to_contain_text("linking…")
    reasoning = page.locator("details.reason")
    expect(reasoning.locator("div")).to_be_hidden()
    reasoning.locator("summary").click()
    expect(reasoning).to_contain_text("The log will say.")
    keep(page, "conversation")
    before = page.locator(".talk").inner_text()
    page.reload()
    expect(page.get_by_text("It works now.")).to_be_visible()
    folded = page.locator(".talk").inner_text()
    assert [line for line in folded.splitlines() if line not in before.splitlines()] == []


def test_home_and_an_empty_session(server: Server, open_page: OpenPage, keep: Keep) -> None:
    page = open_page(server)
    expect(page.get_by_text("No sessions here yet.")).to_be_visible()
    keep(page, "home")
    page.locator(".welcome").get_by_role("button", name="New session").click()
    expect(page.get_by_text("Nothing was said yet.")).to_be_visible()
    keep(page, "empty")


LONG = (
    "say " + "unbreakable" * 40 + "\n\n```text\n" + "a very long line of code; " * 40 + "\n```\n\n"
)
TABLE = "| a | b | c | d |\n|---|---|---|---|\n" + "| " + "| ".join(["wide" * 12] * 4) + " |"


def test_it_fits_a_phone(server: Server, open_page: OpenPage, keep: Keep) -> None:
    """Long words, lines of code and tables too: they scroll for themselves."""
    session_id = said(server, "work", "fail", LONG + TABLE, title="Fix the build " * 8)
    page = open_page(
        server,
        f"/s/{session_id}",
        viewport={"width": 390, "height": 844},
        is_mobile=True,
        has_touch=True,
    )
    page.wait_for_selector(".prose table")
    for path in (f"/s/{session_id}", "/", "/figures"):
        page.goto(path)
        page.wait_for_selector(".prose table, .welcome, .plot")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    page.goto(f"/s/{session_id}")
    page.wait_for_selector(".prose table")
    keep(page, "long-words")
    page.get_by_role("button", name="Sessions").click()
    expect(page.get_by_role("link", name=re.compile("Fix the build"))).to_be_visible()
    page.locator(".shade").click(position={"x": 370, "y": 400})
    expect(page.get_by_role("link", name=re.compile("Fix the build"))).to_be_hidden()


def test_a_second_tab_and_the_back_button_show_the_same(
    server: Server, open_page: OpenPage
) -> None:
    first = said(server, "say one", title="First")
    second = said(server, "say two", title="Second")
    page, other = open_page(server, f"/s/{first}"), open_page(server, f"/s/{first}")
    expect(page.get_by_text("one", exact=True)).to_be_visible()
    ask(page, "count 40 0.02")
    expect(other.get_by_role("button", name="Stop")).to_be_visible()
    expect(other.locator(".message.assistant").last).to_contain_text("w39")
    assert answers(page)[-1] == answers(other)[-1]
    page.get_by_role("link", name="Second").click()
    expect(page).to_have_url(re.compile(second))
    expect(page.get_by_text("two", exact=True)).to_be_visible()
    page.go_back()
    expect(page.locator(".message.assistant").last).to_contain_text("w39")


def test_what_is_typed_while_it_answers_waits_and_is_asked_next(
    server: Server, open_page: OpenPage, keep: Keep
) -> None:
    page = open_page(server, f"/s/{server.create()}")
    ask(page, "count 60 0.02")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    ask(page, "say afterwards")
    expect(page.locator(".queue")).to_contain_text("say afterwards")
    keep(page, "queue")
    expect(page.locator(".message.assistant").last).to_have_text(re.compile("afterwards"))
    expect(page.locator(".queue")).to_have_count(0)


def test_an_interrupted_answer_is_continued_and_answered_again(
    server: Server, open_page: OpenPage
) -> None:
    page = open_page(server, f"/s/{server.create()}")
    ask(page, "hang")
    expect(page.locator(".message.assistant")).to_contain_text("I wait")
    page.keyboard.press("Escape")
    expect(page.locator(".ending")).to_contain_text("Interrupted")
    expect(page.locator(".cut")).to_be_visible()
    page.get_by_role("button", name="Answer again").click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    expect(page.locator(".message.assistant")).to_have_count(1)
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    session_id = page.url.rpartition("/")[2]
    turns = server.get(f"/api/sessions/{session_id}/transcript")["turns"]
    assert turns[1]["retry_of"] == turns[0]["id"]
    assert turns[2]["continues"] == turns[1]["id"]


def test_a_call_that_waits_is_allowed_on_the_page(
    server: Server, open_page: OpenPage, keep: Keep
) -> None:
    page = open_page(server, f"/s/{server.create()}")
    ask(page, "ask")
    expect(page.locator(".ask")).to_contain_text("rm -r build")
    keep(page, "approval")
    page.reload()
    page.get_by_role("button", name="Allow").click()
    expect(page.locator("details.tool summary")).to_contain_text("done")
    page.locator("details.tool summary").click()
    expect(page.locator("details.tool")).to_contain_text("removed")


def test_rewind_undo_and_fork(server: Server, open_page: OpenPage, keep: Keep) -> None:
    session_id = said(server, "say one", "say two")
    page = open_page(server, f"/s/{session_id}")
    message = page.locator(".message.user").nth(1)
    message.hover()
    message.get_by_role("button", name="Rewind to here").click()
    expect(page.locator(".message.user")).to_have_count(1)
    expect(page.get_by_label("Your message")).to_have_value("say two")
    keep(page, "rewound")
    page.locator(".ending").get_by_role("button", name="Undo").click()
    expect(page.locator(".message.user")).to_have_count(2)
    answer = page.locator(".message.assistant").first
    answer.hover()
    answer.get_by_role("button", name="Fork from here").click()
    expect(page).not_to_have_url(re.compile(session_id))
    expect(page.locator(".message.user")).to_have_count(1)
    expect(page.get_by_role("link", name=re.compile("forked at"))).to_be_visible()


def test_a_compaction_is_a_fold_and_the_model_is_sent_the_summary(
    server: Server, open_page: OpenPage, keep: Keep
) -> None:
    session_id = said(server, "say one", "say two")
    head = server.get(f"/api/sessions/{session_id}")["head"]
    path = f"/api/sessions/{session_id}/compact"
    server.http.post(path, json={"summary": "Two things were said.", "through": head})
    page = open_page(server, f"/s/{session_id}")
    page.get_by_role("button", name="What the model is sent").click()
    expect(page.locator(".panel")).to_contain_text("Two things were said.")
    fold = page.locator("details.compaction")
    expect(fold.locator(".message")).to_have_count(0)
    fold.locator("summary").click()
    expect(fold.locator(".message")).to_have_count(4)
    keep(page, "compaction")
    ask(page, "say three")
    expect(page.locator(".panel")).to_contain_text("say three")


def test_search_as_you_type_filters_and_pins(
    server: Server, open_page: OpenPage, keep: Keep
) -> None:
    said(server, "say xylophone", title="Instruments")
    other = said(server, "say hammer", title="Tools")
    server.begin(other, "fail")
    page = open_page(server)
    expect(page.locator(".row")).to_have_count(2)
    page.keyboard.press("Control+k")
    page.keyboard.type("xylo")
    expect(page.locator(".hit").first).to_contain_text("xylophone")
    expect(page.locator(".hit mark").first).to_have_text("xylophone")
    keep(page, "search")
    page.get_by_label("Search sessions").press("Escape")
    expect(page.locator(".row")).to_have_count(2)
    row = page.locator(".row", has_text="Instruments")
    row.hover()
    row.get_by_role("button", name="Pin Instruments").click()
    expect(page.locator(".list h2").first).to_have_text("Pinned")
    page.get_by_role("button", name="Pinned", exact=True).click()
    expect(page.locator(".row")).to_have_count(1)
    page.get_by_role("button", name="Interrupted").click()
    expect(page.locator(".row")).to_have_count(0)


def test_title_export_archive_and_delete(server: Server, open_page: OpenPage) -> None:
    page = open_page(server, f"/s/{said(server, 'say one', title='Old')}")
    page.get_by_role("button", name="Old", exact=True).click()
    page.get_by_label("Title").fill("New")
    page.keyboard.press("Enter")
    expect(page.locator(".row")).to_contain_text("New")
    page.get_by_role("button", name="More").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name="Markdown").click()
    assert "say one" in Path(download.value.path()).read_text()
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Archive").click()
    expect(page.locator(".row")).to_have_count(0)
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Delete").click()
    expect(page.get_by_text("Nothing is lost here")).to_be_visible()
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.get_by_text("one", exact=True)).to_be_visible()


def test_figures_are_plotted(server: Server, open_page: OpenPage, keep: Keep) -> None:
    said(server, "work", "fail")
    page = open_page(server, "/figures")
    expect(page.locator(".plot svg")).to_have_count(3)
    assert page.locator(".plot .bar").count() >= 3
    expect(
        page.get_by_role("img", name=re.compile("How turns ended: 2 in 30 days"))
    ).to_be_visible()
    expect(page.locator(".tile").nth(3)).to_contain_text("cost: not recorded")
    keep(page, "figures")


def test_every_control_has_a_name(server: Server, open_page: OpenPage) -> None:
    page = open_page(server, f"/s/{said(server, 'work', 'fail')}")
    page.wait_for_selector(".ending")
    page.keyboard.press("Control+.")
    page.wait_for_selector(".sent")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, a, input, textarea, select, [role=img]")]
          .filter((one) => !(one.getAttribute("aria-label") || one.textContent.trim()
            || one.title || one.labels?.[0]?.textContent.trim()))
          .map((one) => one.outerHTML)"""
    )
    assert nameless == []


def test_it_can_be_used_without_a_mouse(server: Server, open_page: OpenPage) -> None:
    page = open_page(server)
    page.keyboard.press("Control+j")
    expect(page.get_by_label("Your message")).to_be_focused()
    page.keyboard.type("hang")
    page.keyboard.press("Enter")
    expect(page.locator(".message.assistant")).to_contain_text("I wait")
    page.keyboard.press("Escape")
    expect(page.locator(".ending")).to_be_visible()
    page.locator("body").press("?")
    page.keyboard.press("Escape")


def test_the_connection_comes_back_by_itself(serve: Serve, open_page: OpenPage) -> None:
    server = serve()
    page = open_page(server, f"/s/{said(server, 'say one')}")
    expect(page.get_by_text("one", exact=True)).to_be_visible()
    server.end()
    expect(page.locator(".offline")).to_be_visible()
    again = serve("--port", server.url.rpartition(":")[2])
    expect(page.locator(".offline")).to_have_count(0)
    again.begin(page.url.rpartition("/")[2], "say two")
    expect(page.get_by_text("two", exact=True)).to_be_visible()
