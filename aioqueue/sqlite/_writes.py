"""What workers and operators write. Each function runs inside an open write transaction, in a thread."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aioqueue._job import Claim, LostReason, Settlement, SettlementKind, SettleResult
from aioqueue.abc import Changed, Notification
from aioqueue.errors import LeaseLost, RowRejected
from aioqueue.sqlite import _statements as sql
from aioqueue.sqlite._clock import clock_and_boot
from aioqueue.sqlite._rows import Taken, claimed_jobs, dump, load, microseconds

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Mapping, Sequence

    from aioqueue._job import AttemptError, ClaimedJob

__all__ = [
    "Wanted",
    "claim",
    "delete",
    "open_lease",
    "pick",
    "release",
    "retry",
    "run_now",
    "settle",
    "take_expired",
]

_ORPHANED = 100
_LARGEST_LEASE = 2**62


def one(connection: sqlite3.Connection, statement: str, parameters: dict[str, Any]) -> Any:
    """The first row of a statement; None without any."""
    return connection.execute(statement, parameters).fetchone()


def _clock() -> dict[str, Any]:
    clock, boot = clock_and_boot()
    return {"clock": clock, "boot": boot}


# -- leases -------------------------------------------------------------------------------------------------------


def open_lease(connection: sqlite3.Connection, worker: str, duration: float) -> int:
    """Make a lease. Its id is all random: one that was counted would come again after a restore from a backup."""
    lease_id = 1 + secrets.randbelow(_LARGEST_LEASE)
    connection.execute(sql.LEASE_OPEN, {"lease": lease_id, "worker": worker, "duration": round(duration * 1e6), **_clock()})
    return lease_id


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a claim asks for.

    Attributes:
        lease_id: The lease that gets the jobs.
        leases: The leases of types that have one of their own.
        types: The names, as a JSON array.
        limit: Jobs at most.
    """

    lease_id: int
    leases: Mapping[str, int]
    types: str
    limit: int


def pick(connection: sqlite3.Connection, wanted: Wanted) -> tuple[int, str]:
    """See what a claim would take: now, and the rows as JSON.

    Raises:
        LeaseLost: One of the leases isn't valid.
    """
    leases = dump([wanted.lease_id, *wanted.leases.values()])
    parameters = {"leases": leases, "types": wanted.types, "limit": wanted.limit, **_clock()}
    now, invalid, rows = one(connection, sql.CLAIM_PICK, parameters)
    if invalid != "[]":
        raise LeaseLost(f"not valid any more: lease {', '.join(map(str, load(invalid)))}")
    return now, rows


def claim(connection: sqlite3.Connection, wanted: Wanted) -> list[ClaimedJob]:
    """Take due jobs.

    Raises:
        LeaseLost: One of the leases isn't valid.
    """
    now, rows = pick(connection, wanted)
    jobs = claimed_jobs(rows, Taken(wanted.lease_id, wanted.leases, now))
    if jobs:
        ids = dump([str(job.id) for job in jobs])
        connection.execute(sql.CLAIM_TAKE, {"ids": ids, "lease": wanted.lease_id, "now": now})
        given = [[str(job.id), job.lease_id] for job in jobs if job.lease_id != wanted.lease_id]
        if given:
            connection.execute(sql.CLAIM_GIVE, {"rows": dump(given)})
    return jobs


# -- settling -----------------------------------------------------------------------------------------------------


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
    return results, _merged(notifications)


def _merged(notifications: Sequence[Notification]) -> Notification | None:
    if not notifications:
        return None
    return Notification(
        types=frozenset(name for each in notifications for name in each.types or ()),
        finished=frozenset(job_id for each in notifications for job_id in each.finished or ()),
        delay=min(each.delay for each in notifications),
        leases=frozenset(lease_id for each in notifications for lease_id in each.leases),
    )


def _settle_distinct(
    connection: sqlite3.Connection, settlements: Sequence[Settlement], *, orphaned: bool
) -> tuple[list[SettleResult], Notification | None]:
    fences = dump([[str(each.id), each.claims, each.lease_id] for each in settlements])
    if orphaned:
        row = one(connection, sql.SETTLE_OWNED_ORPHANED, {"rows": fences, **_clock()})
    else:
        row = one(connection, sql.SETTLE_OWNED, {"rows": fences})
    now, owned = row[0], {entry[0]: entry for entry in load(row[1])}
    finished: list[list[object]] = []
    pending: list[list[object]] = []
    types: set[str] = set()
    delay: float | None = None
    lost: list[Settlement] = []
    for settlement in settlements:
        entry = owned.get(str(settlement.id))
        if entry is None:
            lost.append(settlement)
        elif settlement.kind in {SettlementKind.RETRIED, SettlementKind.RESCHEDULED}:
            due = _due(settlement, now)
            pending.append(_values(settlement, due))
            types.add(entry[1])
            wait = (due - now) / 1e6
            delay = wait if delay is None else min(delay, wait)
        else:
            finished.append(_values(settlement, None))
    mark = _ORPHANED if orphaned else 0
    ended: frozenset[int] = frozenset()
    if orphaned and owned:
        # Otherwise a late renewal would tell the owner that all is well.
        ended = frozenset(each.lease_id for each in settlements if str(each.id) in owned)
        connection.execute(sql.LEASES_DELETE, {"leases": dump(sorted(ended))})
    if finished:
        rows = dump(finished)
        connection.execute(sql.ARCHIVE_OWNED, {"rows": rows, "now": now, "orphaned": mark})
        connection.execute(sql.DELETE_LIVE, {"rows": rows})
    if pending:
        connection.execute(sql.SETTLE_PENDING, {"rows": dump(pending), "orphaned": mark})
    fates = _fates(connection, lost, mark) if lost else {}
    results = [fates.get(each.id, _WRITTEN) for each in settlements]
    if not finished and not pending:
        return results, None
    return results, Notification(
        types=frozenset(types),
        delay=delay or 0.0,
        finished=frozenset(UUID(str(values[0])) for values in finished),
        leases=ended,
    )


_WRITTEN = SettleResult()


def _due(settlement: Settlement, now: int) -> int:
    if settlement.run_at is not None:
        return max(now, microseconds(settlement.run_at))
    return now + round((settlement.delay or 0.0) * 1e6)


def _values(settlement: Settlement, due: int | None) -> list[object]:
    return [
        str(settlement.id),
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
    for entry in load(one(connection, sql.SETTLE_FATE, {"rows": rows})[0]):
        index: int = entry[0]
        settlement = lost[index]
        fence = [settlement.claims, settlement.lease_id, settlement.kind + mark]
        if fence in (entry[4:7], entry[9:12]):
            found[settlement.id] = _WRITTEN
        else:
            found[settlement.id] = SettleResult(_reason(live=entry[2], archived=entry[7]))
    return found


def _reason(*, live: int | None, archived: int | None) -> LostReason:
    if archived is not None:
        return LostReason.CANCELLED if archived == SettlementKind.CANCELLED else LostReason.COMPLETED
    return LostReason.NOT_FOUND if live is None else LostReason.TAKEN


def lost_reasons(connection: sqlite3.Connection, claims: Sequence[Claim]) -> dict[Claim, LostReason]:
    """Why claims aren't their lease's any more."""
    if not claims:
        return {}
    rows = dump([[str(each.id)] for each in claims])
    entries = load(one(connection, sql.SETTLE_FATE, {"rows": rows})[0])
    return {claims[entry[0]]: _reason(live=entry[2], archived=entry[7]) for entry in entries}


# -- giving back and taking over ----------------------------------------------------------------------------------


def release(connection: sqlite3.Connection, lease_id: int, claims: Sequence[Claim], *, end: bool) -> Notification | None:
    """Give claims back, and with `end` the lease and all that it holds."""
    if end:
        now, rows = one(connection, sql.RELEASE_ALL, {"lease": lease_id})
        connection.execute(sql.LEASE_DELETE, {"lease": lease_id})
    else:
        asked = dump([[str(each.id), each.claims] for each in claims])
        now, rows = one(connection, sql.RELEASE_OWNED, {"rows": asked, "lease": lease_id})
    given = load(rows)
    if given:
        connection.execute(sql.RELEASE, {"rows": rows, "now": now})
    if not given and not end:
        return None
    return Notification(types=frozenset(entry[1] for entry in given), leases=frozenset({lease_id}) if end else frozenset())


def take_expired(
    connection: sqlite3.Connection, limit: int, own: Collection[int], waited: float
) -> tuple[list[ClaimedJob], Notification | None]:
    """Fence one dead worker and return what has no lease.

    Arguments:
        connection: In a write transaction.
        limit: Jobs at most.
        own: Leases that are left alone.
        waited: Seconds that the write lock took: renewals may be waiting for it just as long, so that a lease that
            ended meanwhile says nothing about its worker.
    """
    parameters = {"grace": round(waited * 1e6), "own": dump(list(own)), **_clock()}
    expired = one(connection, sql.LEASE_OLDEST_EXPIRED, parameters)
    notification = None
    if expired is not None:
        connection.execute(sql.LEASE_DELETE, {"lease": expired[0]})
        notification = Notification(leases=frozenset({expired[0]}))
    _, rows = one(connection, sql.ORPHANS, {"limit": limit, "own": parameters["own"]})
    return claimed_jobs(rows, None), notification


# -- operating ----------------------------------------------------------------------------------------------------


def retry(connection: sqlite3.Connection, ids: Sequence[UUID]) -> tuple[list[Changed], Notification | None]:
    """Bring failed and cancelled jobs back."""
    now = connection.execute(f"SELECT {sql.NOW}").fetchone()[0]
    results: list[Changed] = []
    types: set[str] = set()
    for job_id in map(str, ids):
        live = one(connection, "SELECT state FROM job WHERE id = :id", {"id": job_id})
        row = one(connection, "SELECT state, type, unique_key FROM archive WHERE id = :id", {"id": job_id})
        if live is not None:
            results.append(Changed.RUNNING if live[0] == 2 else Changed.WRONG_STATE)
        elif row is None:
            results.append(Changed.NOT_FOUND)
        elif row[0] not in {6, 7} or _held(connection, row[2]):
            results.append(Changed.WRONG_STATE)
        else:
            connection.execute(sql.RETRY_INSERT, {"id": job_id, "now": now})
            connection.execute("DELETE FROM archive WHERE id = :id", {"id": job_id})
            types.add(_string(row[1]))
            results.append(Changed.DONE)
    return results, Notification(types=frozenset(types)) if types else None


def _string(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _held(connection: sqlite3.Connection, key: str | None) -> bool:
    return key is not None and one(connection, "SELECT 1 FROM job WHERE unique_key = :key", {"key": key}) is not None


def run_now(connection: sqlite3.Connection, ids: Sequence[UUID]) -> tuple[list[Changed], Notification | None]:
    """Make pending jobs due."""
    now = connection.execute(f"SELECT {sql.NOW}").fetchone()[0]
    results: list[Changed] = []
    types: set[str] = set()
    for job_id in map(str, ids):
        live = one(connection, "SELECT state, type FROM job WHERE id = :id", {"id": job_id})
        if live is None:
            archived = one(connection, "SELECT 1 FROM archive WHERE id = :id", {"id": job_id})
            results.append(Changed.NOT_FOUND if archived is None else Changed.WRONG_STATE)
        elif live[0] != 1:
            results.append(Changed.RUNNING if live[0] == 2 else Changed.WRONG_STATE)
        else:
            connection.execute("UPDATE job SET run_at = :now WHERE id = :id AND run_at > :now", {"id": job_id, "now": now})
            types.add(_string(live[1]))
            results.append(Changed.DONE)
    return results, Notification(types=frozenset(types)) if types else None


def delete(connection: sqlite3.Connection, ids: Sequence[UUID]) -> tuple[list[Changed], Notification | None]:
    """Remove jobs that aren't running."""
    results: list[Changed] = []
    gone: set[UUID] = set()
    for job_id in ids:
        parameters = {"id": str(job_id)}
        if connection.execute("DELETE FROM job WHERE id = :id AND state <> 2", parameters).rowcount:
            results.append(Changed.DONE)
        elif one(connection, "SELECT 1 FROM job WHERE id = :id", parameters) is not None:
            results.append(Changed.RUNNING)
        elif connection.execute("DELETE FROM archive WHERE id = :id", parameters).rowcount:
            results.append(Changed.DONE)
        else:
            results.append(Changed.NOT_FOUND)
        if results[-1] is Changed.DONE:
            gone.add(job_id)
    return results, Notification(finished=frozenset(gone)) if gone else None
