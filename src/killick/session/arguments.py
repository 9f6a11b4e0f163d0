"""Checks of what a caller passes: a value of the wrong kind never reaches a database."""

from datetime import date, datetime
from math import isfinite
from typing import Any, Final

_SEQ_MAX: Final = 2**63 - 1
"""No database counts further."""


def check_kinds(call: str, kind: type, **given: Any) -> None:
    """Refuse filters that are not of this kind; None is one that was not given."""
    for name, value in given.items():
        exact = kind is bool or not isinstance(value, bool)
        exact = exact and not (kind is date and isinstance(value, datetime))
        if value is not None and not (exact and isinstance(value, kind)):
            raise ValueError(f"{name} of {call} is a {kind.__name__}, and this is {value!r}")


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
