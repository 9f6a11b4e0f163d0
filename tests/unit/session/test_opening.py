"""From what a user names as a store to a path, or a refusal."""

from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.errors import StoreError
from holdfast.session import opening
from holdfast.session.opening import Options


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    assert opening._path(tmp_path / "a.db") == tmp_path / "a.db"


def test_a_url_of_three_slashes_is_relative_and_of_four_absolute() -> None:
    assert opening._path("sqlite:///a/b.db") == Path("a/b.db")
    assert opening._path("sqlite:////a/b.db") == Path("/a/b.db")


def test_the_environment_names_the_store_when_nobody_else_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", "from-environment.db")
    assert opening._path(None) == Path("from-environment.db")


def test_the_default_lies_in_the_user_s_data_folder_which_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    monkeypatch.setattr(opening, "default_path", lambda: tmp_path / "data" / "holdfast.db")
    path = opening._path(None)
    assert path.parent.is_dir()
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("url", ["postgresql://x/y", "postgres://x", "mysql://x", "http://x"])
def test_a_url_of_no_store_is_refused_with_what_to_name_instead(url: str) -> None:
    with pytest.raises(StoreError, match="name a file"):
        opening._path(url)


def test_an_unknown_durability_is_refused() -> None:
    with pytest.raises(ValueError, match='it is "full" or "normal"'):
        Options(durability=cast("Any", "fast"))
