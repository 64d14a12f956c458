"""Taking due jobs for a lease. Each function runs inside an open transaction, in a thread.

Batches go in as one JSON array and come out as one, here as in the other rooms, so that a statement is one step for any
number of jobs: each step gives up Python's interpreter lock and has to get it back from a busy event loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from aioqueue.errors import LeaseLost, RowRejected
from aioqueue.sqlite._claim_blockers import with_blockers
from aioqueue.sqlite._claim_lanes import HEADS, HEADS_WITHIN_QUOTAS
from aioqueue.sqlite._claim_paused import park, pick_around_pauses
from aioqueue.sqlite._gates_look import GATE_WORK
from aioqueue.sqlite._lease_clock import LEASE_VALID, clock_parameters
from aioqueue.sqlite._pauses_conditions import ANY_PAUSE
from aioqueue.sqlite._rows import dump, load, one
from aioqueue.sqlite._rows_claimed import CLAIMED_COLUMNS, Taken, claimed_jobs
from aioqueue.sqlite._rows_times import NOW

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["AtGates", "Picked", "Wanted", "claim", "pick", "take", "valid_now"]

_PICK, _PICK_WITHIN_QUOTAS = (
    f"""
SELECT {NOW},
    (SELECT json_group_array(asked.value) FROM json_each(:leases) AS asked
     WHERE NOT EXISTS (SELECT 1 FROM lease WHERE lease.id = asked.value AND {LEASE_VALID})),
    CASE WHEN {ANY_PAUSE} THEN NULL ELSE (
        SELECT json_group_array(json_array({CLAIMED_COLUMNS})) FROM {heads} AS picked CROSS JOIN job ON job.id = picked.id) END,
    {GATE_WORK}
"""
    for heads in (HEADS, HEADS_WITHIN_QUOTAS)
)
"""Without rows while something is paused: then it's asked in another way."""

_LOOK_AT_LEASES = f"""
SELECT {NOW}, (SELECT json_group_array(asked.value) FROM json_each(:leases) AS asked
               WHERE NOT EXISTS (SELECT 1 FROM lease WHERE lease.id = asked.value AND {LEASE_VALID}))
"""

_TAKE = """
UPDATE job SET state = 2, attempt = attempt + 1, claims = claims + 1, lease_id = :lease, started_at = :now
WHERE id IN (SELECT value FROM json_each(:ids))
"""

_GIVE = """
UPDATE job SET lease_id = taken.value ->> 1 FROM json_each(:rows) AS taken WHERE job.id = taken.value ->> 0
"""
"""For the few types that have a lease of their own."""

_MARK_AS_DRY = """
UPDATE job SET origin = json_set(
    iif(typeof(origin) = 'text' AND json_valid(origin) AND json_type(origin) = 'object', origin, '{}'),
    '$.dry_run', json('true'))
WHERE id IN (SELECT value FROM json_each(:ids))
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a claim asks for.

    Attributes:
        lease_id: The lease that gets the jobs.
        leases: The leases of types that have one of their own.
        types: The names, as a JSON array.
        limit: Jobs at most.
        dry_run: Whether the jobs are dry runs from then on.
        turns: Of the types, as a JSON object; empty where there are none.
        quotas: As of `quotas_as_json`.
    """

    lease_id: int
    leases: Mapping[str, int]
    types: str
    limit: int
    dry_run: bool = False
    turns: str = ""
    quotas: str = ""

    @property
    def all_leases(self) -> str:
        """Their ids, as a JSON array."""
        return dump([self.lease_id, *self.leases.values()])

    @property
    def heads(self) -> dict[str, object]:
        """The parameters of `HEADS`, or those of `HEADS_WITHIN_QUOTAS` if there are any."""
        of_quotas = {"quotas": self.quotas} if self.quotas else {}
        return {"types": self.types, "turns": self.turns, "limit": self.limit, **of_quotas}

    def taken(self, now: int) -> Taken:
        """The claim, at this time."""
        return Taken(self.lease_id, self.leases, now, self.dry_run)


class AtGates(Exception):
    """A claim has come to jobs that wait at gates, or to something to do there. Nothing was written."""


class Picked(NamedTuple):
    """What a claim would take.

    Attributes:
        now: The database's time.
        rows: As JSON.
        paused: The ids of those that it would park, as their keys are paused.
        gate_work: Whether there is something to promote.
    """

    now: int
    rows: str
    paused: Sequence[str]
    gate_work: bool


def pick(connection: sqlite3.Connection, wanted: Wanted) -> Picked:
    """See what a claim would take.

    Raises:
        LeaseLost: One of the leases isn't valid.
        Unreadable: Something is paused, and one of the rows is odd.
    """
    parameters = {"leases": wanted.all_leases, **wanted.heads, **clock_parameters()}
    now, invalid, rows, gate_work = one(connection, _PICK_WITHIN_QUOTAS if wanted.quotas else _PICK, parameters)
    _check_leases(invalid)
    if rows is None:
        return Picked(now, *pick_around_pauses(connection, wanted.heads), bool(gate_work))
    return Picked(now, rows, (), bool(gate_work))


def valid_now(connection: sqlite3.Connection, wanted: Wanted) -> int:
    """The database's time, at which all leases are valid.

    Raises:
        LeaseLost: One of them isn't.
    """
    now, invalid = one(connection, _LOOK_AT_LEASES, {"leases": wanted.all_leases, **clock_parameters()})
    _check_leases(invalid)
    return int(now)


def _check_leases(invalid: str) -> None:
    if invalid != "[]":
        raise LeaseLost(f"not valid any more: lease {', '.join(map(str, load(invalid)))}")


def claim(connection: sqlite3.Connection, wanted: Wanted, parked: list[str] | None = None) -> list[ClaimedJob]:
    """Take due jobs, and park those that it comes to and whose keys are paused.

    Arguments:
        connection: In a write transaction.
        wanted: What is asked for.
        parked: Where the ids of those are added.

    Raises:
        LeaseLost: One of the leases isn't valid.
        Unreadable: One of the rows is odd.
        RowRejected: One of them can't be claimed.
        AtGates: This isn't the way to take them.
    """
    now, rows, paused, gate_work = pick(connection, wanted)
    taken = wanted.taken(now)
    marked: list[UUID] = []
    gated: list[UUID] = []
    jobs = claimed_jobs(rows, taken, marked, gated)
    if gated or gate_work:
        raise AtGates
    if paused:
        park(connection, paused)
        if parked is not None:
            parked += paused
    if jobs:
        take(connection, jobs, taken)
    return with_blockers(connection, jobs, marked) if marked else jobs


def take(connection: sqlite3.Connection, jobs: Sequence[ClaimedJob], taken: Taken) -> None:
    """Write that jobs were claimed.

    Raises:
        RowRejected: One of them can't be claimed.
    """
    ids = dump([str(job.id) for job in jobs])
    cursor = connection.execute(_TAKE, {"ids": ids, "lease": taken.lease_id, "now": taken.now})
    if cursor.rowcount != len(jobs):
        raise RowRejected("the row can't be claimed: its id isn't written as a UUID is, or a trigger keeps it as it is")
    if taken.dry_run:
        connection.execute(_MARK_AS_DRY, {"ids": ids})
    given = [[str(job.id), job.lease_id] for job in jobs if job.lease_id != taken.lease_id]
    if given:
        connection.execute(_GIVE, {"rows": dump(given)})
