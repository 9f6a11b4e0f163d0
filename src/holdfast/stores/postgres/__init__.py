"""The store for many machines: PostgreSQL, through psycopg."""

from holdfast.stores.postgres.database import PostgresDatabase

__all__ = ["PostgresDatabase"]
