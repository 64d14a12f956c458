"""Each store has every verb of the protocol: the type checkers read this, nobody runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.postgres import PostgresStore
from aioqueue.sqlite import SQLiteStore
from aioqueue.testing import MemoryStore

if TYPE_CHECKING:
    from aioqueue.abc import Store


def each_is_one(postgres: PostgresStore, sqlite: SQLiteStore) -> list[Store]:
    """A verb that one of them lacks, or takes otherwise, is an error here."""
    return [postgres, sqlite, MemoryStore()]
