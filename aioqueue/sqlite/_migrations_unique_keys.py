"""What migration 0003 does in Python: unique keys that older code has hashed get today's hash."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING

import orjson

from aioqueue.store_rules._unique_keys import unique_hash

if TYPE_CHECKING:
    import sqlite3

__all__ = ["add_functions"]


def add_functions(connection: sqlite3.Connection) -> None:
    """Give a connection the functions that migrations call."""
    connection.create_function("aioqueue_unique_key", 4, _rehashed)


def _rehashed(type_name: bytes | None, key: bytes | None, stored: bytes, types: bytes) -> str | None:
    """Give the new hash of a row's key; NULL without a key, which only somebody else's SQL leaves out.

    Arguments:
        type_name, key, stored: The row's columns. Blobs: text needn't be UTF-8.
        types: All names of types in the file, as a JSON array.
    """
    if type_name is None or key is None:
        return None
    name, text = _decoded(type_name), _decoded(key)
    # A type that was renamed hashes its keys under its oldest name, which is found where jobs of that name are left.
    for candidate in (name, *_names(types)):
        if _old_hash(candidate, text) == stored:
            return str(unique_hash(candidate, text))
    return str(unique_hash(name, text))


def _old_hash(type_name: str, key: str) -> bytes:
    return hashlib.blake2b(f"{len(type_name)}:{type_name}{key}".encode(), digest_size=16).hexdigest().encode()


def _decoded(value: bytes) -> str:
    return value.decode("utf-8", "replace")


@lru_cache(maxsize=1)
def _names(types: bytes) -> list[str]:
    names: list[str] = orjson.loads(_decoded(types))
    return names
