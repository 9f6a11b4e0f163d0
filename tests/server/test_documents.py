"""What the documents say of the server is so."""

import re
import shlex
import subprocess

import pytest

from killick.server.app import OPERATIONS
from tests.docs.pages import DOCS, ROOT, blocks
from tests.server.client import Server

SERVE = DOCS / "how-to" / "serve.md"
CURLS = [
    line
    for block in blocks(SERVE, "text")
    for line in block.splitlines()
    if line.startswith("curl")
]


def test_every_line_of_the_guide_works(server: Server) -> None:
    """One after another: what the first creates, the others use."""
    session_id = ""
    for line in CURLS:
        meant = line.replace("http://127.0.0.1:8420", server.url).replace("ID/", f"{session_id}/")
        meant = meant.replace("Why does it fail?", "hang")
        command = [*shlex.split(meant), "--silent", "--write-out", "%{stderr}%{http_code}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        assert done.stderr.strip()[-3:] in ("200", "201", "202"), (line, done.stdout)
        found = re.search(r'"id":"(ses_\w+)"', done.stdout)
        session_id = session_id or (found[1] if found else "")
    assert len(CURLS) >= 6


def test_every_path_that_the_guide_names_is_there() -> None:
    text = SERVE.read_text(encoding="utf-8")
    paths = {
        one.path.replace("{session_id}", "ID").replace("{prompt_id}", "PROMPT")
        for one in OPERATIONS
    }
    named = set(re.findall(r"(/(?:api/[\w/-]+|healthz|readyz|metrics))\b", text))
    assert named <= paths


def test_every_line_about_security_names_a_test_that_exists() -> None:
    rows = [
        line
        for line in (DOCS / "security.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and not line.startswith("| attack")
    ]
    source = "".join(one.read_text("utf-8") for one in (ROOT / "tests").rglob("test_*.py"))
    assert len(rows) > 15
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, row
        assert [name for name in named if f"def {name}(" not in source] == []


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: f"{one.method} {one.path}")
def test_every_operation_says_what_it_does(operation: object) -> None:
    assert getattr(operation, "summary", "").endswith((".", ":"))
