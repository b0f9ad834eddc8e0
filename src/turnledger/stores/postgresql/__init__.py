"""The PostgreSQL store, for several machines."""

from turnledger.stores.postgresql.store import PostgresStore

__all__ = ["PostgresStore"]
