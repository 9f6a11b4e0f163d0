"""Record `examples/kill_and_resume.py` as an animated picture: `make recording`.

The program is run as the README says, in a folder of its own; what its runs print is drawn, and
nothing else. The picture moves by CSS alone, and stands still for readers who asked for that.
"""

import os
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "recording.svg"
EXAMPLE = "kill_and_resume.py"
COLUMNS, LINE, TOP, LEFT = 100, 19, 46, 18
TYPING, PAUSE, READING = 0.9, 0.5, 9.0

STYLE = """
text { font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, monospace; fill: #d8dee9 }
.typed { fill: #a3d9a5 } .killed { fill: #f2a097 } .told { fill: #f4d58d }
.line { animation: appear SECONDSs infinite; opacity: 1 }
@media (prefers-reduced-motion: reduce) { .line { animation: none } }
"""

Line = tuple[float, str, str]
"""When it appears, its class, its text."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = {"KILLICK_STORE": str(Path(folder) / "store.db")}
        lines: list[Line] = []
        now = 0.2
        for command in ([sys.executable, EXAMPLE],) * 2 + (["killick", "show", "readme"],):
            typed = " ".join(["python" if word == sys.executable else word for word in command])
            lines.append((now, "typed", f"$ {typed}"))
            now += TYPING
            for text, style in output(command, os.environ | store):
                lines.append((now, style, text))
                now += 0.05
            now += PAUSE
    PICTURE.write_text(draw(lines, now + READING), encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {len(lines)} lines, {PICTURE.stat().st_size:,} bytes")


def output(command: list[str], environment: dict[str, str]) -> list[tuple[str, str]]:
    """Run a command as a shell would, and return what a person would see of it."""
    if command[0] == "killick":
        command = [sys.executable, "-m", "killick.cli", *command[1:]]
    done = subprocess.run(
        command, cwd=ROOT / "examples", env=environment, capture_output=True, text=True
    )
    if done.returncode == -9:
        return [("Killed", "killed")]
    assert done.returncode == 0, done.stderr
    shown = []
    for text in done.stdout.rstrip().splitlines():
        style = "told" if "outcome of this tool call" in text or "was interrupted" in text else ""
        shown += [(piece, style) for piece in pieces(text)]
    return shown


def pieces(text: str) -> list[str]:
    """Break a line where a terminal would."""
    return [text[at : at + COLUMNS] for at in range(0, len(text), COLUMNS)] or [""]


def draw(lines: list[Line], seconds: float) -> str:
    width, height = LEFT * 2 + COLUMNS * 8.5, TOP + len(lines) * LINE + 10
    rules, texts = [], []
    for number, (when, style, text) in enumerate(lines):
        share = 100 * when / seconds
        rules.append(
            f"@keyframes a{number} {{ 0%, {share:.2f}% {{ opacity: 0 }} "
            f"{share + 0.01:.2f}%, 100% {{ opacity: 1 }} }}"
        )
        texts.append(
            f'<text class="line {style}" style="animation-name: a{number}" x="{LEFT}" '
            f'y="{TOP + number * LINE}" xml:space="preserve">{escape(text)}</text>'
        )
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
            f'viewBox="0 0 {width:.0f} {height}">',
            "<title>A program kills itself with -9; run again, it prints the next request</title>",
            f"<style>{STYLE.replace('SECONDS', f'{seconds:.1f}')}{''.join(rules)}</style>",
            f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#1e2430"/>',
            *(
                f'<circle cx="{20 + 20 * number}" cy="18" r="6" fill="{colour}"/>'
                for number, colour in enumerate(("#f2a097", "#f4d58d", "#a3d9a5"))
            ),
            *texts,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    main()
