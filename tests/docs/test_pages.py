"""What a document shows runs, and where it points there is something."""

import html
import json
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.pages import (
    DOCS,
    FENCE,
    PAGES,
    README,
    ROOT,
    anchors,
    blocks,
    languages,
    links,
    name,
)
from tests.postgres_fixtures import shared

WITH_PROGRAMS = [page for page in PAGES if blocks(page, "python") and page != README]
FRAMEWORKS = DOCS / "how-to" / "moving-from.md"
"""Its programs need other frameworks, which `make peers` installs apart."""

WITH_COMMANDS = [page for page in PAGES if blocks(page, "sh")]
ADAPTERS = {
    "openai-agents": "agents",
    "langchain": "langchain",
    "langgraph": "langgraph",
    "claude-agent-sdk": "claude_agent_sdk",
    "step-store": "pydantic_ai_harness",
    "strands": "strands",
    "agent-framework": "agent_framework",
    "google-adk": "google.adk",
}
"""Pages of frameworks that have environments of their own, and what their programs import."""
AGENTS = DOCS / "agents.md"
"""The laboratory writes it; tests/cli runs its command."""

_LIST = re.compile(r"^(?:[-*]|\d+\.) .*\n(?:(?: +.*)?\n)*", re.MULTILINE)
WORDS = re.compile(r"/(?:home|root|tmp|work|Users)/|\.\./shared")


def run(
    command: list[str],
    folder: Path,
    more: dict[str, str] = {},  # noqa: B006
) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"KILLICK_STORE": str(folder / "default.db")} | more
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=50)


@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=name)
def test_python_blocks_run(page: Path, tmp_path: Path, provider: dict[str, str]) -> None:
    """The blocks of a page, one after another, are a program that works and warns of nothing."""
    if page.stem in ADAPTERS and find_spec(ADAPTERS[page.stem]) is None:
        pytest.skip(f"{ADAPTERS[page.stem]} is not installed here; make adapters runs this page")
    program = tmp_path / "program.py"
    program.write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    more = provider | _database(program.read_text(encoding="utf-8"))
    done = run([_python_for(page), "-W", "error", str(program)], tmp_path, more)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.crash
@pytest.mark.timeout(240)  # five programs that import two SDKs
def test_the_first_page_can_be_followed_block_by_block(
    tmp_path: Path, provider: dict[str, str]
) -> None:
    """A person pastes a block, runs the file, pastes the next, and runs it again."""
    written = blocks(DOCS / "how-to" / "record-my-own-loop.md", "python")
    program = tmp_path / "loop.py"
    for count in (1, 2, 4, len(written), len(written)):
        program.write_text("\n".join(written[:count]), encoding="utf-8")
        done = run([sys.executable, str(program)], tmp_path, provider)
        assert (done.returncode, done.stderr) == (0, ""), count


def _python_for(page: Path) -> str:
    peers = ROOT / ".peersvenv" / "bin" / "python"
    if page != FRAMEWORKS:
        return sys.executable
    if not peers.exists():
        pytest.skip("make peers installs the frameworks of this page")
    return str(peers)


def _database(program: str) -> dict[str, str]:
    """A server, for the pages that need one."""
    if "DATABASE_URL" not in program:
        return {}
    server = shared("18")
    server.empty()
    return {"DATABASE_URL": server.server.url()}


def test_moving_json_files_needs_no_framework(tmp_path: Path) -> None:
    """The part of the page before the first framework runs everywhere."""
    text = FRAMEWORKS.read_text(encoding="utf-8").split("## From SQLiteSession")[0]
    first, second = [block for block in blocks(FRAMEWORKS, "python") if block in text]
    program = tmp_path / "program.py"
    program.write_text(first + second + "store.close()", encoding="utf-8")
    done = run([sys.executable, "-W", "error", str(program)], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=name)
def test_python_blocks_compile_apart(page: Path) -> None:
    """Each block can be pasted: none is cut off in the middle."""
    for block in blocks(page, "python"):
        compile(block, name(page), "exec")


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name)
def test_commands_exist(page: Path) -> None:
    """A command that is shown is a target of the Makefile, the installation run below, or ours.

    Those of `killick` are run by tests/cli.
    """
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    for line in "".join(blocks(page, "sh")).splitlines():
        words = shlex.split(line, comments=True)
        if words[0] != "killick":
            assert words == ["pip", "install", "."] or (words[0] == "make" and words[1] in targets)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_made_targets_in_text_exist(page: Path) -> None:
    """`make something` in a sentence is a target too."""
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    named = re.findall(r"`make ([a-z]+)`", page.read_text(encoding="utf-8"))
    assert set(named) <= set(targets)


def test_clone_installs(tmp_path: Path) -> None:
    """`pip install .` leaves a package that imports and brings its SQL along."""
    packages = tmp_path / "packages"
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target"]
    install = [sys.executable, "-m", "pip", "install", *offline, str(packages), str(ROOT)]
    done = run(install, tmp_path)
    assert done.returncode == 0, done.stderr
    program = f"import sys; sys.path.insert(0, {str(packages)!r}); import killick as h; "
    program += "print(h.__file__, h.Store().create_session(id='s').id)"
    done = run([sys.executable, "-c", program], tmp_path)
    assert done.stdout.split() == [str(packages / "killick" / "__init__.py"), "s"], done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_blocks_are_of_a_kind_that_is_tested(page: Path) -> None:
    """No code hides from these tests under another name, or in a block that is only indented."""
    bare = _LIST.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))
    assert page == AGENTS or re.findall(r"\n\n    (?! ).*", bare) == []
    assert languages(page) <= {"python", "sh", "text"} | ({"diff"} if page == README else set())


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page: Path) -> None:
    """A link inside the repository names a file that is there, and a heading that is in it."""
    for link in links(page):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT), link
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_path_of_a_machine(page: Path) -> None:
    """Documents name no folder of the machine they were written on."""
    assert not WORDS.search(page.read_text(encoding="utf-8"))


def test_every_page_is_reachable_from_the_readme() -> None:
    """Who starts at the README can get to every document by links."""
    seen: set[Path] = set()
    waiting = [README]
    while waiting:
        page = waiting.pop()
        if page.is_dir():
            waiting.extend(page.glob("*.md"))  # a folder's listing shows them
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        paths = [link.partition("#")[0] for link in links(page) if "://" not in link]
        waiting.extend((page.parent / path).resolve() for path in paths if path)
    assert sorted(DOCS.rglob("*.md")) == sorted(page for page in seen if page.is_relative_to(DOCS))


def test_readme_shows_the_example() -> None:
    """The program in the README is the one in examples, to the letter."""
    example = (ROOT / "examples" / "kill_and_resume.py").read_text(encoding="utf-8")
    assert blocks(README, "python") == [example]


@pytest.mark.crash
def test_the_programs_second_run_prints_what_the_readme_says(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / "kill_and_resume.py")]
    first, second = run(command, tmp_path), run(command, tmp_path)
    assert (first.returncode, first.stdout, first.stderr) == (-9, "", "")
    assert (second.returncode, second.stderr) == (0, "")
    prompt, answer, result, note = json.loads(second.stdout)
    assert prompt["content"] == "Why does the build fail?"
    assert (answer["content"], len(answer["tool_calls"])) == ("Let me look.", 1)
    assert "unknown" in result["content"]
    assert "crashed" in note["content"]
    shown = run([sys.executable, "-m", "killick.cli", "show", "readme"], tmp_path)
    assert "Let me look." in shown.stdout
    _is_drawn(second.stdout)


def _is_drawn(printed: str) -> None:
    """The README's picture has every line of it; `make recording` draws it anew."""
    picture = (DOCS / "recording.svg").read_text(encoding="utf-8")
    assert len(picture) < 100_000
    drawn = html.unescape("".join(re.findall(r"<text[^>]*>([^<]*)</text>", picture)))
    assert [line for line in printed.splitlines() if line not in drawn] == []


@pytest.mark.parametrize("sign", ["-", "+"])
def test_the_loop_runs_before_and_after(
    sign: str, tmp_path: Path, provider: dict[str, str]
) -> None:
    """Both sides of the difference in the README are programs that print the same."""
    (diff,) = blocks(README, "diff")
    lines = [line[1:] for line in diff.splitlines() if line[:1] in {"", " ", sign}]
    program = tmp_path / "program.py"
    program.write_text("\n".join(lines), encoding="utf-8")
    done = run([sys.executable, str(program)], tmp_path, provider)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


@pytest.mark.parametrize("text", sorted((DOCS / "pictures").glob("*.txt")), ids=lambda p: p.stem)
def test_pictures_are_drawn_from_their_texts_and_shown(text: Path) -> None:
    """`make pictures` draws them anew; a page shows each."""
    program = "import runpy; print(runpy.run_path('requirements/diagrams.py')['draw'](" + (
        f"__import__('pathlib').Path({str(text)!r})), end='')"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == (DOCS / f"{text.stem}.svg").read_text(encoding="utf-8")
    assert any(f"{text.stem}.svg)" in page.read_text(encoding="utf-8") for page in PAGES)
