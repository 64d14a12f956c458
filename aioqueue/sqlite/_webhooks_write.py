"""Writing what is to be sent of chains that end, in the transactions that end them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.sqlite._rows import SELECT_ARCHIVED, dump, job_snapshot
from aioqueue.sqlite._rows_times import microseconds
from aioqueue.store_rules._deliveries import ChainEnding, delivery_of
from aioqueue.vocabulary._job import JobState, StoredState
from aioqueue.vocabulary._webhook_url import webhook_host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._job import Job

__all__ = ["write_deliveries"]

_ENDED = f"""
{SELECT_ARCHIVED} FROM archive WHERE id IN (SELECT value FROM json_each(:ids)) AND webhook IS NOT NULL AND state IN (4, 6, 7)
"""

_WRITE = """
INSERT INTO delivery (id, job_id, chain_id, job_type, event, url, host, body, created_at, next_at)
VALUES (:id, :job_id, :chain_id, :job_type, :event, :url, :host, :body, :at, :at)
"""

_STATES = {
    JobState.COMPLETED: StoredState.COMPLETED,
    JobState.FAILED: StoredState.FAILED,
    JobState.CANCELLED: StoredState.CANCELLED,
}


def write_deliveries(connection: Statements, ids: Sequence[str], now: int) -> bool:
    """Write what is to be sent of these jobs, which have been moved to the archive now. Returns whether it's anything."""
    if not ids:
        return False
    rows = connection.execute(_ENDED, {"ids": dump(list(ids))}).fetchall()
    deliveries = [each for each in (delivery_of(_ending(job_snapshot(row, now))) for row in rows) if each is not None]
    for each in deliveries:
        told = {"id": str(each.id), "job_id": str(each.job_id), "chain_id": str(each.chain_id), "job_type": each.job_type}
        message = {"event": each.event, "url": each.url, "host": webhook_host(each.url), "body": each.body}
        connection.execute(_WRITE, {**told, **message, "at": microseconds(each.created_at)})
    return bool(deliveries)


def _ending(job: Job) -> ChainEnding:
    assert job.finished_at is not None
    return ChainEnding(
        job_id=job.id,
        chain_id=job.chain_id,
        job_type=job.type,
        state=_STATES[job.state],
        attempt=job.attempt,
        finished_at=job.finished_at,
        webhook=job.webhook,
        key=job.key,
        tags=job.tags,
        outcome=job.outcome,
        output=job.output_json,
        error=job.last_error,
        origin=job.origin,
    )
