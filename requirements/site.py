"""Put together what the site is made of: the documents as they lie, and a generated reference.

`make docs` runs this and then mkdocs, strictly: a dead link fails it. The documents keep their
places, so that a link works in the repository and on the site. The reference is made from the
package's docstrings, and from what the command says with --help.
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click

import killick
from killick import errors
from killick.cli.argv import MODULES, PROGRAM, make_group

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "build" / "site-source"

PAGES = {
    "store": ("Store and session", ["killick.Store", "killick.Session"]),
    "turn": ("Turns, streams, tools", ["killick.Turn", "killick.Stream", "killick.Tool"]),
    "async": (
        "The asynchronous face",
        [
            *("killick.AsyncStore", "killick.AsyncSession"),
            *("killick.AsyncTurn", "killick.AsyncStream", "killick.AsyncTool"),
        ],
    ),
    "recorders": ("Recorders", ["killick.recorders.record"]),
}


def main() -> None:
    shutil.rmtree(SOURCE, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    for file in [*ROOT.glob("*.md"), ROOT / "LICENSE"]:
        shutil.copy(file, SOURCE)
    for folder in ("docs", "examples"):
        shutil.copytree(ROOT / folder, SOURCE / folder)
    reference = SOURCE / "reference"
    reference.mkdir()
    for name, text in pages():
        (reference / f"{name}.md").write_text(text, encoding="utf-8")


def pages() -> Iterator[tuple[str, str]]:
    documented = {path for _, paths in PAGES.values() for path in paths}
    for name, (title, paths) in PAGES.items():
        yield name, page(title, paths)
    public = [f"killick.{name}" for name in killick.__all__]
    failures = [path for path in public if hasattr(errors, path.removeprefix("killick."))]
    yield "errors", page("Errors", failures)
    rest = [path for path in public if path not in documented and path not in failures]
    yield "types", page("Values and types", [path for path in rest if "__" not in path])
    yield "command", "\n".join(["# The command's help\n", *help_texts()])


def page(title: str, paths: list[str]) -> str:
    return "\n\n".join([f"# {title}", *(f"::: {path}" for path in paths)]) + "\n"


def help_texts() -> Iterator[str]:
    """Yield what every command says with --help."""
    group = make_group()
    with click.Context(group, info_name=PROGRAM) as parent:
        for name in MODULES:
            command = group.get_command(parent, name)
            assert command is not None
            with click.Context(command, parent, name, terminal_width=100) as context:
                yield f"## {name}\n\n```text\n{command.get_help(context)}\n```\n"


if __name__ == "__main__":
    sys.exit(main())
