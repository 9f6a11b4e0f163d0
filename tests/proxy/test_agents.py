"""Real agents through the proxy: both sides are taken, and what is stored is compared.

They are found by `KILLICK_LAB`, a folder with an agent in each (see tests/lab/agents.py).
"""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

import killick
from killick.proxy.wire import HOP_BY_HOP
from tests.lab.agents import AGENTS, Agent, Home
from tests.lab.cells import ENDED, HALF, PROMPT, SAID, started
from tests.lab.model import Model, Request
from tests.lab.script import Answer, Gate, Text
from tests.proxy.asking import stored
from tests.proxy.bench import RunningProxy, SentRequest, Tap, proxy
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
SECONDS: Final = 120
_FIRST: Final = ("codex", "claude-code", "opencode")


@pytest.fixture(params=list(AGENTS))
def agent(request: pytest.FixtureRequest) -> Agent:
    return _installed(str(request.param))


@pytest.fixture(params=_FIRST)
def named_agent(request: pytest.FixtureRequest) -> Agent:
    return _installed(str(request.param))


def _installed(name: str) -> Agent:
    found = AGENTS[name]
    if not found.is_installed():
        pytest.skip(f"{name} is not installed; KILLICK_LAB names the folder of the agents")
    return found


@dataclass
class Bench:
    model: Model
    store: Path
    running: RunningProxy
    tap: Tap
    home: Home
    script: list[Answer] = field(default_factory=list)


@contextmanager
def bench(tmp_path: Path, *options: str) -> Iterator[Bench]:
    script: list[Answer] = []
    answer = lambda _request: script.pop(0) if script else Answer(Text(ENDED))  # noqa: E731
    store = tmp_path / "s.db"
    with (
        Model(answer, tools_only=True) as model,
        proxy(store, model.url, *options) as running,
        Tap(running.address) as tap,
    ):
        yield Bench(model, store, running, tap, Home(tmp_path / "home", tap.url), script)


def calls(agent: Agent, home: Home) -> list[object]:
    return [
        agent.call("echo mallards three; touch one", "call_one"),
        agent.call("echo teals four; touch two", "call_two"),
        agent.call(f"touch three; sleep 300; touch {home.work}/over", "call_three"),
    ]


def test_each_request_reaches_the_model_as_it_was_sent(agent: Agent, tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        one, two, _ = calls(agent, b.home)
        b.script += [Answer(Text(SAID), one, two), Answer(Text(ENDED))]  # type: ignore[arg-type]
        with started(agent, b.home, agent.begin(b.tap.url, PROMPT)) as process:
            process.wait(SECONDS)
        sent, came = b.tap.requests(), list(b.model.everything)
        b.running.end()
    assert Counter(map(_as_sent, sent)) == Counter(map(_as_it_came, came))
    sessions = [s for s in stored(tmp_path / "s.db") if s["type"] == "user"]
    (session,) = [s for s in sessions if any(PROMPT in said[2] for said in s["said"])]
    assert session["turns"][-1] == ("completed", None)
    told = [said for said in session["said"] if said[0] in ("assistant", "tool")]
    told = told[-4:]  # Qwen begins with an answer that no model gave
    assert told[0][2].startswith(SAID)
    assert told[0][2].count("[") == 2
    assert "mallards three" in told[1][2]
    assert "teals four" in told[2][2]
    assert told[3] == ("assistant", "complete", ENDED)
    with killick.Store(tmp_path / "s.db") as store:
        usage = store.session(session["id"]).timeline()[-1].usage
    assert usage.output > 0


def _as_sent(request: SentRequest) -> tuple[str, str, bytes, tuple[tuple[str, str], ...]]:
    return request.method, request.target, request.body, _kept(request.headers)


def _as_it_came(request: Request) -> tuple[str, str, bytes, tuple[tuple[str, str], ...]]:
    return request.method, request.path, request.body, _kept(request.headers)


def _kept(headers: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the headers that are not about one connection, in their order."""
    gone = {name.decode() for name in HOP_BY_HOP} | {"host"}
    if any(name.lower() == "transfer-encoding" for name, _ in headers):
        gone.add("content-length")
    return tuple((name.lower(), value) for name, value in headers if name.lower() not in gone)


def test_agent_killed_in_its_answer(agent: Agent, tmp_path: Path) -> None:
    """The text so far is there, and the rest too when the model went on."""
    with bench(tmp_path) as b:
        b.script += [Answer(Text(HALF), Gate("half"), Text(" three more."))]
        with started(agent, b.home, agent.begin(b.tap.url, PROMPT)):
            b.model.wait("half", SECONDS)
            until(lambda: _has_text(b.store, HALF))
        until(lambda: _figure(b.running, "clients_gone_total") >= 1)
        b.model.open("half")
        until(lambda: _has_text(b.store, f"{HALF} three more."))
        until(lambda: _figure(b.running, "running_turns") == 0)
        b.running.end()
    (session,) = _conversations(tmp_path / "s.db")
    assert session["said"][-1] == ("assistant", "complete", f"{HALF} three more.")
    assert session["turns"][-1] == ("completed", None)


@pytest.mark.parametrize("both", [False, True])
def test_proxy_killed_in_an_answer(named_agent: Agent, tmp_path: Path, both: bool) -> None:
    agent = named_agent
    with bench(tmp_path) as b:
        b.script += [Answer(Text(HALF), Gate("half"), Text(" three more."))]
        with started(agent, b.home, agent.begin(b.tap.url, PROMPT)) as process:
            b.model.wait("half", SECONDS)
            until(lambda: _has_text(b.store, HALF))
            b.running.kill()
            if both:
                process.kill()
        b.model.open("half")
    (session,) = _conversations(tmp_path / "s.db")
    assert session["said"][-1] == ("assistant", "partial", HALF)
    assert session["turns"][-1] == ("interrupted", "crashed")


@pytest.mark.parametrize("what", ["agent", "proxy", "both"])
def test_killed_in_its_tools_and_resumed(named_agent: Agent, tmp_path: Path, what: str) -> None:
    """Three calls, two done. What the agent kept of them comes with its next request."""
    agent = named_agent
    with bench(tmp_path) as b:
        b.script += [Answer(Text(SAID), *calls(agent, b.home))]  # type: ignore[arg-type]
        with started(agent, b.home, agent.begin(b.tap.url, PROMPT)):
            until(lambda: all((b.home.work / n).exists() for n in ("one", "two", "three")), SECONDS)
            _settle(b.home.path / agent.sessions)
            if what in ("proxy", "both"):
                b.running.kill()
        before = _conversations(b.store)[0] if what != "agent" else None
        native = _native_id(b.store)
        if before is not None:
            assert before["turns"] == [("interrupted", "crashed")]
        with _again(b, what) as tap:
            home = Home(b.home.path, tap.url)
            with started(agent, home, agent.go_on(tap.url, native, "Go on.")) as process:
                process.wait(SECONDS)
    conversations = _conversations(tmp_path / "s.db")
    (session,) = [s for s in conversations if any("Go on." in said[2] for said in s["said"])]
    told = [said[2] for said in session["said"]]
    assert any(SAID in text for text in told), conversations
    results = [said[2] for said in session["said"] if said[0] == "tool"]
    assert any("mallards three" in text for text in results)
    assert any("teals four" in text for text in results)
    assert session["said"][-1] == ("assistant", "complete", ENDED)
    assert session["turns"][-1] == ("completed", None)
    assert len(conversations) == 1


@contextmanager
def _again(b: Bench, what: str) -> Iterator[Tap]:
    if what == "agent":
        yield b.tap
        return
    with proxy(b.store, b.model.url) as running, Tap(running.address) as tap:
        yield tap
        running.end()


def _settle(folder: Path) -> None:
    """Wait until an agent has written nothing for 1.5 s: no agent says when it has written."""
    sizes, since = list[tuple[str, int]](), time.monotonic()

    def is_quiet() -> bool:
        nonlocal sizes, since
        now = sorted((str(f), f.stat().st_size) for f in folder.rglob("*") if f.is_file())
        if now != sizes:
            sizes, since = now, time.monotonic()
        return time.monotonic() - since > 1.5

    until(is_quiet, SECONDS)


def _native_id(store: Path) -> str:
    with killick.Store(store) as opened:
        found = [i.about.extra["proxy"].get("id") for i in opened.sessions() if i.type == "user"]
    return str(found[0])


def _conversations(store: Path) -> list[dict[str, Any]]:
    return [
        s for s in stored(store)
        if s["type"] == "user" and any(PROMPT in said[2] for said in s["said"])
    ]  # fmt: skip


def _has_text(store: Path, text: str) -> bool:
    with killick.Store(store) as opened:
        return any(
            text in message.text
            for info in opened.sessions()
            for message in opened.session(info.id).messages()
        )


def _figure(running: RunningProxy, name: str) -> float:
    lines = httpx2.get(f"{running.url}/metrics").text.splitlines()
    return next(float(x.split()[1]) for x in lines if x.startswith(f"killick_proxy_{name}"))


@pytest.mark.parametrize("first", ["proxy", "import"])
def test_one_conversation_is_one_session(tmp_path: Path, first: str) -> None:
    """The agent's own file and the proxy: the second way in finds the first."""
    from killick.exchange.importer import import_paths

    agent = _installed("claude-code")
    with bench(tmp_path) as b:
        if first == "import":  # a turn that did not pass, then its file
            direct = Home(b.home.path, b.model.url)
            with started(agent, direct, agent.begin(b.model.url, PROMPT)) as process:
                process.wait(SECONDS)
            with killick.Store(b.store) as store:
                import_paths(store, [b.home.path / agent.sessions])
                (info,) = store.sessions()
            native = next((b.home.path / agent.sessions).rglob("*.jsonl")).stem
            with started(agent, b.home, agent.go_on(b.tap.url, native, "Go on.")) as process:
                process.wait(SECONDS)
        else:
            with started(agent, b.home, agent.begin(b.tap.url, PROMPT)) as process:
                process.wait(SECONDS)
        b.running.end()
        with killick.Store(b.store) as store:
            (info,) = store.sessions()
            head = store.session(info.id).head
            report = import_paths(store, [b.home.path / agent.sessions])
            assert [s.action for s in report.sessions] == ["left"]
            assert info.id in str(report.sessions[0].why)
            assert [i.id for i in store.sessions()] == [info.id]
            assert store.session(info.id).head == head
    (session,) = stored(tmp_path / "s.db")
    prompts = [said[2] for said in session["said"] if said[0] == "user" and "ducks" in said[2]]
    assert len(prompts) == 1
