"""What is kept beside jobs: written with their settlements, and removed with the jobs; in their write transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import RowRejected
from aioqueue.sqlite._rows import dump
from aioqueue.store_rules._phases import KEPT_LOGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._job import Settlement

__all__ = ["forget_beside", "forget_phases", "write_logs"]

_WRITE_LOGS = """
INSERT OR REPLACE INTO job_log (job_id, claims, attempt, lines)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(:rows)
"""

_FORGET_OLD_LOGS = f"""
DELETE FROM job_log WHERE rowid IN (
    SELECT log.rowid FROM json_each(:rows) AS s CROSS JOIN job_log AS log ON log.job_id = s.value ->> 0
    WHERE log.claims <= (SELECT claims FROM job_log AS newer WHERE newer.job_id = s.value ->> 0
                         ORDER BY claims DESC LIMIT 1 OFFSET {KEPT_LOGS}))
"""

_FORGET = tuple(
    f"DELETE FROM {table} WHERE job_id IN (SELECT value FROM json_each(:ids))" for table in ("phase", "progress", "job_log")
)

_FORGET_DELIVERIES = "DELETE FROM delivery WHERE job_id IN (SELECT value FROM json_each(:ids)) AND state <> 1"
"""What is still to be sent is sent."""


def write_logs(connection: Statements, settlements: Sequence[Settlement]) -> None:
    """Keep what was logged in the attempts that these settlements are about, each of which has logs.

    Raises:
        RowRejected: Of one it isn't JSON.
    """
    rows = dump([[str(each.id), each.claims, each.attempt, _lines(each)] for each in settlements])
    connection.execute(_WRITE_LOGS, {"rows": rows})
    connection.execute(_FORGET_OLD_LOGS, {"rows": rows})


def _lines(settlement: Settlement) -> str:
    try:
        return (settlement.logs or b"[]").decode()
    except UnicodeError as error:
        raise RowRejected(f"job {settlement.id}: its logs can't be stored: {error}") from error


def forget_phases(connection: Statements, ids: Iterable[str]) -> None:
    """Forget how far jobs have come, so that they begin from the start."""
    given = dump(list(ids))
    for statement in _FORGET[:2]:
        connection.execute(statement, {"ids": given})


def forget_beside(connection: Statements, ids: Iterable[str]) -> None:
    """Remove all that is kept beside jobs that are removed."""
    given = dump(list(ids))
    if given != "[]":
        for statement in (*_FORGET, _FORGET_DELIVERIES):
            connection.execute(statement, {"ids": given})
