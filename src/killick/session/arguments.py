"""What callers hand in by name: refused where it is wrong, with words that say what is wanted.

Python checks neither the names behind `**settings` nor any type. A setting that is misspelt must
not pass for its default, and a value of the wrong kind must not reach a database.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

import msgspec

_SEQ_MAX: Final = 2**63 - 1
"""No database counts further."""


def check_names(given: Mapping[str, object], shape: type, what: str) -> None:
    """Refuse a setting that does not exist. Raises TypeError, as Python does."""
    known = shape.__annotations__
    for name in given:
        if name not in known:
            raise TypeError(f"{what} has no argument {name!r}; it has {', '.join(known)}")


def filters_of(given: Mapping[str, object], shape: type, what: str) -> dict[str, Any]:
    """The filters that were given: None is one that was not. Refuses those of the wrong kind."""
    check_names(given, shape, what)
    wanted = {name: value for name, value in given.items() if value is not None}
    try:
        msgspec.convert(wanted, shape)
    except msgspec.ValidationError as error:
        raise ValueError(f"a filter of {what} is of the wrong kind: {error}") from error
    return wanted


def check_count(name: str, value: Any) -> None:
    """Refuse what is not a whole number from zero on."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a whole number, and this is {value!r}")
    if not 0 <= value <= _SEQ_MAX:
        raise ValueError(f"{name}={value}; it counts from zero")


def check_counts(**given: Any) -> None:
    """The same of several; None is one that was not given."""
    for name, value in given.items():
        if value is not None:
            check_count(name, value)


def check_numbers(**given: float) -> None:
    """Refuse what is no number from zero on, or is without end."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} is a number, and this is {value!r}")
        if not (isfinite(value) and value >= 0):
            raise ValueError(f"{name}={value}; it is a number from zero on")


def check_is(value: object, wanted: type, what: str) -> None:
    """Refuse an object of another class. Raises TypeError."""
    if not isinstance(value, wanted):
        raise TypeError(f"{what} is a {wanted.__name__}, and this is a {type(value).__name__}")
