"""Ending jobs that aren't finished, by others than their workers. Runs inside an open write transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.sqlite._notifications import merged
from aioqueue.sqlite._rows import dump, load, one
from aioqueue.sqlite._rows_times import NOW
from aioqueue.sqlite._settle_batch import Batch
from aioqueue.sqlite._settle_requests import REASON, reason_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._job import Ending
    from aioqueue.vocabulary._notification import Notification

__all__ = ["end"]

_LIVE = f"""
SELECT {NOW}, (SELECT json_group_array(json_array(job.id, CAST(job.type AS TEXT), CAST(job.chain_id AS TEXT),
    job.marked IS NOT 0, iif(job.state = 2 AND typeof(job.lease_id) = 'integer', job.lease_id, NULL), {REASON}))
FROM json_each(:ids) AS asked CROSS JOIN job ON job.id = asked.value)
"""


def end(connection: Statements, endings: Sequence[Ending]) -> tuple[list[bool], Notification | None]:
    """End jobs, all or none, as `aioqueue.abc.Store.end` promises.

    Raises:
        RowRejected: A row is at fault.
        BlockerNotFound, BlockerCycle: Of a next step or a child.
    """
    results: list[bool] = []
    notifications: list[Notification] = []
    # Of two about the same job the second one finds that it has ended.
    for part in _distinct(endings):
        now, rows = one(connection, _LIVE, {"ids": dump([str(each.id) for each in part])})
        live = {entry[0]: entry for entry in load(rows)}
        batch = Batch(now)
        leases: set[int] = set()
        for each in part:
            entry = live.get(str(each.id))
            results.append(entry is not None)
            if entry is not None:
                job_id, job_type, chain_id, marked, lease, digits = entry
                reason = None if digits is None else reason_of(digits)
                batch.add(each, None, job_id, job_type, chain_id, marked, reason)
                leases |= {lease} - {None}
        if live:
            batch.write(connection)
            notifications.append(batch.notification(frozenset(leases)))
    return results, merged(notifications)


def _distinct(endings: Sequence[Ending]) -> list[Sequence[Ending]]:
    if len({each.id for each in endings}) == len(endings):
        return [endings]
    return [[each] for each in endings]
