"""What somebody who hears the page, or sees little contrast, would miss: axe-core looks for it."""

from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage, Serve, ask, said
from tests.server.client import Server

State = Callable[[Page, Server], None]


def conversation(page: Page, server: Server) -> None:
    page.goto(f"/s/{said(server, 'work', 'fail', title='Fix the build')}")
    page.locator("details.tool summary").click()
    expect(page.get_by_role("button", name="Continue")).to_be_visible()


def waiting(page: Page, server: Server) -> None:
    page.goto(f"/s/{server.create()}")
    ask(page, "hang")
    expect(page.locator(".message.assistant")).to_contain_text("I wait")
    ask(page, "say next")
    expect(page.locator(".queue li")).to_have_count(1)


def approval(page: Page, server: Server) -> None:
    page.goto(f"/s/{server.create()}")
    ask(page, "ask")
    expect(page.locator(".ask")).to_be_visible()


def menu(page: Page, server: Server) -> None:
    page.goto(f"/s/{said(server, 'say one')}")
    page.get_by_role("button", name="More").click()
    expect(page.get_by_role("menu")).to_be_visible()


def panel(page: Page, server: Server) -> None:
    session_id = said(server, "say one", "say two")
    head = server.get(f"/api/sessions/{session_id}")["head"]
    compacting = {"summary": "Two things.", "through": head}
    server.http.post(f"/api/sessions/{session_id}/compact", json=compacting)
    page.goto(f"/s/{session_id}")
    page.get_by_role("button", name="What the model is sent").click()
    expect(page.locator(".panel")).to_contain_text("Two things.")


def search(page: Page, server: Server) -> None:
    said(server, "say xylophone", title="Music")
    page.get_by_label("Search sessions").fill("xylo")
    expect(page.locator(".hit").first).to_be_visible()


def keys(page: Page, _server: Server) -> None:
    page.get_by_role("button", name="Keys").click()
    expect(page.get_by_role("heading", name="Keys")).to_be_visible()


def figures(page: Page, server: Server) -> None:
    said(server, "work", "fail")
    page.goto("/figures")
    expect(page.locator(".plot svg")).to_have_count(3)


def home(page: Page, _server: Server) -> None:
    expect(page.get_by_text("Nothing is lost here")).to_be_visible()


def survived(page: Page, server: Server) -> None:
    session_id = server.create(title="Deploy")
    server.begin(session_id, "three")
    for event in server.events(session_id):
        if event.name == "delta" and event.data["call_id"] == "c2":
            break
    server.stop(session_id, wait_seconds=5)
    page.goto(f"/s/{session_id}")
    expect(page.locator(".survived .doubt")).to_be_visible()


def needs_you(page: Page, server: Server) -> None:
    server.begin(server.create(title="Clean up"), "ask")
    page.goto("/needs")
    expect(page.locator(".need .ask").first).to_be_visible()


def time_machine(page: Page, server: Server) -> None:
    page.goto(f"/s/{said(server, 'work')}?then=9")
    expect(page.locator(".talk .message").first).to_be_visible()


def waterfall(page: Page, server: Server) -> None:
    page.goto(f"/s/{said(server, 'work', 'fail')}")
    page.get_by_role("button", name="When it happened").click()
    expect(page.locator(".wave").first).to_be_visible()


def sent(page: Page, server: Server) -> None:
    page.goto(f"/s/{said(server, 'work')}")
    page.get_by_role("button", name="What the model is sent").click()
    page.get_by_label("Call").select_option(index=1)
    expect(page.locator(".panel .sent.new").first).to_be_visible()


def tools(page: Page, server: Server) -> None:
    page.goto(f"/s/{said(server, 'reads 6', 'print 50')}")
    expect(page.locator("details.tool > summary")).to_have_count(3)
    for summary in page.locator("details.tool > summary").all():
        summary.click()
    expect(page.locator(".change")).to_be_visible()
    expect(page.locator(".terminal").first).to_be_visible()


def branches(page: Page, server: Server) -> None:
    session_id = said(server, "say one", title="Trunk")
    made = server.http.post(f"/api/sessions/{session_id}/fork", json={}).json()["id"]
    server.begin(made, "work")
    server.until_end(made, str(server.get(f"/api/sessions/{session_id}")["head"]))
    page.goto(f"/s/{made}?beside={session_id}")
    expect(page.locator(".pair section")).to_have_count(2)


def nothing(page: Page, _server: Server) -> None:
    page.goto("/nope")
    expect(page.get_by_role("heading", name="There is nothing here")).to_be_visible()


STATES = (
    (home, conversation, waiting, approval, menu),
    (panel, search, keys, figures, nothing),
    (survived, needs_you, time_machine, waterfall),
    (sent, tools, branches),
)


CONTRAST = {"runOnly": ["color-contrast"]}
"""Whatever else axe finds it finds in the light as well."""


@pytest.mark.parametrize("states", STATES, ids=["talking", "around", "past", "inside"])
def test_axe_finds_nothing(serve: Serve, open_page: OpenPage, states: tuple[State, ...]) -> None:
    server = serve()
    found: list[str] = []
    for state in states:
        page = open_page(server, color_scheme="light", reduced_motion="reduce")
        state(page, server)
        light = Axe().run(page).response["violations"]
        page.emulate_media(color_scheme="dark")
        for one in [*light, *Axe().run(page, options=CONTRAST).response["violations"]]:
            nodes = "; ".join(node["html"][:120] for node in one["nodes"][:3])
            found.append(f"{state.__name__}: {one['id']}: {one['help']}: {nodes}")
        page.close()
    assert "\n".join(found) == ""
