"""Rows that are claimed, held or recovered: these are read with care, since a worker acts on them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aioqueue.sqlite._rows import Unreadable, load, tags_of
from aioqueue.sqlite._rows_times import moment
from aioqueue.sqlite._settle_requests import reason_of
from aioqueue.vocabulary._job import Claim, ClaimedJob
from aioqueue.vocabulary._origin import Origin, decode_origin
from aioqueue.vocabulary._trace import stored_trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "CLAIMED_COLUMNS",
    "Taken",
    "asked_claims",
    "claimed_job",
    "claimed_jobs",
    "held_claims",
    "is_counter",
    "is_gated",
    "is_marked",
    "is_position",
]

_LARGEST_COUNT = 2**31 - 2
"""Of a counter: what PostgreSQL's hold too, and one more."""
CLAIMED_COLUMNS = """job.id, CAST(job.type AS TEXT), CAST(job.payload AS TEXT), job.priority, CAST(job.attempt AS INTEGER),
    job.claims, job.lease_id, job.created_at, job.run_at, job.started_at, CAST(job.max_attempts AS INTEGER),
    CAST(job.retry AS TEXT), CAST(job.timeout AS REAL), job.expires_at, job.reschedules, CAST(job.key AS TEXT),
    CAST(job.tags AS TEXT), CAST(job.metadata AS TEXT),
    iif(typeof(job.trace) = 'text' AND length(job.trace) <= 1024, job.trace, NULL),
    job.chain_id, job.position, (job.marked IS NOT 0) + 2 * (job.gates IS NOT NULL), CAST(job.origin AS TEXT)"""
"""Cast, where a strange value can be read as something harmless. The last but one has two flags."""

_MARKED, _GATED = 1, 2


@dataclass(frozen=True, slots=True)
class Taken:
    """A claim.

    Attributes:
        lease_id: The lease that gets the jobs.
        leases: The leases of types that have one of their own.
        now: The database's time.
        dry_run: Whether they're dry runs from then on.
    """

    lease_id: int
    leases: Mapping[str, int]
    now: int
    dry_run: bool = False


_FAULTS = (ValueError, TypeError, AttributeError, ArithmeticError, LookupError)
"""What reading strange values raises."""


def held_claims(rows: str) -> set[Claim]:
    """Read what a lease holds.

    Raises:
        Unreadable: One of the claims is odd.
    """
    try:
        claims = {Claim(UUID(job_id), number) for job_id, number in load(rows)}
    except _FAULTS as error:
        raise Unreadable(repr(error)) from error
    if not all(is_counter(each.claims) for each in claims):
        raise Unreadable("a number of claims is out of its range")
    return claims


def asked_claims(rows: str) -> dict[Claim, str]:
    """Read for which of those that `held_claims` has read their chains were asked to end, and why."""
    if rows == "[]":
        return {}
    return {Claim(UUID(job_id), number): reason_of(digits) for job_id, number, digits in load(rows)}


def is_counter(value: Any) -> bool:
    """Whether it can be counted on from here."""
    return isinstance(value, int) and -_LARGEST_COUNT <= value <= _LARGEST_COUNT


def is_position(value: Any) -> bool:
    """Whether it can be a step's place in its chain, and the next step's be counted from here."""
    return isinstance(value, int) and 0 <= value <= _LARGEST_COUNT


def is_marked(entry: Sequence[Any]) -> bool:
    """Whether the row may have blockers."""
    return bool(entry[21] & _MARKED)


def is_gated(entry: Sequence[Any]) -> bool:
    """Whether the job has been at gates, or is in a sequence."""
    return bool(entry[21] & _GATED)


def claimed_jobs(
    rows: str, taken: Taken | None, marked: list[UUID] | None = None, gated: list[UUID] | None = None
) -> list[ClaimedJob]:
    """Read the rows of a claim.

    Arguments:
        rows: JSON, as the statement put it together.
        taken: Who claims them, and when; None for rows that stay as they are.
        marked: Where the ids of those are added that may have blockers.
        gated: Where the ids of those are added that have been at gates, or are in a sequence.

    Raises:
        Unreadable: One of them, or more, has a strange value.
    """
    try:
        entries = load(rows)
        jobs = [claimed_job(entry, taken) for entry in entries]
        if taken is None:
            _check_fences(entries, jobs)
        if marked is not None:
            flagged = [(entry, job.id) for entry, job in zip(entries, jobs, strict=True) if entry[21]]
            marked += [job_id for entry, job_id in flagged if is_marked(entry)]
            if gated is not None:
                gated += [job_id for entry, job_id in flagged if is_gated(entry)]
    except _FAULTS as error:
        raise Unreadable(repr(error)) from error
    return jobs


def _check_fences(entries: Sequence[Sequence[Any]], jobs: Sequence[ClaimedJob]) -> None:
    # What is only read, and not written in the same transaction, must be found again by what was read.
    for entry, job in zip(entries, jobs, strict=True):
        if entry[0] != str(job.id) or not isinstance(job.lease_id, int) or not is_counter(job.claims):
            raise ValueError("an id isn't written as ours are, or a fence is odd")


def claimed_job(entry: Sequence[Any], taken: Taken | None) -> ClaimedJob:
    """Read one row. Its values may be strange: what it raises then is any of a few errors."""
    (job_id, job_type, payload, priority, attempt, claims, lease_id, created_at, run_at, started_at) = entry[:10]
    (max_attempts, retry, timeout, expires_at, reschedules, key, tags, metadata, trace, chain_id, position) = entry[10:21]
    if max(attempt, claims, reschedules) > _LARGEST_COUNT:
        raise ValueError("a counter is out of its range")
    job_uuid = own_chain = UUID(job_id)
    if position or chain_id is not None:
        own_chain = _chain_of(chain_id, position, job_uuid)
    expired = False
    origin = None if entry[22] is None else decode_origin(entry[22])
    if taken is not None:
        expired = expires_at is not None and started_at is None and expires_at <= taken.now
        lease_id, started_at = taken.lease_id, taken.now
        if taken.leases:
            lease_id = taken.leases.get(job_type, lease_id)
        attempt, claims = attempt + 1, claims + 1
        if taken.dry_run:
            origin = replace(origin or Origin(), dry_run=True)
    return ClaimedJob(
        id=job_uuid,
        type=job_type,
        payload=payload.encode(),
        priority=priority,
        attempt=attempt,
        claims=claims,
        lease_id=lease_id or 0,
        chain_id=own_chain,
        position=position,
        created_at=moment(created_at),
        run_at=moment(run_at),
        started_at=moment(started_at),
        max_attempts=max_attempts,
        retry=None if retry is None else retry.encode(),
        timeout=timeout,
        expired=expired,
        reschedules=reschedules,
        key=key,
        tags=() if tags == "[]" else tags_of(tags),
        metadata=metadata.encode(),
        trace=None if trace is None else stored_trace(trace),
        origin=origin,
    )


def _chain_of(chain_id: Any, position: Any, job_id: UUID) -> UUID:
    if not is_position(position):
        raise ValueError("the position in the chain is out of its range")
    chain = job_id if chain_id is None else UUID(chain_id)
    if chain_id is not None and str(chain) != chain_id:
        raise ValueError("a chain's id isn't written as ours are")
    return chain
