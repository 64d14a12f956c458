"""What the cases about unique keys share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import DuplicateJob
from aioqueue.testing.conformance._tools import equal
from aioqueue.vocabulary._job import Inserted
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.vocabulary._job import NewJob

__all__ = [
    "FINISHED",
    "RAISE",
    "REPLACE",
    "STARTED",
    "WINDOW",
    "duplicate",
    "expect_created",
    "expect_held",
    "expect_replaced",
]

FINISHED = Unique()
STARTED = Unique(until="started")
WINDOW = Unique(window=3600)
REPLACE = Unique(on_conflict="replace")
RAISE = Unique(on_conflict="raise")


async def expect_created(store: Store, new: NewJob, when: str) -> UUID:
    """Insert a job, which must be stored; returns its id."""
    equal(list(await store.insert([new])), [Inserted(new.id, created=True)], f"an insert {when}")
    return new.id


async def expect_held(store: Store, new: NewJob, chain_id: UUID, when: str) -> None:
    """Insert a job whose key this chain must hold, and of which nothing may be stored."""
    equal(list(await store.insert([new])), [Inserted(chain_id, created=False)], f"an insert {when}")
    equal(list(await store.fetch([new.id])), [None], f"what isn't stored {when}")


async def expect_replaced(store: Store, new: NewJob, holder: UUID, when: str) -> None:
    """Insert a job that must take the place of the one that waits."""
    equal(list(await store.insert([new])), [Inserted(holder, created=False, replaced=True)], f"an insert {when}")
    equal(list(await store.fetch([new.id])), [None], f"the other's own id {when}")


async def duplicate(store: Store, new: NewJob, *others: NewJob) -> DuplicateJob:
    """Insert jobs of which the first must be refused, since its key is held; nothing may be stored."""
    try:
        results = await store.insert([*others, new])
    except DuplicateJob as error:
        equal((error.job_id, error.key), (new.id, new.key), "whose key it is that is held")
        equal(list(await store.fetch([each.id for each in (*others, new)])), [None] * (len(others) + 1), "what is stored")
        return error
    raise AssertionError(f"an insert that is to say that its key is held must raise DuplicateJob, but returned {results!r}")
