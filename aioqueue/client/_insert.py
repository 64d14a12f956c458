"""Stores rows outside of the user's transactions: gathered with those of concurrent callers, or many in one transaction.

What fails because the database is away is tried again for a bounded time, such that each row is stored once: before a
repetition, the rows that an unclear commit may have stored are looked for.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

import anyio

from aioqueue.client._chunks import CHUNK_ROWS, as_own, cut, insert_chunks, missing_of, with_stored
from aioqueue.client._keyed import KeyedInserts
from aioqueue.client._rows import PATIENCE_SECONDS, Row, row_size
from aioqueue.client._unclear import UnclearIds
from aioqueue.errors import ClientClosed, StoreUnavailable
from aioqueue.runtime._batcher import Batcher
from aioqueue.runtime._log import event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.client._tries import Tries
    from aioqueue.vocabulary._job import Inserted, NewJob

__all__ = ["Inserter"]

logger = logging.getLogger("aioqueue")

T = TypeVar("T")


class Inserter:
    """Stores what one opening of a client enqueues outside of the user's transactions. The `Enqueuer` calls it.

    Arguments:
        store: Open.
        tries: Repeats what couldn't be written.

    Attributes:
        unclear: The jobs that may have been stored.
    """

    def __init__(self, store: Store, tries: Tries) -> None:
        self.unclear = UnclearIds()
        self._store = store
        self._tries = tries
        self._batcher: Batcher[Row, Inserted] = Batcher(
            self._write_batch, size=row_size, patience=PATIENCE_SECONDS, name="enqueue batcher"
        )
        self._keyed = KeyedInserts(self._write_apart, tries.retry_for)
        self._writing: set[anyio.CancelScope] = set()
        self._abandoned = False

    async def insert_gathered(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        """Store one job together with those of concurrent callers; returns after the commit.

        One that waits for others is stored with these, and with nobody else's: it may have to wait for their rows.
        """
        if len(jobs) > 1 or jobs[0].blockers:
            return await self.insert_many(jobs)
        (job,) = jobs
        with self.unclear.settled_by(jobs):
            repeated = self.unclear.has_any(jobs)
            if job.unique or job.chosen_id:
                return [await self._keyed.insert(job, repeated=repeated)]
            return [await self._batcher.submit((job, repeated))]

    async def insert_many(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        """Store jobs in a transaction of their own, all or none; returns after the commit."""
        if not jobs:
            return []
        with self.unclear.settled_by(jobs):
            if len(cut(jobs)) > 1:
                return await self._insert_chunked(jobs)
            return await self._insert_repeatedly(jobs, repeated=[job.id for job in jobs] if self.unclear.has_any(jobs) else ())

    async def find(self, ids: Sequence[UUID]) -> set[UUID]:
        """Look which of these ids are stored, live or finished; or were, while a later step of their chain is left."""
        found: set[UUID] = set()
        for start in range(0, len(ids), CHUNK_ROWS):
            chunk = ids[start : start + CHUNK_ROWS]
            ends = await self._store.fetch_ends(chunk)
            found.update(job_id for job_id, end in zip(chunk, ends, strict=True) if end is not None)
        return found

    async def aclose(self, patience: float) -> None:
        """Wait for what is being written for `patience` seconds; what isn't by then fails as unclear."""
        self._tries.closing.set()
        with anyio.move_on_after(patience):
            await self._close_batchers()
            return
        self._abandoned = True
        for scope in list(self._writing):
            scope.cancel()
        await self._close_batchers()

    async def _close_batchers(self) -> None:
        await self._batcher.aclose()
        await self._keyed.aclose()

    async def _write_batch(self, rows: Sequence[Row]) -> Sequence[Inserted]:
        return await self._write(rows, apart=False)

    async def _write_apart(self, rows: Sequence[Row]) -> Sequence[Inserted]:
        return await self._write(rows, apart=True)

    async def _write(self, rows: Sequence[Row], *, apart: bool) -> Sequence[Inserted]:
        if self._abandoned:
            raise ClientClosed("the client was closed before the job could be enqueued")
        with anyio.CancelScope() as scope:
            self._writing.add(scope)
            try:
                jobs = [job for job, _ in rows]
                repeated = {job.id for job, again in rows if again}
                return await self._insert_repeatedly(jobs, repeated=repeated, gathered=True, apart=apart)
            finally:
                self._writing.discard(scope)
        raise StoreUnavailable(
            f"the client was closed while jobs were being enqueued in {self._store.description}: they may be there or not"
        )

    async def _insert_repeatedly(
        self, jobs: Sequence[NewJob], *, repeated: Collection[UUID], gathered: bool = False, apart: bool = False
    ) -> Sequence[Inserted]:
        """Insert jobs, of which `repeated` may have been stored before: what is found of the others is somebody else's."""
        tried = False

        async def insert(again: bool) -> Sequence[Inserted]:  # noqa: FBT001 - `_until_written` calls it, nobody else
            nonlocal tried
            among, tried = None if tried else repeated, True
            inserted = await self._store.insert(jobs, repeated=again, apart=apart)
            return as_own(jobs, inserted, among=among) if again else inserted

        return await self._until_written(insert, len(jobs), repeated=bool(repeated), gathered=gathered)

    async def _insert_chunked(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        """Many rows in one transaction. Its repetition looks first what has been stored: that was all, or none."""

        async def insert(again: bool) -> Sequence[Inserted]:  # noqa: FBT001 - `_until_written` calls it, nobody else
            stored = await self.find([job.id for job in jobs]) if again else set["UUID"]()
            missing = missing_of(jobs, stored)
            inserted: Sequence[Inserted] = ()
            if missing:
                async with self._store.transaction() as transaction:
                    inserted = await insert_chunks(missing, transaction.insert)
            return with_stored(jobs, stored, inserted)

        return await self._until_written(insert, len(jobs), repeated=self.unclear.has_any(jobs))

    async def _until_written(
        self, write: Callable[[bool], Awaitable[T]], count: int, *, repeated: bool, gathered: bool = False
    ) -> T:
        def log() -> None:
            logger.warning(
                "%d jobs couldn't be enqueued in %s, trying again",
                count,
                self._store.description,
                extra=event("client.enqueue_retried", jobs=count),
            )

        return await self._tries.until_written(write, log, repeated=repeated, gathered=gathered)
