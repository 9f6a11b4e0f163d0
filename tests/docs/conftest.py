"""Programs in documents and examples talk to a provider of ours."""

from collections.abc import Iterator

import pytest

from tests.recorders.provider import talking


@pytest.fixture(scope="session")
def provider() -> Iterator[dict[str, str]]:
    """The environment that points the SDKs at it."""
    with talking() as environment:
        yield environment
