"""Examining one session, and salvaging what can be read of a damaged one."""

from typing import Final, Literal

import msgspec

from killick.errors import SessionDamaged
from killick.journal.audit import audit
from killick.journal.turn_state import fold_turn
from killick.model import entries as e
from killick.session.runtime import is_dead
from killick.stores.contract import Reader, SessionRow
from killick.stores.engine.session_ops import derived, labels_of, news_due

_PAGE: Final = 1_000
_SERVER: Final = "server: "
"""How a line begins that is about what a server gives; nothing that is stored is wrong."""

_REBUILD: Final = "doctor --rebuild makes it anew from the journal"


class Finding(msgspec.Struct, frozen=True):
    """Something that is not as it should be, and what can be done about it."""

    kind: Literal[
        "file",
        "server",
        "entry",
        "rule",
        "derived",
        "lease",
        "deltas",
        "blob",
        "context",
        "search",
        "sums",
        "link",
        "request",
    ]
    what: str
    session_id: str | None = None
    seq: int | None = None
    remedy: str = ""
    mended: bool = False


class Salvaged(msgspec.Struct, frozen=True):
    """A session as far as it can be read. It is whole when nothing is wrong with it."""

    session_id: str
    title: str | None
    entries: list[e.Entry]
    damage: list[Finding]

    @property
    def whole(self) -> bool:
        return not self.damage


def about_file(line: str) -> Finding:
    """Make a finding of a line that the database says of itself."""
    if line.startswith(_SERVER):
        return Finding("server", line.removeprefix(_SERVER))
    if "search_" in line or "fts5" in line.lower():
        return Finding("search", line, remedy="doctor --rebuild makes the search index anew")
    if "index" in line:
        return Finding("file", line, remedy="doctor --rebuild makes the index anew")
    return Finding("file", line, remedy="make a copy now; restore what is damaged from a backup")


def about_erasure(session_id: str) -> Finding:
    return Finding(
        "file",
        f"session {session_id!r} was erased, and its bytes may still be in the store's files",
        session_id,
        remedy="erase it again: that finishes it, once backups that hold it are removed",
    )


def about_sums(line: str) -> Finding:
    return Finding("sums", line, remedy="doctor --rebuild adds them up anew")


def readable(reader: Reader, row: SessionRow) -> tuple[list[e.Entry], list[Finding]]:
    """A session's own entries that can be read, and what is wrong with the others."""
    entries: list[e.Entry] = []
    damage: list[Finding] = []
    after = row.base_seq
    while True:
        try:
            page = reader.entries(row.key, after=after, limit=_PAGE)
        except SessionDamaged as error:
            bad = error.seq if error.seq is not None and error.seq > after else after + 1
            entries += _between(reader, row.key, after, bad)
            remedy = "restore it from a backup, or erase it"
            damage.append(Finding("entry", str(error), row.id, bad, remedy))
            after = bad
            if _head(reader, row.key) <= after:
                return entries, damage
            continue
        entries += page
        if len(page) < _PAGE:
            return entries, damage
        after = page[-1].seq


def _between(reader: Reader, key: int, after: int, bad: int) -> list[e.Entry]:
    try:
        return reader.entries(key, after=after, through=bad - 1) if bad - 1 > after else []
    except SessionDamaged:
        return []


def _head(reader: Reader, key: int) -> int:
    try:
        return reader.head_of(key)
    except SessionDamaged:
        return 0


def salvage(reader: Reader, key: int) -> Salvaged:
    """A session as far as it can be read, with what it has inherited."""
    row = reader.origin(key)
    inherited: list[e.Entry] = []
    damage: list[Finding] = []
    if row.base is not None:
        source = salvage(reader, row.base)
        inherited = [entry for entry in source.entries if entry.seq <= row.base_seq]
        damage = [finding for finding in source.damage if (finding.seq or 0) <= row.base_seq]
    entries, own = readable(reader, row)
    begun = [entry.body for entry in entries if isinstance(entry.body, e.SessionCreated)]
    title = begun[0].title if begun else None
    return Salvaged(row.id, title, [*inherited, *entries], [*damage, *own])


def examine(reader: Reader, key: int) -> list[Finding]:
    """Everything that is wrong with a session; nothing when it is as it should be."""
    whole = salvage(reader, key)
    if whole.damage:
        return whole.damage
    findings = [Finding("rule", what, whole.session_id, seq) for seq, what in audit(whole.entries)]
    row, usage = derived(reader, key)
    wrong = _wrong_derived(reader, row)
    if reader.usage_of(key) != usage:
        wrong.append("its usage is added up wrongly")
    news = reader.news_of(key)
    if news_due(reader.entries(key, after=row.base_seq), news) != news:
        wrong.append("its lines of the feed over all sessions do not agree with its journal")
    findings += [Finding("derived", what, row.id, remedy=_REBUILD) for what in wrong]
    if is_dead(reader, row):
        what, remedy = "its turn runs in a process that is gone", "opening the session closes it"
        findings.append(Finding("lease", what, row.id, row.turn_seq, remedy))
    what = "deltas of a stream that has ended were left behind"
    left = _left_behind(reader, row, whole.entries)
    return [*findings, *(Finding("deltas", what, row.id, seq) for seq in left)]


def _wrong_derived(reader: Reader, row: SessionRow) -> list[str]:
    wrong = []
    try:
        if reader.session(row.key) != row:
            wrong.append("its row does not agree with its journal")
    except SessionDamaged as error:
        wrong.append(str(error))
    if sorted(reader.labels(row.key)) != sorted(labels_of(row)):
        wrong.append("its tags and models are listed wrongly")
    return wrong


def _left_behind(reader: Reader, row: SessionRow, entries: list[e.Entry]) -> list[int]:
    """Deltas belong to what streams in the running turn, and to nothing else."""
    begin = row.turn_seq
    turn = None if begin is None else fold_turn(entry for entry in entries if entry.seq >= begin)
    if turn is None:
        return reader.streams(row.key)
    tools = [call.started_seq for call in turn.open_tools()]
    streaming = {*turn.open_messages.values(), *tools}
    return [seq for seq in reader.streams(row.key) if seq not in streaming]
