"""Stores that make mistakes with phases, progress, and logs of attempts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioqueue.testing.memory import _listing, _progress, _rows, _rows_progress, _settle, _transaction_operations
from aioqueue.testing.memory._rows import Database
from aioqueue.testing.memory._rows_progress import Come
from aioqueue.vocabulary._attempt_log import AttemptLog
from aioqueue.vocabulary._job import LostReason, StoredState
from aioqueue.worker._phases import StoredPhases
from tests.known_mistakes.mistake import Mistake, instead_of
from tests.simulation.plan import Theme
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._answers import Changed
    from aioqueue.vocabulary._job import ClaimedJob, Settlement
    from aioqueue.vocabulary._phases import Phase, PhaseWrite, ProgressWrite

__all__ = ["PROGRESS", "WORKERS_PHASES"]


def _while_it_runs(database: Database, each: PhaseWrite | ProgressWrite) -> LostReason | None:
    row = database.rows.get(each.id)
    return None if row is not None and row.state == StoredState.RUNNING else LostReason.TAKEN


def _not_while_locked(real: Callable[..., LostReason | None], database: Database, each: PhaseWrite) -> LostReason | None:
    row = database.rows.get(each.id)
    return LostReason.TAKEN if row is not None and row.locked(database.now()) else real(database, each)


def _without_its_lease(database: Database, each: PhaseWrite) -> LostReason | None:
    return _progress.why_lost(database.rows.get(each.id), each.claims, each.lease_id)


def _while_the_lease_is_valid(real: Callable[..., Any], database: Database, each: PhaseWrite) -> LostReason | None:
    return real(database, each) if database.valid(each.lease_id, database.now()) else LostReason.TAKEN


def _the_last_word_of_any(real: Callable[..., bool], come: Come, write: PhaseWrite, now: datetime) -> bool:
    come.phases.get(write.id, {}).pop(write.name, None)
    return real(come, write, now)


def _the_first_word(real: Callable[..., bool], come: Come, write: PhaseWrite, now: datetime) -> bool:
    return write.name in come.phases.get(write.id, {}) or real(come, write, now)


def _completed_for_good(real: Callable[..., bool], come: Come, write: PhaseWrite, now: datetime) -> bool:
    stored = come.phases.get(write.id, {}).get(write.name)
    return (stored is not None and stored.phase.result_json is not None) or real(come, write, now)


def _by_name(real: Callable[..., list[Phase]], come: Come, job_id: UUID) -> list[Phase]:
    return sorted(real(come, job_id), key=lambda phase: phase.name)


def _begins_anew(real: Callable[..., ClaimedJob], database: Database, row: Row, *rest: Any) -> ClaimedJob:
    database.come.begin_anew(row.new.id)
    return real(database, row, *rest)


def _reopened_from_the_start(real: Callable[..., None], database: Database, row: Row, *rest: Any) -> None:
    real(database, row, *rest)
    database.come.begin_anew(row.new.id)


def _archived_without(real: Callable[..., None], database: Database, row: Row, *rest: Any, **named: Any) -> None:
    real(database, row, *rest, **named)
    if not row.live:
        database.come.begin_anew(row.new.id)


def _with_what_was_there(real: Callable[..., None], database: Database, row: Row, *rest: Any) -> None:
    kept = database.come.copy()
    real(database, row, *rest)
    database.come = kept


def _whatever_becomes_of_it(real: Callable[..., list[Changed]], database: Database, ids: Sequence[UUID], **named: Any) -> Any:
    if named.get("from_start"):
        for each in ids:
            database.come.begin_anew(each)
    return real(database, ids, **named)


def _shown(real: Callable[..., list[Phase]], database: Database, job_id: UUID) -> list[Phase]:
    (job,) = _listing.fetch(database, [job_id])
    return real(database, job_id) if job is None else list(job.phases)


def _greatest(real: Callable[..., bool], come: Come, write: ProgressWrite, now: datetime) -> bool:
    before = come.progress_of(write.id)
    return real(come, write if before is None else replace(write, percent=max(write.percent, before.percent)), now)


def _with_the_message_before(real: Callable[..., bool], come: Come, write: ProgressWrite, now: datetime) -> bool:
    before = come.progress_of(write.id)
    return real(come, write if before is None else replace(write, message=write.message or before.message), now)


def _also_of_the_lost(real: Callable[..., Any], database: Database, each: Settlement, *rest: Any, **named: Any) -> Any:
    if each.logs is not None:
        log = AttemptLog(attempt=each.attempt, claims=each.claims, lines_json=each.logs)
        database.come.keep_log(each.id, log, 10)
    return real(database, each, *rest, **named)


def _none_of_the_cancelled(
    real: Callable[..., None], database: Database, row: Row, each: Settlement, *rest: Any, **named: Any
) -> None:
    real(database, row, each if named.get("cancelled") is None else replace(each, logs=None), *rest, **named)


def _by_attempt(real: Callable[..., None], come: Come, job_id: UUID, log: AttemptLog, kept: int) -> None:
    real(come, job_id, replace(log, claims=log.attempt), kept)


PROGRESS: dict[str, Mistake] = {
    "a store that takes phases and progress from anybody": Mistake(
        ((_progress, "why_not_its_own", _while_it_runs), instead_of(Come, "write_phase", _the_last_word_of_any)),
        cases=(
            "phases/are_fenced",
            "phases/a_later_claim_has_the_last_word",
            "progress/what_does_not_count_is_ignored",
        ),
        breaks=Promise.BY_THE_HOLDER,
        theme=Theme.PHASES,
    ),
    "a store that takes phases without looking at the lease": Mistake(
        ((_progress, "why_not_its_own", _without_its_lease),),
        cases=("phases/are_fenced", "progress/what_does_not_count_is_ignored"),
    ),
    "a store that takes phases while the lease is valid": Mistake(
        (instead_of(_progress, "why_not_its_own", _while_the_lease_is_valid),),
        cases=("phases/are_fenced", "progress/a_later_claim_stands_over_an_earlier"),
    ),
    "a store whose phases wait for locks": Mistake(
        (instead_of(_progress, "why_not_its_own", _not_while_locked),),
        cases=("phases/no_lock_is_waited_for",),
    ),
    "a store in which the first word on a phase counts": Mistake(
        (instead_of(Come, "write_phase", _the_first_word),),
        cases=("phases/begin_and_end", "phases/several_at_once", "phases/a_later_claim_has_the_last_word"),
    ),
    "a store in which a completed phase is never begun again": Mistake(
        (instead_of(Come, "write_phase", _completed_for_good),),
        cases=("phases/a_later_claim_has_the_last_word",),
    ),
    "a store in which what was long under way undoes a phase": Mistake(
        ((_rows_progress, "is_done", lambda *_: False),),
        cases=("phases/what_is_completed_stays_so",),
        breaks=Promise.PHASE_ONCE,
        theme=Theme.PHASES,
    ),
    "a store that lists phases by name": Mistake(
        (instead_of(Come, "phases_of", _by_name),),
        cases=("phases/begin_and_end",),
    ),
    "a store in which each attempt begins from the start": Mistake(
        (instead_of(Database, "take", _begins_anew),),
        cases=("phases/last_until_the_job_is_gone",),
        breaks=Promise.PHASE_ONCE,
        theme=Theme.PHASES,
    ),
    "a store in which each retry by hand begins from the start": Mistake(
        (instead_of(Database, "reopen", _reopened_from_the_start),),
        cases=("phases/last_until_the_job_is_gone", "phases/are_forgotten_from_the_start"),
    ),
    "a store that archives jobs without their phases": Mistake(
        (instead_of(Database, "write", _archived_without),),
        cases=("phases/last_until_the_job_is_gone", "phases/states_that_are_derived"),
    ),
    "a store in which no retry begins from the start": Mistake(
        ((Database, "forget_progress", lambda *_: None),),
        cases=("phases/are_forgotten_from_the_start",),
    ),
    "a store that forgets phases of what isn't retried": Mistake(
        (instead_of(_transaction_operations, "retry", _whatever_becomes_of_it),),
        cases=("phases/are_forgotten_from_the_start",),
    ),
    "a store that forgets logs from the start": Mistake(
        (
            (
                Come,
                "begin_anew",
                lambda come, job_id: [each.pop(job_id, None) for each in (come.phases, come.progress, come.logs)],
            ),
        ),
        cases=("phases/are_forgotten_from_the_start",),
    ),
    "a store that keeps phases of jobs that are gone": Mistake(
        ((Come, "forget", lambda *_: None),),
        cases=(
            "phases/last_until_the_job_is_gone",
            "logs/are_kept_with_the_outcome",
            "retention/all_that_is_beside_it_goes",
        ),
    ),
    "a store in which a job begins behind the phases of the one before": Mistake(
        (instead_of(Database, "replace", _with_what_was_there),),
        cases=("phases/a_job_that_is_replaced_begins_without",),
    ),
    "a store that shows phases as they are stored": Mistake(
        ((_listing, "shown_phases", lambda stored, _: tuple(stored)),),
        cases=("phases/states_that_are_derived",),
    ),
    "a store that gives phases as they are shown": Mistake(
        (instead_of(_transaction_operations, "fetch_phases", _shown),),
        cases=("phases/states_that_are_derived",),
    ),
    "a store whose progress never goes back": Mistake(
        (instead_of(Come, "write_progress", _greatest),),
        cases=("progress/the_last_word_counts", "progress/a_later_claim_stands_over_an_earlier"),
    ),
    "a store that keeps the message of the progress before": Mistake(
        (instead_of(Come, "write_progress", _with_the_message_before),),
        cases=("progress/the_last_word_counts",),
    ),
    "a store that keeps logs of lost claims": Mistake(
        (instead_of(_settle, "_settle", _also_of_the_lost),),
        cases=("logs/none_of_a_claim_that_was_lost",),
    ),
    "a store that keeps no logs of what gives way to a request": Mistake(
        (instead_of(Database, "write", _none_of_the_cancelled),),
        cases=("logs/of_continued_and_cancelled_jobs",),
    ),
    "a store that keeps one log for each attempt": Mistake(
        (instead_of(Come, "keep_log", _by_attempt),),
        cases=("logs/are_kept_with_the_outcome",),
    ),
    "a store that keeps all logs": Mistake(
        ((_rows, "KEPT_LOGS", 1000),),
        cases=("logs/the_newest_few",),
    ),
}
"""By name."""


async def _stores_nothing(keeper: StoredPhases, name: str, *_: object) -> None:
    if keeper._results is not None:
        keeper._results[name] = b"null"


async def _knows_nothing(keeper: StoredPhases) -> dict[str, bytes]:
    return {} if keeper._results is None else keeper._results


WORKERS_PHASES: dict[str, Mistake] = {
    "a worker that keeps results of phases to itself": Mistake(
        ((StoredPhases, "_complete", _stores_nothing),), breaks=Promise.PHASE_ONCE, theme=Theme.PHASES
    ),
    "a worker that doesn't look what earlier attempts have completed": Mistake(
        ((StoredPhases, "read", _knows_nothing),), breaks=Promise.PHASE_ONCE, theme=Theme.PHASES
    ),
}
"""By name: those of workers."""
