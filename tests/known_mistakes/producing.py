"""Stores that make mistakes with new jobs, transactions, notifications, and their own life."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from aioqueue.store_rules._life import StoreLife
from aioqueue.store_rules._listeners import Listeners
from aioqueue.testing.memory import MemoryStore, _insert_decisions, _insert_keys, _insert_rows, _store, _transaction
from aioqueue.testing.memory._rows import Database
from aioqueue.testing.memory._transaction import MemoryTransaction
from aioqueue.testing.memory._transaction_draft import Draft
from tests.known_mistakes.mistake import Mistake, instead_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._job import Inserted, NewJob
    from aioqueue.vocabulary._notification import Notification

__all__ = ["PRODUCING"]

_LOGGER = logging.getLogger("aioqueue.testing.memory")


def _forgetting_the_finished(real: Callable[..., Any], database: Database, jobs: Sequence[NewJob], **named: bool) -> Any:
    for new in jobs:
        if new.id in database.rows and not database.rows[new.id].live:
            del database.rows[new.id]
    return real(database, jobs, **named)


def _in_the_past(new: NewJob, now: datetime) -> datetime:
    return _insert_rows.due_at(now, new.run_at, new.delay)


def _one_by_one(real: Callable[..., Any], database: Database, jobs: Sequence[NewJob], **named: bool) -> list[Inserted]:
    """What comes before a bad row stays."""
    return [result for new in jobs for result in real(database, [new], **named)]


def _kept(transaction: MemoryTransaction, database: Database) -> None:
    if transaction._open:
        transaction.commit(database)


async def _stay_open(_: StoreLife[Any]) -> None:
    """Nothing is closed."""


def _telling(draft: Draft, notification: Notification) -> None:
    draft.base.tell(notification)


def _at_once(real: Callable[..., Any], draft: Draft, jobs: Sequence[NewJob]) -> Any:
    real(draft.base, jobs)
    return real(draft, jobs)


def _without_tags(real: Callable[..., Row], new: NewJob, now: datetime) -> Row:
    return real(replace(new, tags=()), now)


def _without_its_batch(decisions: _insert_decisions.Decisions) -> Mapping[UUID, Row]:
    """What stands before it in its batch isn't looked at."""
    return decisions._database.rows


def _by_key_alone(rows: Mapping[UUID, Row], new: NewJob) -> Row | None:
    return next((row for row in rows.values() if row.new.key == new.key and row.live), None)


def _whole_seconds(real: Callable[..., datetime], new: NewJob, now: datetime) -> datetime:
    return real(new, now).replace(microsecond=0)


def _always_open(store: MemoryStore) -> SimpleNamespace:
    return SimpleNamespace(database=store.database, listeners=Listeners(asyncio.get_running_loop(), _LOGGER))


async def _open_again(real: Callable[..., Any], life: StoreLife[Any], make: Callable[[], Any]) -> None:
    if life.opened is None:
        await real(life, make)


PRODUCING: dict[str, Mistake] = {
    "a store that stores a finished job again": Mistake(
        (instead_of(_store, "insert", _forgetting_the_finished),),
        cases=("insert/repeating_after_the_end_stores_no_second_one",),
    ),
    "a store that leaves due times in the past": Mistake(
        ((_insert_rows, "first_due", _in_the_past),),
        cases=("insert/a_due_time_in_the_past_is_now",),
    ),
    "a store in which unique keys aren't": Mistake(
        ((_insert_decisions, "key_holder", lambda *_: None),),
        cases=(
            "insert_blockers/a_dependent_whose_unique_key_another_has",
            "insert/unique_while_unfinished",
            "insert/concurrent_unique_inserts_make_one_job",
            "transaction/unique_keys",
        ),
    ),
    "a store in which a unique key is never free again": Mistake(
        ((_insert_keys, "holds_key", lambda _: True),),
        cases=(
            "insert/unique_while_unfinished",
            "retry/two_with_one_unique_key",
        ),
    ),
    "a store that takes what isn't JSON": Mistake(
        ((_insert_rows, "require_json", lambda _: None),),
        cases=("life/one_bad_row_in_an_insert",),
    ),
    "a store that keeps the first part of a batch that it refuses": Mistake(
        (instead_of(_store, "insert", _one_by_one),),
        cases=(
            "life/one_bad_row_in_an_insert",
            "odd_rows/nonsense_in_inserts",
        ),
    ),
    "a store whose rollback keeps the jobs": Mistake(
        ((MemoryTransaction, "roll_back", _kept),),
        cases=(
            "transaction/a_rollback_leaves_nothing",
            "transaction/a_cancellation_leaves_nothing",
        ),
    ),
    "a store that tells of jobs before their commit": Mistake(
        ((Draft, "tell", _telling),),
        cases=("transaction/notifies_after_the_commit_only",),
    ),
    "a store that tells nobody": Mistake(
        ((Database, "tell", lambda *_: None),),
        cases=(
            "delete_blockers/what_a_cascade_takes_is_told",
            "notifications/an_insert_is_told",
            "notifications/the_end_of_jobs_is_told",
            "notifications/a_taken_lease_is_told_to_its_owner",
        ),
    ),
    "a store that goes on when it's closed": Mistake(
        ((StoreLife, "close", _stay_open),),
        cases=("life/a_closed_store_says_so",),
    ),
    "a store that forgets tags": Mistake(
        (instead_of(_insert_decisions, "make_row", _without_tags),),
        cases=("insert/keeps_what_it_was_given", "claim/gives_all_that_was_inserted"),
    ),
    "a store that doesn't look at what stands before a job in its batch": Mistake(
        ((_insert_decisions, "seen_by", _without_its_batch),),
        cases=("insert/the_same_id_twice_in_one_batch_is_one_job", "insert/unique_twice_in_one_batch"),
    ),
    "a store in which a unique key counts for all types": Mistake(
        ((_insert_decisions, "key_holder", _by_key_alone),),
        cases=("insert/unique_by_type_and_key_only",),
    ),
    "a store that keeps due times in whole seconds": Mistake(
        (instead_of(_insert_rows, "first_due", _whole_seconds),),
        cases=("insert/due_times_are_exact_and_in_utc",),
    ),
    "a store that answers in another order": Mistake(
        (instead_of(_store, "insert", lambda real, *arguments, **named: real(*arguments, **named)[::-1]),),
        cases=("insert/results_come_in_order",),
    ),
    "a store whose transactions are seen before their commit": Mistake(
        (instead_of(_transaction, "insert", _at_once),),
        cases=("transaction/nothing_is_visible_before_the_commit",),
    ),
    "a store that answers before it's opened": Mistake(
        ((MemoryStore, "_opened", property(_always_open)),),
        cases=("life/a_store_that_was_never_opened_says_so",),
    ),
    "a store that can be opened twice": Mistake(
        (instead_of(StoreLife, "open", _open_again),),
        cases=("life/opening_twice",),
    ),
}
