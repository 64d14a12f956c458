"""A store whose new jobs go through `enqueue_v2`, as those of psql, of triggers and of synchronous drivers do."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg

from aioqueue.errors import BlockerCycle, BlockerNotFound, RowRejected, StoreContended, StoreUnavailable
from aioqueue.postgres import PostgresStore, make_store
from aioqueue.store_rules._unique_keys import duplicate_job, wrong_type_of_chosen
from aioqueue.testing.conformance._waiting import tend_all
from aioqueue.vocabulary._job import Inserted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from aioqueue.vocabulary._job import NewJob

__all__ = ["SqlProducer", "enqueue", "sql_producer"]


class SqlProducer:
    """See `aioqueue.abc.Store`: all but `insert` is done by a store as usual, and so are inserts in a transaction.

    Arguments:
        store: That store.
        url: Its database's.
    """

    def __init__(self, store: PostgresStore, url: str) -> None:
        self._store = store
        self._url = url

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def insert(
        self, jobs: Sequence[NewJob], *, tx: object | None = None, repeated: bool = False, apart: bool = False
    ) -> Sequence[Inserted]:
        """See `aioqueue.abc.Store.insert`."""
        if tx is not None or repeated or apart:
            return await self._store.insert(jobs, tx=tx, repeated=repeated, apart=apart)
        connection = await asyncpg.connect(self._url, server_settings={"lock_timeout": "200ms"})
        try:
            results = await enqueue(connection, self._store, jobs)
        except asyncpg.PostgresError as error:
            raise _meant(error, jobs) from error
        finally:
            await connection.close()
        if any(job.blockers for job in jobs):
            await tend_all(self._store)  # of what has failed before, workers tell
        return results


async def enqueue(connection: asyncpg.Connection[Any], store: PostgresStore, jobs: Sequence[NewJob]) -> list[Inserted]:
    """Run what `client.statement()` gives. The function doesn't tell what has been replaced: that is looked for."""
    sql, parameters = store.statement(jobs, placeholder="$1")
    rows = [(UUID(row[0]), row[1]) for row in await connection.fetch(sql, *parameters)]
    found = await connection.fetch("select id from aioqueue.job where id = any($1)", [row[0] for row in rows])
    live = {row[0] for row in found}
    return [
        Inserted(id_, created, replaced=not created and id_ != job.id and id_ in live and _replaces(job))
        for job, (id_, created) in zip(jobs, rows, strict=True)
    ]


def _replaces(job: NewJob) -> bool:
    return job.unique is not None and job.unique.on_conflict == "replace"


def _meant(error: asyncpg.PostgresError, jobs: Sequence[NewJob]) -> Exception:
    """What the store raises for it."""
    message = str(error)
    if error.sqlstate == "AQ001":
        return BlockerNotFound(message, blocker_id=UUID(message.split(" job ")[1].split()[0]))
    if error.sqlstate == "AQ002":
        return BlockerCycle(message)
    if error.sqlstate == "AQ003":
        (job,) = [each for each in jobs if each.unique and f"the key {json.dumps(each.key)} of {each.type} " in message][-1:]
        return duplicate_job(job, UUID(error.detail))
    if error.sqlstate == "AQ004":
        return wrong_type_of_chosen(next(each for each in jobs if str(each.id) == error.detail))
    if error.sqlstate == "55P03":
        return StoreContended(message)
    return RowRejected(message) if error.sqlstate[:2] in {"22", "23", "54"} else StoreUnavailable(message)


@asynccontextmanager
async def sql_producer(url: str) -> AsyncIterator[SqlProducer]:
    """One that is open."""
    store = make_store(url)
    await store.open()
    try:
        yield SqlProducer(store, url)
    finally:
        await store.close()
