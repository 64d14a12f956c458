"""The embedded store: one SQLite file, no server."""

from __future__ import annotations

from typing import Any

from aioqueue.sqlite._options import read_url
from aioqueue.sqlite._store import SQLiteStore

__all__ = ["SQLiteStore", "make_store"]


def make_store(url: str, **options: Any) -> SQLiteStore:
    """Make a store that isn't open yet.

    Arguments:
        url: `sqlite:///relative.db` or `sqlite:////absolute.db`; options as `?synchronous=full&busy_timeout=10`.
        **options: The same options; they win. `synchronous`: `normal` (default), `full` or `extra`.
            `busy_timeout`: seconds that a write waits for others, 30 by default. `poll_interval`: seconds between two
            looks for other processes' commits, 0.01 by default. `wal_limit`: bytes that the write-ahead log may keep,
            16 MiB by default. `allow_network`: use a network file system all the same.

    Raises:
        ConfigurationError: The URL names no file, or an option can't be used.
    """
    return SQLiteStore(read_url(url, options))
