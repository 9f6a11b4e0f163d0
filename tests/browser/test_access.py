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
    expect(page.locator(".plot svg")).to_have_count(4)


def home(page: Page, _server: Server) -> None:
    expect(page.get_by_text("Nothing is lost here")).to_be_visible()


STATES = (home, conversation, waiting, approval, menu, panel, search, keys, figures)


CONTRAST = {"runOnly": ["color-contrast"]}
"""Whatever else axe finds it finds in the light as well."""


@pytest.mark.parametrize("states", [STATES[:5], STATES[5:]], ids=["talking", "around"])
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
