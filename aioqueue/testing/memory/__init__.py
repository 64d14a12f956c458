"""A store in memory, with the rules of `aioqueue.abc`: for unit tests, the client's and the simulation's included.

The rooms have the names that they have in the adapters. Each verb is a plain function over a `Database` that doesn't wait;
`MemoryStore` makes it a method of the protocol. `aioqueue.testing` is where the store is imported from.

Some of it is there for tests of aioqueue only, and nothing here sets it: `Row.locked_until` (somebody has a row locked),
`Row.unreadable` (somebody spoiled it), and `Database.refusal` (rows can't hold an outcome). And each decision that a store can
get wrong, however small, is a function or method with a name, such as `is_claimable` or `may_renew`: the tests put known
mistakes in their places, to see that the conformance cases and the simulation find them.
"""

from __future__ import annotations

from aioqueue.testing.memory._store import MemoryStore

__all__ = ["MemoryStore"]
