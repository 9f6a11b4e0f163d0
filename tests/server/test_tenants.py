"""A token names its tenant, and shows nothing of another's; a busy one is told to wait."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from killick import AsyncStore, StoreBusy
from killick.server.auth import Guard, Rate, Tokens
from killick.server.log import Log
from killick.server.runner import Runner
from killick.server.service import ServerSettings, Service
from killick.server.tenants import Tenants
from tests.server.client import Server
from tests.server.conftest import Serve
from tests.waiting import until


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


def test_the_log_names_the_tenant_of_a_session(serve: Serve) -> None:
    """Two tenants may use one id: an operator must know whose turn broke."""
    server = serve()
    whose = {}
    for name, tenant in (("own", None), ("acme", "acme")):
        who = headers(server, name, tenant)
        made = server.http.post("/api/sessions", json={"title": "x"}, headers=who).json()["id"]
        whose[made] = tenant
        path = f"/api/sessions/{made}/turns"
        server.http.post(path, json={"prompt": "count 1"}, headers=who).raise_for_status()
    until(lambda: len(server.log_lines("turn_ended")) == 2)
    assert server.end() == 0
    for event in ("session_created", "turn_began", "turn_ended", "request"):
        lines = [line for line in server.log_lines(event) if line["session"] is not None]
        assert {line["session"]: line.get("tenant") for line in lines} == whose


def open_files(server: Server) -> int:
    """Count what the process has open; of stores on a server, the connections."""
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


@pytest.mark.linux
def test_few_stores_are_open_however_many_tenants_there_are(serve: Serve) -> None:
    server = serve("--tenants", "2")
    names = [f"tenant-{number}" for number in range(8)]
    tokens = {name: headers(server, name, name) for name in names}
    none = open_files(server)
    for name in names[:2]:
        made = server.http.post("/api/sessions", json={"title": name}, headers=tokens[name])
        assert made.status_code == 201, made.text
    two = open_files(server) - none
    assert two > 0
    for name in names[2:]:
        assert server.http.get("/api/sessions", headers=tokens[name]).status_code == 200
    until(lambda: open_files(server) - none < 2 * two)  # all of them would be four times as many
    for name in names[:2]:
        listed = server.http.get("/api/sessions", headers=tokens[name]).json()["sessions"]
        assert [session["title"] for session in listed] == [name]


def test_a_tenant_that_is_at_work_keeps_its_store_open(serve: Serve) -> None:
    server = serve("--tenants", "1")
    busy, other = (headers(server, name, name) for name in ("busy", "other"))
    session = server.http.post("/api/sessions", json={"title": "x"}, headers=busy).json()["id"]
    path = f"/api/sessions/{session}"
    with server.http.stream("GET", f"{path}/events", headers=busy) as events:
        assert events.status_code == 200
        refused = server.http.get("/api/sessions", headers=other)
        assert (refused.status_code, refused.json()["code"]) == (503, "too_many_tenants")
        assert int(refused.headers["retry-after"]) > 0
    prompt = {"prompt": "count 20 0.05"}
    server.http.post(f"{path}/turns", json=prompt, headers=busy).raise_for_status()
    assert server.http.get("/api/sessions", headers=other).status_code == 503
    until(lambda: server.http.get("/api/sessions", headers=other).status_code == 200)
    until(lambda: server.http.get(path, headers=busy).status_code == 200)
    turns = server.http.get(f"{path}/transcript", headers=busy).json()["turns"]
    assert [turn["status"] for turn in turns] == ["completed"]


@asynccontextmanager
async def tenants_of(
    path: Path, before: Callable[[str], Awaitable[object]]
) -> AsyncIterator[Tenants]:
    """The tenants of a server without a network; `before` is called with whose store is opened."""

    @asynccontextmanager
    async def open_store(tenant: str | None) -> AsyncIterator[AsyncStore]:
        if tenant is not None:
            await before(tenant)
        async with AsyncStore(path, tenant=tenant) as store:
            yield store

    settings = ServerSettings()
    guard = Guard(settings.host, (), Tokens(path.with_name("tokens.json")))
    async with open_store(None) as store:
        own = Service(store, Runner(None, None), settings, guard, Log())
        async with Tenants(open_store, own) as tenants:
            yield tenants


async def asked(tenants: Tenants, tenant: str) -> str:
    async with tenants.serving(tenant) as service:
        return service.settings.tenant


def test_a_tenant_whose_store_opens_slowly_keeps_no_other_waiting(tmp_path: Path) -> None:
    async def main() -> None:
        let = asyncio.Event()

        async def wait(tenant: str) -> None:
            if tenant == "slow":
                await let.wait()

        async with tenants_of(tmp_path / "work.db", wait) as tenants:
            slow = asyncio.create_task(asked(tenants, "slow"))
            for _ in range(2):  # the first opens it, the second finds it open
                async with asyncio.timeout(60):
                    assert await asked(tenants, "quick") == "quick"
            assert not slow.done()
            let.set()
            assert await slow == "slow"

    asyncio.run(main())


def test_a_store_that_cannot_be_opened_is_tried_again_by_the_next_request(tmp_path: Path) -> None:
    failures = [StoreBusy("not now")]

    async def fail_once(_tenant: str) -> None:
        if failures:
            raise failures.pop()

    async def main() -> None:
        async with tenants_of(tmp_path / "work.db", fail_once) as tenants:
            with pytest.raises(StoreBusy):
                await asked(tenants, "acme")
            assert await asked(tenants, "acme") == "acme"

    asyncio.run(main())


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


def test_the_streams_of_all_tenants_are_counted_together(serve: Serve) -> None:
    server = serve("--streams", "1")
    names = ["acme", "rival"]
    tokens = [headers(server, name, name) for name in names]
    paths = []
    for token in tokens:
        made = server.http.post("/api/sessions", json={"title": "x"}, headers=token).json()
        paths.append(f"/api/sessions/{made['id']}/events")
    with server.http.stream("GET", paths[0], headers=tokens[0]) as first:
        assert first.status_code == 200
        refused = server.http.get(paths[1], headers=tokens[1])
        assert (refused.status_code, refused.json()["code"]) == (503, "too_many_streams")


def test_a_rate_saves_up_for_two_seconds_and_no_longer() -> None:
    rate = Rate(2.0)
    assert [rate.wait("a", 0.0) for _ in range(4)] == [0.0] * 4
    assert rate.wait("a", 0.0) == 0.5
    assert rate.wait("b", 0.0) == 0.0
    assert rate.wait("a", 0.5) == 0.0
    assert [rate.wait("a", 100.0) for _ in range(4)] == [0.0] * 4
    assert rate.wait("a", 100.0) == 0.5
