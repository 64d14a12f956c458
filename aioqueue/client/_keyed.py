"""Enqueues with unique keys or chosen ids, outside transactions: gathered, but each waits and fails only for its own."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import anyio

from aioqueue.client._rows import PATIENCE_SECONDS, row_size
from aioqueue.errors import StoreContended
from aioqueue.runtime._batcher import Batcher

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from uuid import UUID

    from aioqueue.client._rows import Row
    from aioqueue.vocabulary._job import Inserted, NewJob

__all__ = ["KeyedInserts"]

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 0.5


class KeyedInserts:
    """Stores jobs with unique keys or chosen ids, those of concurrent callers together.

    While somebody's open transaction holds one, its callers try again now and then; nobody else waits for them.

    Arguments:
        write: Stores jobs, each for itself: after an error some may be stored. Raises `StoreContended` if one of the keys is
            held by an open transaction.
        longest: Seconds for which a caller waits for its key.
    """

    def __init__(self, write: Callable[[Sequence[Row]], Awaitable[Sequence[Inserted]]], longest: float) -> None:
        self._write = write
        self._longest = longest
        self._batcher: Batcher[Row, Inserted | StoreContended] = Batcher(
            self._write_batch, size=row_size, patience=PATIENCE_SECONDS, name="enqueue batcher of keys"
        )
        # What was contended at its last try: it's tried one by one, after the others.
        self._contended: set[object] = set()
        # Jobs that may have been stored by a batch that has failed because of another. Not those with chosen ids: these are
        # looked for in any case, and what a repetition finds would be taken for their callers' own, however old it is.
        self._unsure: set[UUID] = set()

    async def insert(self, job: NewJob, *, repeated: bool) -> Inserted:
        """Store one job, as soon as its key isn't contended.

        Raises:
            StoreContended: The key was held by somebody's open transaction all the time.
            DuplicateJob: The key is held, and it's to raise then.
            WrongJobType: The chosen id is another type's.
        """
        deadline: float | None = None  # counted from the first try that was in vain
        pause = _FIRST_PAUSE_SECONDS
        try:
            while True:
                result = await self._batcher.submit((job, repeated))
                if not isinstance(result, StoreContended):
                    if result.refused is not None:
                        raise result.refused
                    return result
                now = anyio.current_time()
                deadline = now + self._longest if deadline is None else deadline
                if (left := deadline - now) <= 0:
                    what = f"key {job.key!r}" if job.unique else f"id {job.id}"
                    raise StoreContended(
                        f"the {what} of {job.type} was held by somebody's open transaction for {self._longest:g} s "
                        f"(retry_for): commit or roll it back sooner ({result})"
                    ) from result
                spread = random.uniform(0.5, 1.0)  # noqa: S311 - keeps those who wait apart
                await anyio.sleep(min(pause * spread, left))
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
        finally:  # also for a caller that gives up: nobody may ever try this key again
            if self._contended or self._unsure:
                self._contended.discard(_needed(job))
                self._unsure.discard(job.id)

    async def aclose(self) -> None:
        """Refuse new ones, and wait until those handed over are stored."""
        await self._batcher.aclose()

    async def _write_batch(self, rows: Sequence[Row]) -> Sequence[Inserted | StoreContended]:
        if self._unsure:
            rows = [(job, repeated or job.id in self._unsure) for job, repeated in rows]
        try:
            return await self._write_together(rows)
        except Exception:
            if len(rows) > 1:  # the batcher tries its halves
                self._unsure.update(job.id for job, _ in rows if not job.chosen_id)
            raise

    async def _write_together(self, rows: Sequence[Row]) -> Sequence[Inserted | StoreContended]:
        results: dict[int, Inserted | StoreContended] = {}
        alone = self._alone(rows)
        together = [index for index in range(len(rows)) if index not in alone] if alone else list(range(len(rows)))
        if together:
            try:
                inserted = await self._write([rows[index] for index in together] if alone else rows)
            except StoreContended as error:
                if len(rows) == 1:
                    return [error]
                tried = set(together)
                rows = [(job, repeated or (index in tried and not job.chosen_id)) for index, (job, repeated) in enumerate(rows)]
            else:
                if not alone:
                    return inserted
                results.update(zip(together, inserted, strict=True))
        for index, row in enumerate(rows):
            if index not in results:
                results[index] = await self._write_alone(row, results, rows)
        return [results[index] for index in range(len(rows))]

    def _alone(self, rows: Sequence[Row]) -> set[int]:
        """The places of those that aren't written with the others: what was contended, and further ones with the same id."""
        alone: set[int] = set()
        if self._contended:
            alone.update(index for index, (job, _) in enumerate(rows) if _needed(job) in self._contended)
        if len(rows) > 1 and any(job.chosen_id for job, _ in rows):
            seen: set[UUID] = set()
            for index, (job, _) in enumerate(rows):
                if job.id in seen:
                    alone.add(index)
                seen.add(job.id)
        return alone

    async def _write_alone(
        self, row: Row, results: dict[int, Inserted | StoreContended], rows: Sequence[Row]
    ) -> Inserted | StoreContended:
        needed = _needed(row[0])
        for index, result in results.items():
            if isinstance(result, StoreContended) and _needed(rows[index][0]) == needed:
                return result  # found out a moment ago
        try:
            (inserted,) = await self._write([row])
        except StoreContended as error:
            self._contended.add(needed)
            return error
        self._contended.discard(needed)
        return inserted


def _needed(job: NewJob) -> object:
    """What a job may have to wait for, of an open transaction of somebody's."""
    return (job.type, job.key) if job.unique else job.id
