"""Where tests lie, and how they wait."""

from pathlib import Path

import pytest

import killick

ROOT = Path(__file__).parents[2]
SOURCE = Path(killick.__file__).parent
UNIT = ROOT / "tests" / "unit"


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", sorted(UNIT.rglob("test_*.py")), ids=name)
def test_a_unit_test_lies_at_the_path_of_its_module(path: Path) -> None:
    """As `test_<module>.py`, or `test_<module>_<aspect>.py`."""
    folder = SOURCE / path.relative_to(UNIT).parent
    words = path.stem.removeprefix("test_").split("_")
    modules = ["_".join(words[:count]) for count in range(1, len(words) + 1)]
    assert any((folder / f"{module}.py").is_file() for module in modules), f"no {modules} there"
