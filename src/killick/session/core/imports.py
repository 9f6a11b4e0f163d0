"""Taking over entries that were made elsewhere. Written once for both faces."""

from collections.abc import Sequence
from typing import Final

from killick.errors import InvalidEntry
from killick.journal import checks
from killick.journal.codec import check_value
from killick.model import entries as e
from killick.session.arguments import check_is
from killick.session.drive.steps import Flow, write
from killick.session.runtime import Runtime
from killick.stores import engine as ops
from killick.stores.engine.state import Receipt

EARLIEST_US: Final = -62_135_596_800_000_000
LATEST_US: Final = 253_402_300_799_999_999
"""The years 1 to 9999, which is what a time can be shown as."""

_IDS: Final = ("id", "turn_id", "message_id", "call_id")


def import_entries(runtime: Runtime, session_id: str, entries: Sequence[e.Entry]) -> Flow[Receipt]:
    checks.check_id(session_id, "session id")
    if not entries:
        raise InvalidEntry("there is no entry to import")
    for entry in entries:
        _check(entry)
    tenant = runtime.tenant
    return (
        yield from write(lambda engine: ops.import_entries(engine, session_id, tenant, entries))
    )


def _check(entry: e.Entry) -> None:
    check_is(entry, e.Entry, "what is imported")
    check_is(entry.at_us, int, "the time of an entry, in microseconds,")
    if not isinstance(entry.body, e.Unknown):
        check_value(entry.body, e.KnownBody, e.kind_of(entry.body))
    if not EARLIEST_US <= entry.at_us <= LATEST_US:
        raise InvalidEntry(
            f"the time of the entry for seq {entry.seq} is in no year from 1 to 9999"
        )
    checks.check_content(entry.body)
    for name in _IDS:
        value = getattr(entry.body, name, None)
        if value is not None:
            checks.check_id(value, name.replace("_", " "))
