"""Stores that make mistakes when jobs are ended from outside, or in transactions."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aioqueue.testing.memory import _insert, _lease, _settle, _settle_end, _settle_with, _store, _transaction
from aioqueue.testing.memory._rows import Database
from aioqueue.testing.memory._transaction import MemoryTransaction
from aioqueue.testing.memory._transaction_draft import Draft
from aioqueue.vocabulary._job import Settlement, SettlementKind, StoredState
from aioqueue.vocabulary._notification import Notification
from tests.known_mistakes.mistake import Mistake, instead_of
from tests.simulation.plan import Theme
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from datetime import datetime

    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._job import Ending, NewJob, SettleResult

__all__ = ["COMPLETING"]


def _as_its_worker_would(
    real: Callable[..., None], database: Database, row: Row, state: StoredState, *rest: Any, **named: Any
) -> None:
    lease_id = row.lease_id
    real(database, row, state, *rest, **named)
    row.lease_id = lease_id
    row.written = Settlement(id=row.new.id, claims=row.claims, lease_id=lease_id, kind=SettlementKind(int(state)))


def _orphans_at_any_time(
    real: Callable[..., Any], database: Database, row: Row, each: Settlement, now: datetime, *, orphaned: bool
) -> Any:
    return None if orphaned and row.claims == each.claims else real(database, row, each, now, orphaned=orphaned)


def _one_after_the_other(real: Callable[..., list[bool]], database: Database, endings: Sequence[Ending]) -> list[bool]:
    return [result for each in endings for result in real(database, [each])]


def _what_runs_only(real: Callable[..., list[bool]], database: Database, endings: Sequence[Ending]) -> list[bool]:
    rows = [database.rows.get(each.id) for each in endings]
    running = [row is not None and row.state == StoredState.RUNNING for row in rows]
    results = iter(real(database, [each for each, runs in zip(endings, running, strict=True) if runs]))
    return [next(results) if runs else False for runs in running]


def _whatever_is_there(real: Callable[..., list[bool]], database: Database, endings: Sequence[Ending]) -> list[bool]:
    """What has finished ends once more."""
    for each in endings:
        row = database.rows.get(each.id)
        if row is not None and not row.live:
            row.output = each.output
    return real(database, endings)


def _with_another(real: Callable[..., list[bool]], database: Database, endings: Sequence[Ending]) -> list[bool]:
    named = {each.id for each in endings}
    others = [row for row in database.rows.values() if row.state == StoredState.PENDING and row.new.id not in named]
    for row in others[:1]:
        database.end(row, StoredState.COMPLETED, database.now(), output=b"1")
    return real(database, endings)


def _without_leases(real: Callable[..., Notification], row: Row, following: Row | None, _: int, now: datetime) -> Notification:
    return real(row, following, 0, now)


def _whatever_becomes_of_it(
    real: Callable[..., SettleResult], database: Database, each: Settlement, *rest: Any, **named: Any
) -> SettleResult:
    result = real(database, each, *rest, **named)
    if result.lost is not None:
        _insert.store(database, each.children)
    return result


def _without_children(database: Database, jobs: Sequence[NewJob], needed: object) -> list[Any]:
    del database, jobs, needed
    return []


@asynccontextmanager
async def _kept(_: MemoryTransaction) -> AsyncGenerator[None]:
    """What is in the block stays, whatever becomes of it."""
    yield


def _before_the_commit(real: Callable[..., Any], draft: Draft, settlements: Sequence[Settlement], **named: Any) -> Any:
    for row in draft.base.rows.values():
        row.held = False
    return real(draft.base, settlements, **named)


COMPLETING: dict[str, Mistake] = {
    "a store that ends jobs in their worker's name": Mistake(
        (instead_of(Database, "end", _as_its_worker_would),),
        cases=("end/a_late_write_of_the_worker_is_lost",),
        breaks=Promise.REPEATS_AGREE,
        theme=Theme.WAITING,
    ),
    "a store that says that it has ended what goes on": Mistake(
        ((_store, "end", lambda _, endings: [True for _ in endings]),),
        cases=(
            "end/the_same_job_twice_in_one_call",
            "end/ends_are_told_by_the_chains_id",
            "end/a_blocked_one_waits_for_nothing_any_more",
            "end/one_of_several_at_once_counts",
            "end/completes_in_every_state",
            "end/what_isnt_live_isnt_ended",
        ),
        breaks=Promise.ANSWERED,
        theme=Theme.WAITING,
    ),
    "a store that ends another job as well": Mistake(
        (instead_of(_store, "end", _with_another),),
        breaks=Promise.ASKED_FOR,
        theme=Theme.WAITING,
    ),
    "a store that writes about orphans that were ended": Mistake(
        (instead_of(_settle, "why_lost_to", _orphans_at_any_time),),
        cases=("end/a_dead_workers_job",),
    ),
    "a store that locks the lease of what it holds": Mistake(
        ((_lease, "may_renew", lambda database, _: not any(row.held for row in database.rows.values())),),
        cases=("hold/its_lease_isnt_locked",),
    ),
    "a store that ends one job after the other": Mistake(
        (instead_of(_store, "end", _one_after_the_other),),
        cases=("end/what_cant_be_stored_with_it_refuses_all", "end/a_locked_row_is_contended"),
    ),
    "a store that ends running jobs only": Mistake(
        (instead_of(_store, "end", _what_runs_only),),
        cases=("end/completes_in_every_state", "end/fails_for_good_in_every_state", "end/continues_in_every_state"),
    ),
    "a store that ends what has ended": Mistake(
        (instead_of(_store, "end", _whatever_is_there),),
        cases=("end/what_isnt_live_isnt_ended", "end/a_repetition_says_that_its_over"),
    ),
    "a store that doesn't tell the worker of an end from outside": Mistake(
        (instead_of(_settle_end, "_told", _without_leases),),
        cases=("end/the_lease_of_a_running_one_is_told_of",),
    ),
    "a store that forgets children": Mistake(
        ((_settle_with, "store", _without_children), (_settle_with, "stored_ids", lambda *_: {})),
        cases=(
            "settle_children/with_an_orphans_outcome",
            "settle_children/are_told",
            "hold/repeating_it_beside_the_transaction",
            "settle_children/a_successor_with_the_jobs_own_unique_key",
            "settle_children/are_stored_with_the_outcome",
            "settle_children/repeating_stores_no_second_one",
        ),
        breaks=Promise.CHILDREN,
        theme=Theme.WAITING,
    ),
    "a store that stores the children of what is lost": Mistake(
        (instead_of(_settle, "_settle", _whatever_becomes_of_it),),
        cases=("settle_children/arent_stored_with_a_lost_claim",),
        breaks=Promise.CHILDREN,
        theme=Theme.WAITING,
    ),
    "a store that holds without locking": Mistake(
        ((_transaction, "hold", lambda *_: None),),
        cases=("hold/says_why_a_claim_isnt_held", "hold/from_then_on_the_lock_is_the_fence", "hold/others_wait_briefly"),
    ),
    "a store that holds for a lease that is gone": Mistake(
        ((_settle_end, "lease_allows", lambda *_, **__: True),),
        cases=("hold/says_why_a_claim_isnt_held",),
    ),
    "a store whose transactions settle before their commit": Mistake(
        (instead_of(_transaction, "settle", _before_the_commit),),
        cases=("hold/all_of_it_is_so_after_the_commit", "hold/a_rollback_leaves_the_claim_as_it_was"),
    ),
    "a store whose savepoints keep what is rolled back": Mistake(
        ((MemoryTransaction, "savepoint", _kept),),
        cases=(
            "savepoint/a_block_that_ends_is_part_of_the_transaction",
            "savepoint/a_block_that_raises_is_undone_alone",
            "savepoint/a_block_that_is_cancelled",
            "savepoint/an_outcome_in_a_block_that_is_undone",
        ),
    ),
    "a store that tells of a transaction's ends before its commit": Mistake(
        ((Draft, "tell", lambda draft, notification: draft.base.tell(notification)),),
        cases=("hold/listeners_hear_of_it_after_the_commit",),
    ),
    "a store whose transactions refuse nothing": Mistake(
        ((_settle, "refusal", lambda _: _settle.SettleResult()),),
        cases=(
            "hold/what_is_refused_leaves_the_transaction_as_it_was",
            "settle_next_blockers/an_unknown_blocker",
            "settle_children/one_that_waits_for_nothing_there_refuses_the_outcome",
            "settle_children/one_whose_chosen_id_is_another_types_refuses_the_outcome",
        ),
    ),
}
