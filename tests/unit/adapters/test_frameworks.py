"""A framework that is missing, or of a version that was not tested, is refused by name."""

import pytest

from killick.adapters import frameworks
from killick.errors import ExtraMissing


def test_a_missing_package_names_the_command() -> None:
    with pytest.raises(ExtraMissing, match=r"pip install '\.\[some-extra\]'"):
        frameworks.tested("no-such-package-anywhere", "some-extra", at_least="1.0", below="2")


@pytest.mark.parametrize(("at_least", "below"), [("999", "1000"), ("0.0.1", "0.0.2")])
def test_another_version_names_the_range(at_least: str, below: str) -> None:
    with pytest.raises(ExtraMissing, match=f">={at_least},<{below}"):
        frameworks.tested("msgspec", "some-extra", at_least=at_least, below=below)


def test_a_tested_version_is_taken() -> None:
    frameworks.tested("msgspec", "some-extra", at_least="0", below="999.0.0")
