"""What operators do with jobs: retry, run now, cancel, delete. Any step's id stands for its chain."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

from aioqueue.errors import StoreContended, StoreUnavailable
from aioqueue.postgres._connections_source import WAIT_BRIEFLY
from aioqueue.postgres._errors import deadlock
from aioqueue.postgres._events_log import logged
from aioqueue.postgres._notifications import due_note, notify_statements
from aioqueue.postgres._operate_apart import DELETED, RETRIED, RUN, Changes, apart_statements, change_apart
from aioqueue.postgres._operate_cancel import Cancelled, cancel, cancel_statements
from aioqueue.postgres._operate_delete import delete, delete_statements, delete_steps
from aioqueue.postgres._operate_due import DueTime, due_arguments
from aioqueue.postgres._operate_prune import prune, prune_statements
from aioqueue.postgres._operate_retry import retry, retry_statements
from aioqueue.postgres._pauses_parked import PARKED
from aioqueue.postgres._rows_chain import ENDS
from aioqueue.store_rules._cancelling import kept_reason
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._event_log import EventKind
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification
from aioqueue.vocabulary._pauses import HELD_BY_PAUSE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence
    from uuid import UUID

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._connections_driver import Connection, Row
    from aioqueue.postgres._operate_apart import Change, Touched
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._answers import Cancellation, Pruned

__all__ = ["Operator", "operate_statements"]

T = TypeVar("T")

_CONTENDED_SECONDS = 0.2
"""Between two tries, where somebody's open transaction has locked one of the rows."""

_PATIENCE_SECONDS = 2.0
"""How long all of a call's jobs are tried together; then those that somebody holds are left out."""

_ASKING_SECONDS = 0.5
_FIRST_PAUSE_SECONDS = 0.01
"""How long rows are tried again whose chains were asked to end, and after which pause first."""

_LOGGED = logged(
    f"""SELECT '{EventKind.RESCHEDULED}', id, chain, type, attempt, claims, extract(epoch FROM greatest(run_at, now()) - now())
    FROM changed""",
    "delay",
)
# One row for each id that was given. Joined, not looked up for each: those that were changed are a list without an index.
_MOVE = f"""WITH {ENDS}, wanted AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j WHERE j.id = ANY(ARRAY(SELECT live FROM ends)) AND (j.state + 0 = 1 OR ({PARKED}))
    ORDER BY j.id FOR UPDATE
), changed AS (
    UPDATE @schema@.job j SET @when@
    WHERE j.id = ANY(ARRAY(SELECT id FROM wanted))
    RETURNING j.id, j.type, j.run_at, coalesce(j.chain_id, j.id) AS chain, j.attempt, j.claims
), {_LOGGED}
SELECT ends.asked, ends.id, changed.type,
       (SELECT j.state FROM @schema@.job j WHERE j.id = ends.live) AS live, ends.last IS NOT NULL AS archived,
       extract(epoch FROM greatest(changed.run_at, now()) - now())::float8 AS delay
FROM ends LEFT JOIN changed ON changed.id = ends.live"""
_AT_A_GATE = f"j.state + 0 = 0 AND left(j.gate, {len(HELD_BY_PAUSE)}) <> '{HELD_BY_PAUSE}'"
# What is held at a gate comes before those of its priority that are held there, too.
_NOW = f"""run_at = least(j.run_at, clock_timestamp(), CASE WHEN {_AT_A_GATE} THEN (
        SELECT h.run_at - interval '1 microsecond' FROM @schema@.job h
        WHERE h.state = 0 AND h.gate = j.gate AND h.priority = j.priority ORDER BY h.run_at LIMIT 1) END)"""
# It leaves its gate, and stands at none until it's due.
_THEN = f"""run_at = greatest(clock_timestamp(),
                      coalesce($2::timestamptz, clock_timestamp() + $3::float8 * interval '1 second')),
        state = CASE WHEN {_AT_A_GATE} THEN 1 ELSE j.state END, gate = CASE WHEN {_AT_A_GATE} THEN NULL ELSE j.gate END"""


def operate_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {
        "run_now": schema.render(_MOVE.replace("@when@", _NOW)),
        "reschedule": schema.render(_MOVE.replace("@when@", _THEN)),
        **retry_statements(schema),
        **delete_statements(schema),
        **prune_statements(schema),
        **cancel_statements(schema),
        **apart_statements(schema),
        **notify_statements(schema),
    }


class Operator:
    """Changes jobs, over the pool of the client's own operations or on a connection that is in a transaction.

    Arguments:
        pool: For the client's own operations.
        schema: Where the tables are.
        origin: Who tells other processes of jobs that are due; None if nobody is to be told.
    """

    def __init__(self, pool: Pool, schema: Schema, origin: str | None) -> None:
        self._pool = pool
        self._statements = operate_statements(schema)
        self._origin = origin

    async def retry(self, ids: Sequence[UUID], *, cascade: bool, from_start: bool) -> Changes:
        """See `aioqueue.abc.Store.retry`. What meets somebody else's lock is repeated, for a moment; then that is left out.

        Raises:
            StoreContended: A whole table was locked, for as long as a statement may take.
        """
        return await self._tried(
            lambda connection, apart: self.retry_in(connection, ids, cascade=cascade, from_start=from_start, apart=apart)
        )

    async def run_now(self, ids: Sequence[UUID]) -> Changes:
        """See `aioqueue.abc.Store.run_now`, and `retry`."""
        return await self._tried(lambda connection, apart: self.run_now_in(connection, ids, apart=apart))

    async def reschedule(self, ids: Sequence[UUID], when: DueTime) -> Changes:
        """See `aioqueue.abc.Operable.reschedule`, and `retry`."""
        return await self._tried(lambda connection, apart: self.reschedule_in(connection, ids, when, apart=apart))

    async def delete(self, ids: Sequence[UUID], *, cascade: bool) -> Changes:
        """See `aioqueue.abc.Store.delete`, and `retry`."""
        return await self._tried(lambda connection, apart: self.delete_in(connection, ids, cascade=cascade, apart=apart))

    async def cancel(self, ids: Sequence[UUID], reason: str) -> tuple[list[Cancellation], list[Notification]]:
        """See `aioqueue.abc.Store.cancel`; returns what listeners are to be told, too.

        The requests are committed first. Then those rows are tried again that somebody held, for a fraction of a second.

        Raises:
            StoreContended: A row that isn't the job's own was locked for all the time that a statement may take.
        """
        results: dict[UUID, Cancellation] = {}
        told: list[Notification] = []
        left = list(dict.fromkeys(ids))

        async def ask(connection: Connection) -> Cancelled:
            again = bool(results)
            return await cancel(
                connection,
                self._statements,
                left,
                kept_reason(reason),
                origin=self._origin,
                wait=again and len(left) == 1,
                again=again,
            )

        until, pause = time.monotonic() + _ASKING_SECONDS, _FIRST_PAUSE_SECONDS
        while left:
            # Whoever is left alone waits in the row's queue, before those who come later.
            alone = bool(results) and len(left) == 1
            done = await (self._waiting(ask) if alone else self._tried(lambda connection, _: ask(connection)))
            if done is not None:
                results |= done.results
                told.append(done.told)
                left = done.left
            if not left or time.monotonic() >= until:
                break
            await asyncio.sleep(pause)
            pause *= 2
        return [results[each] for each in ids], told

    async def cancel_in(self, connection: Connection, ids: Sequence[UUID], reason: str) -> Cancelled:
        """See `retry_in`. Rows that somebody holds are waited for."""
        return await cancel(
            connection, self._statements, list(dict.fromkeys(ids)), kept_reason(reason), origin=self._origin, wait=True
        )

    async def retry_in(
        self, connection: Connection, ids: Sequence[UUID], *, cascade: bool, from_start: bool, apart: bool
    ) -> Changes:
        """The same within the connection's open transaction; what fails leaves a part of it behind. So do the next three.

        Arguments:
            connection: In a transaction.
            ids: Of any steps.
            cascade, from_start: As of `aioqueue.abc.Store.retry`.
            apart: Whether those that somebody holds are looked for, and left out: where all together have met a lock.
        """

        async def change(some: Sequence[UUID]) -> Changes:
            results, revived = await retry(connection, self._statements, some, cascade=cascade, from_start=from_start)
            await self._notify(connection, revived.types)
            return Changes(results, Notification(types=frozenset(revived.types)))

        return await self._change(connection, ids, RETRIED, change, apart=apart)

    async def run_now_in(self, connection: Connection, ids: Sequence[UUID], *, apart: bool) -> Changes:
        """See `retry_in`."""
        return await self._move(connection, ids, "run_now", (), apart=apart)

    async def reschedule_in(self, connection: Connection, ids: Sequence[UUID], when: DueTime, *, apart: bool) -> Changes:
        """See `retry_in`.

        Raises:
            RowRejected: They can't be due then.
        """
        return await self._move(connection, ids, "reschedule", due_arguments(when), apart=apart)

    async def _move(
        self, connection: Connection, ids: Sequence[UUID], name: str, when: Sequence[object], *, apart: bool
    ) -> Changes:
        async def change(some: Sequence[UUID]) -> Changes:
            rows = await connection.fetch(self._statements[name], list(some), *when)
            types = {row[2] for row in rows if row[2] is not None}
            delay = min((row[5] for row in rows if row[2] is not None), default=0.0)
            await self._notify(connection, types, delay)
            return Changes(_results(rows, some), Notification(types=frozenset(types), delay=delay))

        return await self._change(connection, ids, RUN, change, apart=apart)

    async def delete_in(self, connection: Connection, ids: Sequence[UUID], *, cascade: bool, apart: bool) -> Changes:
        """See `retry_in`. There may be steps left of long chains: see `remove_rest`, and `remove_rest_in`."""

        async def change(some: Sequence[UUID]) -> Changes:
            results, deleted = await delete(connection, self._statements, some, cascade=cascade, origin=self._origin)
            told = deleted.told
            note = Notification(
                types=frozenset(told.types),
                delay=told.delay if told.types else 0.0,
                finished=frozenset(deleted.chains | told.failed | told.deleted),
                leases=frozenset(deleted.leases),
                deliveries=told.deliveries,
            )
            return Changes(results, note, frozenset(deleted.chains) if deleted.more else frozenset())

        return await self._change(connection, ids, DELETED, change, apart=apart)

    async def _change(
        self, connection: Connection, ids: Sequence[UUID], touched: Touched, change: Change, *, apart: bool
    ) -> Changes:
        if not apart:
            return await change(ids)
        # As long as all of it may take, a part of which is for looking.
        seconds = self._pool.source.timeout / 3
        return await change_apart(connection, self._statements, ids, touched, change, seconds=seconds)

    async def remove_rest(self, chains: Collection[UUID]) -> None:
        """Remove the steps that deleted chains had behind them, in portions. If that's interrupted, another delete does it.

        Raises:
            StoreContended: A row was locked for all the time that a statement may take.
        """
        while await self._tried(lambda connection, _: delete_steps(connection, self._statements, chains)):
            pass

    async def remove_rest_in(self, connection: Connection, chains: Collection[UUID]) -> None:
        """The same within the connection's open transaction."""
        while chains and await delete_steps(connection, self._statements, chains):
            pass

    async def _waiting(self, change: Callable[[Connection], Awaitable[T]]) -> T | None:
        """Try once; None where somebody holds a row for longer than a moment."""
        try:
            async with self._pool.transaction() as connection:
                await connection.execute(WAIT_BRIEFLY)
                return await change(connection)
        except StoreUnavailable as error:
            if not (isinstance(error, StoreContended) or deadlock(error)):
                raise
            return None

    async def _tried(self, change: Callable[[Connection, bool], Awaitable[T]]) -> T:
        """Change something in a transaction of our own, repeatedly; it's told when those that are held are to be left out."""
        begun = time.monotonic()
        while True:
            waited = time.monotonic() - begun
            try:
                async with self._pool.transaction() as connection:
                    await connection.execute(WAIT_BRIEFLY)
                    return await change(connection, waited >= _PATIENCE_SECONDS)
            except StoreUnavailable as error:
                if not (isinstance(error, StoreContended) or deadlock(error)) or waited >= self._pool.source.timeout:
                    raise
            await asyncio.sleep(_CONTENDED_SECONDS)

    async def _notify(self, connection: Connection, types: Collection[str], delay: float = 0.0) -> None:
        if self._origin is not None and (note := due_note(types, delay, self._origin)) is not None:
            await connection.fetch(self._statements["notify"], note)

    async def prune(
        self, state: StoredState, older_than: float, types: Collection[str] | None, limit: int, cursor: str | None
    ) -> tuple[Pruned, frozenset[UUID]]:
        """Remove one portion of what finished long ago; returns the chains of which it was the last step, too."""
        return await prune(self._pool, self._statements["prune"], state, older_than, types, limit, cursor)


def _results(rows: Sequence[Row], ids: Sequence[UUID]) -> list[Changed]:
    """Say what became of each."""
    found = {row[0]: row for row in rows}
    results: list[Changed] = []
    for job_id in ids:
        _, _, changed, live, archived, _ = found[job_id]
        if changed is not None:
            results.append(Changed.DONE)
        elif live == StoredState.RUNNING:
            results.append(Changed.RUNNING)
        elif live is None and not archived:
            results.append(Changed.NOT_FOUND)
        else:
            results.append(Changed.WRONG_STATE)
    return results
