"""Rules of retention: which sessions are due, by the last activity that their journals know of."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from killick.errors import KillickError, SessionDamaged, StoreError, UsageError
from killick.journal import checks
from killick.journal.codec import decode, encode
from killick.model.sessions import ErasureNote, SessionInfo, moment
from killick.session.core.session import not_found
from killick.session.core.store import StoreCore
from killick.session.drive.steps import Flow, read, write
from killick.session.runtime import is_dead
from killick.stores import engine as ops
from killick.stores.contract import Listing, Reader

DELETED_DAYS: Final = 30
"""How long a deleted session can be restored, unless the caller says otherwise."""

_PAGE: Final = 1_000


class RetentionRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long sessions are kept: those of one project, or of a tenant; None keeps them.

    A project is a folder; its rule is for sessions whose project's root is that folder or lies in
    it. The rule of the nearest folder counts alone, and the tenant's where no folder has one.
    """

    project: str | None = None
    deleted_after: timedelta | None = None
    idle_after: timedelta | None = None
    archived_after: timedelta | None = None


class Removal(msgspec.Struct, frozen=True):
    """The removal of one session by a rule of retention, or why it is kept."""

    session_id: str
    title: str | None
    action: Literal["delete", "erase"]
    because: str
    last_activity_us: int
    done: bool = False
    kept_because: str | None = None

    @property
    def last_activity(self) -> datetime:
        return moment(self.last_activity_us)


_Action = Literal["delete", "erase"]


class _Kind(msgspec.Struct, frozen=True):
    """A kind of session that a rule has a time for, and what happens to it then."""

    name: str
    action: _Action
    archived: bool | None = None
    deleted: bool = False

    def after(self, rule: RetentionRule) -> timedelta | None:
        after: timedelta | None = getattr(rule, f"{self.name}_after")
        return after


_KINDS: Final = (
    _Kind("deleted", "erase", deleted=True),
    _Kind("archived", "delete", archived=True),
    _Kind("idle", "delete"),
)


class RetentionCore:
    """Keeps and applies the rules of one store, as flows for both faces."""

    _store: StoreCore

    def _finish(self, sessions: tuple[str, ...], pieces: list[bytes] | None) -> Flow[object]:
        raise NotImplementedError

    def retention(self) -> Flow[list[RetentionRule]]:
        """Return the rules that are kept in the store, the tenant's own first."""
        tenant = self._store.runtime().tenant
        return (yield from read(lambda reader: _stored_rules(reader, tenant)))

    def set_retention(self, rule: RetentionRule) -> Flow[None]:
        """Keep a rule in place of the one for the same project, or of the tenant's."""
        _check(rule)
        runtime = self._store.runtime()
        tenant, at = runtime.tenant, runtime.clock()
        rule = msgspec.structs.replace(rule, project=_folder(rule.project))
        body = encode(rule)
        yield from write(lambda engine: ops.keep_rule(engine, tenant, rule.project or "", body, at))

    def drop_retention(self, project: str | None) -> Flow[None]:
        """Forget the rule for a project, or the tenant's. Raises UsageError if there is none."""
        runtime = self._store.runtime()
        tenant, at, folder = runtime.tenant, runtime.clock(), _folder(project)
        rules = yield from read(lambda reader: _stored_rules(reader, tenant))
        if all(rule.project != folder for rule in rules):
            whose = "this tenant" if folder is None else repr(folder)
            raise UsageError(f"there is no rule of retention for {whose}")
        yield from write(lambda engine: ops.keep_rule(engine, tenant, folder or "", None, at))

    def apply_retention(self, *, dry_run: bool) -> Flow[list[Removal]]:
        """Apply the rules that are kept in the store."""
        rules = yield from self.retention()
        return (yield from self.clean_up(rules, dry_run=dry_run))

    def erasures(self, limit: int) -> Flow[list[ErasureNote]]:
        """Return receipts of erasures, newest first."""
        tenant = self._store.runtime().tenant
        return (yield from read(lambda reader: reader.erasures(tenant, limit)))

    def clean_up(self, rules: Sequence[RetentionRule], *, dry_run: bool) -> Flow[list[Removal]]:
        """Apply rules of retention, by the last activity that the journals know of."""
        for rule in rules:
            _check(rule)
        runtime = self._store.runtime()
        now = runtime.clock()
        removals: dict[str, Removal] = {}
        for kind in _KINDS:
            due = yield from read(
                lambda reader, kind=kind: _due(reader, runtime.tenant, kind, rules, now)  # type: ignore[misc]
            )
            for removal in due:
                removals.setdefault(removal.session_id, removal)
        if dry_run:
            return list(removals.values())
        done = []
        for removal in removals.values():
            done.append((yield from self._try_to_remove(removal)))
        erased = tuple(each.session_id for each in done if each.done and each.action == "erase")
        if erased:
            yield from self._finish(erased, None)
        return done

    def _try_to_remove(self, removal: Removal) -> Flow[Removal]:
        """Remove a session; one that is damaged or in use again keeps no other from going."""
        try:
            return (yield from self._remove(removal))
        except StoreError:
            raise
        except KillickError as error:
            return msgspec.structs.replace(removal, kept_because=str(error))

    def _remove(self, removal: Removal) -> Flow[Removal]:
        if removal.kept_because is not None:
            return removal
        runtime, as_of = self._store.runtime(), removal.last_activity_us
        because = f"retention: {removal.because}"
        if removal.action == "delete":
            yield from self._store.delete_session(removal.session_id, because, as_of)
        else:
            key = yield from read(lambda reader: key_of(reader, runtime.tenant, removal.session_id))
            at = runtime.clock()
            yield from write(
                lambda engine: ops.erase(engine, [key], at, as_of_us=as_of, because=because)
            )
        return msgspec.structs.replace(removal, done=True)


def key_of(reader: Reader, tenant: str, session_id: str) -> int:
    """Return a session's key. Raises SessionNotFound."""
    key = reader.find_key(tenant, session_id)
    if key is None:
        raise not_found(reader, tenant, session_id)
    return key


def _check(rule: RetentionRule) -> None:
    for kind in _KINDS:
        after = kind.after(rule)
        if after is not None and after < timedelta(0):
            raise ValueError("rules of retention count from zero")
    if rule.project is not None:
        checks.check_text(rule.project, "a project")
        if not rule.project:
            raise UsageError("name the folder of a project, or none for all others")


def _folder(project: str | None) -> str | None:
    return None if project is None else project.rstrip("/\\") or project


def _stored_rules(reader: Reader, tenant: str) -> list[RetentionRule]:
    return [decode(body, RetentionRule) for body in reader.retention(tenant)]


def rule_for(rules: Sequence[RetentionRule], root: str | None) -> RetentionRule | None:
    """Return the rule for sessions of a project: the nearest folder's, or the tenant's."""
    best: RetentionRule | None = None
    for rule in rules:
        folder = rule.project
        if folder is not None and not (root is not None and _is_in(root, folder)):
            continue
        if best is None or len(folder or "") > len(best.project or ""):
            best = rule
    return best


def _is_in(root: str, folder: str) -> bool:
    bare = folder.rstrip("/\\")
    return root == folder or (root.startswith(bare) and root[len(bare) : len(bare) + 1] in "/\\")


# -- what is due ---------------------------------------------------------------------------------


def _due(
    reader: Reader, tenant: str, kind: _Kind, rules: Sequence[RetentionRule], now_us: int
) -> list[Removal]:
    """Return sessions of one kind whose last activity, or whose deletion, is so long ago."""
    times = [after for rule in rules if (after := kind.after(rule)) is not None]
    if not times:
        return []
    listing = Listing(
        tenant=tenant,
        archived=kind.archived,
        deleted=kind.deleted,
        until_us=None if kind.deleted else _before(now_us, min(times)),
        limit=_PAGE,
    )
    removals: list[Removal] = []
    while True:
        page = reader.sessions(listing)
        removals += [
            removal for info in page if (removal := _judge(reader, kind, rules, info, now_us))
        ]
        if len(page) < listing.limit:
            return removals
        last = page[-1]
        listing = msgspec.structs.replace(listing, before=(last.updated_at_us, last.id))


def _before(now_us: int, after: timedelta) -> int:
    return now_us - after // timedelta(microseconds=1)


def _judge(
    reader: Reader, kind: _Kind, rules: Sequence[RetentionRule], info: SessionInfo, now_us: int
) -> Removal | None:
    rule = rule_for(rules, None if info.project is None else info.project.root)
    after = None if rule is None else kind.after(rule)
    if rule is None or after is None:
        return None
    if (info.about.deleted_at_us or info.updated_at_us) >= _before(now_us, after):
        return None
    because = kind.name if rule.project is None else f"{kind.name}, by the rule for {rule.project}"
    return _removal(reader, info, kind.action, because)


def _removal(reader: Reader, info: SessionInfo, action: _Action, because: str) -> Removal:
    kept = "it is pinned" if info.pinned else None
    if info.status == "running" and _is_held(reader, info):
        kept = "a turn runs in it"
    if action == "erase" and reader.forks_of(key_of(reader, info.tenant, info.id)):
        kept = "forks are made of its entries"
    return Removal(
        session_id=info.id,
        title=info.title,
        action=action,
        because=because,
        last_activity_us=info.updated_at_us,
        kept_because=kept,
    )


def _is_held(reader: Reader, info: SessionInfo) -> bool:
    """Return whether a living process runs its turn, or that cannot be read."""
    try:
        row = reader.find_session(info.tenant, info.id)
        return row is not None and not is_dead(reader, row)
    except SessionDamaged:
        return True
