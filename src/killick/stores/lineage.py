"""Reading a journal whose beginning lies in other sessions.

A fork holds no copies: its entries up to `base_seq` are those of the session it came from, which
may be a fork itself. Every database reads its own rows; what is here puts them together.
"""

from killick.model.entries import Entry


class JournalReader:
    """Entries of a session with everything it has inherited. A database fills in the rest."""

    def own_entries(
        self, key: int, *, after: int, through: int | None, limit: int | None
    ) -> list[Entry]:
        """The session's own rows, in order. Raises SessionDamaged where one is missing."""
        raise NotImplementedError

    def own_newest(self, key: int, *, before: int | None, limit: int) -> list[Entry]:
        raise NotImplementedError

    def own_marked(self, key: int, mark: int, after: int) -> list[Entry]:
        raise NotImplementedError

    def own_entry(self, key: int, identity: str) -> Entry | None:
        raise NotImplementedError

    def base_of(self, key: int) -> tuple[int, int] | None:
        """The session that this one was forked from, and how far it reaches."""
        raise NotImplementedError

    def check_dense(self, key: int, entries: list[Entry], after: int) -> None:
        """Raise SessionDamaged if these entries do not follow on `after` without a gap."""
        raise NotImplementedError

    def entries(
        self, key: int, *, after: int = 0, through: int | None = None, limit: int | None = None
    ) -> list[Entry]:
        own = self.own_entries(key, after=after, through=through, limit=limit)
        if own and own[0].seq == after + 1:  # nothing is inherited here, as nearly always
            self.check_dense(key, own, after)
            return own
        base = self.base_of(key)
        if base is None or after >= base[1]:
            self.check_dense(key, own, after)
            return own
        source, reach = base
        last = reach if through is None else min(through, reach)
        inherited = self.entries(source, after=after, through=last, limit=limit)
        if limit is None:
            self.check_dense(key, own, reach)
            return [*inherited, *own]
        if len(inherited) >= limit:
            return inherited
        own = self.own_entries(key, after=reach, through=through, limit=limit - len(inherited))
        self.check_dense(key, own, reach)
        return [*inherited, *own]

    def newest_entries(self, key: int, *, before: int | None, limit: int) -> list[Entry]:
        own = self.own_newest(key, before=before, limit=limit)
        if len(own) == limit:
            return own
        base = self.base_of(key)
        if base is None:
            return own
        source, reach = base
        earlier = reach + 1 if before is None else min(before, reach + 1)
        return [*self.newest_entries(source, before=earlier, limit=limit - len(own)), *own]

    def marked_entries(self, key: int, mark: int, *, after: int = 0) -> list[Entry]:
        own = self.own_marked(key, mark, after)
        base = self.base_of(key)
        if base is None or after >= base[1]:
            return own
        source, reach = base
        inherited = self.marked_entries(source, mark, after=after)
        return [*(entry for entry in inherited if entry.seq <= reach), *own]

    def find_entry(self, key: int, identity: str) -> Entry | None:
        found = self.own_entry(key, identity)
        if found is not None:
            return found
        base = self.base_of(key)
        if base is None:
            return None
        inherited = self.find_entry(base[0], identity)
        return inherited if inherited is not None and inherited.seq <= base[1] else None
