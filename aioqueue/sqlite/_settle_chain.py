"""Continuing chains: the next step takes the place of the one that has finished, in the transaction that settles it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioqueue.errors import RowRejected
from aioqueue.sqlite._insert import job_row
from aioqueue.sqlite._rows import dump

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from aioqueue.vocabulary._job import Settlement

__all__ = ["NextStep", "insert_steps"]

_FREE_KEYS = """
UPDATE job SET unique_key = NULL WHERE unique_key IS NOT NULL AND id IN (SELECT value ->> 0 FROM json_each(:rows))
"""

_INSERT = """
INSERT INTO job (id, type, priority, state, run_at, created_at, expires_at, max_attempts, retry, timeout, tags, metadata,
                 payload, trace, chain_id, position, key, unique_key, marked)
SELECT n ->> 1, n ->> 2, n ->> 3, 1, n ->> 4, :now, n ->> 5, n ->> 6, n ->> 7, n ->> 8, n ->> 11, n ->> 12, n ->> 13,
       n ->> 14, coalesce(done.chain_id, done.id), done.position + 1, done.key, archive.unique_key, done.marked
FROM (SELECT value AS n FROM json_each(:rows)) CROSS JOIN job AS done ON done.id = n ->> 0
CROSS JOIN archive ON archive.id = done.id
WHERE NOT EXISTS (SELECT 1 FROM archive AS there WHERE there.id = n ->> 1)
"""


@dataclass(frozen=True, slots=True)
class NextStep:
    """The job with which a chain goes on.

    Attributes:
        type: Its type.
        due: When it's due.
        row: What its insert takes: the id of the step that has finished, and a new job's values.
    """

    type: str
    due: int
    row: list[object]

    @classmethod
    def of(cls, settlement: Settlement, job_id: str, now: int) -> NextStep:
        """Read a settlement, of the job with this id.

        Raises:
            RowRejected: It can't be stored as it is.
        """
        if settlement.next is None:
            raise RowRejected(f"job {settlement.id}: it's to be continued, but there is no next job")
        values = job_row(settlement.next, now, None)
        return cls(settlement.next.type, int(str(values[3])), [job_id, *values])


def insert_steps(connection: sqlite3.Connection, steps: Sequence[NextStep], now: int) -> None:
    """Insert next steps, after the finished ones have been copied to the archive, and before they're deleted.

    Nobody can take a unique key in between: the transaction holds the write lock.

    Raises:
        RowRejected: A job with one of the ids has finished already.
    """
    rows = dump([step.row for step in steps])
    connection.execute(_FREE_KEYS, {"rows": rows})
    if connection.execute(_INSERT, {"rows": rows, "now": now}).rowcount != len(steps):
        raise RowRejected("the chain can't be continued: a job with the next one's id has finished already")
