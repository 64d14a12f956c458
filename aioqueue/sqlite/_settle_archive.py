"""Moving jobs to the archive. The functions run inside an open write transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.sqlite._rows import dump, history
from aioqueue.sqlite._webhooks_write import write_deliveries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["ERRORS_OF_ROW", "PURGE_AT", "archive", "archive_ended", "archived_row", "remove"]

ERRORS_OF_ROW = f"CASE WHEN s.value ->> 5 IS NULL THEN job.errors ELSE {history('s.value ->> 5')} END"

PURGE_AT = ":now + CAST(round(job.keep * 1000000.0) AS INTEGER)"
"""When a job of the table `job` may be removed after its end, now: NULL where it doesn't say how long it's kept."""

_ARCHIVE = f"""
INSERT OR REPLACE INTO archive (id, type, priority, state, run_at, created_at, started_at, finished_at, expires_at, attempt,
                     max_attempts, claims, reschedules, settled_claims, settled_lease, settled_kind, chain_id, position,
                     key, unique_key, trace, retry, timeout, tags, metadata, errors, outcome, output, payload, keep, purge_at,
                     webhook, origin)
SELECT job.id, job.type, job.priority, s.value ->> 3, job.run_at, job.created_at, job.started_at, :now, job.expires_at,
       job.attempt, job.max_attempts, job.claims, job.reschedules, job.claims, s.value ->> 2,
       (s.value ->> 3) + :orphaned, job.chain_id, job.position, job.key,
       iif(job.until_started, NULL, job.unique_key), job.trace, job.retry,
       job.timeout, job.tags, job.metadata, {ERRORS_OF_ROW}, s.value ->> 6, s.value ->> 7, job.payload,
       job.keep, {PURGE_AT}, job.webhook, job.origin
FROM json_each(:rows) AS s CROSS JOIN job ON job.id = s.value ->> 0
"""
"""In place of an earlier end of the same job: somebody may have copied it back from the archive."""

_DELETE = "DELETE FROM job WHERE id IN (SELECT value ->> 0 FROM json_each(:rows))"


def archive(connection: Statements, rows: str, now: int, *, orphaned: int = 0) -> None:
    """Copy live jobs to the archive: those of these rows, as JSON, which are made as `archived_row` makes them."""
    connection.execute(_ARCHIVE, {"rows": rows, "now": now, "orphaned": orphaned})


def remove(connection: Statements, rows: str) -> None:
    """Remove live jobs: those of these rows, as JSON, which begin with the ids."""
    connection.execute(_DELETE, {"rows": rows})


def archived_row(
    job_id: str,
    state: int,
    *,
    error: str | None = None,
    outcome: str | None = None,
    output: str | None = None,
) -> list[object]:
    """What `archive` takes of a job that others end than its worker: no lease, so no late write passes for a repetition."""
    return [job_id, None, None, state, None, error, outcome, output]


def archive_ended(connection: Statements, rows: Sequence[list[object]], now: int) -> bool:
    """Move jobs to the archive that end without their workers. Returns whether somebody is to be told by a webhook."""
    given = dump(rows)
    archive(connection, given, now)
    remove(connection, given)
    return write_deliveries(connection, [str(row[0]) for row in rows], now)
