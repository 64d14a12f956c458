"""Stores that make mistakes with what people see and do."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.store_rules._cursors import read_cursor
from aioqueue.testing.memory import _listing, _operate, _stats, _stats_workers, _transaction_operations
from aioqueue.testing.memory._rows import Database
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification
from tests.known_mistakes.mistake import Mistake, instead_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._listing import ListOrder
    from aioqueue.vocabulary._workers import LeaseFacts

__all__ = ["LOOKING"]

_LAST = UUID(int=2**128 - 1)


def _any_cursor(order: ListOrder, cursor: str) -> tuple[UUID, float | None]:
    try:
        return read_cursor(order, cursor)
    except ValueError:
        return _LAST, None


def _with_old_attempts(real: Callable[..., Changed], database: Database, row: Row, now: datetime) -> Changed:
    attempt = row.attempt
    changed = real(database, row, now)
    row.attempt = attempt
    return changed


def _with_what_came_of_it(real: Callable[..., Changed], database: Database, row: Row, now: datetime) -> Changed:
    before = row.reschedules, row.started_at, row.outcome, row.output
    changed = real(database, row, now)
    row.reschedules, row.started_at, row.outcome, row.output = before
    return changed


def _all_but_running(real: Callable[..., Changed], database: Database, steps: Sequence[Row], **named: bool) -> Changed:
    running = any(row.state == StoredState.RUNNING for row in steps)
    return Changed.RUNNING if running else real(database, steps, **named)


def _all_alike(
    real: Callable[..., int], database: Database, worker: str, duration: float, *, extra: bool, **told: object
) -> int:
    del extra
    return real(database, worker, duration, extra=False, **told)


def _says_nothing(
    real: Callable[..., int], database: Database, worker: str, duration: float, *, extra: bool, **told: object
) -> int:
    del told
    return real(database, worker, duration, extra=extra)


def _only_valid(real: Callable[..., list[LeaseFacts]], database: Database) -> list[LeaseFacts]:
    return [each for each in real(database) if each.ends_in > 0]


LOOKING: dict[str, Mistake] = {
    "a store that takes any cursor": Mistake(
        ((_listing, "read_cursor", _any_cursor),),
        cases=("list/bad_cursors",),
    ),
    "a store that lists the oldest first": Mistake(
        ((_listing, "in_order", lambda rows, _: sorted(rows, key=lambda row: row.new.id)),),
        cases=("list/newest_first_live_and_archived",),
    ),
    "a store that doesn't count finished jobs": Mistake(
        ((_stats, "counted", lambda rows: [row for row in rows if row.live]),),
        cases=("stats/counts_by_type_and_state",),
    ),
    "a store that counts rows in unknown states": Mistake(
        ((_stats, "is_known", lambda _: True),),
        cases=("odd_rows/an_unknown_state",),
    ),
    "a store whose retry goes on with the old attempts": Mistake(
        (instead_of(_operate, "_retry", _with_old_attempts),),
        cases=("retry/with_all_attempts_and_the_history",),
    ),
    "a store whose retry keeps what came of the job before": Mistake(
        (instead_of(_operate, "_retry", _with_what_came_of_it),),
        cases=("retry/with_all_attempts_and_the_history",),
    ),
    "a store that doesn't tell of deleted jobs": Mistake(
        ((_operate, "gone", lambda _: Notification()),),
        cases=("notifications/deleted_jobs_are_told",),
    ),
    "a store whose retry takes a key that another job has": Mistake(
        ((_operate, "key_is_taken", lambda *_: False),),
        cases=("retry/a_held_unique_key",),
    ),
    "a store that doesn't delete what runs": Mistake(
        (instead_of(_operate, "_delete", _all_but_running),),
        cases=("delete/in_every_state", "chains/delete_takes_a_running_chain"),
    ),
    "a store that prunes whatever has finished": Mistake(
        ((_operate, "finished_before", lambda *_: True),),
        cases=("prune/only_what_is_old_enough",),
    ),
    "a store that doesn't tell of pruned jobs": Mistake(
        ((_operate, "gone", lambda _: Notification()),),
        cases=("prune/whoever_waits_is_told",),
    ),
    "a store that counts a worker once for each of its leases": Mistake(
        (instead_of(Database, "add_lease", _all_alike),),
        cases=("stats/workers_are_counted_once_each",),
    ),
    "a store that forgets what a worker says of itself": Mistake(
        (instead_of(Database, "add_lease", _says_nothing),),
        cases=("workers/leases_tell_what_their_worker_said",),
    ),
    "a store that shows valid leases only": Mistake(
        (instead_of(_transaction_operations, "leases", _only_valid),),
        cases=("workers/leases_that_have_run_out_are_shown",),
    ),
    "a store whose line has no order within a priority": Mistake(
        ((_stats_workers, "place", lambda row: row.new.priority),),
        cases=("workers/due_jobs_before_one",),
    ),
    "a store that fetches in another order": Mistake(
        (instead_of(_transaction_operations, "fetch", lambda real, *arguments: real(*arguments)[::-1]),),
        cases=("fetch/in_the_order_of_the_ids",),
    ),
}
