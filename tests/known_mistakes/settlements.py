"""Stores that make mistakes with settlements, and with what is given back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from aioqueue.errors import RowRejected
from aioqueue.testing.memory import _lease, _rows, _settle, _store
from aioqueue.testing.memory._rows import Database
from aioqueue.vocabulary._job import SettlementKind, SettleResult, StoredState
from tests.known_mistakes.mistake import Mistake, instead_of
from tests.simulation.network import Later
from tests.simulation.plan import Theme
from tests.simulation.promises import Promise
from tests.simulation.store import FaultyStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._job import Claim, Settlement

__all__ = ["SETTLEMENTS"]


def _runs(row: Row, *_: object) -> bool:
    return row.state == StoredState.RUNNING


def _runs_under(row: Row, _: int, lease_id: int) -> bool:
    return row.state == StoredState.RUNNING and row.lease_id == lease_id


def _runs_by_claim(row: Row, claims: int, _: int) -> bool:
    return row.state == StoredState.RUNNING and row.claims == claims


def _ever_held(row: Row, claims: int, lease_id: int) -> bool:
    return row.claims == claims and row.lease_id == lease_id and row.live


def _valid_only(database: Database, lease_id: int, now: datetime, *, orphaned: bool) -> bool:
    return database.valid(lease_id, now) is not orphaned


def _without_reschedules(
    real: Callable[..., None], database: Database, row: Row, each: Settlement, *rest: Any, **named: Any
) -> None:
    real(database, row, each, *rest, **named)
    row.reschedules = 0


def _as_before(real: Callable[..., None], database: Database, row: Row, now: datetime) -> None:
    run_at = row.run_at
    real(database, row, now)
    row.run_at = run_at


def _keeping_the_lease(
    real: Callable[..., None], database: Database, lease_id: int, claims: Sequence[Claim], *, end: bool
) -> None:
    del end
    real(database, lease_id, claims, end=False)


def _own_lease_unseen(database: Database, lease_id: int, now: datetime, *, orphaned: bool) -> bool:
    return not orphaned or not database.valid(lease_id, now)


def _orphans_lease_unseen(database: Database, lease_id: int, now: datetime, *, orphaned: bool) -> bool:
    return orphaned or lease_id in database.leases


def _in_two_steps(real: Callable[..., Any], store: FaultyStore, settlements: Sequence[Settlement], *, orphaned: bool) -> Any:
    """Which leases aren't valid is looked up first, and believed when it's written."""
    if not orphaned:
        return real(store, settlements, orphaned=False)
    now = store.database.now()
    gone = {each.lease_id for each in settlements if not store.database.valid(each.lease_id, now)}

    def allows(database: Database, lease_id: int, now: datetime, *, orphaned: bool) -> bool:
        return orphaned and (lease_id in gone or not database.valid(lease_id, now))

    def write() -> Any:
        with patch.object(_settle, "lease_allows", allows):
            return real(store, settlements, orphaned=True)

    return Later(store.network.chance.uniform(0.02, 0.4), write)


def _same_claim(row: Row, each: Settlement, *, orphaned: bool) -> bool:
    """Whoever wrote it, and whatever."""
    del orphaned
    return row.written is not None and (row.written.claims, row.written.lease_id) == (each.claims, each.lease_id)


def _all_busy(real: Callable[..., Any], database: Database, settlements: Sequence[Settlement], *, orphaned: bool) -> Any:
    rows = [database.rows[each.id] for each in settlements if each.id in database.rows]
    if any(row.locked(database.now()) for row in rows):
        return [SettleResult(busy=True) for _ in settlements]
    return real(database, settlements, orphaned=orphaned)


def _all_refused(real: Callable[..., Any], database: Database, settlements: Sequence[Settlement], *, orphaned: bool) -> Any:
    try:
        for each in settlements:
            _settle.due_again(each, database.now())
    except RowRejected:
        return [SettleResult(busy=True) for _ in settlements]
    return real(database, settlements, orphaned=orphaned)


def _again_at_once(each: Settlement, now: datetime) -> datetime:
    del each
    return now


def _again_in_the_past(each: Settlement, now: datetime) -> datetime:
    return _settle.due_at(now, each.run_at, each.delay)


def _counting_reschedules(
    real: Callable[..., None], database: Database, row: Row, each: Settlement, *rest: Any, **named: Any
) -> None:
    real(database, row, each, *rest, **named)
    row.attempt += each.kind is SettlementKind.RESCHEDULED


def _without_archive(real: Callable[..., None], database: Database, row: Row, *rest: Any, **named: Any) -> None:
    real(database, row, *rest, **named)
    if not row.live:
        del database.rows[row.new.id]


def _using_the_attempt(real: Callable[..., None], database: Database, row: Row, now: datetime) -> None:
    started_at = row.started_at
    real(database, row, now)
    row.attempt, row.started_at = row.attempt + 1, started_at


def _still_started(real: Callable[..., None], database: Database, row: Row, now: datetime) -> None:
    started_at = row.started_at
    real(database, row, now)
    row.started_at = started_at


def _anybodys(_: Database, row: Row, claim: Claim, __: int) -> bool:
    del claim
    return row.state == StoredState.RUNNING


SETTLEMENTS: dict[str, Mistake] = {
    "a store whose claims don't fence": Mistake(
        ((_settle, "holds", _runs),),
        cases=(
            "settle/is_fenced_by_claims_and_lease",
            "settle/is_fenced_after_a_new_claim",
        ),
        breaks=Promise.BY_THE_HOLDER,
        theme=Theme.LATE,
    ),
    "a store that doesn't compare the number of a claim": Mistake(
        ((_settle, "holds", _runs_under),),
        cases=(
            "settle/is_fenced_by_claims_and_lease",
            "settle/is_fenced_after_a_new_claim",
        ),
    ),
    "a store that doesn't compare the lease of a claim": Mistake(
        ((_settle, "holds", _runs_by_claim),),
        cases=("settle/is_fenced_by_claims_and_lease",),
    ),
    "a store that settles for a lease that was taken": Mistake(
        ((_settle, "lease_allows", _own_lease_unseen),),
        cases=(
            "settle/is_fenced_when_the_lease_row_is_deleted",
            "take_expired/fences_the_old_owner_at_once",
        ),
        breaks=Promise.BY_THE_HOLDER,
        theme=Theme.RETURNING,
    ),
    "a store that settles orphans of a valid lease": Mistake(
        ((_settle, "lease_allows", _orphans_lease_unseen),),
        cases=(
            "take_expired/living_owners_cant_be_settled_as_orphans",
            "lease/an_orphans_settlement_after_a_late_renewal",
        ),
        breaks=Promise.NOT_TAKEN_EARLY,
        theme=Theme.RETURNING,
    ),
    "a store that settles orphans without their lease's lock": Mistake(
        (instead_of(FaultyStore, "settle_now", _in_two_steps),),
        breaks=Promise.NOT_TAKEN_EARLY,
        theme=Theme.RETURNING,
    ),
    "a store that leaves the lease of orphans it settled": Mistake(
        ((_settle, "end_lease_of_orphan", lambda *_: None),),
        breaks=Promise.NOT_AFTER_TAKING,
        theme=Theme.RETURNING,
    ),
    "a store that doesn't recognise repeats": Mistake(
        ((_settle, "is_repeated", lambda *_, **__: False),),
        cases=(
            "settle_blockers/repeating_an_end_counts_once",
            "settle_next_blockers/repeating_it",
            "settle/repeating_answers_as_the_first_time",
            "settle/repeating_a_batch_of_which_some_is_new",
            "chains/repeating_a_continuation",
            "chains/a_continuation_twice_in_one_batch",
        ),
        breaks=Promise.REPEATS_AGREE,
    ),
    "a store that takes a recovery for a repeat": Mistake(
        ((_settle, "is_repeated", _same_claim),),
        cases=(
            "settle/another_kind_isnt_a_repetition",
            "take_expired/fences_the_old_owner_at_once",
        ),
        breaks=Promise.REPEATS_AGREE,
    ),
    "a store in which one locked row makes a whole batch wait": Mistake(
        (instead_of(_store, "settle", _all_busy),),
        cases=("settle/a_locked_row_is_busy_and_its_neighbours_are_written", "chains/a_locked_step_is_busy"),
    ),
    "a store in which one delay that makes no sense stops its batch": Mistake(
        (instead_of(_store, "settle", _all_refused),),
        cases=("odd_rows/nonsense_in_settlements",),
    ),
    "a store that retries at once": Mistake(
        ((_settle, "due_again", _again_at_once),),
        cases=(
            "settle/retried",
            "settle/retried_at_a_time",
            "next_due/after_a_retry",
        ),
        breaks=Promise.DUE_FIRST,
    ),
    "a store that makes jobs due again in the past": Mistake(
        ((_settle, "due_again", _again_in_the_past),),
        cases=("settle/retried_at_a_time",),
    ),
    "a store in which a reschedule is an attempt": Mistake(
        (instead_of(Database, "write", _counting_reschedules),),
        cases=("settle/rescheduled_uses_no_attempt",),
        breaks=Promise.ATTEMPTS_COUNT,
    ),
    "a store that keeps all errors": Mistake(
        ((_rows, "KEPT_ERRORS", 1_000_000),),
        cases=("settle/keeps_the_newest_errors",),
    ),
    "a store that forgets finished jobs": Mistake(
        (instead_of(Database, "write", _without_archive),),
        cases=(
            "hold/a_lease_that_has_run_out_but_is_there",
            "settle/completed",
            "settle/failed",
            "settle/cancelled",
        ),
        breaks=Promise.NOTHING_LOST,
    ),
    "a store whose giving back uses an attempt": Mistake(
        (instead_of(Database, "give_back", _using_the_attempt),),
        cases=(
            "release/gives_the_attempt_back",
            "release/ending_gives_everything_back",
        ),
        breaks=Promise.ATTEMPTS_COUNT,
    ),
    "a store in which what was given back can't expire any more": Mistake(
        (instead_of(Database, "give_back", _still_started),),
        cases=("claim/a_second_claim_of_an_expired_job",),
        breaks=Promise.EXPIRY,
    ),
    "a store that gives back what is another's": Mistake(
        ((_lease, "may_give_back", _anybodys),),
        cases=("release/leaves_alone_what_it_doesnt_own",),
        breaks=Promise.ITS_OWN_BACK,
        theme=Theme.LATE,
    ),
    "a store in which a claim that was given back still counts": Mistake(
        ((_settle, "holds", _ever_held),),
        cases=("settle/is_fenced_after_a_release",),
    ),
    "a store that settles for valid leases only": Mistake(
        ((_settle, "lease_allows", _valid_only),),
        cases=("settle/counts_while_the_lease_exists_though_expired",),
        breaks=Promise.GOOD_CLAIMS_WRITE,
    ),
    "a store that doesn't count reschedules": Mistake(
        (instead_of(Database, "write", _without_reschedules),),
        cases=("settle/rescheduled_uses_no_attempt",),
        breaks=Promise.ALL_ACCOUNTED,
    ),
    "a store that leaves what was given back at its old place": Mistake(
        (instead_of(Database, "give_back", _as_before),),
        cases=("release/is_due_now",),
    ),
    "a store that keeps the lease of a worker that has ended": Mistake(
        (instead_of(_store, "release", _keeping_the_lease),),
        cases=("release/ending_gives_everything_back",),
        breaks=Promise.NOTHING_LEFT,
    ),
}
