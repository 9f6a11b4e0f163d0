"""Put together what the site is made of: the documents as they lie, and a generated reference.

`make docs` runs this and then mkdocs, strictly: a dead link fails it. The documents keep their
places, so that a link works in the repository and on the site. The reference is made from the
package's docstrings, and from what the command says with --help.
"""

import inspect
import json
import pydoc
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import killick
from killick import errors
from killick.cli.argv import MODULES, PROGRAM, make_group
from killick.server.app import OPERATIONS
from killick.server.openapi import describe

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
    yield "wire", "\n".join(["# The wire formats\n", *wire_formats()])


def page(title: str, paths: list[str]) -> str:
    rows = [row for path in paths for row in numbers(path)]
    table = ["## Numbers\n\n| parameter | default |\n|---|---|\n" + "\n".join(rows)] if rows else []
    head = [
        f"# {title}",
        "[Parameters](../docs/parameters.md) explains those that a docstring does not name.",
    ]
    return "\n\n".join([*head, *(f"::: {path}" for path in paths), *table]) + "\n"


def numbers(path: str) -> Iterator[str]:
    """Yield the defaults that a signature shows by the name of a constant, as numbers."""
    owner: Any = pydoc.locate(path)
    members = inspect.getmembers(owner, callable) if inspect.isclass(owner) else []
    public = [(f".{name}", member) for name, member in members if not name.startswith("_")]
    for name, member in [("", owner), *public]:
        try:
            parameters = inspect.signature(member).parameters.values()
        except (TypeError, ValueError):
            continue
        for one in parameters:
            if isinstance(one.default, int | float) and not isinstance(one.default, bool):
                yield f"| `{path.removeprefix('killick.')}{name}({one.name})` | {one.default:,} |"


def help_texts() -> Iterator[str]:
    """Yield what every command says with --help."""
    group = make_group()
    with click.Context(group, info_name=PROGRAM) as parent:
        for name in MODULES:
            command = group.get_command(parent, name)
            assert command is not None
            with click.Context(command, parent, name, terminal_width=100) as context:
                yield f"## {name}\n\n```text\n{command.get_help(context)}\n```\n"


def wire_formats() -> Iterator[str]:
    """Yield every operation of the HTTP interface and every type that goes over the wire."""
    described = describe(OPERATIONS)
    yield (
        "What `killick serve` answers, from its own description (`/openapi.json`). "
        "[The journal](../docs/journal.md) has the fields of each kind of entry.\n"
    )
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield f"## {method.upper()} {path}\n\n{operation.get('summary', '')}\n"
            rows = [
                f"| `{one['name']}` | {one['in']} | `{json.dumps(one['schema'])}` |"
                for one in operation.get("parameters", ())
            ]
            if rows:
                yield "\n".join(
                    ["| parameter | in | type and default |", "|---|---|---|", *rows, ""]
                )
            if "requestBody" in operation:
                yield f"Body:\n\n```json\n{json.dumps(operation['requestBody'], indent=2)}\n```\n"
            statuses = [
                f"| {status} | {answer['description']} |"
                for status, answer in operation["responses"].items()
            ]
            yield "\n".join(["| status | means |", "|---|---|", *statuses, ""])
    for name, schema in described["components"]["schemas"].items():
        yield f"## {name}\n\n```json\n{json.dumps(schema, indent=2)}\n```\n"


if __name__ == "__main__":
    sys.exit(main())
