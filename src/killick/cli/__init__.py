"""The command `killick`: sessions listed, shown, changed and kept safe, from a shell."""

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (docs/command.md lists them)."""
    from killick.cli.argv import run  # loaded when the command runs

    return run(argv)
