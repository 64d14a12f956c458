"""Puts calls into the store: alone, together with those of concurrent callers, or many in one transaction."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from aioqueue.client._handle import JobHandle
from aioqueue.client._keyed import PATIENCE, KeyedInserts, Row, row_size
from aioqueue.definitions._call import Call
from aioqueue.definitions._middleware import fold_enqueue
from aioqueue.errors import ClientClosed, ConfigurationError, RowRejected, StoreContended, StoreUnavailable
from aioqueue.runtime._batcher import Batcher, portions
from aioqueue.vocabulary._codec import CodecError, check_size
from aioqueue.vocabulary._job import Inserted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from uuid import UUID

    from aioqueue.abc import Store, StoreTransaction
    from aioqueue.client._client import Client
    from aioqueue.client._phase import TransactionState
    from aioqueue.definitions._middleware import EnqueueMiddleware, EnqueueNext
    from aioqueue.vocabulary._job import NewJob

__all__ = ["CHUNK", "Enqueuer", "used"]

logger = logging.getLogger("aioqueue")

R = TypeVar("R")
T = TypeVar("T")

CHUNK = 5_000
_PAUSES = (0.05, 0.2, 0.5, 1.0, 2.0)
_CONTENDED_PAUSE = 0.2
_REMEMBERED = 10_000


class Enqueuer:
    """What one opening of a client enqueues with.

    Arguments:
        store: Open.
        middlewares: Around each enqueueing, the first listed outermost.
        retry_for: Seconds for which an enqueue whose outcome is unclear is repeated.
    """

    def __init__(self, store: Store, middlewares: Sequence[EnqueueMiddleware], retry_for: float) -> None:
        self._store = store
        self._middlewares = middlewares
        self._retry_for = retry_for
        self._batcher: Batcher[Row, Inserted] = Batcher(
            self._write_batch, size=row_size, patience=PATIENCE, name="enqueue batcher"
        )
        self._keyed = KeyedInserts(self._write_batch, retry_for)
        self._writing: set[anyio.CancelScope] = set()
        self._closing = anyio.Event()
        self._abandoned = False
        # Ids whose commit may or may not have happened: another try has to look for them among the finished jobs too.
        self._unclear: dict[UUID, None] = {}

    # -- the ways in -----------------------------------------------------------------------------------------------

    async def alone(self, client: Client, call: Call[R]) -> JobHandle[R]:
        """Outside a transaction, gathered with concurrent callers; returns after the commit."""
        return (await self._enqueue(client, [call], self._insert_gathered))[0]

    async def together(self, client: Client, calls: Sequence[Call[R]]) -> list[JobHandle[R]]:
        """All or none, in a transaction of their own; returns after the commit."""
        return await self._enqueue(client, calls, self._insert_many)

    async def beside(self, client: Client, calls: Sequence[Call[R]], connection: object) -> list[JobHandle[R]]:
        """In the user's transaction."""

        async def insert(jobs: Sequence[NewJob]) -> Sequence[Inserted]:
            inserted: list[Inserted] = []
            for chunk in _chunks(jobs):
                inserted += await self._store.insert(chunk, tx=connection, repeated=self._was_tried(chunk))
            return inserted

        return await self._enqueue(client, calls, insert, foreign=True)

    async def within(
        self, client: Client, calls: Sequence[Call[R]], transaction: StoreTransaction, state: TransactionState
    ) -> list[JobHandle[R]]:
        """In a transaction of the client's; `state` keeps the calls, to let go of them if it's rolled back."""

        async def insert(jobs: Sequence[NewJob]) -> Sequence[Inserted]:
            there = await self._find_unclear(jobs)
            inserted: list[Inserted] = []
            for chunk in _chunks([job for job in jobs if job.id not in there]):
                inserted += await transaction.insert(chunk)
            return _merge(jobs, there, inserted)

        handles = await self._enqueue(client, calls, insert, state=state)
        state.calls.extend(calls)
        return handles

    # -- the one way through -----------------------------------------------------------------------------------------

    async def _enqueue(
        self,
        client: Client,
        calls: Sequence[Call[R]],
        insert: EnqueueNext,
        *,
        state: TransactionState | None = None,
        foreign: bool = False,
    ) -> list[JobHandle[R]]:
        marked: list[Call[R]] = []
        stored = False

        async def storing(jobs: Sequence[NewJob]) -> Sequence[Inserted]:
            nonlocal stored
            results = await insert(jobs)
            stored = True
            return results

        try:
            for call in calls:
                call.mark_enqueueing()
                marked.append(call)
            inserted = await self._through_middlewares([call.to_new_job() for call in calls], storing)
        except BaseException:
            if stored:  # a middleware has failed, or was cancelled, after the jobs were stored
                self.remember_unclear(calls)
            for call in marked:
                call.mark_failed()
            raise
        return [
            JobHandle(client, call.job_type, each.id, created=each.created, state=state, foreign=foreign)
            for call, each in zip(calls, inserted, strict=True)
        ]

    async def _through_middlewares(self, jobs: Sequence[NewJob], insert: EnqueueNext) -> Sequence[Inserted]:
        if not self._middlewares:
            return await insert(jobs)
        ids = [job.id for job in jobs]

        async def checked(passed_on: Sequence[NewJob]) -> Sequence[Inserted]:
            if [job.id for job in passed_on] != ids:
                raise ConfigurationError("an enqueue middleware has to pass on as many jobs, in order, and with the same ids")
            for job in passed_on:
                _check_sizes(job)
            return await insert(passed_on)

        inserted = await fold_enqueue(self._middlewares, checked)(jobs)
        if len(inserted) != len(ids):
            raise ConfigurationError("an enqueue middleware has to return what call_next() has returned")
        return inserted

    # -- without a transaction of the user's -----------------------------------------------------------------------

    async def _insert_gathered(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        (job,) = jobs
        with self._remembering(jobs):
            repeated = self._was_tried(jobs)
            if job.unique:
                return [await self._keyed.insert(job, repeated=repeated)]
            return [await self._batcher.submit((job, repeated))]

    async def _write_batch(self, rows: Sequence[Row]) -> Sequence[Inserted]:
        if self._abandoned:
            raise ClientClosed("the client was closed before the job could be enqueued")
        with anyio.CancelScope() as scope:
            self._writing.add(scope)
            try:
                jobs = [job for job, _ in rows]
                return await self._insert_repeatedly(jobs, repeated=any(again for _, again in rows), gathered=True)
            finally:
                self._writing.discard(scope)
        raise StoreUnavailable(
            f"the client was closed while jobs were being enqueued in {self._store.description}: they may be there or not"
        )

    async def _insert_many(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        if not jobs:
            return []
        with self._remembering(jobs):
            if len(_chunks(jobs)) > 1:
                return await self._insert_chunked(jobs)
            return await self._insert_repeatedly(jobs, repeated=self._was_tried(jobs))

    async def _insert_repeatedly(self, jobs: Sequence[NewJob], *, repeated: bool, gathered: bool = False) -> Sequence[Inserted]:
        first_time = not repeated

        async def insert() -> Sequence[Inserted]:
            nonlocal first_time
            again, first_time = not first_time, False
            inserted = await self._store.insert(jobs, repeated=again)
            return [_own(job, each) for job, each in zip(jobs, inserted, strict=True)] if again else inserted

        return await self._repeat(insert, len(jobs), gathered=gathered)

    async def _insert_chunked(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        """Many rows in one transaction. Its repetition looks first what has been stored: that was all, or none."""
        unclear = self._was_tried(jobs)

        async def insert() -> Sequence[Inserted]:
            nonlocal unclear
            there = await self._find([job.id for job in jobs]) if unclear else set["UUID"]()
            unclear = True
            missing = [job for job in jobs if job.id not in there]
            inserted: list[Inserted] = []
            if missing:
                async with self._store.transaction() as transaction:
                    for chunk in _chunks(missing):
                        inserted += await transaction.insert(chunk)
            return _merge(jobs, there, inserted)

        return await self._repeat(insert, len(jobs))

    async def _repeat(self, write: Callable[[], Awaitable[T]], count: int, *, gathered: bool = False) -> T:
        """Try again for a bounded time: after an unclear commit, `write` stores only what's missing.

        What was gathered from several callers doesn't wait here for the key of one of them (see `KeyedInserts`).
        """
        deadline = anyio.current_time() + self._retry_for
        pauses = iter(_PAUSES)
        while True:
            try:
                return await write()
            except StoreUnavailable as error:
                contended = isinstance(error, StoreContended)
                pause = _CONTENDED_PAUSE if contended else next(pauses, None)
                if (contended and gathered) or pause is None or self._closing.is_set():
                    raise
                if anyio.current_time() + pause > deadline:
                    raise
                if not contended:
                    logger.warning("%d jobs couldn't be enqueued in %s, trying again", count, self._store.description)
                with anyio.move_on_after(pause * random.uniform(0.5, 1.0)):  # noqa: S311 - keeps processes apart
                    await self._closing.wait()

    # -- what is unclear ---------------------------------------------------------------------------------------------

    def _remembering(self, jobs: Sequence[NewJob]) -> _Unclear:
        return _Unclear(self._unclear, jobs)

    def _was_tried(self, jobs: Sequence[NewJob]) -> bool:
        return bool(self._unclear) and any(job.id in self._unclear for job in jobs)

    async def _find_unclear(self, jobs: Sequence[NewJob]) -> set[UUID]:
        return await self._find([job.id for job in jobs if job.id in self._unclear]) if self._unclear else set()

    async def _find(self, ids: Sequence[UUID]) -> set[UUID]:
        found: set[UUID] = set()
        for start in range(0, len(ids), CHUNK):
            found.update(job.id for job in await self._store.fetch(ids[start : start + CHUNK]) if job is not None)
        return found

    def remember_unclear(self, calls: Iterable[Call[Any]]) -> None:
        """Their transaction ended in a way that doesn't tell whether it was committed."""
        _remember(self._unclear, [call.id for call in calls])

    async def aclose(self, patience: float) -> None:
        """Wait for what is being written for a bounded time; what isn't by then fails as unclear."""
        self._closing.set()
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


class _Unclear:
    """Remembers the ids of an insert that ends in a way that doesn't tell whether it was committed."""

    __slots__ = ("_ids", "_jobs")

    def __init__(self, ids: dict[UUID, None], jobs: Sequence[NewJob]) -> None:
        self._ids = ids
        self._jobs = jobs

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            for job in self._jobs:
                if self._ids:
                    self._ids.pop(job.id, None)
        elif not isinstance(error, RowRejected):
            _remember(self._ids, [job.id for job in self._jobs])


def _remember(ids: dict[UUID, None], more: Sequence[UUID]) -> None:
    ids.update(dict.fromkeys(more))
    while len(ids) > _REMEMBERED:
        del ids[next(iter(ids))]


def used(calls: Iterable[Call[R]]) -> list[Call[R]]:
    """Take calls from the user: whatever becomes of them, they weren't dropped without any use.

    Raises:
        TypeError: One isn't a call.
    """
    taken = list(calls)
    for call in taken:
        if not isinstance(call, Call):
            name = getattr(call, "name", None)
            example = f"{name if isinstance(name, str) else 'job_type'}(...)"
            raise TypeError(f"enqueue takes a call, such as {example}, not {type(call).__qualname__}")
        call.mark_used()
    return taken


def _check_sizes(job: NewJob) -> None:
    try:
        check_size(job.payload, "arguments")
        check_size(job.metadata, "metadata")
    except CodecError as error:
        raise ConfigurationError(f"an enqueue middleware has made too much of job {job.id}: {error}") from None


def _own(job: NewJob, inserted: Inserted) -> Inserted:
    """What a repeated insert finds under the call's own id was stored by an earlier try."""
    return Inserted(inserted.id, created=True) if inserted.id == job.id else inserted


def _merge(jobs: Sequence[NewJob], there: set[UUID], inserted: Sequence[Inserted]) -> list[Inserted]:
    rest = iter(inserted)
    return [Inserted(job.id, created=True) if job.id in there else next(rest) for job in jobs]


def _chunks(jobs: Sequence[NewJob]) -> list[Sequence[NewJob]]:
    return list(portions(jobs, CHUNK, lambda job: job.size))
