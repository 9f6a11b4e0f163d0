"""The public names and how they are called, as api.txt lists them.

python -m tests.tidy.api              # add new names; those that changed or went stay as they were
python -m tests.tidy.api --release    # begin anew, at a release
"""

import enum
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import killick
from killick import recorders

FILE = Path(__file__).with_name("api.txt")


def lines() -> dict[str, str]:
    """Every public name, and how it is called."""
    found = dict(_members("killick", killick, killick.__all__))
    found |= dict(_members("killick.recorders", recorders, recorders.__all__))
    return dict(sorted(found.items()))


def _members(path: str, owner: Any, names: list[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        if name.startswith("__"):
            continue
        value = getattr(owner, name)
        yield f"{path}.{name}", _call(value)
        if inspect.isclass(value) and not issubclass(value, enum.Enum):
            public = [member for member in dir(value) if not member.startswith("_")]
            ours = [
                member
                for member in public
                if getattr(inspect.getattr_static(value, member), "__module__", "killick")
                != "builtins"
                and not hasattr(BaseException, member)
            ]
            for member in ours:
                yield f"{path}.{name}.{member}", _call(inspect.getattr_static(value, member))


def _call(value: Any) -> str:
    """The parameters of a call with their defaults; nothing for what is not called."""
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    if not callable(value) or isinstance(value, property):
        return ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    plain = [
        parameter.replace(annotation=inspect.Parameter.empty, default=_shown(parameter.default))
        for parameter in signature.parameters.values()
    ]
    return str(inspect.Signature(plain))


class _Text:
    """Shows a default that has no stable text of its own."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _shown(default: Any) -> Any:
    plain = (str, int, float, bool, tuple, type(None))
    if default is inspect.Parameter.empty or isinstance(default, plain):
        return default
    return _Text(getattr(default, "__name__", "…"))


def read() -> dict[str, str]:
    pairs = (line.partition("(") for line in FILE.read_text(encoding="utf-8").splitlines())
    return {name: bracket + rest for name, bracket, rest in pairs}


if __name__ == "__main__":
    listed = {} if "--release" in sys.argv else read()
    names = sorted((lines() | listed).items())
    FILE.write_text("".join(f"{name}{call}\n" for name, call in names), encoding="utf-8")
