"""The sums by day in SQLite, and which sessions they lack."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import apsw
import msgspec

from killick.journal.codec import decode, encode, to_bytes, to_text
from killick.journal.sums import Active, Counted, SpentSum, Sums
from killick.stores.contract import Uncounted, UsageQuery
from killick.stores.sql import chosen, load

SQL: Final = load("killick.stores.sqlite")


class SqliteSums:
    """Reads sums, on a connection that the database opened."""

    connection: apsw.Connection

    def uncounted(self, tenant: str | None, limit: int) -> list[Uncounted]:
        execute = self.connection.execute
        if tenant is None:
            rows = execute(SQL.uncounted_of_all, (limit,))
        else:
            rows = execute(SQL.uncounted, (to_bytes(tenant), limit))
        return [
            Uncounted(key, to_text(name), created, base_seq, bool(deleted), _counted(body))
            for key, name, created, base_seq, deleted, body in rows
        ]

    def count_uncounted(self, tenant: str) -> int:
        count = self.connection.execute(SQL.count_uncounted, (to_bytes(tenant),)).get
        assert isinstance(count, int)
        return count

    def usage_sums(self, query: UsageQuery) -> list[SpentSum]:
        fields = {name: getattr(query, name) for name in ("model", "since_day", "until_day")}
        given = frozenset(name for name, value in fields.items() if value is not None)
        model = None if query.model is None else to_bytes(query.model)
        bindings = {**fields, "tenant": to_bytes(query.tenant), "model": model}
        rows = self.connection.execute(chosen(SQL.usage_sums, "all", given), bindings)
        return [
            SpentSum(day, to_text(provider), to_text(model), *numbers)
            for day, provider, model, *numbers in rows
        ]

    def activity_sums(self, tenant: str, since: int, until: int) -> list[Active]:
        rows = self.connection.execute(SQL.activity_sums, (to_bytes(tenant), since, until))
        return [Active(*row) for row in rows]

    def all_sums(self) -> dict[str, Sums]:
        sums: dict[str, Sums] = {}
        for tenant, day, provider, model, *numbers in self.connection.execute(SQL.all_usage_sums):
            name = day, to_text(provider), to_text(model)
            of_tenant = sums.setdefault(to_text(tenant), Sums())
            of_tenant.usage[name] = SpentSum(*name, *numbers)
        for tenant, day, *numbers in self.connection.execute(SQL.all_activity_sums):
            sums.setdefault(to_text(tenant), Sums()).days[day] = Active(day, *numbers)
        return sums

    def all_counted(self) -> Iterator[tuple[str, Counted]]:
        for tenant, body in self.connection.execute(SQL.all_counted):
            yield to_text(tenant), _counted(body)


class SqliteSumming(SqliteSums):
    """Writes sums, inside the transaction that the database has begun."""

    _write: Callable[..., None]

    def take_uncounted(self, limit: int) -> list[Uncounted]:
        return self.uncounted(None, limit)

    def counted_of(self, key: int) -> Counted:
        return _counted(self.connection.execute(SQL.counted_of, (key,)).get)

    def save_counted(self, key: int, counted: Counted | None) -> None:
        if counted is None:
            self._write(SQL.drop_counted, (key,))
            return
        self._write(SQL.put_counted, (key, encode(counted)))
        self._write(SQL.is_counted, (key,))

    def add_to_sums(self, tenant: str, changes: Sums) -> None:
        of = to_bytes(tenant)
        for (day, provider, model), row in changes.usage.items():
            name = of, day, to_bytes(provider), to_bytes(model)
            self._write(SQL.add_usage, (*name, *msgspec.structs.astuple(row)[3:]))
            if row.sessions < 0:
                self._write(SQL.drop_empty_usage, name)
        for day, active in changes.days.items():
            self._write(SQL.add_activity, (of, *msgspec.structs.astuple(active)))
            if active.takes_out():
                self._write(SQL.drop_empty_activity, (of, day))

    def empty_sums(self) -> None:
        self._write(SQL.empty_sums, ())


def _counted(body: Any) -> Counted:
    return Counted() if body is None else decode(body, Counted)
