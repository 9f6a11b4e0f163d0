"""The server as the protocol's own client meets it: in one process, on pipes, over HTTP."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from killick import Store
from killick.proxy.mcp_server import make_server
from killick.recall import CALLS, INSTRUCTIONS, QUOTED, Recall
from killick.server.auth import Tokens
from killick.session.runtime import system_clock
from killick.types import Project
from tests.recall.sample import HERE, Sample, make_sample
from tests.waiting import until

COMMAND = [sys.executable, "-m", "killick.cli", "mcp"]
SECONDS = 30


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return make_sample(tmp_path / "s.db")


@asynccontextmanager
async def on_pipes(*options: str, cwd: Path, **more: str) -> AsyncIterator[Client]:
    parameters = StdioServerParameters(
        command=COMMAND[0],
        args=[*COMMAND[1:], *options],
        cwd=cwd,
        env={**_environment(cwd), **more},
    )
    async with Client(stdio_client(parameters)) as client:
        yield client


def _environment(folder: Path) -> dict[str, str]:
    """Nothing of the caller's: the default store lies in this folder."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder / "data"),
        "KILLICK_TOKENS": str(folder / "tokens.json"),
    }


async def text_of(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    (content,) = result.content
    assert content.type == "text"
    return content.text


@in_a_loop
async def test_in_one_process(sample: Sample) -> None:
    server = make_server(Recall(lambda: Store(sample.store), only=None, here=HERE))
    async with Client(server) as client:
        assert client.instructions == INSTRUCTIONS
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == list(CALLS)
        for tool in tools:
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint is True
        assert sample.cut in await text_of(client, "hand_over")
        refused = await client.call_tool("show_session", {"session": "ses_none"})
        assert refused.is_error


@in_a_loop
async def test_many_calls_at_once(sample: Sample) -> None:
    server = make_server(Recall(lambda: Store(sample.store), only=None, here=HERE))
    async with Client(server) as client:
        texts = await asyncio.gather(
            *(text_of(client, "search_sessions", words="heron") for _ in range(20))
        )
    assert len(set(texts)) == 1


@in_a_loop
async def test_on_pipes(sample: Sample, tmp_path: Path) -> None:
    async with on_pipes("--store", str(sample.store), cwd=tmp_path) as client:
        text = await text_of(client, "search_sessions", words="heron")
        assert text.startswith(QUOTED)
        assert sample.cut in text


@in_a_loop
async def test_this_project_is_that_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "p" / ".git").mkdir(parents=True)
    (tmp_path / "p" / "src").mkdir()
    with Store(tmp_path / "s.db") as store:
        session = store.create_session(project=Project(str((tmp_path / "p").resolve())))
        with pytest.raises(KeyboardInterrupt), session.turn("Count."):
            raise KeyboardInterrupt
    async with on_pipes("--store", str(tmp_path / "s.db"), cwd=tmp_path / "p" / "src") as client:
        assert session.id in await text_of(client, "last_interrupted_turn")


@in_a_loop
async def test_a_turn_whose_process_was_killed_is_told(sample: Sample, tmp_path: Path) -> None:
    """The agent is gone a moment ago, and its store knows no more than that a turn ran."""
    program = (
        "import os, sys, signal, killick\n"
        "from killick.types import Project\n"
        "store = killick.Store(sys.argv[1])\n"
        f"session = store.create_session(project=Project({HERE!r}))\n"
        "turn = session.turn('Ring the ducks.').begin()\n"
        "reply = turn.stream().begin()\n"
        "reply.tool_call('r', name='ring', arguments='{}')\n"
        "reply.end()\n"
        "turn.tool('r').begin()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, str(sample.store))
    assert await process.wait() == -signal.SIGKILL
    async with on_pipes("--store", str(sample.store), "--project", HERE, cwd=tmp_path) as client:
        text = await text_of(client, "last_interrupted_turn")
    assert "> Ring the ducks." in text
    assert "was interrupted (crashed)" in text
    assert "outcome unknown: check what it did before repeating it:\n> ring {}" in text


def test_looking_creates_nothing(tmp_path: Path) -> None:
    async def look() -> None:
        async with on_pipes(cwd=tmp_path) as client:
            assert "No such sessions." in await text_of(client, "search_sessions")
        async with on_pipes("--store", "typo.db", cwd=tmp_path) as client:
            refused = await client.call_tool("search_sessions", {})
            assert refused.is_error
            assert "The store cannot serve this now" in str(refused.content)
            assert "typo" not in str(refused.content), "no path of this machine is told to a model"

    asyncio.run(look())
    assert list(tmp_path.rglob("*")) == []


@in_a_loop
async def test_a_store_that_comes_later_is_read(tmp_path: Path) -> None:
    async with on_pipes(cwd=tmp_path, KILLICK_STORE=str(tmp_path / "s.db")) as client:
        assert (await client.call_tool("search_sessions", {})).is_error
        sample = make_sample(tmp_path / "s.db")
        assert sample.cut in await text_of(client, "search_sessions")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_while_it_waits(tmp_path: Path, number: signal.Signals) -> None:
    """Claude Code ends its servers so."""
    process = subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path,
        env=_environment(tmp_path),
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    hello = {"protocolVersion": "2025-06-18", "capabilities": {},
             "clientInfo": {"name": "t", "version": "1"}}  # fmt: skip
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    with process:
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "killick"
        process.send_signal(number)
        assert process.wait(SECONDS) == -number


# -- HTTP --------------------------------------------------------------------------------------


@contextmanager
def over_http(store: Path, *options: str) -> Iterator[str]:
    """Run it on a free port; the address that it prints."""
    process = subprocess.Popen(
        [*COMMAND, "--http", "--port", "0", "--json", "--store", str(store), *options],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=store.parent,
        env=_environment(store.parent),
    )  # fmt: skip
    with process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()
            assert process.wait(SECONDS) == 0


@in_a_loop
async def test_over_http(sample: Sample) -> None:
    with over_http(sample.store) as url:
        assert url.endswith("/mcp")
        async with Client(url) as first, Client(url) as second:
            assert sample.cut in await text_of(first, "search_sessions", words="heron")
            assert sample.cut in await text_of(second, "last_interrupted_turn", project=HERE)


@pytest.mark.parametrize("version", ["2025-06-18", "2024-11-05"])
def test_a_client_of_an_older_protocol_is_served(sample: Sample, version: str) -> None:
    with over_http(sample.store) as url:
        answer = httpx2.post(url, headers={"Accept": "application/json, text/event-stream"}, json={
            "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": {"protocolVersion": version, "capabilities": {},
                       "clientInfo": {"name": "t", "version": "1"}}})  # fmt: skip
    assert answer.json()["result"]["protocolVersion"] == version


def test_another_sites_page_is_refused(sample: Sample) -> None:
    with over_http(sample.store) as url:
        refused = [
            httpx2.post(url, headers=headers, json={}).status_code
            for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"})
        ]
    assert refused == [403, 421]


@in_a_loop
async def test_once_there_is_a_token_every_client_needs_it(sample: Sample) -> None:
    tokens = Tokens(sample.store.parent / "tokens.json")
    with over_http(sample.store) as url:
        _, secret = tokens.make("agent", "read", system_clock())
        assert until(lambda: httpx2.post(url, json={}).status_code == 401)
        headers = {"Authorization": f"Bearer {secret}"}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            assert sample.cut in await text_of(client, "search_sessions")


@in_a_loop
async def test_a_token_of_another_tenant_recalls_nothing(sample: Sample) -> None:
    """One file has the tokens of all tenants: a server reads the sessions of one."""
    tokens = Tokens(sample.store.parent / "tokens.json")
    with Store(sample.store, tenant="acme") as store:
        acme = store.create_session(title="The well of acme").id
    with over_http(sample.store) as own, over_http(sample.store, "--tenant", "acme") as theirs:
        secrets = {
            tenant: tokens.make(tenant or "own", "read", system_clock(), tenant)[1]
            for tenant in (None, "default", "acme", "rival")
        }
        served = {own: (sample.cut, {None, "default"}), theirs: (acme, {None, "acme"})}
        for url, (found, admitted) in served.items():
            for tenant, secret in secrets.items():
                headers = {"Authorization": f"Bearer {secret}"}
                if tenant not in admitted:
                    refused = httpx2.post(url, json={}, headers=headers)
                    assert (refused.status_code, refused.json()["code"]) == (403, "other_tenant")
                    continue
                async with (
                    httpx2.AsyncClient(headers=headers) as http,
                    Client(streamable_http_client(url, http_client=http)) as client,
                ):
                    assert found in await text_of(client, "search_sessions")


def test_other_machines_are_refused_without_a_token(sample: Sample) -> None:
    done = subprocess.run(
        [*COMMAND, "--http", "--host", "0.0.0.0", "--store", str(sample.store)],
        capture_output=True, text=True, timeout=SECONDS, check=False,
        env=_environment(sample.store.parent),
    )  # fmt: skip
    assert done.returncode != 0
    assert "no token is set" in done.stderr
