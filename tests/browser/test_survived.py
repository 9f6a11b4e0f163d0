"""What only a journal can show: what survived, any moment of the past, when it happened."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from killick import Message, Store, Text
from tests.browser.conftest import Keep, OpenPage, Serve, ask, said
from tests.server.client import Server


@pytest.fixture
def server(serve: Serve) -> Server:
    return serve()


def crashed(serve: Serve, tmp_path: Path) -> tuple[Server, str]:
    """A session whose server was killed in the middle of three tools, at another server."""
    first = serve("--lease", "2")
    session_id = first.create(title="Deploy")
    first.begin(session_id, "three")
    for event in first.events(session_id):
        if event.name == "delta" and event.data["call_id"] == "c2":
            break
    first.kill()
    return serve(), session_id


def test_after_a_crash_a_card_says_what_survived_and_an_outcome_is_settled(
    serve: Serve, open_page: OpenPage, keep: Keep, tmp_path: Path
) -> None:
    server, session_id = crashed(serve, tmp_path)
    page = open_page(server, f"/s/{session_id}")
    card = page.locator(".survived")
    expect(card).to_contain_text("The process that ran it died.")
    for words in ("prompt kept", "12 characters of the answer kept", "1 tool finished"):
        expect(card).to_contain_text(words)
    expect(card).to_contain_text("1 outcome unknown")
    expect(card).to_contain_text("1 tool never ran")
    expect(card.locator(".doubt")).to_contain_text("deploy")
    own = "() => [...document.querySelector('.talk').childNodes].map((one) => one.nodeType)"
    assert page.evaluate(own).count(3) == 0, "text that belongs to nothing"
    keep(page, "survived")
    card.get_by_role("button", name="It ran", exact=True).click()
    expect(card.locator(".doubt")).to_have_count(0)
    expect(card).to_contain_text("shell ran, as a person found out")
    page.reload()
    expect(card).to_contain_text("shell ran, as a person found out")
    card.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()


def test_a_card_counts_what_is_not_in_view_and_what_lies_in_a_fold(
    server: Server, open_page: OpenPage
) -> None:
    with Store(server.store) as store:
        session = store.create_session(title="Long")
        try:
            with session.turn("go") as turn:
                for _ in range(90):
                    turn.record(Message("assistant", [Text("ten chars.")]))
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
    page = open_page(server, f"/s/{session.id}")
    card = page.locator(".survived")
    expect(card).to_contain_text("900 characters of the answer kept")
    expect(card).to_contain_text("prompt kept")
    server.begin(session.id, "say two")
    server.until_end(session.id, str(session.head))
    path = f"/api/sessions/{session.id}/compact"
    server.http.post(path, json={"summary": "All of it.", "through": session.head})
    page.reload()
    page.locator(".compaction > summary").click()
    expect(card).to_contain_text("900 characters of the answer kept")
    expect(card).to_contain_text("prompt kept")


def test_what_waits_in_all_sessions_is_in_one_place_and_counted_in_the_title(
    serve: Serve, open_page: OpenPage, keep: Keep, tmp_path: Path
) -> None:
    server, _ = crashed(serve, tmp_path)
    asking = server.create(title="Clean up")
    server.begin(asking, "ask")
    page = open_page(server, "/needs")
    need = page.locator(".need")
    expect(need).to_have_count(2)
    expect(page).to_have_title(re.compile(r"^\(2\) "))
    expect(page.get_by_role("link", name="Needs you: 2")).to_be_visible()
    expect(page.locator(".need.outcome_unknown")).to_contain_text("deploy")
    question = page.locator(".need.approval_asked .ask")
    expect(question).to_contain_text("rm -r build")
    expect(page.locator(".row", has_text="Clean up")).to_contain_text("waits for you")
    keep(page, "needs-you")
    question.locator(".whole").focus()
    page.keyboard.press("y")
    expect(need).to_have_count(1)
    page.get_by_role("button", name="It did not run").click()
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
    expect(page).not_to_have_title(re.compile(r"^\("))
    # Another client's question shows by itself.
    server.begin(server.create(title="Again"), "ask")
    expect(need).to_have_count(1)
    question.locator(".whole").focus()
    page.keyboard.press("n")
    expect(need).to_have_count(0)


def test_always_allows_the_same_call_again_and_no_other(
    server: Server, open_page: OpenPage
) -> None:
    page = open_page(server, f"/s/{server.create()}")
    ask(page, "ask")
    page.get_by_label("Always in this session").check()
    page.get_by_role("button", name="Allow").click()
    expect(page.locator(".tool summary")).to_contain_text("done")
    ask(page, "ask")
    expect(page.locator(".tool summary").nth(1)).to_contain_text("done")
    ask(page, 'ask "{\\"command\\":\\"other\\"}"')
    expect(page.locator(".ask")).to_contain_text("other")
    page.get_by_role("button", name="Deny").click()
    expect(page.locator(".tool summary").nth(2)).to_contain_text("denied")


def test_always_outlives_the_tab_and_the_server_and_is_taken_back(
    serve: Serve, open_page: OpenPage, keep: Keep
) -> None:
    server = serve()
    page = open_page(server, f"/s/{server.create(title='Clean up')}")
    ask(page, "ask")
    page.get_by_label("Always in this session").check()
    page.get_by_role("button", name="Allow").click()
    expect(page.locator(".tool summary")).to_contain_text("done")
    path = page.url.removeprefix(server.url)
    page.close()
    server.close()
    again = serve()
    page = open_page(again, path)
    ask(page, "ask")
    expect(page.locator(".tool summary").nth(1)).to_contain_text("done")
    page.get_by_role("button", name="More").click()
    item = page.get_by_role("menuitem", name="Ask again: shell rm -r build")
    expect(item).to_be_visible()
    keep(page, "always")
    item.click()
    expect(page.locator(".toast")).to_contain_text("You will be asked again")
    ask(page, "ask")
    expect(page.locator(".ask")).to_contain_text("rm -r build")


def test_any_moment_of_the_past_can_be_seen(
    server: Server, open_page: OpenPage, keep: Keep
) -> None:
    session_id = said(server, "work", "say two")
    page = open_page(server, f"/s/{session_id}")
    expect(page.get_by_text("two", exact=True)).to_be_visible()
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Look back in time").click()
    moment = page.get_by_role("slider", name="Moment")
    expect(page.locator(".talk .message.user")).to_have_count(2)
    started = next(
        event.data["seq"] for event in server.until_end(session_id) if event.name == "tool_started"
    )
    moment.fill(str(started))
    expect(page).to_have_url(re.compile(f"then={started}$"))
    expect(page.locator(".talk .message.user")).to_have_count(1)
    expect(page.locator(".tool summary")).to_contain_text("running")
    expect(page.locator("output")).to_contain_text("A tool was started")
    keep(page, "time-machine")
    page.get_by_role("button", name="What the model would be sent").click()
    expect(page.locator(".talk .sent").first).to_contain_text("work")
    expect(page.locator(".talk")).not_to_contain_text("say two")
    page.get_by_role("button", name="One entry back").click()
    expect(page).to_have_url(re.compile(f"then={started - 1}$"))
    page.get_by_role("button", name="Back to now").click()
    expect(page.get_by_label("Your message")).to_be_visible()


def test_where_a_turn_broke_off_is_red_in_the_past_and_where_it_was_complete_is_not(
    server: Server, open_page: OpenPage, keep: Keep
) -> None:
    session_id = said(server, "say one", "fail", "say two", title="Thrice")
    head = server.get(f"/api/sessions/{session_id}")["head"]
    page = open_page(server, f"/s/{session_id}?then={head}")
    expect(page.locator(".marks .ends")).to_have_count(2)
    expect(page.locator(".marks .died")).to_have_count(1)
    expect(page.locator(".machine .legend span")).to_have_text(["a turn ended", "it broke off"])
    (broke,) = server.get(f"/api/sessions/{session_id}/journal")["broke_off"]
    page.get_by_role("slider", name="Moment").fill(str(broke))
    expect(page.locator("output")).to_contain_text("The turn broke off")
    expect(page.get_by_text("say two")).to_have_count(0)
    keep(page, "time-machine-broken")


def test_a_moment_beyond_the_end_is_not_found_and_names_the_head(server: Server) -> None:
    session_id = said(server, "say one")
    head = server.get(f"/api/sessions/{session_id}")["head"]
    for path in ("transcript", "context"):
        answer = server.http.get(f"/api/sessions/{session_id}/{path}?at={head + 1}")
        assert (answer.status_code, answer.json()["code"]) == (404, "seq_not_found")
        assert answer.json()["head"] == head
    before = server.get(f"/api/sessions/{session_id}/transcript?at=2")["shown"]
    assert [one["role"] for one in before] == []


def test_a_waterfall_shows_calls_tools_and_the_gap_of_a_crash(
    serve: Serve, open_page: OpenPage, keep: Keep, tmp_path: Path
) -> None:
    server, session_id = crashed(serve, tmp_path)
    page = open_page(server, f"/s/{session_id}")
    page.get_by_role("button", name="When it happened").click()
    wave = page.locator(".wave")
    expect(wave.locator("li")).to_have_count(4)
    expect(wave.locator(".track .call")).to_have_count(1)
    expect(wave.locator(".track .tool")).to_have_count(1)
    expect(wave.locator(".track .unknown")).to_have_count(1)
    expect(wave.locator(".track .gap")).to_have_count(1)
    expect(wave).to_contain_text("1,200 tokens in, 34 out")
    expect(wave.locator(".label")).to_have_text(
        ["worker", "shell make", "shell deploy", "nothing ran"]
    )
    expect(wave.locator(".track .silent")).to_have_count(1)
    expect(wave).to_contain_text(re.compile(r"first token after <?\d+ m?s"))
    keep(page, "waterfall")


def test_what_was_sent_in_each_call_is_shown_with_what_is_new(
    server: Server, open_page: OpenPage, keep: Keep
) -> None:
    session_id = said(server, "work", "say two")
    server.begin(session_id, "hang")
    server.stop(session_id, wait_seconds=5)
    server.begin(session_id, "say three")
    server.until_end(session_id)
    page = open_page(server, f"/s/{session_id}")
    page.get_by_role("button", name="What the model is sent").click()
    expect(page.locator(".panel .sent").first).to_be_visible()
    expect(page.locator(".panel mark").first).to_contain_text("interrupted")
    calls = page.get_by_label("Call").locator("option")
    expect(calls).to_have_count(6)
    page.get_by_label("Call").select_option(index=4)
    expect(page.locator(".panel .sent.new h3")).to_contain_text(["assistant", "tool"])
    expect(page.locator(".panel")).to_contain_text("new since the call before")
    asked = page.locator(".panel .sent.new").first
    expect(asked.locator(".what")).to_have_text("calls shell")
    expect(asked.locator("pre").last).to_have_text(re.compile(r'^\{\s+"command": "make"\s+\}$'))
    keep(page, "sent")
    page.get_by_role("button", name="JSON").click()
    expect(asked.locator("pre")).to_contain_text('"arguments": "{\\"command\\"')


def test_tools_are_shown_as_what_they_are(server: Server, open_page: OpenPage, keep: Keep) -> None:
    page = open_page(server, f"/s/{said(server, 'reads 400')}")
    run = page.locator(".run")
    expect(run).to_have_count(1)
    expect(run.locator("summary")).to_contain_text("400 calls: src/file0.py")
    edit = page.locator("details.tool", has_text="edit")
    edit.locator("summary").click()
    expect(edit.locator(".change .gone").last).to_contain_text("b")
    expect(edit.locator("pre .added")).to_contain_text("B")
    query = page.locator("details.tool", has_text="query")
    query.locator("summary").first.click()
    expect(query.locator(".tree").last).to_contain_text("Ada")
    expect(page.locator(".turn-line")).to_contain_text("15.4k tokens in, 210 out")
    expect(page.locator(".turn-line")).to_contain_text("$0.034")
    keep(page, "tools")


def test_a_picture_and_a_file_in_a_result_are_shown(
    server: Server, open_page: OpenPage, keep: Keep
) -> None:
    page = open_page(server, f"/s/{said(server, 'draw')}")
    tool = page.locator("details.tool", has_text="screenshot")
    tool.locator("summary").first.click()
    shown = tool.get_by_alt_text("The window")
    expect(shown).to_be_visible()
    assert shown.evaluate("one => one.naturalWidth") == 40
    expect(tool).not_to_contain_text("empty")
    with page.expect_download() as download:
        tool.get_by_role("button", name="table.csv").click()
    assert Path(download.value.path()).read_bytes() == b"a,b\n1,2\n"
    keep(page, "picture")


def test_of_a_long_past_the_end_is_shown_and_every_tool_counted(
    server: Server, open_page: OpenPage
) -> None:
    with Store(server.store, durability="normal") as store:
        session = store.create_session(title="Long")
        for number in range(300):
            with session.turn(f"Question {number}?") as turn:
                with turn.stream() as reply:
                    reply.tool_call("c1", name="shell", arguments='{"command": "make"}')
                with turn.tool("c1") as call:
                    call.finish("made")
    head = server.get(f"/api/sessions/{session.id}")["head"]
    page = open_page(server, f"/s/{session.id}?then={head}")
    expect(page.get_by_text("Question 299?")).to_be_in_viewport()
    expect(page.locator(".machine")).to_contain_text("300 tools had been started")
    page.get_by_role("button", name="What the model would be sent").click()
    expect(page.locator(".talk .sent")).to_have_count(60)
    page.get_by_role("button", name="Show earlier, of 900").click()
    expect(page.locator(".talk .sent")).to_have_count(260)


def test_two_branches_stand_side_by_side_from_where_they_part(
    server: Server, open_page: OpenPage, keep: Keep
) -> None:
    session_id = said(server, "say one", title="Trunk")
    head = server.get(f"/api/sessions/{session_id}")["head"]
    fork = server.http.post(
        f"/api/sessions/{session_id}/fork", json={"at": head, "title": "Branch"}
    ).json()["id"]
    server.begin(session_id, "say the quick red fox")
    server.until_end(session_id, str(head))
    server.begin(fork, "say the quick brown fox")
    server.until_end(fork, str(head))
    page = open_page(server, f"/s/{fork}")
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Beside what it was forked from").click()
    sides = page.locator(".pair section")
    expect(sides).to_have_count(2)
    expect(sides.nth(0).locator("mark").last).to_have_text("red")
    expect(sides.nth(1).locator("mark").last).to_have_text("brown")
    expect(sides.nth(0).locator(".message")).to_have_count(2)
    page.get_by_text("All branches").click()
    expect(page.locator(".tree-of li")).to_have_count(2)
    keep(page, "branches")
