"""Proving one journal: that nothing was changed, removed, reordered or cut since it was written.

It reads and mends nothing, and a finding stops no session. `examine` looks for damage; this looks
for what a careful hand has done.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from killick.errors import SessionDamaged
from killick.journal.chain import ChainCheck, LinkedEntry, StoredEntry
from killick.journal.codec import CodecError, decode_body
from killick.journal.kinds import blobs_of, digest
from killick.journal.visibility import History
from killick.maintenance.examine import Finding
from killick.model import entries as e
from killick.stores.contract import Reader, SessionRow

_PAGE: Final = 1_000
LOST: Final = "restore it from a backup beside the store, and compare"
REMEDY: Final = "compare it with a backup, or with a copy that was kept elsewhere"


class Verified(msgspec.Struct, frozen=True):
    """One session: its newest link, how many entries have links, and what does not fit.

    `unlinked` entries were stored before there were links; nothing can be proved of them.
    `requests` counts model calls: what they were sent is "equal" to what is computed again,
    "different", made by "another version" of the view, with a token "counter" of the caller's or
    "redacted" and so not computed again, or "not recorded". `bytes` were read: of entries, of
    deltas of streams that are open, and of blobs.
    """

    session_id: str
    head: int
    link: str | None
    linked: int
    unlinked: int
    findings: list[Finding]
    requests: dict[str, int] = {}
    bytes: int = 0


class ExpectedLink(msgspec.Struct, frozen=True):
    """A link that was kept elsewhere: the one that an entry of a session had."""

    session_id: str
    head: int
    link: str | None


def prove(reader: Reader, key: int, expect: ExpectedLink | None = None) -> Verified:
    """Follow the chain of one session as of one moment; compare it with a link kept elsewhere."""
    row = reader.origin(key)
    findings, size = [], 0
    before = None if row.base is None else reader.link_at(row.base, row.base_seq)
    chain = ChainCheck(_ids(reader, row), before, row.base_seq)
    for stored in _stored(reader, row):
        findings += list(chain.follow(stored))
        size += len(stored.body)
    findings += list(chain.end(row.link, reader.saved_head(key)))
    entries = _whole(reader, row)
    damaged, read = _reread(reader, row, entries)
    requests, others = _requests(reader, row, entries)
    return Verified(
        session_id=row.id,
        head=chain.seq,
        link=None if chain.newest is None else chain.newest.hex(),
        linked=chain.linked,
        unlinked=chain.unlinked,
        findings=[
            *(_about_link(row.id, seq, what) for seq, what in findings),
            *(_compare(reader, key, expect) if expect is not None else ()),
            *damaged,
            *others,
        ],
        requests=requests,
        bytes=size + read,
    )


def _whole(reader: Reader, row: SessionRow) -> list[e.Entry]:
    """Return the session's entries; none where one is damaged: the chain names the place."""
    try:
        return reader.entries(row.key)
    except SessionDamaged:
        return []


def _reread(reader: Reader, row: SessionRow, entries: list[e.Entry]) -> tuple[list[Finding], int]:
    """Read the deltas of open streams by their checksums, and blobs by their digests."""
    findings, size = list[Finding](), 0
    for seq in reader.streams(row.key):
        try:
            flushes = reader.deltas(row.key, seq)
        except SessionDamaged as error:
            findings.append(Finding("deltas", str(error), row.id, seq, LOST))
        else:
            size += sum(len(delta.text) for _, deltas in flushes for delta in deltas)
    blobs = {name: entry.seq for entry in entries for name in blobs_of(entry.body)}
    for name, seq in blobs.items():
        data = reader.blob(row.tenant, name)
        size += len(data or b"")
        if data is None or digest(data) != name:
            what = "is missing" if data is None else "does not have the digest that names it"
            findings.append(Finding("blob", f"the blob {name} {what}", row.id, seq, LOST))
    return findings, size


def _about_link(session_id: str, seq: int, what: str) -> Finding:
    return Finding("link", what, session_id, seq, REMEDY)


# -- what was sent ---------------------------------------------------------------------------------


def _requests(
    reader: Reader, row: SessionRow, entries: list[e.Entry]
) -> tuple[dict[str, int], list[Finding]]:
    """Compute again what the session's own model calls were sent."""
    counts: dict[str, int] = {}
    findings = []
    for entry in entries:
        if entry.seq <= row.base_seq or not isinstance(entry.body, e.ModelCallStarted):
            continue
        verdict, why = _sent(reader, row, entries, entry.body)
        counts[verdict] = counts.get(verdict, 0) + 1
        if verdict == "different":
            what = f"the model was sent something else than its journal says: {why}"
            findings.append(Finding("request", what, row.id, entry.seq))
    return counts, findings


def _sent(
    reader: Reader, row: SessionRow, entries: list[e.Entry], call: e.ModelCallStarted
) -> tuple[str, str]:
    from killick.views.budget import Budget
    from killick.views.context import compute
    from killick.views.sent import first_difference, hash_request, version_of

    sent = call.request
    if sent is None or sent.view is None:
        return "not recorded", ""
    view = sent.view
    if call.redacted:
        return "redacted", ""
    budget = Budget(view.max_messages, view.max_tokens, view.max_bytes)
    if view.version != version_of(budget):
        return "another version", ""
    if view.counter is not None and view.max_tokens is not None:
        return "counter", ""
    shown, history = _as_of(entries, view)
    again = compute(
        shown,
        sent.format,
        blobs=lambda name: reader.blob(row.tenant, name),
        history=history,
        budget=budget,
        profile=view.profile,
        partial=view.partial,  # type: ignore[arg-type]
        reasoning=view.reasoning,
        errors=view.errors,  # type: ignore[arg-type]
    )
    if hash_request(call, sent.format, again.messages) == sent.hash:
        return "equal", ""
    if any(getattr(entry.body, "redacted", 0) for entry in shown):
        return "redacted", ""  # of what it was made of, an export left words out
    return "different", first_difference(sent, again.messages)


def _as_of(entries: list[e.Entry], view: e.SentView) -> tuple[list[e.Entry], History | None]:
    """Return the entries that a context was made of, as `session.context` reads them."""
    known = [entry for entry in entries if entry.seq <= view.through]
    if view.before_turn is None:
        return known, None
    starts = {
        entry.body.turn_id: entry.seq for entry in known if isinstance(entry.body, e.TurnStarted)
    }
    reach = starts.get(view.before_turn, view.through + 1) - 1
    history = History(
        entry
        for entry in known
        if not (isinstance(entry.body, e.Compacted) and entry.body.through > reach)
    )
    late = [
        entry
        for entry in known
        if entry.seq > reach
        and isinstance(entry.body, e.Late)
        and starts.get(entry.body.turn_id, reach + 1) <= reach
    ]
    return [*(entry for entry in known if entry.seq <= reach), *late], history


def _stored(reader: Reader, row: SessionRow) -> Iterator[StoredEntry]:
    after = row.base_seq
    while page := reader.stored_entries(row.key, after=after, limit=_PAGE):
        yield from page
        after = page[-1].seq


def _ids(reader: Reader, row: SessionRow) -> tuple[str, ...]:
    """Return the ids that links may name: a fork that was copied has entries of its ancestors."""
    if row.base is not None:
        return (row.id,)
    try:
        stored = reader.session(row.key)
        copied = stored is not None and stored.about.fork is not None
    except SessionDamaged:
        copied = True
    return (row.id, *_ancestors(reader, row)) if copied else (row.id,)


def _ancestors(reader: Reader, row: SessionRow) -> list[str]:
    names = []
    for stored in _stored(reader, row):
        try:
            body = decode_body(stored.body)
        except CodecError:
            continue
        if isinstance(body, e.SessionCreated) and body.fork is not None:
            names.append(body.fork.session_id)
    return names


def linked_entries(reader: Reader, key: int, after: int, limit: int) -> list[LinkedEntry]:
    """Return entries with their links, inherited ones too. Raises SessionDamaged."""
    entries = reader.entries(key, after=after, limit=limit)
    own = {row.seq: row.link for row in reader.stored_entries(key, after=after, limit=limit)}
    before = reader.link_at(key, after) if after else None
    linked = []
    for entry in entries:
        link = own[entry.seq] if entry.seq in own else reader.link_at(key, entry.seq)
        linked.append(LinkedEntry(entry.seq, entry.at_us, entry.body, before, link))
        before = link
    return linked


def _compare(reader: Reader, key: int, expect: ExpectedLink) -> list[Finding]:
    """Compare the link of an entry with the one that was kept elsewhere."""
    link = reader.link_at(key, expect.head) if expect.head else None
    head = max(reader.head_of(key), reader.origin(key).base_seq)
    if (None if link is None else link.hex()) == expect.link and head >= expect.head:
        return []
    what = (
        f"the journal ends at {head}, and {expect.head} was expected"
        if head < expect.head
        else f"the link of entry {expect.head} is not the expected one: "
        "this entry, or one before it, was changed and the links were made anew"
    )
    return [_about_link(expect.session_id, expect.head, what)]
