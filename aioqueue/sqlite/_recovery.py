"""Recovery of dead workers' jobs, and when there is something to do next."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.sqlite._connections import Connection, begin, in_transaction
from aioqueue.sqlite._gates_fair import wait_in_lanes
from aioqueue.sqlite._lease import DELETE_LEASE
from aioqueue.sqlite._lease_clock import LEASE_END, clock_parameters
from aioqueue.sqlite._pauses_conditions import ANY_PAUSE, GATE_OF, LASTS
from aioqueue.sqlite._rows import Unreadable, dump, one
from aioqueue.sqlite._rows_claimed import CLAIMED_COLUMNS, claimed_job, claimed_jobs
from aioqueue.sqlite._rows_ids import ANY_ID, RowId
from aioqueue.sqlite._rows_odd import what_is_odd
from aioqueue.sqlite._rows_times import NOW
from aioqueue.sqlite._schedules_look import NEXT_TICK
from aioqueue.vocabulary._answers import Due
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Mapping, Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections_access import Reader, Writer
    from aioqueue.sqlite._gates_news import GateNews
    from aioqueue.sqlite._rows_odd import OddRows
    from aioqueue.vocabulary._gates import GateRules
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["Recovery", "take_expired"]

_FIRST_PARKED = 100
"""Of each paused key: in whether it has jobs of the types, and when they're due."""

_OLDEST_EXPIRED = f"""
SELECT id FROM lease WHERE {LEASE_END} <= {NOW} - :grace AND id NOT IN (SELECT value FROM json_each(:own))
ORDER BY expires_at, id LIMIT 1
"""

_ORPHANED = """job INDEXED BY job_running
    WHERE state = 2 AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.id = job.lease_id)
      AND coalesce(lease_id, 0) NOT IN (SELECT value FROM json_each(:own))
    ORDER BY started_at, id LIMIT :limit"""

_ORPHANS = f"""
SELECT {NOW}, (SELECT json_group_array(json_array({CLAIMED_COLUMNS})) FROM (
    SELECT id FROM {_ORPHANED}) AS orphan CROSS JOIN job ON job.id = orphan.id)
"""

_PAST_WORKER = "SELECT CAST(worker AS TEXT) FROM past_lease WHERE id = :lease"

_ORPHAN_IDS = f"SELECT {ANY_ID} FROM {_ORPHANED}"

_NEXT_AROUND_PAUSES = f"""
WITH open(type, ends) AS MATERIALIZED (
    SELECT asked.value, (SELECT max(coalesce(pause.until, 9e999)) FROM pause
                         WHERE (pause.target = 'all' OR (pause.target = 'type' AND pause.value = asked.value)) AND {LASTS})
    FROM json_each(:types) AS asked),
paused(key, ends) AS MATERIALIZED (
    SELECT pause.value, max(coalesce(pause.until, 9e999)) FROM pause WHERE pause.target = 'key' AND {LASTS}
    GROUP BY pause.value)
SELECT min(due) - {NOW} FROM (
    SELECT max(coalesce(ends, 0), (SELECT min(run_at) FROM (
        SELECT (SELECT run_at FROM job INDEXED BY job_due
                WHERE state = 1 AND type = open.type AND priority = urgency.value ORDER BY run_at LIMIT 1) AS run_at
        FROM json_each('[1,2,3,4]') AS urgency) WHERE run_at < 9e999)) AS due
    FROM open WHERE ends IS NOT 9e999
    UNION ALL
    SELECT max(ends, (SELECT min(run_at) FROM (
        SELECT type, run_at FROM job INDEXED BY job_held
        WHERE state = 0 AND gate = {GATE_OF} paused.key ORDER BY priority, run_at, id LIMIT {_FIRST_PARKED})
        WHERE type IN (SELECT value FROM json_each(:types)))) AS due
    FROM paused WHERE ends < 9e999)
WHERE due < 9e999
"""
"""What is paused without an end isn't waited for; what is parked comes back when its pause has ended."""

_NEXT_DUE = f"""
WITH RECURSIVE holder(id) AS (
    SELECT (SELECT min(lease_id) FROM job INDEXED BY job_running WHERE state = 2)
    UNION ALL
    SELECT (SELECT min(lease_id) FROM job INDEXED BY job_running WHERE state = 2 AND lease_id > holder.id)
    FROM holder WHERE holder.id IS NOT NULL)
SELECT
    {ANY_PAUSE},
    CASE WHEN {ANY_PAUSE} THEN NULL ELSE (SELECT min(due) FROM (
        SELECT (SELECT run_at FROM job INDEXED BY job_due
                WHERE state = 1 AND type = lane.value AND priority = urgency.value ORDER BY run_at LIMIT 1) AS due
        FROM json_each(:types) AS lane, json_each('[1,2,3,4]') AS urgency)
     WHERE due < 9e999) - {NOW} END,
    (SELECT min({LEASE_END}) FROM lease WHERE id NOT IN (SELECT value FROM json_each(:own))) - {NOW},
    EXISTS (SELECT 1 FROM job INDEXED BY job_running WHERE state = 2 AND lease_id IS NULL)
    OR EXISTS (SELECT 1 FROM holder WHERE id IS NOT NULL AND id NOT IN (SELECT value FROM json_each(:own))
            AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.id = holder.id)),
    {NEXT_TICK} - {NOW},
    CASE WHEN EXISTS (SELECT 1 FROM gate_mark) THEN 0
         ELSE (SELECT min(wake_at) FROM gate_rate INDEXED BY gate_rate_wake WHERE wake_at IS NOT NULL) - {NOW} END
"""
"""Of the running jobs only their leases are looked at, from one to the next in the index."""


class Recovery:
    """Recovery of one open store.

    Arguments:
        writer: Where jobs are taken.
        reader: Where is looked what is due; users' listings don't come in its way.
        odd_rows: What is done with rows that can't be recovered.
        news: Knows for how long nothing is let come at gates.
    """

    def __init__(self, writer: Writer, reader: Reader, odd_rows: OddRows, news: GateNews) -> None:
        self._writer = writer
        self._reader = reader
        self._odd_rows = odd_rows
        self._news = news

    async def take_expired(self, limit: int, own: Collection[int]) -> Sequence[ClaimedJob]:
        """Recover jobs of dead workers, as `aioqueue.abc.Store.take_expired` promises."""

        def run(connection: Connection, abandoned: Callable[[], bool]) -> tuple[list[ClaimedJob], Notification | None]:
            timeout = self._writer.timeout
            waited = begin(connection, timeout, abandoned)
            take = functools.partial(take_expired, limit=limit, own=own, waited=waited)
            try:
                return in_transaction(connection, timeout, take, abandoned, begun=True)
            except Unreadable:
                return _take_expired_one_by_one(connection, self._odd_rows, limit, own, waited)

        return await self._writer.hop(run)

    async def next_due(self, types: Sequence[str], own: Collection[int], gates: Mapping[str, GateRules] | None = None) -> Due:
        """Tell when there is something to do, as `aioqueue.abc.Store.next_due` promises."""
        asked = dict.fromkeys(types)
        fair = {name: rule for name, rule in (gates or {}).items() if name in asked and rule.fair_by is not None}
        look = functools.partial(_next_due, types=types, own=own, fair=fair, news=self._news)
        return await self._reader.read(look)


def take_expired(
    connection: sqlite3.Connection, limit: int, own: Collection[int], waited: float
) -> tuple[list[ClaimedJob], Notification | None]:
    """Fence one dead worker and return what has no lease, in an open write transaction.

    Arguments:
        connection: Whose transaction it is.
        limit: Jobs at most.
        own: Leases that are left alone.
        waited: Seconds that the write lock took: renewals may be waiting for it just as long, so that a lease that
            ended meanwhile says nothing about its worker.
    """
    ended = _end_expired(connection, own, waited)
    _, rows = one(connection, _ORPHANS, {"limit": limit, "own": dump(list(own))})
    jobs = [_named(connection, job) for job in claimed_jobs(rows, None)]
    return jobs, Notification(leases=ended) if ended else None


def _named(connection: sqlite3.Connection, job: ClaimedJob) -> ClaimedJob:
    """Say of a recovered job which worker has lost it."""
    found = one(connection, _PAST_WORKER, {"lease": job.lease_id})
    return job if found is None else replace(job, worker=found[0])


def _end_expired(connection: sqlite3.Connection, own: Collection[int], waited: float) -> frozenset[int]:
    """Delete at most one lease that has expired. Arguments as of `take_expired`; returns its id."""
    parameters: dict[str, object] = {"grace": round(waited * 1e6), "own": dump(list(own)), **clock_parameters()}
    expired = one(connection, _OLDEST_EXPIRED, parameters)
    if expired is None:
        return frozenset()
    connection.execute(DELETE_LEASE, {"lease": expired[0]})
    return frozenset({expired[0]})


def _take_expired_one_by_one(
    connection: Connection, odd_rows: OddRows, limit: int, own: Collection[int], waited: float
) -> tuple[list[ClaimedJob], Notification | None]:
    """Do the same where some rows can't be read, each in a transaction of its own. Arguments as of `take_expired`."""
    ended = in_transaction(connection, odd_rows.timeout, functools.partial(_end_expired, own=own, waited=waited))
    jobs: list[ClaimedJob] = []
    failed: list[UUID] = []
    orphans = {"limit": limit + len(odd_rows), "own": dump(list(own))}
    for row_id in [RowId.read(*row) for row in connection.execute(_ORPHAN_IDS, orphans).fetchall()]:
        entry = odd_rows.read(connection, row_id, StoredState.RUNNING)
        if entry is None:
            continue
        if reason := what_is_odd(entry):
            failed += odd_rows.fail(connection, row_id, reason, state=StoredState.RUNNING, lease=entry[6])
        else:
            jobs.append(_named(connection, claimed_job(entry, None)))
    return jobs[:limit], Notification(finished=frozenset(failed), leases=ended)


def _next_due(
    connection: sqlite3.Connection, types: Sequence[str], own: Collection[int], fair: Mapping[str, GateRules], news: GateNews
) -> Due:
    """Tell when the first pending job is due, when the first lease of somebody else runs out, and when the next tick is."""
    parameters = {"types": dump(list(types)), "own": dump(list(own)), **clock_parameters()}
    any_pause, job, lease, orphans, tick, gate = connection.execute(_NEXT_DUE, parameters).fetchone()
    if any_pause:
        job = connection.execute(_NEXT_AROUND_PAUSES, parameters).fetchone()[0]
    if gate is not None:
        gate = max(gate, 1e6 * news.promotion.wait)
    turn = 1e6 * news.turns.wait if wait_in_lanes(connection, fair, news.passed_over) else None
    job = min((each for each in (job, gate, turn) if each is not None), default=None)
    return Due(job=_seconds(job), lease=0.0 if orphans else _seconds(lease), tick=_seconds(tick))


def _seconds(wait: float | None) -> float | None:
    return None if wait is None or wait == math.inf else max(0.0, wait / 1e6)
