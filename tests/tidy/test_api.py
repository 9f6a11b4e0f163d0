"""A public name that goes, or is called in another way, has a line in the CHANGELOG."""

import re

import pytest

from tests.docs.pages import ROOT
from tests.tidy import api


def announced(text: str) -> str:
    """Return the section "Names" of what is not released: elsewhere a name may stand by chance."""
    unreleased = re.split(r"^## ", text, flags=re.MULTILINE)[1]
    sections = re.split(r"^### ", unreleased, flags=re.MULTILINE)
    return "".join(section for section in sections if section.startswith("Names\n"))


def unannounced(before: dict[str, str], now: dict[str, str], news: str) -> list[str]:
    """Return the names that went or changed without being named in the news."""
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", news))))
    changed = [name for name, call in before.items() if now.get(name) != call]
    return [name for name in changed if name.rpartition(".")[2] not in words]


def test_no_public_name_changes_without_a_word() -> None:
    """Write a line under "Unreleased", "### Names": it says what to use from now on."""
    news = announced((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert unannounced(api.read(), api.lines(), news) == []


def test_every_public_name_is_listed() -> None:
    """Only a listed name is missed when it goes: `python -m tests.tidy.api` lists the new ones."""
    assert sorted(api.lines().keys() - api.read().keys()) == []


def test_a_name_that_stands_elsewhere_is_not_announced() -> None:
    text = "# Changelog\n\n## Unreleased\n\n### Changed\n\n- `a`\n\n### Names\n\n- `b`\n\n## 0.1\n"
    assert "`b`" in announced(text)
    assert "`a`" not in announced(text)


@pytest.mark.parametrize(
    ("now", "news", "found"),
    [
        ({}, "", ["killick.Store.search"]),
        ({"killick.Store.search": "(self)"}, "`Store.close` is gone.", ["killick.Store.search"]),
        ({"killick.Store.search": "(self)"}, "`Store.search` takes nothing.", []),
        ({"killick.Store.search": "(self, words)", "killick.New": "()"}, "", []),
    ],
)
def test_a_change_is_seen(now: dict[str, str], news: str, found: list[str]) -> None:
    assert unannounced({"killick.Store.search": "(self, words)"}, now, news) == found
