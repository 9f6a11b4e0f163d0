"""Row security: the server shows a role that does not own the tables one tenant's rows only.

A migration gives each table with a tenant a policy: a row is seen, and written, if its tenant is
the one that `killick_store.tenant` names in this transaction. The owner of the tables is not bound
by it. A role that is given to one tenant for good has a second policy, which it cannot set aside.
"""

from hashlib import blake2b
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
WITH given AS (
    SELECT r.oid AS role, r.rolcreaterole, c.oid AS sessions, c.relowner, n.nspowner
    FROM pg_roles AS r, pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE r.rolname = %s AND n.nspname = %s AND c.relname = 'sessions'
), become AS (  -- itself, and every role that it may SET ROLE to, whether or not it inherits
    SELECT b.oid AS role, b.rolname, b.rolsuper, b.rolbypassrls
    FROM pg_roles AS b, given WHERE pg_has_role(given.role, b.oid, 'MEMBER')
)
SELECT given.rolcreaterole AND current_setting('server_version_num')::int < 160000
       OR EXISTS (SELECT 1 FROM become AS b WHERE b.rolsuper OR b.rolbypassrls
                  OR b.role IN (given.relowner, given.nspowner) OR b.rolname = ANY(%s)),
       (SELECT min(b.rolname) FROM become AS b
        WHERE b.role <> given.role AND has_table_privilege(b.role, given.sessions, 'SELECT'))
FROM given
"""

_OUTSIDE: Final = ["pg_read_server_files", "pg_write_server_files", "pg_execute_server_program"]
"""Roles of every server whose members reach its files, past row security."""

_FOR_ALL: Final = ("meta", "migrations", "search_state")
"""Tables without a tenant: what one role changed there, all tenants would feel."""

_HOLDERS: Final = "holders"
"""A holder without a tenant may hold any session: a role that did not see it would take it for
dead, and close its turns."""

_NAME_BYTES: Final = 63
"""PostgreSQL cuts longer names off: then two roles would share a policy."""


def is_bound(line: Link, schema: str) -> bool:
    """Return whether the server shows the role of this connection only one tenant's rows."""
    row = line.connection.execute(_IS_BOUND, (schema,)).fetchone()
    return row is not None and bool(row[0])


def tables_of_tenants(connection: Connection, schema: str) -> list[str]:
    """Return the tables whose rows belong to a tenant."""
    return [name for (name,) in connection.execute(_OF_TENANTS, (schema,)).fetchall()]


def grant(connection: Connection, schema: str, role: str, tenant: str | None) -> None:
    """Give a role what a store needs; with a tenant, for that tenant's rows alone, for good.

    Raises UsageError for a role that row security does not bind, or that may become one. If
    interrupted: all of it is given, or nothing.
    """
    with connection.transaction():
        row = connection.execute(_BYPASSES, (role, schema, _OUTSIDE)).fetchone()
        if row is None:
            raise UsageError(f"the server has no role {role!r}; make it: CREATE ROLE … LOGIN")
        if row[0]:
            raise UsageError(
                f"row security does not bind {role!r}: it is a superuser, has BYPASSRLS, owns the "
                "tables or reaches the server's files, or may become a role that does; "
                "name a role that only the program uses"
            )
        if tenant is not None and row[1] is not None:
            raise UsageError(
                f"{role!r} would not be bound to one tenant: it may become {row[1]!r}, which reads "
                "the tables too; name a role that is a member of no such role"
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
    for table in _FOR_ALL:
        named = sql.Identifier(schema, table)
        # Until 2026-11-19 a role was given more of them.
        connection.execute(sql.SQL("REVOKE ALL ON {} FROM {}").format(named, to))
        connection.execute(sql.SQL("GRANT SELECT ON {} TO {}").format(named, to))
    policy = sql.Identifier(_policy_of(role))
    for table in tables_of_tenants(connection, schema):
        named = sql.Identifier(schema, table)
        rows = sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO {}")
        connection.execute(rows.format(named, to))
        connection.execute(sql.SQL("DROP POLICY IF EXISTS {} ON {}").format(policy, named))
        if tenant is not None:
            own = sql.SQL("tenant = {}").format(sql.Literal(tenant_number(tenant)))
            only = sql.SQL("CREATE POLICY {} ON {} AS RESTRICTIVE TO {} USING ({}) WITH CHECK ({})")
            seen = own if table != _HOLDERS else sql.SQL("{} OR tenant IS NULL").format(own)
            connection.execute(only.format(policy, named, to, seen, own))


def _policy_of(role: str) -> str:
    """Return the name of the policy that binds a role to one tenant."""
    name = f"only_{role}"
    if len(name.encode()) <= _NAME_BYTES:
        return name
    return f"only_{blake2b(role.encode(), digest_size=16).hexdigest()}"
