"""Stores that make mistakes with what no claim leads to, and with what operators do to jobs that wait for others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aioqueue.testing.memory import (
    _listing_blockers,
    _operate,
    _operate_blockers,
    _store,
    _tend,
    _transaction_operations,
)
from aioqueue.testing.memory._rows import Database
from aioqueue.testing.memory._rows_blockers import End
from aioqueue.vocabulary._blockers import ChainEnd, Tended
from aioqueue.vocabulary._job import StoredState
from tests.known_mistakes.mistake import Mistake, instead_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._blockers import Blocker

__all__ = ["TENDING"]


# -- tending --------------------------------------------------------------------------------------------------------


def _as_if_it_were_good(real: Callable[..., End | None], database: Database, chain_id: UUID) -> End | None:
    end = real(database, chain_id)
    left = any(row.chain == chain_id for row in database.rows.values())
    return End(chain_id, ChainEnd.COMPLETED) if left and end is not None and end.end is ChainEnd.DELETED else end


def _what_waits_for_nothing(row: Row, now: datetime) -> bool:
    return row.state == StoredState.PENDING and not row.started_at and row.expires_at is not None and row.expires_at <= now


def _whatever_is_late(row: Row, now: datetime) -> bool:
    return row.state in (StoredState.HELD, StoredState.PENDING) and row.expires_at is not None and row.expires_at <= now


def _all_that_were_told(database: Database, _: int) -> None:
    for chain_id in [each for each, end in database.blockers.ends.items() if not end.untold]:
        database.forget(chain_id)


def _whatever_has_finished(row: Row | None) -> bool:
    return row is None or not row.live


def _for_ever(real: Callable[..., Tended], *given: Any) -> Tended:
    return replace(real(*given), more=True)


# -- operating ------------------------------------------------------------------------------------------------------


def _retried_without_looking(database: Database, row: Row) -> int:
    del database, row
    return 0


def _forgetting_its_end(real: Callable[..., None], database: Database, row: Row) -> None:
    real(database, row)
    database.forget(row.chain)


def _as_a_failure(real: Callable[..., None], database: Database, row: Row, *, cascade: bool) -> None:
    real(database, row, cascade=cascade)
    end = database.blockers.ends.get(row.chain)
    if end is not None:
        database.remember(replace(end, take_along=False))


def _every_page(real: Callable[..., list[Blocker]], database: Database, job_id: Any, limit: int, _: int) -> list[Blocker]:
    return real(database, job_id, limit, -1)


def _all_edges(database: Database, chain_id: UUID, _: int) -> list[Blocker]:
    return _listing_blockers._shown(database, sorted(database.blockers.on({chain_id}), key=lambda edge: edge.job_id))


TENDING: dict[str, Mistake] = {
    "a store that takes a continued step for the end": Mistake(
        (instead_of(_tend, "end_found", _as_if_it_were_good),),
        cases=("tend/a_chain_whose_last_step_was_deleted_by_hand",),
    ),
    "a store that doesn't look for what ended unseen": Mistake(
        ((_tend, "look_for_ends", lambda _: None),),
        cases=(
            "tend/what_it_makes_pending_is_told",
            "tend/a_blocker_that_was_deleted_by_hand",
            "tend/a_dependent_that_was_deleted_by_hand",
        ),
    ),
    "a store that lets blocked jobs wait past their time": Mistake(
        ((_tend, "is_never_started", _what_waits_for_nothing),),
        cases=("tend/discards_what_was_never_started_in_time",),
    ),
    "a store that discards what was started before": Mistake(
        ((_tend, "is_never_started", _whatever_is_late),),
        cases=("tend/never_discards_what_was_started",),
    ),
    "a store that forgets how chains ended too soon": Mistake(
        ((_tend, "forget", _all_that_were_told),),
        cases=("tend/forgets_ends_that_nobody_needs",),
    ),
    "a store that forgets what failed jobs have waited for": Mistake(
        ((_tend, "has_done_with", _whatever_has_finished),),
        cases=("tend/failed_ones_keep_what_they_waited_for",),
    ),
    "a store that never has done with tending": Mistake(
        (instead_of(_store, "tend", _for_ever),),
        cases=("tend/with_nothing_to_do", "tend/forgets_ends_that_nobody_needs"),
    ),
    "a store that deletes what others wait for": Mistake(
        ((_operate, "staying", lambda *_: set[UUID]()),),
        cases=("delete_blockers/one_that_others_wait_for_stays",),
    ),
    "a store whose cascade fails those that wait": Mistake(
        (instead_of(_operate, "note_deletion", _as_a_failure),),
        cases=("delete_blockers/with_all_that_wait_for_it", "delete_blockers/a_cascade_takes_whole_chains"),
    ),
    "a store that retries without looking at blockers": Mistake(
        ((_operate, "wait_again", _retried_without_looking), (_operate_blockers, "wait_again", _retried_without_looking)),
        cases=(
            "end/what_failed_outside_can_be_retried",
            "retry_blockers/one_that_failed_through_a_blocker",
            "retry_blockers/one_whose_blocker_is_gone",
        ),
    ),
    "a store whose retry takes nobody along": Mistake(
        ((_operate, "retry_dependents", lambda *_: []),),
        cases=(
            "retry_blockers/with_those_that_failed_through_it",
            "retry_blockers/several_with_those_that_failed_through_both",
        ),
    ),
    "a store whose retry with cascade takes keys that others have": Mistake(
        ((_operate_blockers, "key_is_taken", lambda *_: False),),
        cases=("retry_blockers/a_cascade_leaves_those_whose_key_another_has",),
    ),
    "a store whose retry takes those along that failed themselves": Mistake(
        ((_operate_blockers, "failed_through", lambda row: row.state == StoredState.FAILED),),
        cases=("retry_together/a_cascade_leaves_those_that_failed_otherwise",),
    ),
    "a store whose retry forgets what it told": Mistake(
        (instead_of(_operate, "live_again", _forgetting_its_end),),
        cases=("retry_blockers/what_was_told_before_stays_told",),
    ),
    "a store whose pages of blockers overlap": Mistake(
        (instead_of(_transaction_operations, "list_blockers", _every_page),),
        cases=("list_blockers/what_a_job_waits_for",),
    ),
    "a store that lists those that were told as waiting": Mistake(
        ((_transaction_operations, "list_dependents", _all_edges),),
        cases=("list_blockers/who_waits_for_a_chain",),
    ),
}
