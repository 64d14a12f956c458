"""Leases, and what moves jobs between them. Each function runs inside an open write transaction, in a thread."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioqueue.abc import Notification
from aioqueue.errors import LeaseLost, RowRejected
from aioqueue.sqlite import _statements as sql
from aioqueue.sqlite._lease_clock import clock_parameters
from aioqueue.sqlite._rows import Taken, claimed_jobs, dump, load, one

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Mapping, Sequence

    from aioqueue.vocabulary._job import Claim, ClaimedJob

__all__ = ["Wanted", "claim", "end_expired", "open_lease", "pick", "release", "take", "take_expired", "valid_now"]

_LARGEST_LEASE = 2**62


def open_lease(connection: sqlite3.Connection, worker: str, duration: float, *, extra: bool = False) -> int:
    """Make a lease. Its id is all random: one that was counted would come again after a restore from a backup."""
    lease_id = 1 + secrets.randbelow(_LARGEST_LEASE)
    parameters = {"lease": lease_id, "worker": worker, "duration": round(duration * 1e6), "extra": int(extra)}
    connection.execute(sql.LEASE_OPEN, {**parameters, **clock_parameters()})
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

    @property
    def all_leases(self) -> str:
        """Their ids, as a JSON array."""
        return dump([self.lease_id, *self.leases.values()])


def pick(connection: sqlite3.Connection, wanted: Wanted) -> tuple[int, str]:
    """See what a claim would take: now, and the rows as JSON.

    Raises:
        LeaseLost: One of the leases isn't valid.
    """
    parameters = {"leases": wanted.all_leases, "types": wanted.types, "limit": wanted.limit, **clock_parameters()}
    now, invalid, rows = one(connection, sql.CLAIM_PICK, parameters)
    _check_leases(invalid)
    return now, rows


def valid_now(connection: sqlite3.Connection, wanted: Wanted) -> int:
    """The database's time, at which all leases are valid.

    Raises:
        LeaseLost: One of them isn't.
    """
    now, invalid = one(connection, sql.LEASES_LOOK, {"leases": wanted.all_leases, **clock_parameters()})
    _check_leases(invalid)
    return int(now)


def _check_leases(invalid: str) -> None:
    if invalid != "[]":
        raise LeaseLost(f"not valid any more: lease {', '.join(map(str, load(invalid)))}")


def claim(connection: sqlite3.Connection, wanted: Wanted) -> list[ClaimedJob]:
    """Take due jobs.

    Raises:
        LeaseLost: One of the leases isn't valid.
        Unreadable: One of the rows is odd.
        RowRejected: One of them can't be claimed.
    """
    now, rows = pick(connection, wanted)
    taken = Taken(wanted.lease_id, wanted.leases, now)
    jobs = claimed_jobs(rows, taken)
    if jobs:
        take(connection, jobs, taken)
    return jobs


def take(connection: sqlite3.Connection, jobs: Sequence[ClaimedJob], taken: Taken) -> None:
    """Write that jobs were claimed.

    Raises:
        RowRejected: One of them can't be claimed.
    """
    ids = dump([str(job.id) for job in jobs])
    cursor = connection.execute(sql.CLAIM_TAKE, {"ids": ids, "lease": taken.lease_id, "now": taken.now})
    if cursor.rowcount != len(jobs):
        raise RowRejected("the row can't be claimed: its id isn't written as a UUID is, or a trigger keeps it as it is")
    given = [[str(job.id), job.lease_id] for job in jobs if job.lease_id != taken.lease_id]
    if given:
        connection.execute(sql.CLAIM_GIVE, {"rows": dump(given)})


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
    ended = end_expired(connection, own, waited)
    _, rows = one(connection, sql.ORPHANS, {"limit": limit, "own": dump(list(own))})
    return claimed_jobs(rows, None), Notification(leases=ended) if ended else None


def end_expired(connection: sqlite3.Connection, own: Collection[int], waited: float) -> frozenset[int]:
    """Delete at most one lease that has expired. Arguments as of `take_expired`; returns its id."""
    parameters: dict[str, object] = {"grace": round(waited * 1e6), "own": dump(list(own)), **clock_parameters()}
    expired = one(connection, sql.LEASE_OLDEST_EXPIRED, parameters)
    if expired is None:
        return frozenset()
    connection.execute(sql.LEASE_DELETE, {"lease": expired[0]})
    return frozenset({expired[0]})
