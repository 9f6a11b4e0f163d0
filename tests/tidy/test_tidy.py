"""House rules that a program can check: sizes, silence, layers, file names."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import killick

ROOT = Path(__file__).parents[2]
SOURCE = Path(killick.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))

LINES_OF_A_FUNCTION = 70
LINES_OF_A_MODULE = 700

LIBRARY = [
    path
    for path in MODULES
    if not {"cli", "server", "proxy", "testing"} & set(path.relative_to(SOURCE).parts)
]
"""What runs inside somebody else's process; the command, the server and the proxy do print."""


def name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_no_module_is_too_long(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES_OF_A_MODULE


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_no_function_is_too_long(path: Path) -> None:
    long = {
        function.name: (function.end_lineno or 0) - function.lineno + 1
        for function in functions(path)
        if (function.end_lineno or 0) - function.lineno + 1 > LINES_OF_A_FUNCTION
    }
    assert long == {}


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", LIBRARY, ids=name)
def test_the_library_never_prints(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\bprint\(|sys\.(stdout|stderr)|traceback\.print|warnings\.warn", text)


@pytest.mark.parametrize("path", LIBRARY, ids=name)
def test_the_library_installs_no_signal_handler(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\bimport signal\b|signal\.signal\(|add_signal_handler|excepthook", text)


def test_migrations_are_numbered_without_gaps_and_named_by_what_they_do() -> None:
    found = sorted(path.name for path in (SOURCE / "stores/sqlite/migrations").iterdir())
    assert all(re.fullmatch(r"\d{4}_[a-z0-9_]+\.sql", file) for file in found)
    assert [int(file[:4]) for file in found] == list(range(1, len(found) + 1))


def test_every_migration_says_why_in_its_first_line() -> None:
    for path in (SOURCE / "stores/sqlite/migrations").glob("*.sql"):
        assert path.read_text(encoding="utf-8").startswith("-- ")


def test_the_package_says_that_it_is_typed() -> None:
    assert (SOURCE / "py.typed").is_file()


def test_imports_point_inward() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
