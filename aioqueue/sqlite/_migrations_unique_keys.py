"""What migration 0003 does in Python: unique keys that older code has hashed get today's hash."""

from __future__ import annotations

import hashlib
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import orjson

from aioqueue.store_rules._unique_keys import unique_hash

if TYPE_CHECKING:
    import sqlite3

__all__ = ["add_functions"]


def add_functions(connection: sqlite3.Connection) -> None:
    """Give a connection the functions that migrations call."""
    encoding: str = connection.execute("PRAGMA encoding").fetchone()[0]
    connection.create_function("aioqueue_unique_key", 4, partial(_rehashed, encoding))


def _rehashed(encoding: str, type_name: bytes | None, key: bytes | None, stored: bytes, types: bytes) -> str | None:
    """Give the new hash of a row's key; NULL without a key, which only somebody else's SQL leaves out. It never raises.

    Arguments:
        encoding: That of the file's text, which is what SQLite makes blobs of: UTF-8, UTF-16le or UTF-16be.
        type_name, key, stored: The row's columns. Blobs: text needn't be valid.
        types: All names of types in the file, as a JSON array.
    """
    if type_name is None or key is None:
        return None
    name, text, hashed = (value.decode(encoding, "replace") for value in (type_name, key, stored))
    if _old_hash(name, text) != hashed:
        # A type that was renamed hashes its keys under its oldest name, which is found where jobs of that name are left.
        for candidate in _names(types, encoding):
            if _old_hash(candidate, text) == hashed:
                return str(unique_hash(candidate, text))
    return str(unique_hash(name, text))


def _old_hash(type_name: str, key: str) -> str:
    return hashlib.blake2b(f"{len(type_name)}:{type_name}{key}".encode(), digest_size=16).hexdigest()


@lru_cache(maxsize=1)
def _names(types: bytes, encoding: str) -> list[str]:
    try:
        names: list[str] = orjson.loads(types.decode(encoding, "replace"))
    except orjson.JSONDecodeError:  # no name is known then, but the row's own
        return []
    return names
