"""A framework that is missing, or of a version that was not tested, is refused by name."""

import re
import tomllib
from pathlib import Path

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


def test_every_range_of_an_extra_is_checked_when_its_adapter_is_imported() -> None:
    root = Path(__file__).parents[3]
    call = re.compile(r'^tested\(\s*"(.+?)", "(.+?)", at_least="(.+?)", below="(.+?)"\s*\)', re.M)
    adapters = (root / "src/killick/adapters").rglob("*.py")
    found = [match for file in adapters for match in call.findall(file.read_text("utf-8"))]
    checked = {f"{package}>={least},<{below}" for package, _, least, below in found}
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    extras = {extra for _, extra, _, _ in found}
    ranges = {name for extra in extras for name in project["optional-dependencies"][extra]}
    assert len(extras) == 9
    assert {name for name in ranges if "<" in name} - checked == set()
