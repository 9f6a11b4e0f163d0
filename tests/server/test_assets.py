"""The files of the page: as they were vendored, with their licences, and about nobody else."""

import hashlib
import re
from pathlib import Path

import pytest

from requirements.page import MODULES, TARGET
from tests.server.client import Server

PAGE = TARGET.parent
OURS = sorted([*PAGE.glob("*.js"), *PAGE.glob("*.css"), *PAGE.glob("*.html"), *PAGE.glob("*.svg")])


def test_vendored_modules_are_what_was_fetched() -> None:
    lines = (TARGET / "SHA256SUMS.txt").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert set(sums) == {module.target for module in MODULES}
    for name, digest in sums.items():
        assert hashlib.sha256((TARGET / name).read_bytes()).hexdigest() == digest, name


def test_every_vendored_module_has_its_licence() -> None:
    licences = (TARGET / "LICENSES.txt").read_text(encoding="utf-8")
    for module in MODULES:
        assert f"{module.name} {module.version}\n" in licences


@pytest.mark.parametrize("path", [*OURS, *TARGET.glob("*.js")], ids=lambda path: path.name)
def test_what_is_imported_lies_beside_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for name in re.findall(r"""(?:^|[;\s}])(?:import|from)\s*["']([^"']+)["']""", text):
        assert (path.parent / name).exists(), name
    for name in re.findall(r"""import\("([^"]+)"\)""", text):
        assert (path.parent / name).exists(), name


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_the_page_names_no_other_server(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"https?://[a-z]", text) == []


def test_a_file_is_sent_once_and_then_only_checked(server: Server) -> None:
    first = server.http.get("/assets/app.js")
    tag = first.headers["etag"]
    again = server.http.get("/assets/app.js", headers={"If-None-Match": tag})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")


@pytest.mark.parametrize(
    "name", ["../app.py", "nothing.js", "vendor/../../app.py", "%2e%2e/app.py"]
)
def test_no_other_file_is_served(server: Server, name: str) -> None:
    assert server.http.get(f"/assets/{name}").status_code == 404
