"""What the log says of attempts: a line when one begins, and one when it has ended, with the level that it deserves."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, assert_never

from aioqueue.errors import ArgumentsError
from aioqueue.runtime._exits import traceback_of
from aioqueue.vocabulary._codec import CodecError
from aioqueue.vocabulary._job import SettlementKind
from aioqueue.worker._text import attempt_error, one_line

if TYPE_CHECKING:
    from aioqueue.worker._holdings import Slot
    from aioqueue.worker._outcome import Outcome

__all__ = [
    "QUOTING",
    "log_begin",
    "log_cancelled",
    "log_end",
    "log_ignored_result",
    "log_interrupted",
    "log_late_error",
    "place_of",
]

logger = logging.getLogger("aioqueue.worker")

_LEVELS = {
    SettlementKind.COMPLETED: logging.INFO,
    SettlementKind.CONTINUED: logging.INFO,
    SettlementKind.RESCHEDULED: logging.INFO,
    SettlementKind.RETRIED: logging.WARNING,
    SettlementKind.CANCELLED: logging.WARNING,
    SettlementKind.FAILED: logging.ERROR,
}

_HARMLESS = (Exception, SystemExit)
"""What may be raised while a line is written: an exit would end the event loop."""

QUOTING = frozenset({"ArgumentsError", "OutputError"})
"""Types of errors whose texts may quote values, which don't belong in logs, nor in spans."""


def log_begin(slot: Slot) -> None:
    """Say that an attempt begins."""
    if logger.isEnabledFor(logging.INFO):
        job = slot.job
        with suppress(*_HARMLESS):  # a handler of the user's that raises: it costs its line, and no job
            logger.info(
                "%s %s: attempt %d begins%s",
                one_line(job.type),
                job.id,
                job.attempt,
                _dry(slot),
                extra=slot.event("attempt.started"),
            )


def log_end(slot: Slot, outcome: Outcome) -> None:
    """Say how an attempt has ended, and when the next one is, or that there is none.

    A retry is a warning; a final failure is an error and carries the exception (`exc_info`), for handlers that report
    errors elsewhere. Its traceback is written as it is stored: bounded, and without what a terminal would obey.
    """
    level = _LEVELS[outcome.kind]
    if logger.isEnabledFor(level):
        with suppress(*_HARMLESS):  # as above; the exception's own methods may be broken too
            _log_end(slot, outcome, level, outcome.kind.name.lower())


def log_interrupted(slot: Slot) -> None:
    """Say that an attempt was interrupted, and that its job is given back without having used it."""
    if logger.isEnabledFor(logging.INFO):
        job = slot.job
        with suppress(*_HARMLESS):
            logger.info(
                "%s %s: attempt %d was interrupted, and is given back: it doesn't count",
                one_line(job.type),
                job.id,
                job.attempt,
                extra=slot.event("attempt.interrupted", outcome="interrupted", duration=_duration(slot)),
            )


def log_cancelled(slot: Slot, outcome: Outcome) -> None:
    """Say that what was to become of a job wasn't written, or that its chain doesn't go on, since it was asked to end."""
    if logger.isEnabledFor(logging.INFO):
        job, following = slot.job, outcome.next
        what = "it is cancelled" if following is None else f"{one_line(following.type)} {following.id} is cancelled, unstarted"
        with suppress(*_HARMLESS):
            logger.info(
                "%s %s: %s: its chain was asked to end",
                one_line(job.type),
                job.id,
                what,
                extra=slot.event("attempt.cancelled", next_job_id=None if following is None else str(following.id)),
            )


def log_ignored_result(slot: Slot) -> None:
    """Say that a handler has returned something else than it gave to `done`, which stands."""
    job = slot.job
    logger.error(
        "%s %s: attempt %d has returned something else than it gave to tx.done(), which was committed, and stands: end the "
        "block with `return tx.done(...)`",
        one_line(job.type),
        job.id,
        job.attempt,
        extra=slot.event("attempt.result_ignored"),
    )


def log_late_error(slot: Slot, error: BaseException) -> None:
    """Say that something was raised after the outcome was committed, which stands."""
    job, reason = slot.job, slot.reason
    if isinstance(error, asyncio.CancelledError) and reason is not None:
        logger.warning(
            "%s %s: attempt %d was stopped after its outcome was committed, which stands: %s",
            one_line(job.type),
            job.id,
            job.attempt,
            reason.value,
            extra=slot.event("attempt.stopped_late", reason=reason.value),
        )
        return
    explained = attempt_error(error, job.attempt)
    logger.error(
        "%s %s: attempt %d has failed after its outcome was committed, which stands: %s\n%s",
        one_line(job.type),
        job.id,
        job.attempt,
        one_line(explained),
        explained.traceback,
        extra=slot.event("attempt.failed_late", error=one_line(explained)),
    )


def _log_end(slot: Slot, outcome: Outcome, level: int, kind: str) -> None:
    job, duration = slot.job, _duration(slot)
    following = outcome.next
    text = f"{one_line(job.type)} {job.id}: {_said(slot, outcome, duration)}{_dry(slot)}"
    extra = slot.event(
        "attempt.ended",
        outcome=kind,
        label=outcome.label,
        duration=duration,
        next_try_in=outcome.delay if outcome.kind is SettlementKind.RETRIED else None,
        error=_error(slot, outcome) or None,
        next_job_id=None if following is None else str(following.id),
        next_job_type=None if following is None else following.type,
    )
    error, exception = outcome.error, outcome.exception
    if level < logging.ERROR or error is None or exception is None or error.type in QUOTING:
        logger.log(level, "%s", text, extra=extra)
        return
    exc_info = (type(exception), exception, traceback_of(exception))
    record = logger.makeRecord(logger.name, level, __file__, 0, "%s", (text,), exc_info, "log_end", extra)
    record.exc_text = error.traceback.rstrip("\n") or one_line(error)
    logger.handle(record)


def _said(slot: Slot, outcome: Outcome, duration: float) -> str:
    number, why = slot.job.attempt, _why(slot, outcome)
    match outcome.kind:
        case SettlementKind.COMPLETED:
            return f"attempt {number} completed after {duration:.3f} s"
        case SettlementKind.CONTINUED:
            following = "" if outcome.next is None else f" with {one_line(outcome.next.type)} {outcome.next.id}"
            return f"attempt {number} completed after {duration:.3f} s, and its chain goes on{following}"
        case SettlementKind.RETRIED:
            return f"attempt {number} failed after {duration:.3f} s, and the next try is in {_seconds(outcome.delay)} s{why}"
        case SettlementKind.RESCHEDULED:
            when = f"for {_seconds(outcome.delay)} s" if outcome.delay is not None else f"until {outcome.run_at}"
            return f"attempt {number} has put the job off {when}, after {duration:.3f} s"
        case SettlementKind.CANCELLED:
            if outcome.error is not None and outcome.error.type == "Expired":
                return f"it is discarded{why}"
            return f"attempt {number} is cancelled {f'after {duration:.3f} s' if slot.began else 'before it began'}{why}"
        case SettlementKind.FAILED:
            return f"attempt {number} failed after {duration:.3f} s, and there is no further try{why}"
        case _:
            assert_never(outcome.kind)


def _dry(slot: Slot) -> str:
    """A mark for what didn't happen for real."""
    origin = slot.job.origin
    return " (dry run)" if origin is not None and origin.dry_run else ""


def _duration(slot: Slot) -> float:
    """Seconds since its first step, until its end."""
    return (slot.ended_at or time.monotonic()) - slot.began if slot.began else 0.0


def _why(slot: Slot, outcome: Outcome) -> str:
    error = _error(slot, outcome)
    return f": {error}" if error else ""


def _error(slot: Slot, outcome: Outcome) -> str:
    """The error in a line, without what it may quote of values."""
    error = outcome.error
    if error is None:
        return ""
    if error.type not in QUOTING:
        return one_line(error)
    at = f" {place}" if (place := place_of(outcome)) else ""
    return f"{one_line(error.type)}{at}; `aioqueue jobs show {slot.job.id}` shows it"


def place_of(outcome: Outcome) -> str:
    """Where in the arguments or the output the value is that doesn't fit, as `at` and its path; empty if nobody says so."""
    exception = outcome.exception
    path = exception.path if isinstance(exception, (ArgumentsError, CodecError)) else ""
    return f"at {one_line(path)}" if path else ""


def _seconds(value: float | None) -> str:
    """Three digits that count, and no exponent."""
    return f"{value or 0.0:.3g}" if (value or 0.0) < 1000 else f"{value:.0f}"
