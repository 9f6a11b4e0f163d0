"""The sums by day in PostgreSQL, and which sessions they lack."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from killick.journal.codec import decode, encode, to_bytes, to_text
from killick.journal.sums import Active, Counted, SpentSum, Sums
from killick.stores.contract import Uncounted, UsageQuery
from killick.stores.postgres.connection import StatementRunner
from killick.stores.postgres.statements import join, of, tenant_number
from killick.stores.sql import chosen

_PAGE: Final = 1_000


class PostgresSums(StatementRunner):
    """Reads sums, on a connection that its caller has opened."""

    def _tenant_name(self, tenant: int) -> str:
        raise NotImplementedError

    def uncounted(self, tenant: str | None, limit: int) -> list[Uncounted]:
        if tenant is None:
            return self._uncounted(self._sql.uncounted_of_all, {"limit": limit})
        wanted = {"tenant": tenant_number(tenant), "limit": limit}
        return self._uncounted(self._sql.uncounted, wanted)

    def _uncounted(self, sql: str, bindings: dict[str, Any]) -> list[Uncounted]:
        return [
            Uncounted(
                join(tenant, session),
                self._tenant_name(tenant),
                created_at_us,
                base_seq,
                deleted,
                _counted(body),
            )
            for tenant, session, created_at_us, base_seq, deleted, body in self.fetch(sql, bindings)
        ]

    def count_uncounted(self, tenant: str) -> int:
        wanted = {"tenant": tenant_number(tenant)}
        count: int = self.fetch_one(self._sql.count_uncounted, wanted)[0]
        return count

    def usage_sums(self, query: UsageQuery) -> list[SpentSum]:
        fields = {name: getattr(query, name) for name in ("model", "since_day", "until_day")}
        given = frozenset(name for name, value in fields.items() if value is not None)
        model = None if query.model is None else to_bytes(query.model)
        bindings = {**fields, "tenant": tenant_number(query.tenant), "model": model}
        rows = self.fetch(chosen(self._sql.usage_sums, "all", given), bindings)
        return [
            SpentSum(day, to_text(provider), to_text(model), *numbers)
            for day, provider, model, *numbers in rows
        ]

    def activity_sums(self, tenant: str, since: int, until: int) -> list[Active]:
        wanted = {"tenant": tenant_number(tenant), "since": since, "until": until}
        return [Active(*row) for row in self.fetch(self._sql.activity_sums, wanted)]

    def all_sums(self) -> dict[str, Sums]:
        sums: dict[str, Sums] = {}
        for tenant, day, provider, model, *numbers in self.fetch(self._sql.all_usage_sums):
            name = day, to_text(provider), to_text(model)
            of_tenant = sums.setdefault(self._tenant_name(tenant), Sums())
            of_tenant.usage[name] = SpentSum(*name, *numbers)
        for tenant, day, *numbers in self.fetch(self._sql.all_activity_sums):
            sums.setdefault(self._tenant_name(tenant), Sums()).days[day] = Active(day, *numbers)
        return sums

    def all_counted(self) -> Iterator[tuple[str, Counted]]:
        self.take_time()
        after = (-1, -1)
        while True:
            page = {"tenant_after": after[0], "session_after": after[1], "limit": _PAGE}
            rows = self.fetch(self._sql.all_counted, page)
            for tenant, _, body in rows:
                yield self._tenant_name(tenant), _counted(body)
            if len(rows) < _PAGE:
                return
            after = rows[-1][:2]


class PostgresSumming(PostgresSums):
    """Writes sums, inside of a transaction that writes."""

    def send(self, sql: str, bindings: dict[str, Any] | None = None) -> None:
        """Gather a statement whose result is not needed."""
        raise NotImplementedError

    def take_uncounted(self, limit: int) -> list[Uncounted]:
        if not self.fetch(self._sql.take_sums)[0][0]:
            return []
        return self._uncounted(self._sql.take_uncounted, {"limit": limit})

    def counted_of(self, key: int) -> Counted:
        row = self.fetch_one(self._sql.counted_of, of(key))
        return _counted(None if row is None else row[0])

    def save_counted(self, key: int, counted: Counted | None) -> None:
        if counted is None:
            self.send(self._sql.drop_counted, of(key))
        else:
            self.send(self._sql.put_counted, of(key, body=encode(counted)))

    def add_to_sums(self, tenant: str, changes: Sums) -> None:
        self.fetch(self._sql.wait_for_sums)
        of_tenant = {"tenant": tenant_number(tenant)}
        for row in changes.usage.values():
            names = {"provider": to_bytes(row.provider), "model": to_bytes(row.model)}
            self.send(self._sql.add_usage, {**msgspec.structs.asdict(row), **of_tenant, **names})
            if row.sessions < 0:
                self.send(self._sql.drop_empty_usage, {**of_tenant, **names, "day": row.day})
        for day, active in changes.days.items():
            self.send(self._sql.add_activity, {**msgspec.structs.asdict(active), **of_tenant})
            if active.takes_out():
                self.send(self._sql.drop_empty_activity, {**of_tenant, "day": day})

    def empty_sums(self) -> None:
        self.take_time()
        self.fetch(self._sql.wait_for_sums)
        sql = self._sql
        for statement in (
            sql.empty_usage_sums, sql.empty_activity_sums, sql.empty_counted, sql.count_from_start,
        ):  # fmt: skip
            self.send(statement)


def _counted(body: bytes | None) -> Counted:
    return Counted() if body is None else decode(body, Counted)
