"""The conformance suite: checks that every store passes, on both faces.

Run it for a store of your own::

    from killick.testing.conformance import CHECKS, World
    from killick.testing.conformance.world import FACES

    @pytest.mark.parametrize("face", FACES)
    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_conformance(check, face, tmp_path):
        World(face, lambda: MyDatabase(tmp_path)).run(check)

The function given to `World` opens the same database again each time it is called. A check is a
sentence that must be true; its docstring says it.
"""

from killick.testing.conformance import (
    adapters,
    feed,
    history,
    proofs,
    queries,
    runs,
    sessions,
    turns,
    work,
)
from killick.testing.conformance.world import CHECKS, Check, World

__all__ = [
    "CHECKS",
    "Check",
    "World",
    "adapters",
    "feed",
    "history",
    "proofs",
    "queries",
    "runs",
    "sessions",
    "turns",
    "work",
]
