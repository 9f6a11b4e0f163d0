"""A chat with a provider that answers what a test wrote down."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from killick import Project, Store
from killick.agent.choice import VARIABLE
from tests.agent.terminal import Terminal
from tests.recorders.server import Scripted, serving

Chat = Callable[..., Terminal]


@pytest.fixture
def server() -> Iterator[Scripted]:
    with serving() as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


@pytest.fixture
def project(folder: Path) -> Project:
    """What the sessions of a chat in that folder belong to."""
    return Project(str(folder), str(folder))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "work.db") as opened:
        yield opened


@pytest.fixture
def chat(tmp_path: Path, folder: Path, server: Scripted, store: Store) -> Iterator[Chat]:
    """Starts a chat in a folder of its own; all are ended in the end."""
    begun: list[Terminal] = []

    def start(*arguments: str, **variables: str) -> Terminal:
        more = {
            "KILLICK_STORE": str(tmp_path / "work.db"),
            VARIABLE: f"{server.url}/v1#m",
            **variables,
        }
        terminal = Terminal("chat", *arguments, folder=folder, more=more)
        begun.append(terminal)
        return terminal

    yield start
    for terminal in begun:
        terminal.kill()
