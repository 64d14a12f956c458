"""What operators change. The functions run inside an open write transaction, in a thread."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING

from aioqueue.errors import CallError, StoreError
from aioqueue.runtime._log import event
from aioqueue.sqlite._connections_halving import halved
from aioqueue.sqlite._notifications import merged
from aioqueue.sqlite._operate_delete import delete, remove_rest
from aioqueue.sqlite._operate_prune import prune
from aioqueue.sqlite._operate_retry import retry
from aioqueue.sqlite._operate_steps import LastStep, Outcome
from aioqueue.sqlite._rows_ids import any_id
from aioqueue.sqlite._rows_times import NOW
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections import Connection
    from aioqueue.sqlite._connections_access import Writer
    from aioqueue.sqlite._rows_ids import RowId
    from aioqueue.vocabulary._answers import Pruned

__all__ = ["Operator"]

logger = logging.getLogger("aioqueue.sqlite")

_PAUSE_SECONDS = 0.01
"""Between two portions, for those who wait for the write lock: SQLite has no queue for it."""

_MAKE_DUE = f"UPDATE job SET run_at = :now WHERE id = {any_id('step')} AND run_at > :now"


class Operator:
    """Changes by operators in one open store, each job on its own.

    Arguments:
        writer: Where they run.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def retry(self, ids: Sequence[UUID], *, cascade: bool) -> Sequence[Changed]:
        """Bring jobs back, as `aioqueue.abc.Store.retry` promises."""
        return await self._change(functools.partial(retry, cascade=cascade), ids)

    async def run_now(self, ids: Sequence[UUID]) -> Sequence[Changed]:
        """Make jobs due, as `aioqueue.abc.Store.run_now` promises."""
        return await self._change(_run_now, ids)

    async def delete(self, ids: Sequence[UUID], *, cascade: bool) -> Sequence[Changed]:
        """Remove chains, as `aioqueue.abc.Store.delete` promises."""
        return await self._change(functools.partial(delete, cascade=cascade), ids)

    async def _change(
        self, change: Callable[[sqlite3.Connection, Sequence[UUID]], Outcome], ids: Sequence[UUID]
    ) -> Sequence[Changed]:
        """Change jobs.

        A row that refuses it is told in the log, and doesn't keep the others from being changed. What a delete leaves of long
        chains, all of it continued, is removed in portions. If that's interrupted, another delete removes the rest.
        """

        def run(
            connection: Connection, abandoned: Callable[[], bool]
        ) -> tuple[tuple[list[Changed], list[RowId]], Notification | None]:
            results: list[Changed] = []
            notifications: list[Notification] = []
            left: list[RowId] = []
            for part, outcome in halved(connection, self._writer.timeout, ids, change, abandoned):
                if not isinstance(outcome, (StoreError, CallError)):
                    results += outcome.results
                    left += outcome.left
                    notifications += [] if outcome.notification is None else [outcome.notification]
                elif len(ids) == 1:
                    raise outcome
                else:
                    results.append(Changed.WRONG_STATE)
                    logger.error(
                        "job %s can't be changed: %s",
                        part[0],
                        outcome,
                        extra=event("store.job_not_changed", job_id=str(part[0])),
                    )
            return (results, left), merged(notifications)

        results, left = await self._writer.hop(run)
        for chain in left:
            await self._remove_rest(chain)
        return results

    async def _remove_rest(self, chain: RowId) -> None:
        more = True
        while more:
            await asyncio.sleep(_PAUSE_SECONDS)
            more = await self._writer.write(functools.partial(remove_rest, chain))

    async def prune(
        self, state: StoredState, older_than: float, types: Collection[str] | None, limit: int, cursor: str | None
    ) -> Pruned:
        """Remove one portion of what finished long ago."""
        return await self._writer.write(lambda connection: prune(connection, state, older_than, types, limit, cursor))


def _run_now(connection: sqlite3.Connection, ids: Sequence[UUID]) -> Outcome:
    """Make pending jobs due."""
    now = connection.execute(f"SELECT {NOW}").fetchone()[0]
    results: list[Changed] = []
    types: set[str] = set()
    for job_id in ids:
        end = LastStep.of(connection, job_id)
        if end is None:
            results.append(Changed.NOT_FOUND)
        elif end.state != StoredState.PENDING or end.archived:
            results.append(end.not_now)
        else:
            connection.execute(_MAKE_DUE, {**end.parameters, "now": now})
            types.add(end.type)
            results.append(Changed.DONE)
    return Outcome(results, Notification(types=frozenset(types)) if types else None)
