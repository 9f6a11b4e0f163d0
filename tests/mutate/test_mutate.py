"""The tool that plants bugs by rule, on a package of one module."""

from pathlib import Path

import pytest

from mutate import trying
from mutate.coverage import Coverage, Project
from mutate.operators import mutants
from mutate.trying import Equivalent, Outcome, Trial, is_equivalent, sample
from tests.museum.museum import copy_and_compile

pytestmark = pytest.mark.timeout(240)
"""Each runs pytest a few times, in processes of their own."""

SOURCE = """\
def larger(left, right):
    if left > right:
        return left
    return right


def unused(value):
    return value + 1
"""
TESTS = """\
from tiny.module import larger


def test_the_larger_comes_first():
    assert larger(2, 1) == 2


def test_the_larger_comes_last():
    assert larger(1, 2) == 2


def test_something_else():
    pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    for name, text in (
        ("src/tiny/__init__.py", ""),
        ("src/tiny/module.py", SOURCE),
        ("tests/test_module.py", TESTS),
        ("pytest.ini", "[pytest]\nmarkers = campaign\n"),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Project(tmp_path, tmp_path / "src" / "tiny", ("tests",), tmp_path / "cache")


def never() -> bool:
    return False


def measured(project: Project) -> Coverage:
    coverage = Coverage(project)
    coverage.measure(lambda _: None, never)
    return coverage


def outcomes(project: Project, folder: Path, told: list[str]) -> dict[str, str]:
    trial = Trial(project, measured(project), 1)
    wanted = sample(project, ["."], 99, 1)
    trial.run(wanted, [folder], lambda mutant, _: told.append(mutant.id), never)
    return {one.id: known.verdict for one in wanted if (known := trial.known(one)) is not None}


def test_a_bug_that_a_test_sees_is_caught_and_one_that_none_sees_survives(
    project: Project, tmp_path: Path
) -> None:
    told: list[str] = []
    assert outcomes(project, tmp_path / "copy", told) == {
        "module.py:larger:compare:0": "survived",  # >= gives the same
        "module.py:larger:return:0": "caught",
        "module.py:larger:return:1": "caught",
        "module.py:unused:calculate:0": "not covered",
        "module.py:unused:constant:0": "not covered",
        "module.py:unused:return:0": "not covered",
    }
    assert (project.package / "module.py").read_text() == SOURCE
    assert len(told) == 6


def test_a_second_run_goes_on_where_the_first_was_left(project: Project, tmp_path: Path) -> None:
    """What was caught stays so; what was not is tried again when the tests have changed."""
    first = outcomes(project, tmp_path / "one", [])
    again: list[str] = []
    assert outcomes(project, tmp_path / "two", again) == first
    assert again == []
    tests = project.root / "tests" / "test_module.py"
    tests.write_text(TESTS + "\n\ndef test_more():\n    assert larger(1, 1.0) == 1.0\n")
    outcomes(project, tmp_path / "three", again)
    assert again == ["module.py:larger:compare:0"]


def test_a_bug_in_what_runs_on_import_is_caught(project: Project, tmp_path: Path) -> None:
    """It is too late for it in a process that has imported the module."""
    (project.package / "module.py").write_text(
        "def twice(a):\n    return a + a\n\n\nFOUR = twice(2)\n"
    )
    (project.root / "tests" / "test_module.py").write_text(
        "from tiny.module import FOUR, twice\n\n\n"
        "def test_four():\n    assert twice(0) + FOUR == 4\n"
    )
    assert outcomes(project, tmp_path / "copy", [])["module.py:twice:calculate:0"] == "caught"


def test_a_test_that_fails_without_the_bug_too_says_nothing_of_it(
    project: Project, tmp_path: Path
) -> None:
    """It passed when it was measured, and never again."""
    (project.root / "tests" / "test_module.py").write_text(
        "from pathlib import Path\nfrom tiny.module import larger\n\n\n"
        "def test_once():\n    larger(2, 1)\n    Path('here').touch(exist_ok=False)\n"
    )
    assert outcomes(project, tmp_path / "copy", [])["module.py:larger:return:0"] == "survived"


def test_only_tests_that_run_the_line_are_asked_first(project: Project) -> None:
    coverage = measured(project)
    of_last_return = next(
        one for one in mutants("module.py", SOURCE.encode()) if one.id.endswith("return:1")
    )
    names = [name.partition("::")[2] for name in coverage.nearest(of_last_return)]
    assert names == ["test_the_larger_comes_last", "test_the_larger_comes_first"]


@pytest.mark.parametrize(
    ("line", "rule", "changed"),
    [
        ("return a < b", "compare", "return (a <= b)"),
        ("return a is None", "compare", "return (a is not None)"),
        ("return a and b", "and_or", "return (a or b)"),
        ("return not a", "not", "return (a)"),
        ("return a + b", "calculate", "return (a - b)"),
        ("return 3", "constant", "return 4"),
        ("return True", "constant", "return False"),
        ("return f(a, b)", "arguments", "return (f(b, a))"),
        ("a.b = 1", "statement", "pass"),
        ("f(a)", "statement", "pass"),
        ("await f(a)", "statement", "pass"),
        ("raise f(a, 3)", "raise", "pass"),
        ("return 'ü' + (a if b else x)", "condition", "return 'ü' + ((x if b else a))"),
        ("while a: pass", "negate", "while (not a): pass"),
        ("return a", "return", "return None"),
    ],
)
def test_every_rule_changes_its_place_and_nothing_else(line: str, rule: str, changed: str) -> None:
    source = f"async def f(a, b):\n    x = 'ü'\n    {line}\n"
    (mutant,) = [one for one in mutants("m.py", source.encode()) if f":{rule}:" in one.id]
    assert mutant.apply(source.encode()).decode() == source.replace(line, changed)


@pytest.mark.parametrize(
    "line", ["x: Literal[1] = y", "raise E(1 < 2)", "assert a < b", "y = f'{a < b}'", "return None"]
)
def test_what_no_test_could_see_is_left_alone(line: str) -> None:
    found = mutants("m.py", f"def f(a, b):\n    {line}\n".encode())
    assert [one.id for one in found if ":raise:" not in one.id] == []


def test_a_sample_is_the_same_for_a_seed_and_spread_over_modules(project: Project) -> None:
    (project.package / "other.py").write_text("def f(a):\n" + "    a.b = 1\n" * 50)
    drawn = sample(project, ["."], 6, 7)
    assert drawn == sample(project, ["."], 6, 7)
    assert sorted(one.module for one in drawn) == ["module.py"] * 3 + ["other.py"] * 3
    assert drawn != sample(project, ["."], 6, 8)


def test_a_mutant_that_was_judged_is_judged_anew_when_its_line_has_changed() -> None:
    (mutant, *_) = mutants("module.py", SOURCE.encode())
    judged = {mutant.id: Equivalent(mutant.id, "if left > right:", "the same number either way")}
    assert is_equivalent(mutant, SOURCE.encode(), judged)
    assert not is_equivalent(mutant, SOURCE.replace("left >", "left  >").encode(), judged)


def test_outcomes_are_of_the_code_that_was_tried(project: Project) -> None:
    trial = Trial(project, measured(project), 1)
    (mutant, *_) = mutants("module.py", SOURCE.encode())
    outcome = Outcome(mutant.id, "caught", 1, 0.1, trial._digest(mutant), "")
    trial.outcomes[mutant.id, outcome.function] = outcome
    assert trial.known(mutant) is outcome
    changed = SOURCE.replace("if left", "if 0 + left")
    (project.package / "module.py").write_text(changed)
    (mutant, *_) = mutants("module.py", changed.encode())
    assert trial.known(mutant) is None


@pytest.mark.parametrize(("seconds", "verdict"), [(12.0, "hangs"), (0.0, None)])
def test_a_mutant_hangs_only_if_its_tests_end_without_it(
    project: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    verdict: str | None,
) -> None:
    """On a machine that is too busy for them it has no outcome, and is tried again."""
    loop = "def larger(left, right):\n    while not left:\n        left = right\n    return 2\n"
    (project.package / "module.py").write_text(loop)
    trial = Trial(project, measured(project), 1)
    (mutant,) = [one for one in mutants("module.py", loop.encode()) if ":not:" in one.id]
    copy_and_compile(tmp_path / "copy", project.package)
    monkeypatch.setattr(trying, "_MORE_SECONDS", seconds)
    monkeypatch.setattr(trying, "_TIMES", 0)
    with project.forks(tmp_path / "copy", project.files()) as forks:
        outcome = trial.plant(mutant, tmp_path / "copy", forks)
    assert (None if outcome is None else outcome.verdict) == verdict
