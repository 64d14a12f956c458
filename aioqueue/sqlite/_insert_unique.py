"""Writing what was decided of a batch: new rows, those that get what was given for others, keys that change hands, windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import BlockerCycle
from aioqueue.sqlite._gates_members import ENTER, LEAVE_OTHERS, member_row
from aioqueue.sqlite._insert_blockers import Waiting, add_blockers, waits_for_itself
from aioqueue.sqlite._insert_decisions import decide
from aioqueue.sqlite._insert_rows import InsertResult, Stored, job_row, kept_values
from aioqueue.sqlite._progress_kept import forget_phases
from aioqueue.sqlite._rows import dump
from aioqueue.sqlite._rows_ids import any_id
from aioqueue.sqlite._rows_times import due_after
from aioqueue.store_rules._unique_keys import TAKEN_OVER_ORDINAL
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.sqlite._insert_decisions import Decisions
    from aioqueue.vocabulary._job import NewJob

__all__ = ["store_decided"]

_FREE = f"UPDATE job SET unique_key = NULL, marked = 1 WHERE id = {any_id('row')}"
"""Whoever ends the chain tells the one that has taken its key over."""

_FORGET = f"""
DELETE FROM blocker WHERE job_id IN (SELECT value ->> 0 FROM json_each(:rows)) AND ordinal <> {TAKEN_OVER_ORDINAL}
"""

_OPEN = "((n.value ->> 15) + (SELECT count(*) FROM blocker WHERE job_id = job.id AND resolved = 0))"
"""The new ones aren't written yet: what is left are those that stay."""

_REPLACE = f"""
UPDATE job SET type = n.value ->> 1, priority = n.value ->> 2, run_at = n.value ->> 3, expires_at = n.value ->> 4,
    max_attempts = n.value ->> 5, retry = n.value ->> 6, timeout = n.value ->> 7, key = n.value ->> 8,
    unique_key = n.value ->> 9, tags = n.value ->> 10, metadata = n.value ->> 11, payload = n.value ->> 12,
    trace = n.value ->> 13, until_started = n.value ->> 14, attempt = 0, reschedules = 0, started_at = NULL,
    state = iif({_OPEN} > 0, 0, 1), open_blockers = {_OPEN},
    marked = marked IS NOT 0 OR n.value ->> 15 > 0 OR n.value ->> 17 IS NOT NULL,
    gate = NULL, keep = n.value ->> 16, webhook = n.value ->> 17, origin = n.value ->> 18
FROM json_each(:rows) AS n WHERE job.id = n.value ->> 0
"""

_INSERT = """
INSERT INTO job (id, type, priority, state, run_at, created_at, expires_at, max_attempts, retry, timeout, key, unique_key,
                 tags, metadata, payload, trace, until_started, open_blockers, keep, webhook, origin, marked)
SELECT n ->> 0, n ->> 1, n ->> 2, iif(n ->> 15 > 0, 0, 1), n ->> 3, :now, n ->> 4, n ->> 5, n ->> 6, n ->> 7, n ->> 8, n ->> 9,
       n ->> 10, n ->> 11, n ->> 12, n ->> 13, n ->> 14, n ->> 15, n ->> 16, n ->> 17, n ->> 18, n ->> 19
FROM (SELECT value AS n FROM json_each(:rows))
"""

_KEEP_WINDOWS = """
INSERT OR REPLACE INTO dedup (key, chain_id, expires_at)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(:rows)
"""


def store_decided(
    connection: Statements,
    jobs: Sequence[NewJob],
    *,
    repeated: bool = False,
    apart: bool = False,
    waited_for: Collection[UUID] = (),
) -> Stored:
    """Store those of the jobs that are to be stored, and for which chains they wait, where that has to be decided first.

    Arguments:
        connection: In a write transaction.
        jobs, repeated, apart: As of `aioqueue.abc.Store.insert`.
        waited_for: Those of them for which others wait than jobs of this batch.

    Raises:
        DuplicateJob, WrongJobType: A job is refused, unless each stands for itself.
        RowRejected: A row can't be stored.
        BlockerNotFound: A chain to wait for isn't there.
        BlockerCycle: A job that was there already would wait for itself.
    """
    decisions = decide(connection, jobs, repeated=repeated, apart=apart, waited_for=waited_for)
    results = decisions.results
    known = {job.id: each.id for job, each in zip(jobs, results, strict=True)}
    created = {job.id for job, each in zip(jobs, results, strict=True) if each.created}
    awaited = {*waited_for, *(blocker.chain_id for target in decisions.targets.values() for blocker in target.job.blockers)}
    notification = _write_rows(connection, decisions, awaited)
    ended = _write_edges(connection, decisions, known, created)
    _write_windows(connection, decisions)
    return Stored(InsertResult(results, notification), known, created, ended)


def _write_rows(connection: Statements, decisions: Decisions, awaited: Collection[UUID]) -> Notification | None:
    now = decisions.now
    types: set[str] = set()
    due: int | None = None
    inserted: list[list[object]] = []
    replaced: list[list[object]] = []
    members: list[list[object]] = []
    left: list[list[object]] = []
    for target in decisions.targets.values():
        job = target.job
        values = job_row(job, now, target.unique, target.latest)
        values[0] = target.row_id
        kept = kept_values(job, now)
        waits_for = len(job.blockers)
        until_started = int(job.unique is not None and job.unique.until == "started")
        if target.there:
            left.append(member_row(job, target.row_id, target.chain, job.sequence))
            replaced.append([*values, until_started, waits_for, *kept])
        else:
            waits_for += target.taken_over is not None
            marked = waits_for > 0 or job.webhook is not None or job.id in awaited
            inserted.append([*values, until_started, waits_for, *kept, int(marked)])
        if job.sequence is not None:
            members.append(member_row(job, target.row_id, target.chain, job.sequence))
        if not waits_for:
            types.add(job.type)
            own_due = int(str(values[3]))
            due = own_due if due is None else min(due, own_due)
    for holder in decisions.freed:
        if holder.row is not None:
            connection.execute(_FREE, holder.row.parameters("row"))
    if replaced:
        rows = dump(replaced)
        connection.execute(_FORGET, {"rows": rows})
        connection.execute(_REPLACE, {"rows": rows})
        forget_phases(connection, [str(row[0]) for row in replaced])
    if inserted:
        connection.execute(_INSERT, {"rows": dump(inserted), "now": now})
    if left:
        for statement in LEAVE_OTHERS:
            connection.execute(statement, {"rows": dump(left)})
    if members:
        for statement in ENTER:
            connection.execute(statement, {"rows": dump(members)})
    return None if due is None else Notification(types=frozenset(types), delay=(due - now) / 1_000_000)


def _write_edges(connection: Statements, decisions: Decisions, known: dict[UUID, UUID], created: set[UUID]) -> list[str]:
    """Write for which chains they wait. Returns those among these that have ended."""
    targets = [each for each in decisions.targets.values() if each.job.blockers or each.taken_over is not None]
    if not targets:
        return []
    waiting = [Waiting(each.row_id, each.job.blockers, each.taken_over, each.there) for each in targets]
    ended = add_blockers(connection, waiting, known, created, decisions.now)
    # What is new can't be waited for by what was there; but what replaces another can.
    for each in targets:
        if each.replaced and each.job.blockers and waits_for_itself(connection, each.row_id, each.chain):
            raise BlockerCycle(
                f"the job {each.job.type} {each.row_id} would wait for ever: what is to replace it waits for a chain that "
                "waits for it"
            )
    return ended


def _write_windows(connection: Statements, decisions: Decisions) -> None:
    if decisions.kept:
        rows = list(_windows(decisions.kept.items(), decisions.now))
        connection.execute(_KEEP_WINDOWS, {"rows": dump(rows)})


def _windows(kept: Iterable[tuple[str, tuple[str, NewJob]]], now: int) -> Iterable[list[object]]:
    for key, (chain, job) in kept:
        assert job.unique is not None
        yield [key, chain, due_after(now, job.unique.window_seconds, f"job {job.id}: the window of its unique key")]
