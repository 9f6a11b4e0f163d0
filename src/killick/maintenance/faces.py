"""The part of a store's two faces that looks after it: erase, clean up, back up, examine."""

import os
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from killick.journal.chain import LinkedEntry
from killick.maintenance.erase import CareCore, Erasure
from killick.maintenance.examine import Finding, Salvaged
from killick.maintenance.prove import ExpectedLink, Verified
from killick.maintenance.retention import DELETED_DAYS, Removal, RetentionRule
from killick.model import entries as e
from killick.model.sessions import ErasureNote, SessionInfo
from killick.session.core.queries import Progress
from killick.session.core.store import StoreCore
from killick.session.drive.steps import Flow
from killick.stores.contract import BackupReceipt, Figures
from killick.stores.engine.state import Receipt

T = TypeVar("T")


class Upkeep:
    """The synchronous face."""

    _care: CareCore
    _core: StoreCore

    def _run(self, flow: Flow[T]) -> T:
        raise NotImplementedError

    def resolve_id(self, text: str) -> str:
        """Return the id that this is, or the one id that begins like it.

        Raises SessionAmbiguous or SessionNotFound, which name the nearest.
        """
        return self._run(self._care.resolve(text))

    def erase_session(
        self, session_id: str, *, forks: bool = False, verify: bool = True
    ) -> Erasure:
        """Remove a session for good, and see that nothing of it is left in the store's files.

        Raises SessionHasForks unless `forks` says that they go too, SessionBusy while a turn runs.
        The whole file is read afterwards, while others write; without `verify` that is left to
        `verify_erased`. If interrupted: it exists, or nothing finds it any more and erasing it
        again finishes it.
        """
        return self._run(self._care.erase(session_id, forks=forks, verify=verify))

    def verify_erased(
        self, session_id: str | None = None, *, receipt: Erasure | None = None
    ) -> Erasure:
        """Look again whether bytes of erased sessions are left, and clear them.

        Of this session, those of a receipt, or all whose erasure is not finished. Raises UsageError
        for one that was not erased, and for a receipt of another store. If interrupted: call it
        again.
        """
        return self._run(self._care.verify_erased(session_id, receipt))

    def clean_up(
        self,
        *,
        deleted_after: timedelta | None = timedelta(days=DELETED_DAYS),
        idle_after: timedelta | None = None,
        archived_after: timedelta | None = None,
        dry_run: bool = True,
    ) -> list[Removal]:
        """Apply rules of retention: each session, by which rule, or why it is kept.

        Deleted sessions are erased, idle and archived ones are deleted. Pinned ones are kept, and
        those that forks are made of. Nothing is done unless `dry_run` is False.

        If interrupted: each session is removed or it is not; call it again. What was erased may
        still be in the file: `check_file` says so, and erasing it again makes sure.
        """
        rule = RetentionRule(
            deleted_after=deleted_after, idle_after=idle_after, archived_after=archived_after
        )
        return self._run(self._care.clean_up([rule], dry_run=dry_run))

    def retention(self) -> list[RetentionRule]:
        """Return the rules of retention that are kept in the store; the tenant's own is first."""
        return self._run(self._care.retention())

    def set_retention(
        self,
        project: str | None = None,
        *,
        deleted_after: timedelta | None = None,
        idle_after: timedelta | None = None,
        archived_after: timedelta | None = None,
    ) -> None:
        """Keep a rule of retention in the store, in place of the one for the same project.

        A rule for a project is for sessions whose root is that folder or lies in it, and is the
        only one for them; a rule without a time keeps them all. Without a project it is for all
        others of this tenant. Nothing is removed before `apply_retention` is told to.

        If interrupted: the rule is kept, or the one before it.
        """
        rule = RetentionRule(
            project=project,
            deleted_after=deleted_after,
            idle_after=idle_after,
            archived_after=archived_after,
        )
        self._run(self._care.set_retention(rule))

    def drop_retention(self, project: str | None = None) -> None:
        """Forget a rule of retention. Raises UsageError if there is none for this project.

        If interrupted: the rule is gone or it is not.
        """
        self._run(self._care.drop_retention(project))

    def apply_retention(self, *, dry_run: bool = True) -> list[Removal]:
        """Apply the rules that are kept in the store, as `clean_up` does with one of the caller's.

        Nothing is done unless `dry_run` is False. If interrupted: as `clean_up`.
        """
        return self._run(self._care.apply_retention(dry_run=dry_run))

    def erasures(self, *, limit: int = 100) -> list[ErasureNote]:
        """Return receipts of erasures, newest first; those of a rule name it in `because`."""
        return self._run(self._care.erasures(limit))

    def import_entries(
        self, session_id: str, entries: Sequence[e.Entry], *, hold: bool = False
    ) -> Receipt:
        """Append entries that were made elsewhere, with their own times, in the places they name.

        All or none, in whole turns; an entry at seq 1 begins the session. Nothing enters that the
        rules refuse: InvalidEntry, IdConflict or SessionBusy says what. The same entries again
        change nothing, and the receipt says `repeated`. If interrupted: all are there or none.

        With `hold` the last turn may stay open: it runs, held by this opening of the store, and
        later entries go on with it. It is closed as crashed when this opening is gone.
        """
        return self._run(self._core.import_entries(session_id, entries, hold=hold))

    def import_deltas(self, session_id: str, message_id: str, deltas: Sequence[e.Delta]) -> None:
        """Add to a message that streams in a turn which `import_entries` holds open here.

        Raises InvalidEntry when no such message streams. If interrupted: they are there or not.
        """
        self._run(self._core.import_deltas(session_id, message_id, deltas))

    def end_imported(self, session_id: str, ending: e.TurnEnding) -> bool:
        """End a turn that `import_entries` holds open here; False when it is over already.

        What streams in it is kept as partial. If interrupted: the turn is over or it is not.
        """
        return self._run(self._core.end_imported(session_id, ending))

    def backup(
        self,
        target: str | os.PathLike[str],
        *,
        renew: bool = False,
        progress: Progress | None = None,
    ) -> BackupReceipt:
        """Copy the store to a new file while it is in use, and check the copy.

        With `renew`, a backup of this store that is there is brought up to date: only pages that
        have changed are written. If interrupted: there is no file of that name, or a whole and
        checked one; one that is renewed is the old one, or the new once it is renewed or restored.
        """
        return self._run(self._care.back_up(target, progress, renew=renew))

    def session_ids(self) -> list[str]:
        """List every session, deleted ones too, by reading all rows and trusting no index."""
        return self._run(self._care.session_ids())

    def session_info(self, session_id: str) -> SessionInfo:
        """Return what a list says of a session, without opening it: a damaged one too.

        Raises SessionNotFound, and SessionDamaged if not even that can be read.
        """
        return self._run(self._care.session_info(session_id))

    def salvage(self, session_id: str) -> Salvaged:
        """Read a session as far as possible, deleted or damaged; says whether it is whole."""
        return self._run(self._care.salvage(session_id))

    def check_file(self) -> list[Finding]:
        """Find what is wrong with the file itself; reads all of it."""
        return self._run(self._care.check_file())

    def rebuild_search(
        self, *, substrings: bool | None = None, progress: Progress | None = None
    ) -> int:
        """Make the search index anew while others write; how many entries were gone through.

        `substrings` says from now on whether parts of words can be found too, at several times the
        size; None leaves it as it is. `progress` is called with entries done and all of them.

        If interrupted: the index is behind, and catches up in idle moments.
        """
        return self._run(self._care.rebuild_search(substrings=substrings, progress=progress))

    def rebuild_sums(self) -> None:
        """Add up usage and activity of all sessions by day anew, while others write.

        If interrupted: the sums are behind, and catch up in idle moments.
        """
        return self._run(self._care.rebuild_sums())

    def rebuild_indexes(self) -> None:
        """Make the database's indexes anew. If interrupted: each is made anew, or as it was."""
        return self._run(self._care.rebuild_indexes())

    def examine_session(self, session_id: str, *, rebuild: bool = False) -> list[Finding]:
        """Find what is wrong with a session: entries, rules, what is derived, leases, deltas.

        `rebuild` makes what is derived anew. If interrupted: it is made anew or it is as it was.
        """
        return self._run(self._care.examine(session_id, rebuild=rebuild))

    def verify_session(self, session_id: str, *, expect: ExpectedLink | None = None) -> Verified:
        """Prove a session by its links: nothing was changed, removed, reordered or cut.

        `expect` is a link that was kept elsewhere. Reads only, and stops no session.
        """
        return self._run(self._care.verify(session_id, expect))

    def linked_entries(
        self, session_id: str, *, after: int = 0, limit: int = 200
    ) -> list[LinkedEntry]:
        """Return entries with their links, of a deleted session too, for `import_entries`."""
        return self._run(self._care.linked_entries(session_id, after, limit))

    def was_erased(self, session_id: str) -> bool:
        """Tell whether there is a receipt that a session of this id was erased."""
        return self._run(self._care.was_erased(session_id))

    @property
    def figures(self) -> Figures:
        """Counts of what this opening of the store has written, and has open now."""
        return self._core.runtime().figures()


class AsyncUpkeep:
    """The asynchronous face."""

    _care: CareCore
    _core: StoreCore

    def _run(self, flow: Flow[T]) -> Coroutine[Any, Any, T]:
        raise NotImplementedError

    async def resolve_id(self, text: str) -> str:
        """Return the id that this is, or the one id that begins like it.

        Raises SessionAmbiguous or SessionNotFound, which name the nearest.
        """
        return await self._run(self._care.resolve(text))

    async def erase_session(
        self, session_id: str, *, forks: bool = False, verify: bool = True
    ) -> Erasure:
        """Remove a session for good, and see that nothing of it is left in the store's files.

        Raises SessionHasForks unless `forks` says that they go too, SessionBusy while a turn runs.
        The whole file is read afterwards, while others write; without `verify` that is left to
        `verify_erased`. If interrupted: it exists, or nothing finds it any more and erasing it
        again finishes it.
        """
        return await self._run(self._care.erase(session_id, forks=forks, verify=verify))

    async def verify_erased(
        self, session_id: str | None = None, *, receipt: Erasure | None = None
    ) -> Erasure:
        """Look again whether bytes of erased sessions are left, and clear them.

        Of this session, those of a receipt, or all whose erasure is not finished. Raises UsageError
        for one that was not erased, and for a receipt of another store. If interrupted: call it
        again.
        """
        return await self._run(self._care.verify_erased(session_id, receipt))

    async def clean_up(
        self,
        *,
        deleted_after: timedelta | None = timedelta(days=DELETED_DAYS),
        idle_after: timedelta | None = None,
        archived_after: timedelta | None = None,
        dry_run: bool = True,
    ) -> list[Removal]:
        """Apply rules of retention: each session, by which rule, or why it is kept.

        Deleted sessions are erased, idle and archived ones are deleted. Pinned ones are kept, and
        those that forks are made of. Nothing is done unless `dry_run` is False.

        If interrupted: each session is removed or it is not; call it again. What was erased may
        still be in the file: `check_file` says so, and erasing it again makes sure.
        """
        rule = RetentionRule(
            deleted_after=deleted_after, idle_after=idle_after, archived_after=archived_after
        )
        return await self._run(self._care.clean_up([rule], dry_run=dry_run))

    async def retention(self) -> list[RetentionRule]:
        """Return the rules of retention that are kept in the store; the tenant's own is first."""
        return await self._run(self._care.retention())

    async def set_retention(
        self,
        project: str | None = None,
        *,
        deleted_after: timedelta | None = None,
        idle_after: timedelta | None = None,
        archived_after: timedelta | None = None,
    ) -> None:
        """Keep a rule of retention in the store, in place of the one for the same project.

        A rule for a project is for sessions whose root is that folder or lies in it, and is the
        only one for them; a rule without a time keeps them all. Without a project it is for all
        others of this tenant. Nothing is removed before `apply_retention` is told to.

        If interrupted: the rule is kept, or the one before it.
        """
        rule = RetentionRule(
            project=project,
            deleted_after=deleted_after,
            idle_after=idle_after,
            archived_after=archived_after,
        )
        await self._run(self._care.set_retention(rule))

    async def drop_retention(self, project: str | None = None) -> None:
        """Forget a rule of retention. Raises UsageError if there is none for this project.

        If interrupted: the rule is gone or it is not.
        """
        await self._run(self._care.drop_retention(project))

    async def apply_retention(self, *, dry_run: bool = True) -> list[Removal]:
        """Apply the rules that are kept in the store, as `clean_up` does with one of the caller's.

        Nothing is done unless `dry_run` is False. If interrupted: as `clean_up`.
        """
        return await self._run(self._care.apply_retention(dry_run=dry_run))

    async def erasures(self, *, limit: int = 100) -> list[ErasureNote]:
        """Return receipts of erasures, newest first; those of a rule name it in `because`."""
        return await self._run(self._care.erasures(limit))

    async def import_entries(
        self, session_id: str, entries: Sequence[e.Entry], *, hold: bool = False
    ) -> Receipt:
        """Append entries that were made elsewhere, with their own times, in the places they name.

        All or none, in whole turns; an entry at seq 1 begins the session. Nothing enters that the
        rules refuse: InvalidEntry, IdConflict or SessionBusy says what. The same entries again
        change nothing, and the receipt says `repeated`. If interrupted: all are there or none.

        With `hold` the last turn may stay open: it runs, held by this opening of the store, and
        later entries go on with it. It is closed as crashed when this opening is gone.
        """
        return await self._run(self._core.import_entries(session_id, entries, hold=hold))

    async def import_deltas(
        self, session_id: str, message_id: str, deltas: Sequence[e.Delta]
    ) -> None:
        """Add to a message that streams in a turn which `import_entries` holds open here.

        Raises InvalidEntry when no such message streams. If interrupted: they are there or not.
        """
        await self._run(self._core.import_deltas(session_id, message_id, deltas))

    async def end_imported(self, session_id: str, ending: e.TurnEnding) -> bool:
        """End a turn that `import_entries` holds open here; False when it is over already.

        What streams in it is kept as partial. If interrupted: the turn is over or it is not.
        """
        return await self._run(self._core.end_imported(session_id, ending))

    async def backup(
        self,
        target: str | os.PathLike[str],
        *,
        renew: bool = False,
        progress: Progress | None = None,
    ) -> BackupReceipt:
        """Copy the store to a new file while it is in use, and check the copy.

        With `renew`, a backup of this store that is there is brought up to date: only pages that
        have changed are written. If interrupted: there is no file of that name, or a whole and
        checked one; one that is renewed is the old one, or the new once it is renewed or restored.
        """
        return await self._run(self._care.back_up(target, progress, renew=renew))

    async def session_ids(self) -> list[str]:
        """List every session, deleted ones too, by reading all rows and trusting no index."""
        return await self._run(self._care.session_ids())

    async def session_info(self, session_id: str) -> SessionInfo:
        """Return what a list says of a session, without opening it: a damaged one too.

        Raises SessionNotFound, and SessionDamaged if not even that can be read.
        """
        return await self._run(self._care.session_info(session_id))

    async def salvage(self, session_id: str) -> Salvaged:
        """Read a session as far as possible, deleted or damaged; says whether it is whole."""
        return await self._run(self._care.salvage(session_id))

    async def check_file(self) -> list[Finding]:
        """Find what is wrong with the file itself; reads all of it."""
        return await self._run(self._care.check_file())

    async def rebuild_search(
        self, *, substrings: bool | None = None, progress: Progress | None = None
    ) -> int:
        """Make the search index anew while others write; how many entries were gone through.

        `substrings` says from now on whether parts of words can be found too, at several times the
        size; None leaves it as it is. `progress` is called with entries done and all of them.

        If interrupted: the index is behind, and catches up in idle moments.
        """
        return await self._run(self._care.rebuild_search(substrings=substrings, progress=progress))

    async def rebuild_sums(self) -> None:
        """Add up usage and activity of all sessions by day anew, while others write.

        If interrupted: the sums are behind, and catch up in idle moments.
        """
        return await self._run(self._care.rebuild_sums())

    async def rebuild_indexes(self) -> None:
        """Make the database's indexes anew. If interrupted: each is made anew, or as it was."""
        return await self._run(self._care.rebuild_indexes())

    async def examine_session(self, session_id: str, *, rebuild: bool = False) -> list[Finding]:
        """Find what is wrong with a session: entries, rules, what is derived, leases, deltas.

        `rebuild` makes what is derived anew. If interrupted: it is made anew or it is as it was.
        """
        return await self._run(self._care.examine(session_id, rebuild=rebuild))

    async def verify_session(
        self, session_id: str, *, expect: ExpectedLink | None = None
    ) -> Verified:
        """Prove a session by its links: nothing was changed, removed, reordered or cut.

        `expect` is a link that was kept elsewhere. Reads only, and stops no session.
        """
        return await self._run(self._care.verify(session_id, expect))

    async def linked_entries(
        self, session_id: str, *, after: int = 0, limit: int = 200
    ) -> list[LinkedEntry]:
        """Return entries with their links, of a deleted session too, for `import_entries`."""
        return await self._run(self._care.linked_entries(session_id, after, limit))

    async def was_erased(self, session_id: str) -> bool:
        """Tell whether there is a receipt that a session of this id was erased."""
        return await self._run(self._care.was_erased(session_id))

    @property
    def figures(self) -> Figures:
        """Counts of what this opening of the store has written, and has open now."""
        return self._core.runtime().figures()
