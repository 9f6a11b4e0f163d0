"""Faults of the page that were found by using it, each shown by a test that failed before."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from killick import File, Image, Message, Parent, Store, Text
from killick.model.messages import Part
from tests.browser.conftest import Keep, OpenPage, Serve, ask, said
from tests.server.client import Server
from tests.server.scripted import png


@pytest.fixture
def server(serve: Serve) -> Server:
    return serve()


def longest_task(browser: Browser, page: Page, work: Callable[[], None]) -> float:
    """How many milliseconds the page's longest task kept its thread busy, while work was done.

    The thread's own time: what other programs do to this machine meanwhile is not counted, nor
    what the driver of this test asks of the page.
    """
    browser.start_tracing(
        page=page, categories=["toplevel", "disabled-by-default-devtools.timeline"]
    )
    try:
        work()
    finally:
        traced = json.loads(browser.stop_tracing())["traceEvents"]
    names = {
        (one["pid"], one["tid"]): one["args"]["name"]
        for one in traced
        if one["name"] == "thread_name"
    }
    here = [
        one
        for one in traced
        if one.get("dur") and names.get((one["pid"], one["tid"])) == "CrRendererMain"
    ]
    asked = [one["ts"] for one in here if "DevToolsSession" in json.dumps(one["args"])]
    tasks = [
        one.get("tdur", one["dur"]) / 1000
        for one in here
        if one["name"] == "RunTask" or one["name"].startswith("ThreadControllerImpl")
        if not any(one["ts"] <= at <= one["ts"] + one["dur"] for at in asked)
    ]
    assert tasks
    return float(max(tasks))


def test_what_a_tool_prints_never_blocks_a_frame(
    server: Server, browser: Browser, open_page: OpenPage, keep: Keep
) -> None:
    """1.5 MB in colours, while it comes and when all of it is asked for."""
    page = open_page(server, f"/s/{server.create(title='Build')}")
    expect(page.get_by_label("Your message")).to_be_visible()

    def run() -> None:
        answers = page.locator(".message.assistant")
        before = answers.count()
        ask(page, "print 36000")
        expect(answers).to_have_count(before + 1, timeout=60_000)
        expect(answers.last).to_contain_text("Built.", timeout=60_000)

    # On a busy machine a task takes longer now and then: one run of three is quick.
    tries = (longest_task(browser, page, run) for _ in range(3))
    longest = next((task for task in tries if task <= 50), None)
    assert longest is not None
    print("longest task while it runs, ms:", longest)
    tool = page.locator("details.tool").last
    if not tool.evaluate("one => one.open"):
        tool.locator("summary").click()
    output = tool.locator(".terminal").first
    expect(output).to_contain_text("line 35999 of a build")
    assert len(output.inner_text()) < 200_000
    assert (output.locator(".c3").first.text_content() or "").startswith("line ")
    assert "\x1b" not in output.inner_text()
    expect(output.locator(".piece").first).to_have_text(re.compile(r"^line "))
    assert output.evaluate("one => one.scrollTop + one.clientHeight >= one.scrollHeight - 20")
    keep(page, "output")

    def show_all() -> None:
        tool.get_by_role("button", name="Show all").click()
        page.wait_for_function(
            """() => { const tools = [...document.querySelectorAll("details.tool")];
              const box = tools.pop().querySelector(".terminal");
              const all = [...box.querySelectorAll(".piece")];
              return all.length > 300 && all.pop().textContent.includes("35999"); }"""
        )

    longest = longest_task(browser, page, show_all)
    print("longest task when all is shown, ms:", longest)
    assert longest <= 50
    expect(output.locator(".piece").first).to_contain_text("line 0 of a build")


def test_what_a_tool_returns_is_not_shown_twice(server: Server, open_page: OpenPage) -> None:
    """Its result begins with what it has printed."""
    page = open_page(server, f"/s/{said(server, 'work')}")
    page.locator("details.tool summary").click()
    expect(page.locator("details.tool .terminal")).to_have_count(1)
    expect(page.locator("details.tool .terminal")).to_contain_text("linking…\nok")


def test_pictures_and_files_of_a_prompt_are_shown(
    server: Server, open_page: OpenPage, keep: Keep
) -> None:
    with Store(server.store) as store:
        session = store.create_session(title="Look")
        picture, file = store.put_blob(png(20, 120, 90)), store.put_blob(b"a,b\n1,2\n")
        parts: list[Part] = [
            Text("What is this?"),
            Image(picture, "image/png", alt="A green field"),
            File(file, "text/csv", name="table.csv"),
        ]
        with session.turn(parts) as turn:
            turn.record(Message("assistant", [Text("A field.")]))
    page = open_page(server, f"/s/{session.id}")
    prompt = page.locator(".message.user")
    shown = prompt.get_by_alt_text("A green field")
    expect(shown).to_be_visible()
    assert shown.evaluate("one => one.naturalWidth") == 40
    with page.expect_download() as download:
        prompt.get_by_role("button", name="table.csv").click()
    assert Path(download.value.path()).read_bytes() == b"a,b\n1,2\n"
    keep(page, "prompt-parts")


def test_a_denied_call_has_a_badge_of_its_own(server: Server, open_page: OpenPage) -> None:
    page = open_page(server, f"/s/{server.create()}")
    ask(page, "ask")
    page.get_by_role("button", name="Deny").click()
    badge = page.locator("details.tool .state")
    for _ in range(2):
        expect(badge).to_have_text("denied")
        expect(badge).to_have_class(re.compile(r"\bdenied\b"))
        page.reload()


def test_pins_are_all_there_however_old(server: Server, open_page: OpenPage) -> None:
    with Store(server.store) as store:
        for number in range(3):
            store.create_session(title=f"Pinned {number}").pin()
        for number in range(80):
            store.create_session(title=f"Other {number}")
    page = open_page(server)
    expect(page.locator(".row", has_text="Pinned ")).to_have_count(3)


def test_a_hit_inside_a_compaction_opens_it(server: Server, open_page: OpenPage) -> None:
    session_id = said(server, "say xylophone", "say two", "say three", title="Music")
    head = server.get(f"/api/sessions/{session_id}")["head"]
    path = f"/api/sessions/{session_id}/compact"
    server.http.post(path, json={"summary": "Things were said.", "through": head})
    page = open_page(server)
    page.keyboard.press("Control+k")
    page.keyboard.type("xylophone")
    page.locator(".hit").first.click()
    hit = page.locator(".compaction .message.found")
    expect(hit).to_contain_text("xylophone")
    expect(hit).to_be_in_viewport()


def test_rewind_keeps_what_is_half_typed_and_undo_takes_the_prompt_out_again(
    server: Server, open_page: OpenPage
) -> None:
    page = open_page(server, f"/s/{said(server, 'say one', 'say two')}")
    field = page.get_by_label("Your message")
    field.fill("half a thought")
    message = page.locator(".message.user").nth(1)
    message.hover()
    message.get_by_role("button", name="Rewind to here").click()
    expect(field).to_have_value("say two\n\nhalf a thought")
    page.locator(".ending").get_by_role("button", name="Undo").click()
    expect(page.locator(".message.user")).to_have_count(2)
    expect(field).to_have_value("half a thought")


def test_answer_again_keeps_the_first_answer_within_reach(
    server: Server, open_page: OpenPage, keep: Keep
) -> None:
    page = open_page(server, f"/s/{server.create(title='Twice')}")
    ask(page, "hang")
    expect(page.locator(".message.assistant")).to_contain_text("I wait")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Answer again").click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    expect(page.locator(".answers")).to_contain_text("2 of 2")
    page.get_by_role("button", name="Stop").click()
    page.reload()
    expect(page.locator(".answers")).to_contain_text("2 of 2")
    page.get_by_role("button", name="The answer before").click()
    expect(page.locator(".answers")).to_contain_text("1 of 2")
    expect(page.locator(".before .message.assistant")).to_contain_text("I wait")
    expect(page.locator(".before .survived")).to_contain_text("7 characters of the answer kept")
    keep(page, "answers")
    page.get_by_role("button", name="Fork with this answer").click()
    expect(page.locator(".message.assistant")).to_contain_text("I wait")


def test_a_new_session_writes_nothing_until_something_is_said(
    server: Server, open_page: OpenPage
) -> None:
    page = open_page(server)
    page.locator(".welcome").get_by_role("button", name="New session").click()
    expect(page.get_by_text("Nothing was said yet.")).to_be_visible()
    assert server.get("/api/sessions")["sessions"] == []
    ask(page, "say hello")
    expect(page.locator(".message.assistant")).to_contain_text("hello")
    expect(page).to_have_url(re.compile("/s/ses_"))
    assert len(server.get("/api/sessions")["sessions"]) == 1


def test_what_comes_after_a_sign_of_two_units_is_not_lost_while_it_streams(
    server: Server, open_page: OpenPage
) -> None:
    with Store(server.store) as store:
        session = store.create_session()
        page = open_page(server, f"/s/{session.id}")
        expect(page.get_by_text("Nothing was said yet.")).to_be_visible()
        with session.turn("hi") as turn, turn.stream() as reply:
            reply.text("😀😀😀 first ")
            expect(page.locator(".message.assistant")).to_contain_text("first")
            reply.text("abcdefgh second")
            expect(page.locator(".message.assistant")).to_contain_text("😀 first abcdefgh second")


def long_session(server: Server, turns: int, each: int) -> str:
    with Store(server.store, durability="normal") as store:
        session = store.create_session(title="Long")
        for number in range(turns):
            with session.turn(f"Where was the {'xylophone' if not number else 'hammer'}?") as turn:
                texts = [Text(f"Answer **{number}.{at}** of many.") for at in range(each)]
                turn.record_all([Message("assistant", [text]) for text in texts])
        return session.id


def test_a_long_session_is_read_on_the_way_up_and_keeps_its_place(
    server: Server, open_page: OpenPage
) -> None:
    page = open_page(server, f"/s/{long_session(server, 100, 49)}")
    expect(page.get_by_text("Answer 99.48 of many.")).to_be_in_viewport()
    assert page.locator(".message").count() <= 160
    box = page.locator(".scroll")
    before = page.locator(".message").count()
    # As in browsers that hold no place by themselves.
    box.evaluate("box => { box.style.overflowAnchor = 'none'; box.scrollTop = 300; }")
    mark = page.evaluate(
        """async () => {
          const frame = () => new Promise((done) => requestAnimationFrame(done));
          for (let drawn = 0; drawn < 3; drawn += 1) await frame();
          const one = [...document.querySelectorAll(".message")].find(
          (one) => one.getBoundingClientRect().top > 120);
          return [one.id, one.getBoundingClientRect().top]; }"""
    )
    expect(page.locator(".message").nth(before + 50)).to_be_attached()
    page.wait_for_function(
        "count => document.querySelectorAll('.message').length > count", arg=before
    )
    top = page.evaluate("id => document.getElementById(id).getBoundingClientRect().top", mark[0])
    assert abs(top - mark[1]) < 40


def test_whoever_is_at_the_end_stays_there_when_a_panel_takes_room(
    server: Server, open_page: OpenPage
) -> None:
    long = "say " + "a sentence that needs some room on the page " * 12
    page = open_page(server, f"/s/{said(server, *[long] * 6)}")
    last = page.locator(".turn-line").last
    expect(last).to_be_in_viewport()
    page.get_by_role("button", name="When it happened").click()
    expect(page.locator(".wave").first).to_be_visible()
    expect(last).to_be_in_viewport()
    expect(page.locator(".jump")).to_have_count(0)


SLOW = {"offline": False, "latency": 400, "downloadThroughput": 50_000, "uploadThroughput": 50_000}


@pytest.mark.parametrize(("turns", "each"), [(100, 49), (5_000, 7)], ids=["5000", "50000"])
def test_the_first_screen_of_a_long_session_comes_over_a_slow_line(
    server: Server, open_page: OpenPage, turns: int, each: int
) -> None:
    """50 KB/s and 400 ms. The best of three: this machine does other things as well."""
    session_id = long_session(server, turns, each)
    took = []
    for _ in range(3):
        page = open_page(server, "about:blank")
        slow = page.context.new_cdp_session(page)
        slow.send("Network.enable")
        slow.send("Network.emulateNetworkConditions", SLOW)
        page.goto(f"/s/{session_id}", wait_until="commit")
        words = "words => document.body?.innerText.includes(words)"
        page.wait_for_function(words, arg=f"{turns - 1}.{each - 1}", polling=20)
        took.append(round(page.evaluate("performance.now()") / 1000, 2))
        page.wait_for_selector(".prose strong")
        print("words, then Markdown, s:", took[-1], page.evaluate("performance.now()") / 1000)
        page.close()
        if took[-1] <= 3:
            break
    assert min(took) <= 3, took


def test_the_page_is_small_packed_and_preloaded(server: Server, open_page: OpenPage) -> None:
    page = open_page(server, f"/s/{said(server, 'say one')}")
    expect(page.get_by_text("one", exact=True)).to_be_visible()
    sizes: dict[str, Any] = page.evaluate(
        """() => Object.fromEntries(performance.getEntriesByType("resource")
          .filter((one) => one.name.includes("/assets/"))
          .map((one) => [new URL(one.name).pathname, one.encodedBodySize]))"""
    )
    assert sum(sizes.values()) <= 110_000, sum(sizes.values())
    preloaded = page.evaluate(
        """() => [...document.querySelectorAll("link[rel=modulepreload]")]
          .map((one) => one.getAttribute("href"))"""
    )
    scripts = {name for name in sizes if name.endswith(".js")} - {"/assets/first.js"}
    later = {"markdown.js", "highlight.js", "vendor/marked.js", "vendor/dompurify.js"}
    assert set(preloaded) == scripts - {f"/assets/{name}" for name in later}
    answer = server.http.get("/assets/app.js", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"


def test_a_failure_is_a_sentence_that_says_what_to_do_without_a_key(
    server: Server, open_page: OpenPage
) -> None:
    page = open_page(server, f"/s/{server.create()}")
    ask(page, "refuse")
    expect(page.locator(".ending")).to_contain_text("The provider refused the key. Check the key")
    page.reload()
    expect(page.locator(".ending")).to_contain_text("The provider refused the key. Check the key")
    assert "sk-verysecret" not in page.content()


def test_a_wrong_token_is_said_to_be_wrong(
    serve: Serve, open_page: OpenPage, tmp_path: Path
) -> None:
    from killick.server.auth import Tokens

    Tokens(tmp_path / "tokens.json").make("laptop", "write", 0)
    page = open_page(serve())
    expect(page.get_by_role("heading", name="A token is needed")).to_be_visible()
    page.get_by_role("textbox", name="Token").fill("hf_wrong")
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("heading", name="That token is not valid")).to_be_visible()


def test_subagents_are_marked_and_sessions_are_found_by_project_model_and_tag(
    server: Server, open_page: OpenPage, keep: Keep
) -> None:
    with Store(server.store) as store:
        parent = store.create_session(title="Parent", tags=["red"])
        with parent.turn("go") as turn:
            child = store.create_session(
                title="Child", type="subagent", parent=Parent(parent.id, turn.id)
            )
    gone = said(server, "say one", title="Gone")
    server.http.delete(f"/api/sessions/{gone}")
    page = open_page(server)
    expect(page.locator(".row", has_text="Child")).to_contain_text("subagent")
    page.goto(f"/s/{child.id}")
    page.get_by_role("link", name="subagent of another session").click()
    expect(page).to_have_url(re.compile(parent.id))
    page.get_by_text("More filters").click()
    page.get_by_label("Tag").fill("red")
    page.get_by_label("Tag").press("Enter")
    expect(page.locator(".row")).to_have_count(1)
    page.get_by_label("Tag").fill("")
    page.get_by_label("Tag").press("Enter")
    page.get_by_role("button", name="Deleted").click()
    expect(page.locator(".row")).to_have_count(1)
    keep(page, "deleted")
    page.get_by_role("button", name="Restore Gone").click()
    expect(page.get_by_text("one", exact=True)).to_be_visible()


DROP = """async ([name, text]) => {
  const given = new DataTransfer();
  given.items.add(new File([text], name));
  for (const kind of ["dragover", "drop"]) {
    const told = { bubbles: true, cancelable: true, dataTransfer: given };
    document.body.dispatchEvent(new DragEvent(kind, told));
  }
}"""


def test_a_file_that_is_dropped_is_imported(server: Server, open_page: OpenPage) -> None:
    said_there = [
        {"role": "user", "content": "Where is the anchor?"},
        {"role": "assistant", "content": "On the bottom."},
    ]
    page = open_page(server)
    expect(page.get_by_text("No sessions here yet.")).to_be_visible()
    page.evaluate(DROP, ["chat.json", json.dumps(said_there)])
    expect(page.locator(".toast")).to_contain_text("1 session is here now")
    expect(page.locator(".message.assistant")).to_contain_text("On the bottom.")
    page.evaluate(DROP, ["notes.txt", "hello"])
    expect(page.locator(".toast")).to_contain_text(["Files that end in .jsonl"])


def test_the_filters_of_the_list_stand_in_one_line(server: Server, open_page: OpenPage) -> None:
    page = open_page(server)
    chips = page.locator(".seek .chip")
    expect(chips).to_have_count(5)
    for chip in chips.all():
        chip.click()
        assert len({one.bounding_box()["y"] for one in chips.all()}) == 1  # type: ignore[index]


def test_an_address_that_is_none_is_a_page(server: Server, open_page: OpenPage, keep: Keep) -> None:
    page = open_page(server, "/nope")
    expect(page.get_by_role("heading", name="There is nothing here")).to_be_visible()
    keep(page, "nope")
    assert server.http.get("/nope", headers={"Accept": "text/html"}).status_code == 404
    assert server.http.get("/nope").json()["code"] == "not_found"
    page.get_by_role("button", name="To the start").click()
    expect(page.get_by_text("Nothing is lost here")).to_be_visible()
