"""Enqueues with unique keys, outside transactions: gathered, but each waits only for its own key."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import anyio

from aioqueue.client._rows import PATIENCE_SECONDS, row_size
from aioqueue.errors import StoreContended
from aioqueue.runtime._batcher import Batcher

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioqueue.client._rows import Row
    from aioqueue.vocabulary._job import Inserted, NewJob

__all__ = ["KeyedInserts"]

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 0.5


class KeyedInserts:
    """Stores jobs with unique keys, those of concurrent callers together.

    While somebody's open transaction holds a key, its callers try again now and then; nobody else waits for them.

    Arguments:
        write: Stores jobs, all or none; raises `StoreContended` if one of the keys is held by an open transaction.
        longest: Seconds for which a caller waits for its key.
    """

    def __init__(self, write: Callable[[Sequence[Row]], Awaitable[Sequence[Inserted]]], longest: float) -> None:
        self._write = write
        self._longest = longest
        self._batcher: Batcher[Row, Inserted | StoreContended] = Batcher(
            self._write_batch, size=row_size, patience=PATIENCE_SECONDS, name="enqueue batcher of keys"
        )
        # Keys that were contended at their last try: they're tried one by one, after the others.
        self._contended: set[tuple[str, str | None]] = set()

    async def insert(self, job: NewJob, *, repeated: bool) -> Inserted:
        """Store one job, as soon as its key isn't contended.

        Raises:
            StoreContended: The key was held by somebody's open transaction all the time.
        """
        deadline = anyio.current_time() + self._longest
        pause = _FIRST_PAUSE_SECONDS
        try:
            while True:
                result = await self._batcher.submit((job, repeated))
                if not isinstance(result, StoreContended):
                    return result
                if (left := deadline - anyio.current_time()) <= 0:
                    raise StoreContended(
                        f"the key {job.key!r} of {job.type} was held by somebody's open transaction for {self._longest:g} s "
                        f"(retry_for): commit or roll it back sooner ({result})"
                    ) from result
                spread = random.uniform(0.5, 1.0)  # noqa: S311 - keeps those who wait apart
                await anyio.sleep(min(pause * spread, left))
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
        finally:  # also for a caller that gives up: nobody may ever try this key again
            self._contended.discard((job.type, job.key))

    async def aclose(self) -> None:
        """Refuse new ones, and wait until those handed over are stored."""
        await self._batcher.aclose()

    async def _write_batch(self, rows: Sequence[Row]) -> Sequence[Inserted | StoreContended]:
        results: dict[int, Inserted | StoreContended] = {}
        batched = [index for index, (job, _) in enumerate(rows) if (job.type, job.key) not in self._contended]
        if batched:
            try:
                inserted = await self._write([rows[index] for index in batched])
            except StoreContended as error:
                if len(batched) == len(rows) == 1:
                    return [error]
            else:
                results.update(zip(batched, inserted, strict=True))
        for index, row in enumerate(rows):
            if index not in results:
                results[index] = await self._write_alone(row, results, rows)
        return [results[index] for index in range(len(rows))]

    async def _write_alone(
        self, row: Row, results: dict[int, Inserted | StoreContended], rows: Sequence[Row]
    ) -> Inserted | StoreContended:
        key = (row[0].type, row[0].key)
        for index, result in results.items():
            if isinstance(result, StoreContended) and (rows[index][0].type, rows[index][0].key) == key:
                return result  # found out a moment ago
        try:
            (inserted,) = await self._write([row])
        except StoreContended as error:
            self._contended.add(key)
            return error
        self._contended.discard(key)
        return inserted
