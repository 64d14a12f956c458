"""Stores that make mistakes with new jobs, transactions, notifications, and their own life."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.store_rules._life import StoreLife
from aioqueue.testing.memory import _insert, _store, _transaction
from aioqueue.testing.memory._rows import Database
from aioqueue.testing.memory._transaction import MemoryTransaction
from tests.known_mistakes.mistake import Mistake, instead_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from aioqueue.vocabulary._job import Inserted, NewJob

__all__ = ["PRODUCING"]


def _forgetting_the_finished(real: Callable[..., Any], database: Database, jobs: Sequence[NewJob]) -> Any:
    for new in jobs:
        if new.id in database.rows and not database.rows[new.id].live:
            del database.rows[new.id]
    return real(database, jobs)


def _in_the_past(new: NewJob, now: datetime) -> datetime:
    return _insert.due_at(now, new.run_at, new.delay)


def _one_by_one(real: Callable[..., Any], database: Database, jobs: Sequence[NewJob]) -> list[Inserted]:
    """What comes before a bad row stays."""
    return [result for new in jobs for result in real(database, [new])]


def _kept(transaction: MemoryTransaction, database: Database) -> None:
    if transaction._open:
        transaction.commit(database)


async def _stay_open(_: StoreLife[Any]) -> None:
    """Nothing is closed."""


def _telling(real: Callable[..., Any], database: Database, jobs: Sequence[NewJob]) -> Any:
    results = real(database, jobs)
    _insert.announce(database, list(database.uncommitted.values()))
    return results


PRODUCING: dict[str, Mistake] = {
    "a store that stores a finished job again": Mistake(
        (instead_of(_store, "insert", _forgetting_the_finished),),
        cases=("insert/repeating_after_the_end_stores_no_second_one",),
    ),
    "a store that leaves due times in the past": Mistake(
        ((_insert, "first_due", _in_the_past),),
        cases=("insert/a_due_time_in_the_past_is_now",),
    ),
    "a store in which unique keys aren't": Mistake(
        ((_insert, "key_holder", lambda *_: None),),
        cases=(
            "insert/unique_while_unfinished",
            "insert/concurrent_unique_inserts_make_one_job",
            "transaction/unique_keys",
        ),
    ),
    "a store in which a unique key is never free again": Mistake(
        ((_insert, "holds_key", lambda _: True),),
        cases=(
            "insert/unique_while_unfinished",
            "retry/two_with_one_unique_key",
        ),
    ),
    "a store that takes what isn't JSON": Mistake(
        ((_insert, "require_json", lambda _: None),),
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
        (instead_of(_transaction, "insert_uncommitted", _telling),),
        cases=("transaction/notifies_after_the_commit_only",),
    ),
    "a store that tells nobody": Mistake(
        ((Database, "tell", lambda *_: None),),
        cases=(
            "notifications/an_insert_is_told",
            "notifications/the_end_of_jobs_is_told",
            "notifications/a_taken_lease_is_told_to_its_owner",
        ),
    ),
    "a store that goes on when it's closed": Mistake(
        ((StoreLife, "close", _stay_open),),
        cases=("life/a_closed_store_says_so",),
    ),
}
