"""Draw the pictures of the documents from their texts: `make pictures`.

Each `docs/pictures/NAME.txt` becomes `docs/NAME.svg` beside the pages. The first word of the text
says what is drawn: a sequence of messages between actors, or a journal with a law at each entry.
A test draws them again and compares.
"""

import sys
import textwrap
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXTS = ROOT / "docs" / "pictures"
STYLE = """
text { font: 14px system-ui, "DejaVu Sans", Helvetica, Arial, sans-serif; fill: #24303c }
.head { font-weight: 600 } .quiet { fill: #5a6875 } .law { font-weight: 600; fill: #8a4b12 }
.box { fill: #eef2f5; stroke: #8795a1 } .disk { fill: #e4f0e6; stroke: #6d9574 }
.view { fill: #fbf1e3; stroke: #c39a5f } .life { stroke: #b4bec7; stroke-dasharray: 4 4 }
.arrow { stroke: #4b5966; stroke-width: 1.3; marker-end: url(#tip) }
.paper { fill: #ffffff }
"""
TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
    ' orient="auto"><path d="M0 0L8 4L0 8z" fill="#4b5966"/></marker></defs>'
)
COLUMN, STEP, TOP, MARGIN = 230, 34, 84, 24


def text(x: float, y: float, words: str, style: str = "", anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" class="{style}" text-anchor="{anchor}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, style: str) -> str:
    size = f'width="{width}" height="{height}"'
    return f'<rect x="{x}" y="{y}" {size} rx="5" class="{style}"/>'


def sequence(title: str, lines: list[str]) -> tuple[int, int, list[str]]:
    """Draw one column for each actor, and one arrow for each message, from top to bottom."""
    names = [name.strip() for name in lines[0].removeprefix("actors ").split("|")]
    middle = {name: MARGIN + COLUMN * number + COLUMN // 2 for number, name in enumerate(names)}
    notes = [line.removeprefix("note ") for line in lines if line.startswith("note ")]
    messages = [line for line in lines[1:] if "->" in line]
    width = 2 * MARGIN + COLUMN * len(names)
    end = TOP + STEP * (len(messages) + 1)
    drawn = [text(MARGIN, 30, title, "head")]
    for name, x in middle.items():
        style = "disk" if "disk" in name else "box"
        drawn.append(f'<path d="M{x} {TOP}V{end}" class="life"/>')
        drawn.append(box(x - COLUMN / 2 + 14, TOP - 32, COLUMN - 28, 30, style))
        drawn.append(text(x, TOP - 12, name, "head", "middle"))
    for number, line in enumerate(messages):
        actors, _, words = line.partition(": ")
        start, target = (middle[name.strip()] for name in actors.split("->"))
        y = TOP + STEP * (number + 1)
        drawn.append(f'<path d="M{start} {y}H{target}" class="arrow"/>')
        drawn.append(text((start + target) / 2, y - 6, words, "", "middle"))
    drawn += [text(MARGIN, end + 24 + 20 * at, note, "quiet") for at, note in enumerate(notes)]
    return width, end + 24 + 20 * len(notes), drawn


def journal(title: str, lines: list[str]) -> tuple[int, int, list[str]]:
    """Draw the entries under each other, each with what holds there and the law's name."""
    width, row, left = 940, 52, 220
    drawn = [text(MARGIN, 30, title, "head")]
    for number, line in enumerate(lines):
        cells = [cell.strip() for cell in line.removeprefix("view ").split("|")]
        y = 50 + row * number
        if line.startswith("view "):
            drawn.append(box(MARGIN, y + 4, width - 2 * MARGIN, row - 8, "view"))
            said, law, x = cells[0], cells[1], MARGIN + 12
        else:
            drawn.append(box(MARGIN, y + 4, left - 40, row - 8, "disk"))
            drawn.append(text(MARGIN + 12, y + 31, f"{cells[0]}  {cells[1]}", "head"))
            said, law, x = cells[2], cells[3], left
        drawn.append(text(x, y + 22, law, "law"))
        for at, piece in enumerate(textwrap.wrap(said, 110)):
            drawn.append(text(x, y + 40 + 16 * at, piece))
    return width, 64 + row * len(lines), drawn


def draw(path: Path) -> str:
    """Return the picture of one text."""
    first, *lines = path.read_text(encoding="utf-8").splitlines()
    kind, _, title = first.partition(" ")
    width, height, drawn = {"sequence": sequence, "journal": journal}[kind](title, lines)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width} {height}">'
    paper = f'<rect width="{width}" height="{height}" class="paper"/>'
    parts = [head, f"<title>{escape(title)}</title><style>{STYLE}</style>", TIP, paper]
    return "\n".join([*parts, *drawn, "</svg>"]) + "\n"


def main() -> None:
    for path in sorted(TEXTS.glob("*.txt")):
        (ROOT / "docs" / f"{path.stem}.svg").write_text(draw(path), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
