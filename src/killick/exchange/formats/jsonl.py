"""Our own format: a session as JSON lines, with nothing left out.

The first line says what it is. Then come the entries in order, each blob before the first entry
that names it, and a last line that says how many there were: a file without it was cut off.

    {"killick":2,"session":"ses_…"}
    {"blob":"b2:…","base64":"…"}
    {"seq":1,"at_us":…,"link":"…","body":{"kind":"session_created", …}}
    {"end":true,"entries":…,"blobs":…}

Each entry has its link (`journal.chain`), and keeps it when it comes in; where that cannot be, a
new chain begins there and the report says so. A body from which secrets were taken stands beside
the `hash` of the one that was linked. Version 1 had no links. `ancestors` in the head are the
sessions that a fork's inherited entries were linked in.

A fork is written with the entries that it has inherited, and comes back as a session that stands by
itself; its beginning still names what it was forked from. A turn that runs is left out, and the
last line names it: what it has said is not settled yet.
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec

from killick.errors import BlobNotFound
from killick.exchange.merge import merge
from killick.exchange.read import SourceLine, lines_of
from killick.exchange.records import Outcome, Report, SourceLocation
from killick.exchange.repair import LocatedEntry, Repairer
from killick.journal.chain import LINK_BYTES, LinkedEntry, body_hash, matches
from killick.journal.codec import CodecError, decode_body, encode, to_bytes, to_text
from killick.journal.kinds import blobs_of, digest
from killick.model import entries as e
from killick.model.limits import EARLIEST_US, LATEST_US
from killick.session.sync import Session, Store

VERSION: Final = 2
NAME: Final = "killick"
_NAMES: Final = (NAME, "holdfast")
"""The names that begin a head; the second was written until the renaming."""
_PAGE: Final = 256
_PAGE_BYTES: Final = 2 * 1024 * 1024
"""How much is read at once: entries may have megabytes each, or a few bytes."""

E = TypeVar("E", bound=e.Entry)


# -- out -------------------------------------------------------------------------------------------


def export_lines(store: Store, session_id: str, original: Store | None = None) -> Iterator[bytes]:
    """Yield the lines of a session, each with its line feed.

    The store may hold a copy without secrets; the links are those of the `original` then.
    """
    session = store.session(session_id)
    running = [turn.id for turn in session.turns() if turn.status == "running"]
    head: dict[str, Any] = {"killick": VERSION, "session": session.id}
    ancestors = _ancestors(session)
    yield _line(head | ({"ancestors": ancestors} if ancestors else {}))
    written, count = set[str](), 0
    linked = _linked(original or store, session_id)
    for entry in export_entries(session):
        for name in blobs_of(entry.body):
            if name not in written:
                written.add(name)
                yield from _blob_line(store, name)
        count += 1
        yield _entry_line(entry, next(linked))
    end: dict[str, Any] = {"end": True, "entries": count, "blobs": len(written)}
    yield _line(end | ({"running": running[0]} if running else {}))


def export_entries(session: Session) -> Iterator[e.Entry]:
    """Yield the entries of a session as of now, up to a running turn."""
    running = [turn.seq for turn in session.turns() if turn.status == "running"]
    through = running[0] - 1 if running else session.head
    for entry in every_entry(session):
        if entry.seq > through:
            return
        yield entry


def every_entry(session: Session) -> Iterator[e.Entry]:
    """Yield all entries of a session; few of them are in memory at once."""
    return _paged(lambda after, limit: session.entries(after=after, limit=limit))


def _linked(store: Store, session_id: str) -> Iterator[LinkedEntry]:
    return _paged(lambda after, limit: store.linked_entries(session_id, after=after, limit=limit))


def _paged(read: Callable[[int, int], Sequence[E]]) -> Iterator[E]:
    """Yield what is read after a seq, page by page: where entries are large, pages are short."""
    after, limit = 0, 1
    while page := read(after, limit):
        size = len(encode([entry.body for entry in page]))
        yield from page
        after = page[-1].seq
        limit = max(1, min(_PAGE, 2 * limit, len(page) * _PAGE_BYTES // max(size, 1)))
        del page  # before the next is read


def _ancestors(session: Session) -> list[str]:
    """Return the sessions that a fork has entries of."""
    if session.info().fork is None:
        return []
    bodies = (entry.body for entry in export_entries(session))
    forks = [body.fork for body in bodies if isinstance(body, e.SessionCreated)]
    return [fork.session_id for fork in forks if fork is not None]


def _blob_line(store: Store, name: str) -> Iterator[bytes]:
    try:
        data = store.blob(name)
    except BlobNotFound:
        return  # an entry may name a blob that never was: a turn was closed with what it had
    yield _line({"blob": name, "base64": base64.b64encode(data).decode("ascii")})


def _entry_line(entry: e.Entry, linked: LinkedEntry) -> bytes:
    data = encode(entry.body)
    head = b'{"seq":%d,"at_us":%d,' % (entry.seq, entry.at_us)
    if linked.link is not None:
        head += b'"link":"%s",' % linked.link.hex().encode()
        original = encode(linked.body)
        if original != data:
            head += b'"hash":"%s",' % body_hash(original).hex().encode()
    if data[:1] == b"{" and b"\n" not in data:
        return head + b'"body":' + data + b"}\n"
    # Text that UTF-8 does not have, or a body that a newer version wrote over several lines.
    return head + b'"text":' + json.dumps(to_text(data)).encode("ascii") + b"}\n"


def _line(value: dict[str, Any]) -> bytes:
    data = encode(value)
    if data[:1] != b"{":  # an id that UTF-8 does not have
        data = json.dumps(value).encode("ascii")
    return data + b"\n"


# -- in --------------------------------------------------------------------------------------------


class _Head(msgspec.Struct):
    version: int
    session: str
    ancestors: list[str] = []


class _Entry(msgspec.Struct):
    seq: Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
    at_us: Annotated[int, msgspec.Meta(ge=EARLIEST_US, le=LATEST_US)]
    text: str | None = None
    link: str | None = None
    hash: str | None = None


class _Raw(msgspec.Struct):
    body: msgspec.Raw


class _Blob(msgspec.Struct):
    blob: str
    base64: str


def is_own(record: Mapping[str, Any]) -> bool:
    """Tell whether this is the first line of a file of ours."""
    return _version(record) is not None and isinstance(record.get("session"), str)


def _version(record: Mapping[str, Any]) -> int | None:
    """Return the version that a head names, under this name or the one from before."""
    return next((record[name] for name in _NAMES if isinstance(record.get(name), int)), None)


def import_lines(
    store: Store,
    path: Path,
    report: Report,
    *,
    dry_run: bool = False,
    known: set[str] | None = None,
) -> Outcome | None:
    """Bring a session in, as far as it can be read."""
    with path.open("rb") as file:
        lines = lines_of(file, str(path))
        head = _head(next(lines, None), path, report)
        if head is None:
            return None
        repairer = Repairer(report, lambda name: has_blob(store, name))
        reader = _EntryReader(lines, report, (head.session, *head.ancestors))
        units = repairer.units(reader.entries(), close=True)
        merged = merge(store, head.session, units, dry_run=dry_run, known=known)
    if merged.added and not dry_run and reader.newest is not None:
        _say_if_begun_anew(store, merged.session_id, reader.newest, path, report)
    outcome = Outcome(
        source=NAME,
        origin=str(path),
        session_id=merged.session_id,
        action=merged.action,
        entries=merged.added,
        fork_of=merged.fork_of,
        why=merged.why,
    )
    report.sessions.append(outcome)
    return outcome


def _say_if_begun_anew(
    store: Store, session_id: str, newest: bytes, path: Path, report: Report
) -> None:
    """Report a chain that is not the file's: after damage, a repair, or secrets left out.

    It misleads no reader of the session: what was damaged or repaired is reported by itself.
    """
    here = store.verify_session(session_id)
    if here.link != newest.hex():
        why = f"its links could not be kept; session {session_id!r} has a new chain from there on"
        report.repair(SourceLocation(str(path)), why, harmless=True)


def has_blob(store: Store, name: str) -> bool:
    try:
        store.blob(name)
    except BlobNotFound:
        return False
    return True


def _head(line: SourceLine | None, path: Path, report: Report) -> _Head | None:
    if line is None:
        report.skip(SourceLocation(str(path)), "the file is empty")
        return None
    try:
        record = line.record or {}
        head = msgspec.convert({**record, "version": _version(record)}, _Head)
    except msgspec.ValidationError:
        report.skip(line.location, "it does not begin as a session that was exported here does")
        return None
    if head.version > VERSION:
        report.skip(line.location, f"it was written in version {head.version}; update Killick")
        return None
    return head


class _EntryReader:
    """Takes lines one by one; a line that is no entry is reported, and the next one is read."""

    def __init__(
        self, lines: Iterable[SourceLine], report: Report, session_ids: tuple[str, ...]
    ) -> None:
        self._lines = lines
        self._report = report
        self._session_ids = session_ids
        self._read: dict[int, tuple[str | None, str | None, bytes]] = {}
        self._before: tuple[int, bytes | None] = (0, None)
        self._after_gaps: set[int] = set()
        """Entries before which a line was left out, and reported."""
        self.newest: bytes | None = None
        """The last link that was read."""
        self._last = SourceLocation("")
        self._seq = 0
        self._blobs: dict[str, bytes] = {}
        self._complete = False

    def entries(self) -> Iterator[LocatedEntry]:
        """Yield the entries in order. A smaller next seq shows that a seq is too large."""
        held: LocatedEntry | None = None
        gaps = 0  # of how many entries to come the gap before is explained
        for line in self._lines:
            self._last = line.location
            try:
                entry = self._read_line(line, None if held is None else held.entry.seq)
            except (ValueError, msgspec.MsgspecError) as error:
                self._report.skip(line.location, line.problem or f"not an entry: {error}")
                gaps = max(gaps, 1)
                continue
            if entry is None:
                continue
            blobs, self._blobs = self._blobs, {}
            if held is not None and entry.seq < held.entry.seq:
                why = f"seq {held.entry.seq} comes before {entry.seq}"
                self._report.skip(held.location, f"not an entry: {why}")
                gaps = 2  # the one that came too early is missing again further on
            elif held is not None:
                self._seq = held.entry.seq
                yield self._linked(held)
            if gaps:
                self._after_gaps.add(entry.seq)
                gaps -= 1
            held = LocatedEntry(entry, line.location, blobs)
        if held is not None:
            yield self._linked(held)
        if not self._complete:
            self._report.skip(self._last, "the file ends before its last line; it was cut off")

    def _linked(self, located: LocatedEntry) -> LocatedEntry:
        """Return an entry with its link, if that fits; else the store makes a new one."""
        entry = located.entry
        link_text, hash_text, data = self._read.pop(entry.seq)
        link = None if link_text is None else bytes.fromhex(link_text)
        seq, before = self._before
        self._before, self.newest = (entry.seq, link), link
        if link is not None and entry.seq != seq + 1 and entry.seq not in self._after_gaps:
            why = f"entries {seq + 1} to {entry.seq - 1} are missing before it"
            self._report.skip(located.location, f"{why}: the file is not as it was written")
        if link is None or entry.seq != seq + 1:
            return located
        own = body_hash(data)
        hashed = own if hash_text is None else bytes.fromhex(hash_text)
        if not matches(link, before, self._session_ids, entry, hashed, data):
            why = "its link does not fit and is left out: the file is not as it was written"
            self._report.skip(located.location, why)
        elif hashed == own:
            linked = LinkedEntry(entry.seq, entry.at_us, entry.body, before, link)
            return msgspec.structs.replace(located, entry=linked)
        return located

    def _read_line(self, line: SourceLine, held: int | None) -> e.Entry | None:
        record = line.record
        if record is None:
            raise ValueError(line.problem)
        if "blob" in record:
            blob = msgspec.convert(record, _Blob)
            data = base64.b64decode(blob.base64, validate=True)
            if digest(data) != blob.blob:
                raise ValueError(f"the bytes of blob {blob.blob} are not those it was named for")
            self._blobs[blob.blob] = data
            return None
        if record.get("end") is True:
            self._complete = True
            return None
        return self._entry(line, record, held)

    def _entry(self, line: SourceLine, record: dict[str, Any], held: int | None) -> e.Entry:
        head = msgspec.convert(record, _Entry)
        if head.seq <= self._seq or head.seq == held:
            raise ValueError(f"seq {head.seq} comes after {held or self._seq}")
        if head.text is not None:
            data = to_bytes(head.text)
        else:
            data = bytes(msgspec.json.decode(line.raw, type=_Raw).body)
        try:
            body = decode_body(data)
        except CodecError as error:
            raise ValueError(str(error)) from error
        for text in (head.link, head.hash):
            if text is not None and len(bytes.fromhex(text)) != LINK_BYTES:
                raise ValueError("a link and a hash have 32 bytes")
        self._read[head.seq] = head.link, head.hash, data
        return e.Entry(head.seq, head.at_us, body)
