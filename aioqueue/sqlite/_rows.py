"""Between the vocabulary's values and the rows."""

from __future__ import annotations

import hashlib
import math
import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import orjson

from aioqueue.errors import RowRejected
from aioqueue.vocabulary._job import AttemptError, Claim, ClaimedJob, Job, JobState, NewJob, StoredState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "Taken",
    "Unreadable",
    "after",
    "at",
    "claimed_job",
    "claimed_jobs",
    "dump",
    "held_claims",
    "id_of",
    "is_counter",
    "job_of_row",
    "job_row",
    "load",
    "microseconds",
    "one",
    "unique_key",
]

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LARGEST = 2**31 - 2
"""Of a counter: what PostgreSQL's hold too, and one more."""
_FARTHEST = 253_402_300_799_999_999
"""The last microsecond of the year 9999."""


class Unreadable(Exception):
    """Some row of a batch can't be read: each is to be looked at alone."""


def microseconds(value: datetime) -> int:
    """Since 1970, UTC."""
    return (value - _EPOCH) // _MICROSECOND


def when(value: Any) -> datetime:
    """A point in time; what can't be one is shown as the nearest that can."""
    try:
        return _EPOCH + timedelta(microseconds=value)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if value > 0 else datetime.min.replace(tzinfo=UTC)
    except TypeError:
        return _EPOCH


def after(now: int, seconds: Any, what: str) -> int:
    """A due time: so many seconds from now; now for what is in the past.

    Raises:
        RowRejected: It's no number of seconds, or beyond the year 9999.
    """
    due: int
    try:
        due = max(now, now + round(seconds * 1_000_000))
    except (TypeError, ValueError, OverflowError):
        due = _FARTHEST + 1
    if due > _FARTHEST:
        raise RowRejected(f"{what} must be a finite number of seconds, and end before the year 10000: {seconds!r}")
    return due


def at(now: int, moment: Any, what: str) -> int:
    """A due time that is given; now for what is in the past.

    Raises:
        RowRejected: It's no point in time.
    """
    try:
        return max(now, microseconds(moment))
    except (TypeError, OverflowError):
        raise RowRejected(f"{what} must be a time with its zone, not {moment!r}") from None


def dump(value: object) -> str:
    """JSON for a statement's parameter.

    Raises:
        RowRejected: It can't be JSON (an unpaired surrogate, an integer over 64 bits).
    """
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise RowRejected(f"a value can't be stored: {error}") from error


def load(value: str | bytes) -> Any:
    """JSON that a statement has put together."""
    return orjson.loads(value)


def unique_key(job_type: str, key: str) -> str:
    """What stands for (type, key) in the unique index, whatever their lengths."""
    return hashlib.blake2b(f"{len(job_type)}:{job_type}{key}".encode(), digest_size=16).hexdigest()


def job_row(job: NewJob, now: int) -> list[object]:
    """One row of an insert.

    Raises:
        RowRejected: It can't be stored as it is.
    """
    for text in (job.type, job.key, *job.tags):
        if text is not None and "\0" in text:
            raise RowRejected(f"job {job.id}: a type, key or tag can't hold U+0000: {text!r}")
    due = now
    if job.run_at is not None:
        due = at(now, job.run_at, f"job {job.id}: the due time")
    elif job.delay:
        due = after(now, job.delay, f"job {job.id}: the delay")
    if job.timeout is not None and not math.isfinite(job.timeout):
        raise RowRejected(f"job {job.id}: the timeout must be a finite number of seconds, not {job.timeout!r}")
    try:
        unique = unique_key(job.unique_names[0], job.key) if job.unique and job.key is not None else None
        return [
            str(job.id),
            job.type,
            job.priority,
            due,
            None if job.expires is None else after(due, job.expires, f"job {job.id}: the time to start within"),
            job.max_attempts,
            None if job.retry is None else job.retry.decode(),
            job.timeout,
            job.key,
            unique,
            dump(job.tags),
            job.metadata.decode(),
            job.payload.decode(),
        ]
    except UnicodeError as error:
        raise RowRejected(f"job {job.id}: a value can't be stored: {error}") from error


@dataclass(frozen=True, slots=True)
class Taken:
    """A claim.

    Attributes:
        lease_id: The lease that gets the jobs.
        leases: The leases of types that have one of their own.
        now: The database's time.
    """

    lease_id: int
    leases: Mapping[str, int]
    now: int


def one(connection: sqlite3.Connection, statement: str, parameters: dict[str, Any]) -> Any:
    """The first row of a statement; None without any.

    Raises:
        Unreadable: A value of some row can't be put into JSON.
    """
    try:
        return connection.execute(statement, parameters).fetchone()
    except sqlite3.OperationalError as error:
        if "JSON" in str(error):
            raise Unreadable(str(error)) from error
        raise


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


def is_counter(value: Any) -> bool:
    """Whether it can be counted on from here."""
    return isinstance(value, int) and -_LARGEST <= value <= _LARGEST


def claimed_jobs(rows: str, taken: Taken | None) -> list[ClaimedJob]:
    """Read the rows of a claim.

    Arguments:
        rows: JSON, as the statement put it together.
        taken: Who claims them, and when; None for rows that stay as they are.

    Raises:
        Unreadable: One of them, or more, has a strange value.
    """
    try:
        entries = load(rows)
        jobs = [claimed_job(entry, taken) for entry in entries]
        if taken is None:
            _check_fences(entries, jobs)
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
    (max_attempts, retry, timeout, expires_at, reschedules, key, tags, metadata) = entry[10:]
    if max(attempt, claims, reschedules) > _LARGEST:
        raise ValueError("a counter is out of its range")
    expired = False
    if taken is not None:
        expired = expires_at is not None and started_at is None and expires_at <= taken.now
        lease_id, started_at = taken.lease_id, taken.now
        if taken.leases:
            lease_id = taken.leases.get(job_type, lease_id)
        attempt, claims = attempt + 1, claims + 1
    return ClaimedJob(
        id=UUID(job_id),
        type=job_type,
        payload=payload.encode(),
        priority=priority,
        attempt=attempt,
        claims=claims,
        lease_id=lease_id or 0,
        created_at=when(created_at),
        run_at=when(run_at),
        started_at=when(started_at),
        max_attempts=max_attempts,
        retry=None if retry is None else retry.encode(),
        timeout=timeout,
        expired=expired,
        reschedules=reschedules,
        key=key,
        tags=() if tags == "[]" else _tags(tags),
        metadata=metadata.encode(),
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownVariableType]


def _tags(value: Any) -> tuple[str, ...]:
    try:
        tags = orjson.loads(value)
    except (orjson.JSONDecodeError, TypeError):
        return ()
    return tuple(map(str, _listed(tags)))


def _errors(value: Any) -> tuple[AttemptError, ...]:
    if value == "[]":
        return ()
    try:
        entries = orjson.loads(value)
    except (orjson.JSONDecodeError, TypeError):
        entries = [value]
    return tuple(map(AttemptError.decode, _listed(entries)))


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return str(value).encode("utf-8", "replace")


def id_of(value: Any) -> UUID:
    """A stored id; for one that isn't a UUID, one that stays the same and that nothing else has."""
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        return UUID(bytes=hashlib.blake2b(_bytes(value), digest_size=16).digest())


def _state(value: Any, run_at: Any, now: int) -> JobState:
    try:
        return StoredState(value).shown(due=isinstance(run_at, (int, float)) and run_at <= now)
    except ValueError:
        return JobState.FAILED


def _optional(value: Any, read: Callable[[Any], T]) -> T | None:
    return None if value is None else read(value)


def _integer(value: Any) -> int:
    return value if isinstance(value, int) else 0


def job_of_row(row: Sequence[Any], now: int) -> Job:
    """A snapshot from a row of `JOB_COLUMNS`. Odd rows don't raise."""
    (job_id, job_type, state, priority, payload, created_at, run_at, started_at, finished_at) = row[:9]
    (attempt, max_attempts, worker, output, outcome, errors, key, tags, metadata, timeout, expires_at, reschedules) = row[9:21]
    return Job(
        id=id_of(job_id),
        type=str(job_type),
        state=_state(state, run_at, now),
        priority=_integer(priority),
        payload=_bytes(payload),
        created_at=when(created_at),
        run_at=when(run_at),
        started_at=_optional(started_at, when),
        finished_at=_optional(finished_at, when),
        attempt=_integer(attempt),
        max_attempts=_optional(max_attempts, _integer),
        worker=_optional(worker, str),
        output_json=_optional(output, _bytes),
        outcome=_optional(outcome, str),
        errors=_errors(errors),
        key=_optional(key, str),
        tags=_tags(tags),
        metadata_json=_bytes(metadata),
        timeout=timeout if isinstance(timeout, float) else None,
        expires_at=_optional(expires_at, when),
        reschedules=_integer(reschedules),
    )
