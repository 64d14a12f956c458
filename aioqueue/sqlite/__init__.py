"""The embedded store: one SQLite file, no server."""

from __future__ import annotations

from aioqueue.sqlite._store import SQLiteStore, make_store

__all__ = ["SQLiteStore", "make_store"]
