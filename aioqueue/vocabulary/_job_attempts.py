"""The attempts of a job, one after the other, as far as what is stored of it tells of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from aioqueue.vocabulary._attempt_error import AttemptError

__all__ = ["JobAttempt", "list_attempts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAttempt:
    """One attempt of a job: by whom, from when to when, and how it went wrong, if it did.

    Attributes:
        number: From 1; a job that was retried by hand counts its attempts anew.
        worker: The name of the worker that ran it; None where that isn't known.
        started_at: When it was claimed, in UTC; None where that isn't known.
        ended_at: When it ended, in UTC; None while it's running.
        error: What ended it; None of one that is running, or ended well.
    """

    number: int
    worker: str | None
    started_at: datetime | None
    ended_at: datetime | None
    error: AttemptError | None = None


def list_attempts(errors: Iterable[AttemptError], newest: JobAttempt | None) -> tuple[JobAttempt, ...]:
    """List attempts from the first: each error is the end of one, and the newest may have none.

    Arguments:
        errors: The job's history, oldest first. Entries that no attempt has made are left out.
        newest: What else is known of its newest attempt; None if none was made, or if it isn't known how it ended.
    """
    attempts = [
        JobAttempt(number=each.attempt, worker=each.worker or None, started_at=each.started_at, ended_at=each.at, error=each)
        for each in errors
        if each.attempt
    ]
    if newest is None:
        return tuple(attempts)
    last = attempts[-1] if attempts else None
    if last is None or not _is_the_same(last, newest):
        return (*attempts, newest)
    # Times of errors are by the workers' clocks, and some were written by versions that didn't know by whom.
    attempts[-1] = JobAttempt(
        number=last.number,
        worker=last.worker or newest.worker,
        started_at=last.started_at or newest.started_at,
        ended_at=last.ended_at,
        error=last.error,
    )
    return tuple(attempts)


def _is_the_same(last: JobAttempt, newest: JobAttempt) -> bool:
    """Whether the last error is the newest attempt's: its number may come again where the job was retried by hand."""
    if last.number != newest.number or newest.started_at is None:
        return last.number == newest.number
    if last.started_at is not None:
        return last.started_at == newest.started_at
    return last.ended_at is None or last.ended_at >= newest.started_at
