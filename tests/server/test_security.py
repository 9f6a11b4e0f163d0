"""Who may ask, and for what: docs/security.md names these tests line by line."""

import json
import socket
import stat
from pathlib import Path

import pytest

from killick.server.app import OPERATIONS
from killick.server.auth import TokenFileDamaged, Tokens, host_name, is_loopback
from tests.server.client import ROOT, Server
from tests.server.conftest import Serve


def tokens_of(server: Server) -> Tokens:
    return Tokens(server.folder / "tokens.json")


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_another_name_for_this_address_is_refused(server: Server, host: str) -> None:
    """DNS rebinding: a page of another site whose name leads here."""
    answer = server.http.get("/api/sessions", headers={"Host": host})
    assert (answer.status_code, answer.json()["code"]) == (421, "wrong_host")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_another_origin_is_refused(server: Server, origin: str, method: str) -> None:
    answer = server.http.request(method, "/api/sessions", headers={"Origin": origin}, json={})
    assert (answer.status_code, answer.json()["code"]) == (403, "cross_origin")
    assert "access-control-allow-origin" not in answer.headers


def test_our_own_origin_is_served(server: Server) -> None:
    answer = server.http.post("/api/sessions", headers={"Origin": server.url}, json={})
    assert answer.status_code == 201


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_another_site_causes_is_refused_even_without_an_origin(
    server: Server, site: str
) -> None:
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
    answer = server.http.get("/api/sessions", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "cross_origin")


def test_a_link_from_another_site_opens_the_page_and_nothing_else(server: Server) -> None:
    headers = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    assert server.http.get("/", headers=headers).status_code == 200
    assert server.http.get("/api/sessions", headers=headers).status_code == 403


def test_a_form_cannot_write(server: Server) -> None:
    """What a form can send without asking first is no JSON."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = server.http.post("/api/sessions", content=b"{}", headers={"Content-Type": kind})
        assert (answer.status_code, answer.json()["code"]) == (415, "not_json")
        headers = {"Content-Type": kind}
        answer = server.http.post("/api/import?name=a.json", content=b"{}", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (415, "not_a_file")


def test_every_answer_has_the_headers_that_keep_a_browser_in_bounds(server: Server) -> None:
    for path in ("/", "/api/sessions", "/nothing", "/assets/app.js"):
        headers = server.http.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers


def test_a_body_that_is_too_large_is_refused(serve: Serve) -> None:
    server = serve("--body-bytes", "1000")
    answer = server.http.post("/api/sessions", json={"title": "x" * 1000})
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")

    def pieces() -> object:
        for _ in range(100):
            yield b"x" * 100

    chunked = server.http.post(
        "/api/sessions",
        content=pieces(),  # type: ignore[arg-type]
        headers={"Content-Type": "application/json"},
    )
    assert chunked.status_code == 413


def test_only_so_many_streams_are_open(serve: Serve) -> None:
    server = serve("--streams", "1")
    session_id = server.create()
    path = f"/api/sessions/{session_id}/events"
    with server.http.stream("GET", path) as first:
        lines = first.iter_lines()  # who forgets it hangs up
        assert next(lines)
        answer = server.http.get(path)
        assert (answer.status_code, answer.json()["code"]) == (503, "too_many_streams")
    while server.http.get("/metrics").text.find("killick_open_streams 0") < 0:
        pass
    with server.http.stream("GET", path) as again:
        assert again.status_code == 200


def test_with_a_token_everybody_is_asked_for_one(serve: Serve) -> None:
    server = serve()
    session_id = server.create()
    _, secret = tokens_of(server).make("laptop", "write", 0)
    for path in ("/api/sessions", f"/api/sessions/{session_id}/events", "/metrics", "/api/about"):
        answer = server.http.get(path)
        assert (answer.status_code, answer.json()["code"]) == (401, "token_needed")
        assert answer.headers["www-authenticate"] == "Bearer"
    assert server.http.get("/api/sessions", headers=bearer("wrong")).status_code == 401
    assert server.http.get("/api/sessions", headers=bearer(secret)).status_code == 200
    assert server.http.get("/healthz").status_code == 200


def test_a_token_to_read_does_not_write(serve: Serve) -> None:
    server = serve()
    _, secret = tokens_of(server).make("dashboard", "read", 0)
    assert server.http.get("/api/sessions", headers=bearer(secret)).status_code == 200
    answer = server.http.post("/api/sessions", json={}, headers=bearer(secret))
    assert (answer.status_code, answer.json()["code"]) == (403, "read_only")
    for path in (
        "/api/import?name=a.json",
        "/api/sessions/s/settle",
        "/api/sessions/s/approvals/a",
    ):
        answer = server.http.post(path, json={}, headers=bearer(secret))
        assert (answer.status_code, answer.json()["code"]) == (403, "read_only")


def test_a_token_to_read_gets_no_operation_that_writes() -> None:
    """Each operation that is no GET needs a token to write; only these two need none."""
    writing = [operation for operation in OPERATIONS if operation.method != "GET"]
    assert {operation.needs for operation in writing} == {"write"}
    reading = [operation for operation in OPERATIONS if operation.method == "GET"]
    opened = {operation.path for operation in reading if operation.needs == "open"}
    assert opened == {"/livez", "/healthz", "/readyz"}


@pytest.mark.parametrize(
    "name",
    ["../../../etc/passwd.json", "/etc/passwd.md", "a\0b.json", "\U00020000" * 80 + ".json"],
    ids=["up", "absolute", "nul", "long"],
)
def test_the_name_of_an_upload_leads_nowhere(server: Server, name: str) -> None:
    """It is no path, and none that the machine refuses; nothing is read but what was sent."""
    line = {"role": "user", "content": "Hello from a file."}
    answer = server.http.post(
        "/api/import",
        params={"name": name},
        content=json.dumps([line, {"role": "assistant", "content": "Hi."}]),
        headers={"Content-Type": "application/octet-stream"},
    )
    assert answer.status_code in (201, 422), answer.text
    assert "root:" not in answer.text


def test_a_revoked_token_is_refused_at_once(serve: Serve) -> None:
    server = serve()
    tokens = tokens_of(server)
    tokens.make("other", "write", 0)
    _, secret = tokens.make("laptop", "write", 0)
    assert server.http.get("/api/sessions", headers=bearer(secret)).status_code == 200
    tokens.revoke("laptop")
    assert server.http.get("/api/sessions", headers=bearer(secret)).status_code == 401


def test_the_stream_of_a_revoked_token_ends(serve: Serve) -> None:
    server = serve("--beat", "0.2")
    session_id = server.create()
    tokens = tokens_of(server)
    tokens.make("other", "write", 0)
    _, secret = tokens.make("laptop", "read", 0)
    path = f"/api/sessions/{session_id}/events"
    with server.http.stream("GET", path, headers=bearer(secret)) as answer:
        lines = answer.iter_lines()
        assert next(lines)
        tokens.revoke("laptop")
        assert [line for line in lines if line.startswith("event: ")][1:] == []


def test_the_file_of_tokens_holds_no_token_and_is_the_users_alone(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "private" / "tokens.json")
    made, secret = tokens.make("laptop", "write", 0)
    text = tokens.path.read_text()
    assert secret not in text
    assert secret.rpartition("_")[2] not in text
    assert made.hash in text
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(tokens.path.parent.stat().st_mode) == 0o700


def test_a_damaged_file_of_tokens_lets_nobody_in(serve: Serve) -> None:
    server = serve()
    tokens = tokens_of(server)
    _, secret = tokens.make("laptop", "write", 0)
    tokens.path.write_text("{")
    with pytest.raises(TokenFileDamaged):
        tokens.all()
    answer = server.http.get("/api/sessions", headers=bearer(secret))
    assert (answer.status_code, answer.json()["code"]) == (500, "failed")
    assert str(tokens.path) not in answer.text


def test_tokens_that_are_made_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    path = tmp_path / "tokens.json"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: Tokens(path).make(f"t{n}", "read", 0), range(20)))
    assert len(Tokens(path).all()) == 20


def test_it_does_not_serve_others_without_a_token(tmp_path: Path) -> None:
    import subprocess
    import sys

    command = [sys.executable, "-m", "tests.server.scripted", str(tmp_path / "work.db")]
    tokens = ["--tokens", str(tmp_path / "tokens.json")]
    done = subprocess.run(
        [*command, *tokens, "--host", "0.0.0.0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode != 0
    assert "no token is set" in done.stderr


def test_with_a_token_it_serves_others_under_its_address_alone(serve: Serve) -> None:
    first = serve()
    _, secret = tokens_of(first).make("laptop", "write", 0)
    first.end()
    server = serve("--host", "0.0.0.0")
    port = server.url.rpartition(":")[2]
    address = socket.gethostbyname(socket.gethostname())
    server.http.base_url = f"http://127.0.0.1:{port}"
    for host, status in ((f"{address}:{port}", 200), ("evil.example", 421)):
        headers = {**bearer(secret), "Host": host}
        assert server.http.get("/api/sessions", headers=headers).status_code == status


def test_revoking_the_last_token_opens_nothing_to_others(serve: Serve) -> None:
    first = serve()
    tokens = tokens_of(first)
    _, secret = tokens.make("laptop", "write", 0)
    first.end()
    server = serve("--host", "0.0.0.0")
    server.http.base_url = f"http://127.0.0.1:{server.url.rpartition(':')[2]}"
    tokens.revoke("laptop")
    for headers in ({}, bearer(secret)):
        assert server.http.get("/api/sessions", headers=headers).status_code == 401


def test_errors_show_nothing_of_the_inside(server: Server) -> None:
    session_id = server.create()
    text = ""
    for path in ("/api/sessions/none", f"/api/sessions/{session_id}/context?format=x", "/x"):
        text += server.http.get(path).text
    assert "Traceback" not in text
    assert str(ROOT) not in text
    assert "/site-packages/" not in text


def test_the_log_has_ids_and_never_content(serve: Serve) -> None:
    server = serve()
    session_id = server.create(title="a secret title")
    server.begin(session_id, "say swordfish")
    server.until_end(session_id)
    server.http.get("/api/search", params={"q": "swordfish"})
    server.http.get("/api/sessions", params={"q": "swordfish"})
    for line in server.log.splitlines():
        assert json.loads(line)["event"]
    assert "swordfish" not in server.log
    assert "secret" not in server.log
    assert session_id in server.log


def test_the_log_has_no_words_of_other_libraries() -> None:
    import logging

    from killick.server.log import JsonLines

    record = logging.LogRecord(
        "httpx", logging.WARNING, "/lib/client.py", 7, "sent %s", ("swordfish",), None
    )
    line = json.loads(JsonLines().format(record))
    assert (line["event"], line["logger"], line["place"]) == ("library", "httpx", "client:7")
    assert "swordfish" not in json.dumps(line)


def test_the_log_has_what_the_store_says_of_itself() -> None:
    """Its words are constant; the text of an error in them may hold content."""
    import logging

    from killick.server.log import JsonLines

    record = logging.LogRecord(
        "killick", logging.WARNING, "/lib/writer.py", 7, "store degraded", (), None
    )
    record.__dict__.update({"holder": "host/1/a", "error": "swordfish", "session_id": "s1"})
    line = json.loads(JsonLines().format(record))
    assert (line["event"], line["holder"], line["session"]) == ("store degraded", "host/1/a", "s1")
    assert "swordfish" not in json.dumps(line)


def test_an_exported_page_is_a_download(server: Server) -> None:
    session_id = server.create()
    server.begin(session_id, "say <script>1</script>")
    server.until_end(session_id)
    answer = server.http.get(f"/api/sessions/{session_id}/export", params={"to": "html"})
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "<script>1" not in answer.text


def test_a_blob_is_an_image_or_a_download(serve: Serve, tmp_path: Path) -> None:
    from killick import Store

    server = serve()
    with Store(tmp_path / "work.db") as store:
        picture = store.put_blob(b"\x89PNG\r\n\x1a\n....")
        others = [b"<html><script>1</script>", b"%PDF-1.7 ...."]
        shown = server.http.get(f"/api/blobs/{picture}")
        assert shown.headers["content-type"] == "image/png"
        for page in map(store.put_blob, others):
            kept = server.http.get(f"/api/blobs/{page}")
            assert kept.headers["content-type"] == "application/octet-stream"
            assert kept.headers["content-disposition"] == "attachment"


@pytest.mark.parametrize(
    ("host", "name"),
    [("localhost:80", "localhost"), ("[::1]:80", "::1"), ("A.b", "a.b"), ("", "")],
)
def test_names_in_host_headers(host: str, name: str) -> None:
    assert host_name(host) == name


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)
