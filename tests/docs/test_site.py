"""The site's generated reference has every public name, number, command and operation."""

import runpy
from functools import cache

import killick
from killick.cli.argv import MODULES
from killick.server.app import OPERATIONS
from tests.docs.pages import ROOT


@cache
def reference() -> dict[str, str]:
    return dict(runpy.run_path(str(ROOT / "requirements" / "site.py"))["pages"]())


def test_every_public_name_is_on_a_page() -> None:
    listed = {
        line.removeprefix("::: ") for text in reference().values() for line in text.split("\n")
    }
    public = {f"killick.{name}" for name in killick.__all__ if "__" not in name}
    assert public <= listed


def test_defaults_are_shown_as_numbers() -> None:
    assert "| `Store(window_seconds)` | 0.05 |" in reference()["store"]
    assert "| `AsyncStore(window_seconds)` | 0.05 |" in reference()["async"]


def test_every_command_and_every_operation_is_shown() -> None:
    assert all(f"## {name}\n" in reference()["command"] for name in MODULES)
    assert all(f"{one.method} {one.path}\n" in reference()["wire"] for one in OPERATIONS)


def test_the_site_lists_every_page_of_the_reference() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert all(f"reference/{name}.md" in nav for name in reference())
