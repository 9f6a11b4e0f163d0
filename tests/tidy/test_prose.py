"""The documents' words: each sentence names its actor, and begins with it or with a verb."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, name

NO_ACTOR = re.compile(
    r"\b(somebody|nobody|whoever|anybody|everybody|someone|anyone|everyone|no one)\b", re.I
)
NOUN_CLAUSE = re.compile(r"(?:^|(?<=[.:!?] ))(?:What|Whether|Whatever) (?:[^.?!]|[.?!](?!\s|$))*\.")
TEST_NAMES = re.compile(r"`[^`]*`")
GENERATED = {
    DOCS / "evidence.md",  # torture/findings.toml, where each finding is told as it was found
    ROOT / "CHANGELOG.md",  # what was said at a release stays said
}
WRITTEN = [page for page in PAGES if page not in GENERATED]
DECISIONS = sorted((DOCS / "decisions").glob("0*.md"))

_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_TARGET = re.compile(r"\]\([^)]*\)")


def prose(page: Path) -> list[str]:
    """The paragraphs, list items and table rows of a page, each on one line, without code."""
    text = _TARGET.sub("]", _COMMENT.sub("", _CODE.sub("", page.read_text(encoding="utf-8"))))
    found: list[str] = []
    for line in text.splitlines():
        begins = re.match(r"\s*(?:[-*|#]|\d+\.) ?", line)
        if not line.strip() or begins or not found or not found[-1]:
            found.append(line.strip())
        else:
            found[-1] += " " + line.strip()
    return [TEST_NAMES.sub("`…`", line) for line in found if line]


def sentences(page: Path) -> list[str]:
    """The lines of prose that are neither headings nor rows of a table, without their marks."""
    lines = [line for line in prose(page) if not line.startswith(("#", "|", "!["))]
    return [re.sub(r"^(?:[-*]|\d+\.) |\*\*|^\*|(?<=\.)\*", "", line) for line in lines]


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_the_actor_is_named(page: Path) -> None:
    """The caller, the writer thread, another process, the operator: not somebody."""
    assert [line for line in prose(page) if NO_ACTOR.search(line)] == []


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_no_sentence_begins_with_a_noun_clause(page: Path) -> None:
    """Not "What was written is kept": "The store keeps what was written"."""
    found = [match[0] for line in sentences(page) for match in NOUN_CLAUSE.finditer(line)]
    assert found == []


@pytest.mark.parametrize("page", [page for page in WRITTEN if page not in DECISIONS], ids=name)
def test_extras_are_installed_from_the_clone(page: Path) -> None:
    """Until Killick is published, a page says pip install '.[chat]', and names no package."""
    assert "killick[" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", DECISIONS, ids=name)
def test_a_decision_says_in_its_title_what_was_decided(page: Path) -> None:
    """Its subject, a colon, the decision; and the list of decisions has the same title."""
    title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
    assert re.fullmatch(r"\d{4}\. [^:]+: .+[^.]", title)
    assert f"- [{title}]({page.name})" in (DOCS / "decisions" / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("What was written is kept.", True),
        ("It ends. What is left is closed by the writer.", True),
        ("What may the child do?", False),
        ("Keep what was written.", False),
        ("Whether a process is gone is known.", True),
    ],
)
def test_noun_clauses_are_told_from_questions(text: str, *, found: bool) -> None:
    assert bool(NOUN_CLAUSE.search(text)) is found
