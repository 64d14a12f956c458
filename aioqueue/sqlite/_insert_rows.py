"""Inserting, as a conversation: statements out, rows in. So one text serves every kind of connection."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioqueue.errors import RowRejected
from aioqueue.sqlite._gates_members import ENTER, member_row
from aioqueue.sqlite._rows import dump, load
from aioqueue.sqlite._rows_chain import HOLDS_KEY
from aioqueue.sqlite._rows_ids import id_of, uuid_text
from aioqueue.sqlite._rows_times import NOW, due_after, due_at
from aioqueue.store_rules._json import require_json
from aioqueue.store_rules._unique_keys import unique_digests
from aioqueue.vocabulary._job import Inserted
from aioqueue.vocabulary._notification import Notification
from aioqueue.vocabulary._trace import stored_trace

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._job import NewJob

__all__ = [
    "Conversation",
    "InsertResult",
    "Stored",
    "insert_conversation",
    "insert_rows",
    "job_row",
    "kept_values",
    "says_more",
]

if TYPE_CHECKING:
    Conversation = Generator[tuple[str, dict[str, Any]], Sequence[Any] | None, "InsertResult"]

_CHUNK_ROWS = 1000

_LOOK = f"""
SELECT {NOW},
       (SELECT json_group_array(id) FROM (
           SELECT id FROM job WHERE id IN (SELECT value FROM json_each(:ids))
           UNION ALL SELECT id FROM archive WHERE id IN (SELECT value FROM json_each(:ids)){{gone_on}})),
       (SELECT json_group_object(unique_key,
            CAST(iif(typeof(chain_id) = 'text' AND length(chain_id) = 36, chain_id, id) AS TEXT)) FROM job
        WHERE {HOLDS_KEY} AND unique_key IN (SELECT value FROM json_each(:keys)))
"""

_LOOK_FOR_NEW = _LOOK.format(gone_on="")
# A chain may have gone on from a job, and the job been pruned since.
_LOOK_FOR_REPEATED = _LOOK.format(
    gone_on="""
           UNION ALL SELECT value FROM json_each(:ids) WHERE EXISTS (SELECT 1 FROM job WHERE chain_id = value)
               OR EXISTS (SELECT 1 FROM archive WHERE chain_id = value)"""
)

_INSERT = """
INSERT INTO job (id, type, priority, state, run_at, created_at, expires_at, max_attempts, retry, timeout, key, unique_key,
                 tags, metadata, payload, trace)
SELECT n ->> 0, n ->> 1, n ->> 2, 1, n ->> 3, :now, n ->> 4, n ->> 5, n ->> 6, n ->> 7, n ->> 8, n ->> 9,
       n ->> 10, n ->> 11, n ->> 12, n ->> 13
FROM (SELECT value AS n FROM json_each(:rows))
"""

_INSERT_MARKED = """
INSERT INTO job (id, type, priority, state, run_at, created_at, expires_at, max_attempts, retry, timeout, key, unique_key,
                 tags, metadata, payload, trace, open_blockers, marked)
SELECT n ->> 0, n ->> 1, n ->> 2, iif(n ->> 14 > 0, 0, 1), n ->> 3, :now, n ->> 4, n ->> 5, n ->> 6, n ->> 7, n ->> 8, n ->> 9,
       n ->> 10, n ->> 11, n ->> 12, n ->> 13, n ->> 14, 1
FROM (SELECT value AS n FROM json_each(:rows))
"""
"""For jobs that wait, and for those for which others of the same batch wait."""

_SAY_MORE = """
UPDATE job SET keep = n.value ->> 1, webhook = n.value ->> 2, origin = n.value ->> 3,
    marked = marked IS NOT 0 OR n.value ->> 2 IS NOT NULL
FROM json_each(:rows) AS n WHERE job.id = n.value ->> 0
"""
"""Of the few that say how long they're kept, whom to tell of their ends, or where they come from."""


@dataclass(frozen=True, slots=True)
class InsertResult:
    """What an insert has done.

    Attributes:
        inserted: One for each job, in order.
        notification: What listeners are told after the commit; None when nothing was created.
    """

    inserted: list[Inserted]
    notification: Notification | None


@dataclass(frozen=True, slots=True)
class Stored:
    """Jobs that were stored, and for which chains they wait, before those are told of that have ended already.

    Attributes:
        result: As of an insert.
        known: Under which ids the jobs are stored, by their own: one may stand for a chain that holds its key.
        created: Those that were stored now, each as the first step of its chain.
        ended: Chains among those that they wait for that have ended.
    """

    result: InsertResult
    known: dict[UUID, UUID]
    created: set[UUID]
    ended: list[str]


def insert_conversation(jobs: Sequence[NewJob], *, repeated: bool, waited_for: Collection[UUID] = ()) -> Conversation:
    """Store jobs inside an open write transaction.

    Yields a statement with its parameters, and is sent its first row (or None), for as long as there are statements. Jobs that
    wait are stored as such; for which chains, `insert_jobs` writes afterwards.

    Arguments:
        jobs: Those.
        repeated: Whether one that was stored earlier may be a chain by now of which its own step is gone. Finished jobs are
            looked at in any case: it costs one look-up.
        waited_for: Those of them for which others wait than jobs of this batch.

    Raises:
        RowRejected: A row can't be stored.
    """
    inserted: list[Inserted] = []
    types: set[str] = set()
    delay: float | None = None
    waited_for = {*waited_for, *(blocker.chain_id for job in jobs for blocker in job.blockers)}
    for start in range(0, len(jobs), _CHUNK_ROWS):
        chunk = jobs[start : start + _CHUNK_ROWS]
        keys = {place: [uuid_text(key) for key in unique_digests(job)] for place, job in enumerate(chunk) if job.unique}
        asked = {"ids": dump([str(job.id) for job in chunk]), "keys": dump([key for each in keys.values() for key in each])}
        row = yield _LOOK_FOR_REPEATED if repeated else _LOOK_FOR_NEW, asked
        assert row is not None
        now, existing, holders = row[0], set(load(row[1])), _holders(load(row[2]))
        rows, marked, kept, members = _lists(4)
        for place, job in enumerate(chunk):
            own_keys = keys.get(place, ())
            unique = own_keys[0] if own_keys else None
            values = job_row(job, now, unique)
            job_id = str(job.id)
            if job_id in existing:
                inserted.append(Inserted(job.id, created=False))
            elif (holder := next((holders[key] for key in own_keys if key in holders), None)) is not None:
                inserted.append(Inserted(holder, created=False))
            else:
                inserted.append(Inserted(job.id, created=True))
                existing.add(job_id)
                if unique is not None:
                    holders[unique] = job.id
                if job.blockers or job.id in waited_for:
                    marked.append([*values, len(job.blockers)])
                else:
                    rows.append(values)
                if says_more(job):
                    kept.append([job_id, *kept_values(job, now)])
                if job.sequence is not None:
                    members.append(member_row(job, job_id, job_id, job.sequence))
                if not job.blockers:
                    types.add(job.type)
                    due = (int(str(values[3])) - now) / 1_000_000
                    delay = due if delay is None else min(delay, due)
        kinds = ((_INSERT, rows), (_INSERT_MARKED, marked), (_SAY_MORE, kept), *((each, members) for each in ENTER))
        for statement, written in kinds:
            if written:
                yield statement, {"rows": dump(written), "now": now}
    notification = None if delay is None else Notification(types=frozenset(types), delay=delay)
    return InsertResult(inserted, notification)


def _lists(count: int) -> list[list[list[object]]]:
    return [[] for _ in range(count)]


def job_row(job: NewJob, now: int, unique: str | None, latest: int | None = None) -> list[object]:
    """Make one row of an insert, in the order of its statement: the due time is the fourth value.

    Arguments:
        job: The job.
        now: The database's time.
        unique: The hash under which it has its unique key.
        latest: After which it mustn't be due, whatever the job says.

    Raises:
        RowRejected: It can't be stored as it is.
    """
    for text in (job.type, job.key, *job.tags):
        if text is not None and "\0" in text:
            raise RowRejected(f"job {job.id}: a type, key or tag can't hold U+0000: {text!r}")
    require_json(job)
    due = now
    if job.run_at is not None:
        due = due_at(now, job.run_at, f"job {job.id}: the due time")
    elif job.delay:
        due = due_after(now, job.delay, f"job {job.id}: the delay")
    if latest is not None:
        due = max(now, min(due, latest))
    if job.timeout is not None and not math.isfinite(job.timeout):
        raise RowRejected(f"job {job.id}: the timeout must be a finite number of seconds, not {job.timeout!r}")
    try:
        return [
            str(job.id),
            job.type,
            job.priority,
            due,
            None if job.expires is None else due_after(due, job.expires, f"job {job.id}: the time to start within"),
            job.max_attempts,
            None if job.retry is None else job.retry.decode(),
            job.timeout,
            job.key,
            unique,
            dump(job.tags),
            job.metadata.decode(),
            job.payload.decode(),
            None if job.trace is None else stored_trace(job.trace),
        ]
    except UnicodeError as error:
        raise RowRejected(f"job {job.id}: a value can't be stored: {error}") from error


def says_more(job: NewJob) -> bool:
    """Whether one of the values of `kept_values` is given."""
    return job.keep is not None or job.webhook is not None or job.origin is not None


def kept_values(job: NewJob, now: int) -> list[object]:
    """How long a job is kept after its end, who is told of that, and where it comes from.

    Raises:
        RowRejected: It can't be stored.
    """
    if job.keep is not None:
        due_after(now, job.keep, f"job {job.id}: the time that it's kept")
    if job.webhook is not None and "\0" in job.webhook:
        raise RowRejected(f"job {job.id}: a URL can't hold U+0000: {job.webhook!r}")
    return [job.keep, job.webhook, None if job.origin is None else job.origin.encode()]


def _holders(found: dict[str, str]) -> dict[object, UUID]:
    return {key: id_of(value) for key, value in found.items()}


def insert_rows(
    connection: Statements, jobs: Sequence[NewJob], *, repeated: bool = False, waited_for: Collection[UUID] = ()
) -> InsertResult:
    """Hold the conversation at once."""
    conversation = insert_conversation(jobs, repeated=repeated, waited_for=waited_for)
    row: Sequence[Any] | None = None
    try:
        while True:
            row = connection.execute(*conversation.send(row)).fetchone()
    except StopIteration as stop:
        result: InsertResult = stop.value
        return result
