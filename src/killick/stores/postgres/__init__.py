"""The store for many machines: PostgreSQL, through psycopg."""

from killick.stores.postgres.database import PostgresDatabase

__all__ = ["PostgresDatabase"]
