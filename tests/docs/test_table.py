"""Every row of the README's table is in the pages that real runs have written."""

import json
import re

import pytest

from tests.docs.pages import DOCS, README

FRAMEWORKS = {
    "pydantic-ai with Killick": "killick",
    "openai-agents, SQLiteSession": "openai_agents",
    "LangGraph, AsyncSqliteSaver": "langgraph",
    "google-adk, SqliteSessionService": "google_adk",
}
AGENTS = {"Codex": "codex", "Claude Code": "claude-code", "opencode": "opencode"}
AGENTS["Gemini CLI"] = "gemini"
ROWS = [
    [cell.strip(" *") for cell in line.strip("|").split("|")]
    for line in README.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and " of 2" in line
]


def test_the_table_has_every_kind_of_row() -> None:
    names = {re.sub(r" [\d.]+$", "", row[0]) for row in ROWS}
    assert names == {*FRAMEWORKS, *AGENTS}


@pytest.mark.parametrize("label", FRAMEWORKS)
def test_a_framework_keeps_what_its_run_kept(label: str) -> None:
    measured = json.loads((DOCS / "peers.json").read_text(encoding="utf-8"))[FRAMEWORKS[label]]
    cells = {tuple(cell[:2]): cell[2:] for cell in measured["cells"]}
    _, results, third, _, _, valid = cells["par", "kill"]
    partial, said = cells["str", "kill"][3:5]
    (row,) = [row for row in ROWS if row[0] == label]
    words = {"told": "told as unknown", "lost": "lost", "orphan": "a call without result: refused"}
    assert row[1:] == [
        f"{results} of 2",
        words[third],
        "all of it" if partial else "none",
        "yes" if said else "no",
    ]
    assert valid is (third != "orphan")


@pytest.mark.parametrize("label", AGENTS)
def test_a_coding_agent_keeps_what_its_run_kept(label: str) -> None:
    text = (DOCS / "agents.md").read_text(encoding="utf-8")
    (row,) = [row for row in ROWS if row[0].startswith(label)]
    tools, words = (
        re.findall(rf"^\| {AGENTS[label]} ([\d.]+) \| [\d-]+ \| ([^|]*)\|", part, re.MULTILINE)[0]
        for part in (text.split(f"### {title}\n")[1].split("###")[0] for title in TITLES)
    )
    assert tools[0].startswith(row[0].removeprefix(label).strip())
    assert f"results {row[1].replace(' of ', '/')}" in tools[1]
    assert ("calls 3/3" in tools[1]) is (row[2] != "lost")
    assert "third not told unknown" in tools[1]
    assert ("no partial words" in words[1]) is (row[3] == "none")
    assert ("not told" in words[1]) is (row[4] == "no")


TITLES = ("Kill -9, two of three tools done", "Kill -9 in the text")
