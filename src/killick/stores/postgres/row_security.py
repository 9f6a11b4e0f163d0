"""Row security: the server shows a role that does not own the tables one tenant's rows only.

A migration gives each table with a tenant a policy: a row is seen, and written, if its tenant is
the one that `killick_store.tenant` names in this transaction. The owner of the tables is not bound
by it. A role that is given to one tenant for good has a second policy, which it cannot set aside.
"""

from typing import Final

from psycopg import errors as pg
from psycopg import sql

from killick.errors import StoreReadOnly, UsageError
from killick.stores.postgres.connection import Connection, Link
from killick.stores.postgres.statements import tenant_number

_IS_BOUND: Final = """
SELECT row_security_active(c.oid)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = 'sessions'
"""

_OF_TENANTS: Final = """
SELECT c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'tenant' AND NOT a.attisdropped
WHERE n.nspname = %s AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY c.relname
"""

_BYPASSES: Final = """
SELECT r.rolsuper OR r.rolbypassrls OR pg_has_role(r.oid, c.relowner, 'USAGE')
FROM pg_roles AS r, pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE r.rolname = %s AND n.nspname = %s AND c.relname = 'sessions'
"""

_FOR_ALL: Final = {"meta": "SELECT", "migrations": "SELECT", "search_state": "SELECT, UPDATE"}
"""Tables without a tenant, and what every store does with them."""


def is_bound(line: Link, schema: str) -> bool:
    """Return whether the server shows the role of this connection only one tenant's rows."""
    row = line.connection.execute(_IS_BOUND, (schema,)).fetchone()
    return row is not None and bool(row[0])


def tables_of_tenants(connection: Connection, schema: str) -> list[str]:
    """Return the tables whose rows belong to a tenant."""
    return [name for (name,) in connection.execute(_OF_TENANTS, (schema,)).fetchall()]


def grant(connection: Connection, schema: str, role: str, tenant: str | None) -> None:
    """Give a role what a store needs; with a tenant, for that tenant's rows alone, for good.

    Raises UsageError for a role that row security does not bind. If interrupted: all of it is
    given, or nothing.
    """
    with connection.transaction():
        row = connection.execute(_BYPASSES, (role, schema)).fetchone()
        if row is None:
            raise UsageError(f"the server has no role {role!r}; make it: CREATE ROLE … LOGIN")
        if row[0]:
            raise UsageError(
                f"row security does not bind {role!r}: it is a superuser, has BYPASSRLS or owns "
                "the tables; name a role that only the program uses"
            )
        try:
            _grant(connection, schema, role, tenant)
        except pg.InsufficientPrivilege as error:
            raise StoreReadOnly(
                f"only the owner of the tables can give others a part in them ({error}); "
                "name that role in the store's URL"
            ) from error


def _grant(connection: Connection, schema: str, role: str, tenant: str | None) -> None:
    to = sql.Identifier(role)
    space = sql.SQL("GRANT USAGE ON SCHEMA {} TO {}")
    connection.execute(space.format(sql.Identifier(schema), to))
    for table, rights in _FOR_ALL.items():
        part = sql.SQL(f"GRANT {rights} ON {{}} TO {{}}")
        connection.execute(part.format(sql.Identifier(schema, table), to))
    policy = sql.Identifier(f"only_{role}"[:63])
    for table in tables_of_tenants(connection, schema):
        named = sql.Identifier(schema, table)
        rows = sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO {}")
        connection.execute(rows.format(named, to))
        connection.execute(sql.SQL("DROP POLICY IF EXISTS {} ON {}").format(policy, named))
        if tenant is not None:
            only = sql.SQL("CREATE POLICY {} ON {} AS RESTRICTIVE TO {} USING (tenant = {})")
            number = sql.Literal(tenant_number(tenant))
            connection.execute(only.format(policy, named, to, number))
