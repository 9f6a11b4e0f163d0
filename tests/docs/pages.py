"""The documents of the repository, and what is in them."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"
DOCS: Final = ROOT / "docs"
PAGES: Final = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    text = page.read_text(encoding="utf-8")
    return [body for found, body in FENCE.findall(text) if found == language]


def languages(page: Path) -> set[str]:
    return {found for found, _ in FENCE.findall(page.read_text(encoding="utf-8"))}


def links(page: Path) -> list[str]:
    """The targets of all links outside of fenced blocks."""
    return _LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """The names by which headings can be linked to."""
    headings = _HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}


def first_column(page: Path) -> list[str]:
    """The first cell of every row of every table, heads left out."""
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    heads = {"word", "error", "file"}
    cells = [row.split("|")[1].strip().strip("`") for row in rows]
    return [cell for cell in cells if cell not in heads]
