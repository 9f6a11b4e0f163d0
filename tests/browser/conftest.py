"""A real browser, and pages that fail their test when they complain or ask anybody else."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, Page, sync_playwright

from tests.server.client import ROOT, Server

ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
SCREENS = ROOT / "build" / "screens"
"""Where a run keeps what its pages looked like."""

LOOKS = (
    ("light", "light", {"width": 1280, "height": 860}),
    ("dark", "dark", {"width": 1280, "height": 860}),
    ("phone", "light", {"width": 390, "height": 844}),
    ("phone-dark", "dark", {"width": 390, "height": 844}),
)
OpenPage = Callable[..., Page]
Serve = Callable[..., Server]
Keep = Callable[[Page, str], None]


# Not for the whole session: while it is open an event loop runs, and no other test can run its own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("NO CHROMIUM HERE: the page is not tested; 'make system' installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Open pages; afterwards none has raised an error, or asked another server for anything."""
    complaints: list[str] = []
    contexts = []

    def open_one(server: Server, path: str = "/", *, quiet: bool = True, **look: Any) -> Page:
        look.setdefault("viewport", {"width": 1280, "height": 860})
        context = browser.new_context(base_url=server.url, **look)
        contexts.append(context)
        context.set_default_timeout(20_000)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("request", lambda request: _check(request.url, server, complaints))
        if quiet:
            page.on("console", lambda one: _hear(one.type, one.text, complaints))
        page.goto(path)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert complaints == []


def _check(url: str, server: Server, complaints: list[str]) -> None:
    port = server.url.rpartition(":")[2]
    ours = (f"http://127.0.0.1:{port}", f"http://localhost:{port}", "blob:", "data:")
    if not url.startswith(ours):
        complaints.append(f"asked {url}")


def _hear(kind: str, text: str, complaints: list[str]) -> None:
    if kind == "error" and "Failed to load resource" not in text:
        complaints.append(f"console: {text}")


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start servers on one store; all of them are gone afterwards."""
    started: list[Server] = []

    def start(*options: str, module: str = "tests.server.scripted") -> Server:
        server = Server(tmp_path, *options, module=module)
        started.append(server)
        return server

    yield start
    for server in started:
        server.close()


@pytest.fixture
def keep() -> Keep:
    """Keep what a page looks like: light, dark, and on a phone, where nothing may stick out."""
    SCREENS.mkdir(parents=True, exist_ok=True)

    def shoot(page: Page, name: str) -> None:
        size = page.viewport_size
        assert size is not None
        for look, scheme, viewport in LOOKS:
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
            page.set_viewport_size(viewport)  # type: ignore[arg-type]
            try:
                page.screenshot(path=SCREENS / f"{name}-{look}.png")
            except Error as error:
                raise AssertionError(f"no screenshot of {name}: {error}") from error
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
                f"{name} sticks out, {look}"
            )
        page.emulate_media(color_scheme="light", reduced_motion="no-preference")
        page.set_viewport_size(size)

    return shoot


def said(server: Server, *prompts: str, title: str | None = "A session") -> str:
    """A session in which these prompts were answered."""
    session_id = server.create(title=title)
    after = None
    for prompt in prompts:
        server.begin(session_id, prompt)
        after = server.until_end(session_id, after)[-1].id
    return session_id


def ask(page: Page, prompt: str) -> None:
    page.get_by_label("Your message").fill(prompt)
    page.keyboard.press("Enter")
