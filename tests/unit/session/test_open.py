"""From what a user names as a store to a path, or a refusal."""

from pathlib import Path
from typing import Any, cast

import pytest

from killick.errors import StoreError
from killick.session import open as opened
from killick.session.open import StoreOptions, opener


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    assert opened._settled(tmp_path / "a.db") == tmp_path / "a.db"


def test_a_url_of_three_slashes_is_relative_and_of_four_absolute() -> None:
    assert opened.file_path("sqlite:///a/b.db") == Path("a/b.db")
    assert opened.file_path("sqlite:////a/b.db") == Path("/a/b.db")


def test_the_environment_names_the_store_when_nobody_else_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KILLICK_STORE", "from-environment.db")
    assert opened._settled(None) == tmp_path / "from-environment.db"


@pytest.mark.parametrize("url", ["work.db", "sqlite:///work.db", None])
def test_a_store_is_where_it_was_named_in_whatever_folder_a_child_opens_it_again(
    url: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KILLICK_STORE", "work.db")
    open_ = opener(url, StoreOptions())
    monkeypatch.chdir("elsewhere")
    monkeypatch.delenv("KILLICK_STORE")
    open_().close()
    assert (tmp_path / "work.db").exists()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_the_default_lies_in_the_user_s_data_folder_which_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KILLICK_STORE", raising=False)
    monkeypatch.setattr(opened, "default_path", lambda: tmp_path / "data" / "killick.db")
    assert opened._settled(None) is None
    path = opened._made_default()
    assert path.parent.is_dir()
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("url", ["postgresql://x/y", "postgres://x", "mysql://x", "http://x"])
def test_a_url_of_no_store_is_refused_with_what_to_name_instead(url: str) -> None:
    with pytest.raises(StoreError, match="name a file"):
        opened.file_path(url)


def test_an_unknown_durability_is_refused() -> None:
    with pytest.raises(ValueError, match='it is "full" or "normal"'):
        StoreOptions(durability=cast("Any", "fast"))
