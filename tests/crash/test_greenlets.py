"""A process whose threads are greenlets of gevent, as in many a server: nobody waits for ever."""

import subprocess
import sys

PIECES = 10


def test_agents_and_followers_in_greenlets(path: str) -> None:
    """In a process of their own: what gevent has replaced stays so."""
    program = [sys.executable, "-m", "tests.crash.greenlets", path, str(PIECES)]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=50, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["x" * PIECES, "y" * PIECES]
