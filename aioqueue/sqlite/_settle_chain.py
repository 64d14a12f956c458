"""Continuing chains: the next step takes the place of the one that has finished, in the transaction that settles it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioqueue.errors import BlockerCycle, RowRejected
from aioqueue.sqlite._gates_members import ENTER, member_row
from aioqueue.sqlite._insert_blockers import waits_for_itself
from aioqueue.sqlite._insert_rows import job_row, kept_values
from aioqueue.sqlite._rows import dump

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._blockers import NewBlocker
    from aioqueue.vocabulary._job import Ending, Settlement

__all__ = ["NextStep", "check_cycle", "insert_steps"]

_FREE_KEYS = """
UPDATE job SET unique_key = NULL WHERE unique_key IS NOT NULL AND id IN (SELECT value ->> 0 FROM json_each(:rows))
"""

_INSERT = """
INSERT INTO job (id, type, priority, state, run_at, created_at, expires_at, max_attempts, retry, timeout, tags, metadata,
                 payload, trace, chain_id, position, key, unique_key, origin, gates, keep, webhook, marked{also})
SELECT n ->> 1, n ->> 2, n ->> 3, {state}, n ->> 4, :now, n ->> 5, n ->> 6, n ->> 7, n ->> 8, n ->> 11, n ->> 12, n ->> 13,
       n ->> 14, coalesce(done.chain_id, done.id), done.position + 1, done.key, archive.unique_key,
       done.origin, iif(done.gates IS NULL, NULL, '[]'), {kept}
FROM (SELECT value AS n FROM json_each(:rows)) CROSS JOIN job AS done ON done.id = n ->> 0
CROSS JOIN archive ON archive.id = done.id
WHERE NOT EXISTS (SELECT 1 FROM archive AS there WHERE there.id = n ->> 1)
"""

_INSERT_PLAIN = _INSERT.format(also="", state="1", kept="done.keep, done.webhook, done.marked")

_INSERT_MARKED = _INSERT.format(
    also=", open_blockers",
    state="iif(n ->> 17 > 0, 0, 1)",
    kept="""coalesce(n ->> 15, done.keep), coalesce(n ->> 16, done.webhook),
       done.marked IS NOT 0 OR n ->> 16 IS NOT NULL OR n ->> 17 > 0, n ->> 17""",
)
"""For those that wait, or say themselves how long their chain is kept, or whom to tell of its end."""

_PLAIN = 15
"""The length of a row with nothing beside a job's values."""


@dataclass(frozen=True, slots=True)
class NextStep:
    """The job with which a chain goes on.

    Attributes:
        id: Its id.
        type: Its type.
        due: When it's due.
        row: What its insert takes: the id of the step that has finished, a new job's values, and what few have beside them.
        blockers: The chains that it waits for.
        chain_id: Its own chain.
        member: What puts it in a sequence, if something does.
    """

    id: UUID
    type: str
    due: int
    row: list[object]
    blockers: tuple[NewBlocker, ...]
    chain_id: str
    member: list[object] | None = None

    @classmethod
    def of(cls, outcome: Settlement | Ending, job_id: str, chain_id: str, now: int) -> NextStep:
        """Read what is said of the job with this id, of this chain.

        Raises:
            RowRejected: It can't be stored as it is.
        """
        job = outcome.next
        if job is None:
            raise RowRejected(f"job {outcome.id}: it's to be continued, but there is no next job")
        row = [job_id, *job_row(job, now, None)]
        if job.blockers or job.keep is not None or job.webhook is not None:
            row += [*kept_values(job, now)[:2], len(job.blockers)]
        member = None if job.sequence is None else member_row(job, str(job.id), chain_id, job.sequence)
        return cls(job.id, job.type, int(str(row[4])), row, job.blockers, chain_id, member)


def insert_steps(connection: Statements, steps: Sequence[NextStep], now: int) -> None:
    """Insert next steps, after the finished ones have been copied to the archive, and before they're deleted.

    Nobody can take a unique key in between: the transaction holds the write lock. Those that wait are stored as blocked.

    Raises:
        RowRejected: A job with one of the ids has finished already.
    """
    rows = [step.row for step in steps]
    given = dump(rows)
    connection.execute(_FREE_KEYS, {"rows": given})
    marked = [row for row in rows if len(row) != _PLAIN]
    if not marked:
        inserted = connection.execute(_INSERT_PLAIN, {"rows": given, "now": now}).rowcount
    else:
        plain = dump([row for row in rows if len(row) == _PLAIN])
        inserted = connection.execute(_INSERT_PLAIN, {"rows": plain, "now": now}).rowcount
        inserted += connection.execute(_INSERT_MARKED, {"rows": dump(marked), "now": now}).rowcount
    if inserted != len(steps):
        raise RowRejected("the chain can't be continued: a job with the next one's id has finished already")
    members = [step.member for step in steps if step.member is not None]
    if members:
        for statement in ENTER:
            connection.execute(statement, {"rows": dump(members)})


def check_cycle(connection: Statements, step: NextStep) -> None:
    """Refuse a next step that waits for its own chain, through whatever other chains. Nobody can add to them meanwhile.

    Raises:
        BlockerCycle: It would wait for ever.
    """
    if waits_for_itself(connection, str(step.id), step.chain_id):
        raise BlockerCycle(
            f"job {step.id} would wait for ever: what it waits for waits for the chain {step.chain_id}, whose next step it is"
        )
