"""Check that the framework of an adapter is installed, in a version that was tested."""

import re
from importlib.metadata import PackageNotFoundError, version

from killick.errors import ExtraMissing, install_hint


def tested(package: str, extra: str, *, at_least: str, below: str) -> None:
    """Raise ExtraMissing unless the package is there, in the range that the tests ran with.

    An adapter calls it when it is imported: what a framework calls, and when, changes.
    """
    try:
        installed = version(package)
    except PackageNotFoundError:
        raise ExtraMissing(
            f"this adapter needs {package}: {install_hint(extra)}", extra=extra
        ) from None
    if not _numbers(at_least) <= _numbers(installed) < _numbers(below):
        raise ExtraMissing(
            f"{package} {installed} is installed; this adapter was tested with "
            f">={at_least},<{below}: {install_hint(extra)}",
            extra=extra,
        )


def _numbers(text: str) -> tuple[int, ...]:
    """Return a version's numbers; what stands behind them does not count."""
    match = re.match(r"\d+(\.\d+)*", text)
    numbers = [int(number) for number in match[0].split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()  # 1.0 and 1.0.0 are the same
    return tuple(numbers)
