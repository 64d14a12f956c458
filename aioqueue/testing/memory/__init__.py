"""A store in memory, with the rules of `aioqueue.abc`: for unit tests, the client's and the simulation's included.

The rooms have the names that they have in the adapters. Each verb is a plain function over a `Database` that doesn't wait;
`MemoryStore` makes it a method of the protocol. `aioqueue.testing` is where the store is imported from.
"""

from __future__ import annotations

from aioqueue.testing.memory._store import MemoryStore

__all__ = ["MemoryStore"]
