"""An empty store on a server that all tests share, and wires to it."""

from collections.abc import Callable, Iterator

import pytest

from tests.crash.conftest import _one_nursery, nursery
from tests.postgres.proxy import Proxy
from tests.postgres_fixtures import Shared, shared

__all__ = ["_one_nursery", "nursery"]


@pytest.fixture
def server() -> Shared:
    found = shared("18")
    found.empty()
    return found


@pytest.fixture
def wire(server: Shared) -> Iterator[Callable[[], Proxy]]:
    made: list[Proxy] = []

    def make() -> Proxy:
        made.append(Proxy(server.server.port))
        return made[-1]

    yield make
    for one in made:
        one.close()
