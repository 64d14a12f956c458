"""The store on PostgreSQL, through asyncpg. `Client("postgresql://...")` finds it; options are documented at `make_store`."""

from aioqueue.postgres._store import PostgresStore, make_store

__all__ = ["PostgresStore", "make_store"]
