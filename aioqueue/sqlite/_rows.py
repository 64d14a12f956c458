"""Between the vocabulary's values and the rows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import orjson

from aioqueue._job import AttemptError, ClaimedJob, Job, JobState, NewJob, StoredState
from aioqueue.errors import RowRejected

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Taken", "claimed_jobs", "dump", "job_of_row", "job_row", "load", "microseconds", "unique_key"]

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


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
    if job.run_at is not None:
        due = max(now, microseconds(job.run_at))
    else:
        due = now + round((job.delay or 0.0) * 1_000_000)
    try:
        unique = unique_key(job.unique_names[0], job.key) if job.unique and job.key is not None else None
        return [
            str(job.id),
            job.type,
            job.priority,
            due,
            None if job.expires is None else due + round(job.expires * 1_000_000),
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


def claimed_jobs(rows: str | bytes, taken: Taken | None) -> list[ClaimedJob]:
    """Read the rows of a claim.

    Arguments:
        rows: JSON, as the statement put it together.
        taken: Who claims them, and when; None for rows that stay as they are.
    """
    try:
        entries = load(rows)
    except orjson.JSONDecodeError:
        # One row that isn't UTF-8 must not stop its neighbours.
        entries = load(rows.decode("utf-8", "replace") if isinstance(rows, bytes) else rows)
    return [_claimed(entry, taken) for entry in entries]


def _claimed(entry: Sequence[Any], taken: Taken | None) -> ClaimedJob:
    (job_id, job_type, payload, priority, attempt, claims, lease_id, created_at, run_at, started_at) = entry[:10]
    (max_attempts, retry, timeout, expires_at, reschedules, key, tags, metadata) = entry[10:]
    expired = False
    if taken is not None:
        expired = expires_at is not None and started_at is None and expires_at <= taken.now
        lease_id, started_at = taken.leases.get(job_type, taken.lease_id), taken.now
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


def _id(value: Any) -> UUID:
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        # Somebody's odd row: a stable id that nothing else has.
        return UUID(bytes=hashlib.blake2b(_bytes(value), digest_size=16).digest())


def _state(value: Any, run_at: Any, now: int) -> JobState:
    try:
        return StoredState(value).shown(due=isinstance(run_at, int) and run_at <= now)
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
        id=_id(job_id),
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
