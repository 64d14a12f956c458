"""Settling: how attempts ended is written, each on its own. The functions run inside an open write transaction, in a thread."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from aioqueue.errors import RowRejected, StoreError
from aioqueue.sqlite._connections_halving import halved
from aioqueue.sqlite._lease_clock import LEASE_VALID, clock_parameters
from aioqueue.sqlite._notifications import merged
from aioqueue.sqlite._rows import dump, history, load, one
from aioqueue.sqlite._rows_ids import id_of
from aioqueue.sqlite._rows_times import NOW, due_after, due_at
from aioqueue.sqlite._settle_chain import NextStep, insert_steps
from aioqueue.store_rules._lost import lost_reason
from aioqueue.vocabulary._job import Claim, LostReason, Settlement, SettleResult
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections import Connection
    from aioqueue.sqlite._connections_access import Writer
    from aioqueue.vocabulary._job import AttemptError

__all__ = ["Settler", "lost_reasons", "settle"]

_OWNED = """
SELECT {now}, (SELECT json_group_array(json_array(job.id, CAST(job.type AS TEXT), CAST(job.chain_id AS TEXT)))
FROM json_each(:rows) AS s CROSS JOIN job ON job.id = s.value ->> 0
WHERE job.state = 2 AND job.claims = s.value ->> 1 AND coalesce(job.lease_id, 0) = s.value ->> 2 AND {lease})
"""

_OWNED_BY_LEASE = _OWNED.format(now=NOW, lease="EXISTS (SELECT 1 FROM lease WHERE lease.id = job.lease_id)")
_OWNED_ORPHANED = _OWNED.format(
    now=NOW, lease=f"NOT EXISTS (SELECT 1 FROM lease WHERE lease.id = job.lease_id AND {LEASE_VALID})"
)

_DELETE_LEASES = "DELETE FROM lease WHERE id IN (SELECT value FROM json_each(:leases))"

_ERRORS = f"CASE WHEN s.value ->> 5 IS NULL THEN job.errors ELSE {history('s.value ->> 5')} END"

_ARCHIVE = f"""
INSERT OR REPLACE INTO archive (id, type, priority, state, run_at, created_at, started_at, finished_at, expires_at, attempt,
                     max_attempts, claims, reschedules, settled_claims, settled_lease, settled_kind, chain_id, position,
                     key, unique_key, trace, retry, timeout, tags, metadata, errors, outcome, output, payload)
SELECT job.id, job.type, job.priority, s.value ->> 3, job.run_at, job.created_at, job.started_at, :now, job.expires_at,
       job.attempt, job.max_attempts, job.claims, job.reschedules, job.claims, s.value ->> 2,
       (s.value ->> 3) + :orphaned, job.chain_id, job.position, job.key, job.unique_key, job.trace, job.retry,
       job.timeout, job.tags, job.metadata, {_ERRORS}, s.value ->> 6, s.value ->> 7, job.payload
FROM json_each(:rows) AS s CROSS JOIN job ON job.id = s.value ->> 0
"""
"""In place of an earlier end of the same job: somebody may have copied it back from the archive."""

_DELETE = "DELETE FROM job WHERE id IN (SELECT value ->> 0 FROM json_each(:rows))"

_RETURN = f"""
UPDATE job SET state = 1, lease_id = NULL, run_at = s.value ->> 4, errors = {_ERRORS},
    attempt = job.attempt - (s.value ->> 3 = 9), reschedules = job.reschedules + (s.value ->> 3 = 9),
    settled_claims = job.claims, settled_lease = s.value ->> 2, settled_kind = (s.value ->> 3) + :orphaned
FROM json_each(:rows) AS s WHERE job.id = s.value ->> 0
"""

_FATES = """
SELECT json_group_array(json_array(s.key, s.value ->> 0,
    CAST(job.state AS INTEGER), CAST(job.claims AS INTEGER), CAST(job.settled_claims AS INTEGER),
    CAST(job.settled_lease AS INTEGER), CAST(job.settled_kind AS INTEGER), CAST(archive.state AS INTEGER),
    CAST(archive.claims AS INTEGER), CAST(archive.settled_claims AS INTEGER), CAST(archive.settled_lease AS INTEGER),
    CAST(archive.settled_kind AS INTEGER)))
FROM json_each(:rows) AS s
LEFT JOIN job ON job.id = s.value ->> 0 LEFT JOIN archive ON archive.id = s.value ->> 0
"""

_MARK_OF_AN_ORPHAN = 100


class Settler:
    """Settlements of one open store.

    Arguments:
        writer: Where they run.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def settle(self, settlements: Sequence[Settlement], *, orphaned: bool) -> Sequence[SettleResult]:
        """Write outcomes, as `aioqueue.abc.Store.settle` promises. A row that is refused is refused alone."""
        write = functools.partial(settle, orphaned=orphaned)

        def run(connection: Connection, abandoned: Callable[[], bool]) -> tuple[list[SettleResult], Notification | None]:
            results: list[SettleResult] = []
            notifications: list[Notification] = []
            for _, outcome in halved(connection, self._writer.timeout, settlements, write, abandoned):
                if isinstance(outcome, StoreError):
                    results.append(SettleResult(LostReason.ERROR, str(outcome)))
                else:
                    results += outcome[0]
                    notifications += [] if outcome[1] is None else [outcome[1]]
            return results, merged(notifications)

        return await self._writer.hop(run)


def settle(
    connection: sqlite3.Connection, settlements: Sequence[Settlement], *, orphaned: bool
) -> tuple[list[SettleResult], Notification | None]:
    """Write outcomes; a second one about the same claim, in the same batch, is answered like a repetition."""
    if len({settlement.id for settlement in settlements}) == len(settlements):
        return _settle_distinct(connection, settlements, orphaned=orphaned)
    results: list[SettleResult] = []
    notifications: list[Notification] = []
    for settlement in settlements:
        result, notification = _settle_distinct(connection, [settlement], orphaned=orphaned)
        results += result
        if notification is not None:
            notifications.append(notification)
    return results, merged(notifications)


def _settle_distinct(
    connection: sqlite3.Connection, settlements: Sequence[Settlement], *, orphaned: bool
) -> tuple[list[SettleResult], Notification | None]:
    ids = [str(each.id) for each in settlements]
    fences = dump([[job_id, each.claims, each.lease_id] for job_id, each in zip(ids, settlements, strict=True)])
    if orphaned:
        row = one(connection, _OWNED_ORPHANED, {"rows": fences, **clock_parameters()})
    else:
        row = one(connection, _OWNED_BY_LEASE, {"rows": fences})
    now, owned = row[0], {entry[0]: entry for entry in load(row[1])}
    batch = _Batch(now)
    lost: list[Settlement] = []
    for job_id, settlement in zip(ids, settlements, strict=True):
        entry = owned.get(job_id)
        if entry is None:
            lost.append(settlement)
        else:
            batch.add(settlement, *entry)
    mark = _MARK_OF_AN_ORPHAN if orphaned else 0
    leases: frozenset[int] = frozenset()
    if orphaned and owned:
        # Otherwise a late renewal would tell the owner that all is well.
        leases = frozenset(each.lease_id for job_id, each in zip(ids, settlements, strict=True) if job_id in owned)
        connection.execute(_DELETE_LEASES, {"leases": dump(sorted(leases))})
    if batch.finished:
        rows = dump(batch.finished)
        connection.execute(_ARCHIVE, {"rows": rows, "now": now, "orphaned": mark})
        if batch.steps:
            insert_steps(connection, batch.steps, now)
        connection.execute(_DELETE, {"rows": rows})
    if batch.pending:
        connection.execute(_RETURN, {"rows": dump(batch.pending), "orphaned": mark})
    fates = _fates(connection, lost, mark) if lost else {}
    results = [fates.get(each.id, _WRITTEN) for each in settlements]
    return results, batch.notification(leases) if owned else None


class _Batch:
    """What settlements of jobs that are their owner's still come to.

    Arguments:
        now: The database's time.
    """

    def __init__(self, now: int) -> None:
        self._now = now
        self.finished: list[list[object]] = []
        self.pending: list[list[object]] = []
        self.steps: list[NextStep] = []
        self._types: set[str] = set()
        self._due: int | None = None
        self._ended_chains: set[UUID] = set()

    def add(self, settlement: Settlement, job_id: str, job_type: str, chain_id: str | None) -> None:
        """Sort one in; its id, type and chain as they're stored.

        Raises:
            RowRejected: It can't be written as it is.
        """
        if not settlement.kind.finishes:
            due = _due(settlement, self._now)
            self.pending.append(_values(settlement, job_id, due))
            self._wake(job_type, due)
            return
        self.finished.append(_values(settlement, job_id, None))
        if settlement.kind.ends_chain:
            self._ended_chains.add(settlement.id if chain_id is None else id_of(chain_id))
        else:
            step = NextStep.of(settlement, job_id, self._now)
            self.steps.append(step)
            self._wake(step.type, step.due)

    def _wake(self, job_type: str, due: int) -> None:
        self._types.add(job_type)
        self._due = due if self._due is None else min(self._due, due)

    def notification(self, leases: frozenset[int]) -> Notification:
        """What listeners are told of it; the leases have ended with it."""
        return Notification(
            types=frozenset(self._types),
            delay=0.0 if self._due is None else (self._due - self._now) / 1e6,
            finished=frozenset(self._ended_chains),
            leases=leases,
        )


_WRITTEN = SettleResult()


def _due(settlement: Settlement, now: int) -> int:
    if settlement.run_at is not None:
        return due_at(now, settlement.run_at, "the due time")
    return due_after(now, settlement.delay, "the delay") if settlement.delay else now


def _values(settlement: Settlement, job_id: str, due: int | None) -> list[object]:
    return [
        job_id,
        settlement.claims,
        settlement.lease_id,
        int(settlement.kind),
        due,
        None if settlement.error is None else _encoded(settlement.error),
        settlement.outcome,
        None if settlement.output is None else settlement.output.decode(),
    ]


def _encoded(error: AttemptError) -> str:
    try:
        return error.encode().decode()
    except TypeError as refused:
        raise RowRejected(f"an error can't be stored: {refused}") from refused


def _fates(connection: sqlite3.Connection, lost: Sequence[Settlement], mark: int) -> dict[UUID, SettleResult]:
    rows = dump([[str(each.id)] for each in lost])
    found: dict[UUID, SettleResult] = {}
    for entry in load(one(connection, _FATES, {"rows": rows})[0]):
        index: int = entry[0]
        settlement = lost[index]
        fence = [settlement.claims, settlement.lease_id, settlement.kind + mark]
        if fence in (entry[4:7], entry[9:12]):
            found[settlement.id] = _WRITTEN
        else:
            found[settlement.id] = SettleResult(_reason(entry))
    return found


def _reason(entry: Sequence[Any]) -> LostReason:
    return lost_reason(live=entry[2] is not None, archived=entry[7])


def lost_reasons(connection: sqlite3.Connection, claims: Sequence[Claim]) -> dict[Claim, LostReason]:
    """Why claims aren't their lease's any more."""
    if not claims:
        return {}
    rows = dump([[str(each.id)] for each in claims])
    entries = load(one(connection, _FATES, {"rows": rows})[0])
    return {claims[entry[0]]: _reason(entry) for entry in entries}
