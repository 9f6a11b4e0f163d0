"""A token names its tenant, and shows nothing of another's; a busy one is told to wait."""

import pytest

from killick.server.auth import Rate, Tokens
from tests.server.client import Server
from tests.server.conftest import Serve


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def headers(server: Server, name: str, tenant: str | None = None) -> dict[str, str]:
    _, secret = Tokens(server.folder / "tokens.json").make(name, "write", 0, tenant)
    return {"Authorization": f"Bearer {secret}"}


def test_a_token_shows_the_sessions_of_its_tenant_alone(serve: Serve) -> None:
    server = serve()
    own, acme, rival = (
        headers(server, name, tenant)
        for name, tenant in (("own", None), ("acme", "acme"), ("rival", "rival"))
    )
    made = {}
    for name, who in (("own", own), ("acme", acme), ("rival", rival)):
        answer = server.http.post("/api/sessions", json={"title": name}, headers=who)
        assert answer.status_code == 201, answer.text
        made[name] = answer.json()["id"]
    for name, who in (("own", own), ("acme", acme), ("rival", rival)):
        listed = server.http.get("/api/sessions", headers=who).json()["sessions"]
        assert [session["title"] for session in listed] == [name]
        for other, session_id in made.items():
            status = server.http.get(f"/api/sessions/{session_id}", headers=who).status_code
            assert status == (200 if other == name else 404)
            prompt = {"prompt": "go"}
            path = f"/api/sessions/{session_id}/turns"
            begun = server.http.post(path, json=prompt, headers=who).status_code
            assert begun == (201 if other == name else 404)


def test_each_tenant_has_its_turns_and_events(serve: Serve) -> None:
    server = serve()
    acme = headers(server, "acme", "acme")
    session = server.http.post("/api/sessions", json={"title": "x"}, headers=acme).json()["id"]
    path = f"/api/sessions/{session}"
    server.http.post(f"{path}/turns", json={"prompt": "go"}, headers=acme).raise_for_status()
    seen = []
    with server.http.stream("GET", f"{path}/events", headers=acme) as events:
        for line in events.iter_lines():
            if line.startswith("event: "):
                seen.append(line.removeprefix("event: "))
            if line == "event: turn_ended":
                break
    assert "message" in seen
    assert server.end() == 0  # it ends the parts of all tenants


def test_a_token_that_asks_too_often_is_told_to_wait(serve: Serve) -> None:
    server = serve("--token-requests", "0.5")
    busy, calm = headers(server, "busy"), headers(server, "calm")
    answers = [server.http.get("/api/sessions", headers=busy) for _ in range(3)]
    assert answers[0].status_code == 200
    last = answers[-1]
    assert (last.status_code, last.json()["code"]) == (429, "too_many_requests")
    assert int(last.headers["retry-after"]) >= 1
    assert server.http.get("/api/sessions", headers=calm).status_code == 200
    assert server.http.get("/healthz").status_code == 200


def test_a_token_has_its_own_limit_of_streams(serve: Serve) -> None:
    server = serve("--token-streams", "1")
    busy, calm = headers(server, "busy"), headers(server, "calm")
    session = server.http.post("/api/sessions", json={"title": "x"}, headers=busy).json()["id"]
    path = f"/api/sessions/{session}/events"
    with server.http.stream("GET", path, headers=busy) as first:
        assert first.status_code == 200
        refused = server.http.get(path, headers=busy)
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
        assert refused.headers["retry-after"] == "5"
        with server.http.stream("GET", path, headers=calm) as other:
            assert other.status_code == 200


def test_a_rate_saves_up_for_two_seconds_and_no_longer() -> None:
    rate = Rate(2.0)
    assert [rate.wait("a", 0.0) for _ in range(4)] == [0.0] * 4
    assert rate.wait("a", 0.0) == 0.5
    assert rate.wait("b", 0.0) == 0.0
    assert rate.wait("a", 0.5) == 0.0
    assert [rate.wait("a", 100.0) for _ in range(4)] == [0.0] * 4
    assert rate.wait("a", 100.0) == 0.5
