"""Verifying a whole store: every session's chain, compared with links that were kept elsewhere.

Reads and mends nothing. One session that cannot be verified keeps no other from it.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from killick.errors import KillickError, UsageError
from killick.maintenance.examine import Finding
from killick.maintenance.prove import REMEDY, ExpectedLink, Verified
from killick.session.sync import Store

Progress = Callable[[int, int], None]
"""Told how many sessions were gone through, and how many there are."""


class Verification(msgspec.Struct, frozen=True):
    """All sessions, and what was expected and is not there."""

    sessions: list[Verified]
    missing: list[Finding]
    erased: list[str]

    @property
    def findings(self) -> list[Finding]:
        return [*(finding for each in self.sessions for finding in each.findings), *self.missing]


class Pacer:
    """Says how long to wait, so that no more is read in a second than the rate, on the whole."""

    def __init__(self, rate: float | None) -> None:
        if rate is not None and rate <= 0:
            raise UsageError("a rate is a number of bytes a second above zero")
        self._rate = rate
        self._began = time.monotonic()
        self._read = 0

    def seconds_for(self, size: int) -> float:
        """Note that so much was read; return the seconds until more may be."""
        if self._rate is None:
            return 0
        self._read += size
        return max(0.0, self._began + self._read / self._rate - time.monotonic())


def verify(
    store: Store,
    *,
    expect: list[ExpectedLink] | None = None,
    progress: Progress | None = None,
    rate: float | None = None,
) -> Verification:
    """Verify every session, and compare with links that were kept elsewhere.

    `rate` is how many bytes it reads in a second at most, over sessions: it waits between them.
    """
    pace = Pacer(rate)
    ids = store.session_ids()
    expected = {each.session_id: each for each in expect or ()}
    sessions, missing, erased = list[Verified](), list[Finding](), list[str]()
    for number, session_id in enumerate(ids, 1):
        try:
            verified = store.verify_session(session_id, expect=expected.get(session_id))
        except KillickError as error:
            if session_id not in store.session_ids():
                continue  # another process has erased it meanwhile
            lost = Finding("link", str(error), session_id, remedy=REMEDY)
            verified = Verified(session_id, 0, None, 0, 0, [lost])
        sessions.append(verified)
        time.sleep(pace.seconds_for(verified.bytes))
        if progress is not None:
            progress(number, len(ids))
    known = {each.session_id for each in sessions}
    for session_id in expected.keys() - known:
        if store.was_erased(session_id):
            erased.append(session_id)
        else:
            what = "the session is gone, and there is no receipt that it was erased"
            missing.append(Finding("link", what, session_id, remedy=REMEDY))
    return Verification(sessions, missing, erased)


def read_expected(data: bytes) -> list[ExpectedLink]:
    """Read what `verify --json` printed. Raises UsageError."""
    try:
        document: Any = msgspec.json.decode(data)
        value = document if not isinstance(document, Mapping) else document["sessions"]
        return msgspec.convert(value, list[ExpectedLink])
    except (msgspec.MsgspecError, KeyError, UnicodeDecodeError) as error:
        raise UsageError(
            f"these are not the links that 'killick verify --json' prints: {error}"
        ) from error
