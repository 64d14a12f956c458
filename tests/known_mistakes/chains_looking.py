"""Stores that make mistakes with what people see of chains, and do to them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from unittest.mock import patch

from aioqueue.store_rules._unique_keys import unique_hash
from aioqueue.testing.memory import (
    MemoryStore,
    _insert,
    _insert_keys,
    _listing,
    _operate,
    _rows_chains,
    _settle,
    _transaction_operations,
)
from aioqueue.testing.memory._rows import Database
from aioqueue.testing.memory._rows_chains import Chains
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification
from tests.known_mistakes.mistake import Mistake, instead_of
from tests.simulation.plan import Theme
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._job import Job

__all__ = ["LOOKING_AT_CHAINS"]


# -- looking --------------------------------------------------------------------------------------------------------


def _if_it_is_there(real: Callable[..., list[Row]], chains: Chains, job_id: UUID) -> list[Row]:
    return real(chains, job_id) if job_id in chains._rows else []


async def _at_two_moments(store: MemoryStore, ids: Sequence[UUID]) -> Sequence[Job | None]:
    """The archive first, and then the live ones."""
    database = store.database
    archived = {row.new.id for row in database.rows.values() if not row.live}
    for _ in range(3):
        await asyncio.sleep(0)
    rows = {job_id: row for job_id, row in database.rows.items() if row.live or job_id in archived}
    with patch.object(database, "rows", rows):
        return _listing.fetch_ends(database, ids)


def _any_position(cursor: str) -> int:
    try:
        return int(cursor)
    except ValueError:
        return 0


# -- operating ------------------------------------------------------------------------------------------------------


def _retried_as_first(real: Callable[..., Changed], database: Database, row: Row, now: datetime) -> Changed:
    result = real(database, row, now)
    if result is Changed.DONE:
        row.chain_id, row.position = None, 0
    return result


def _that_job_alone(chains: Chains, job_id: UUID) -> Sequence[Row]:
    return [chains._rows[job_id]] if job_id in chains._rows else []


def _all_that_does_not_run(database: Database, steps: Sequence[Row], **_: bool) -> Changed:
    for row in steps:
        if row.state != StoredState.RUNNING:
            database.remove(row)
    return Changed.DONE


def _by_the_last_type(database: Database, row: Row) -> bool:
    if row.unique_hash is None:
        return False
    return _insert_keys.holder_of(database.rows, (unique_hash(row.new.type, row.new.key or ""),)) is not None


LOOKING_AT_CHAINS: dict[str, Mistake] = {
    "a store that takes an id for its own step's only": Mistake(
        ((_transaction_operations, "fetch_ends", _listing.fetch),),
        cases=("chains/ends_by_any_steps_id", "chains/an_orphaned_step_can_end_its_chain"),
    ),
    "a store that finds chains by their first ids only": Mistake(
        ((_rows_chains, "chain_of", lambda _, job_id: job_id),),
        cases=("chains/ends_by_any_steps_id", "chains/retry_means_the_last_step"),
    ),
    "a store that takes the first step for the end": Mistake(
        ((_listing, "the_end", lambda steps: steps[0] if steps else None),),
        cases=("chains/ends_by_any_steps_id", "chains/many_ends_at_once", "chains/an_end_never_falls_between_two_steps"),
        breaks=Promise.FOUND,
        theme=Theme.CHAINS,
    ),
    "a store that needs a chain's first step": Mistake(
        (instead_of(Chains, "steps_of", _if_it_is_there),),
        cases=("chains/the_end_after_its_first_steps_were_removed",),
    ),
    "a store that stores what was pruned again": Mistake(
        ((_insert, "gone_on", lambda *_: ()),),
        cases=("chains/repeating_an_insert_after_its_chain_went_on",),
    ),
    "a store that looks for a chain's end twice": Mistake(
        ((MemoryStore, "fetch_ends", _at_two_moments),),
        cases=("chains/an_end_never_falls_between_two_steps",),
    ),
    "a store that lists chains from their ends": Mistake(
        ((_rows_chains, "in_order", lambda rows: sorted(rows, key=lambda row: -row.position)),),
        cases=("chains/listed_from_the_first_step",),
    ),
    "a store whose pages of a chain overlap": Mistake(
        ((_listing, "follows", lambda row, position: row.position >= position),),
        cases=("chains/listed_from_the_first_step", "chains/cursors_last_while_a_chain_goes_on"),
    ),
    "a store that takes any text for a cursor of a chain": Mistake(
        ((_listing, "read_position_cursor", _any_position),),
        cases=("chains/bad_cursors_of_a_chain",),
    ),
    "a store whose operators mean single steps": Mistake(
        ((_operate, "named_by", _that_job_alone),),
        cases=(
            "chains/retry_means_the_last_step",
            "chains/retry_in_every_state_of_a_chain",
            "chains/run_now_means_the_live_step",
            "chains/delete_means_the_whole_chain",
            "chains/delete_takes_a_running_chain",
        ),
    ),
    "a store whose retry begins a chain of its own": Mistake(
        (instead_of(_operate, "_retry", _retried_as_first),),
        cases=("chains/retry_means_the_last_step",),
    ),
    "a store whose retry looks for another key than the chain's": Mistake(
        ((_operate, "key_is_taken", _by_the_last_type),),
        cases=("chains/a_retried_chain_and_its_unique_key",),
    ),
    "a store that deletes the last step only": Mistake(
        ((_operate, "removed", lambda steps: steps[-1:]),),
        cases=("chains/delete_means_the_whole_chain",),
    ),
    "a store that deletes the steps that don't run": Mistake(
        ((_operate, "_delete", _all_that_does_not_run),),
        cases=("chains/delete_takes_a_running_chain",),
    ),
    "a store that tells of continued steps as of ends": Mistake(
        ((_settle, "ended", lambda each: each.kind.finishes),),
        cases=("chains/the_next_step_is_told", "chains/only_ends_of_chains_are_told_as_finished"),
    ),
    "a store that tells of ends by the last step's id": Mistake(
        ((_settle, "waited_for", lambda row: row.new.id),),
        cases=("chains/the_end_of_a_chain_is_told_by_its_id", "chains/only_ends_of_chains_are_told_as_finished"),
    ),
    "a store that tells of deleted chains by the last step's id": Mistake(
        ((_operate, "gone", lambda rows: Notification(finished=frozenset(row.new.id for row in rows))),),
        cases=("chains/a_deleted_chain_is_told_by_its_id",),
    ),
    "a store that doesn't tell of what operators make due": Mistake(
        ((_operate, "due", lambda _: Notification()),),
        cases=("chains/a_retried_chain_is_told", "notifications/what_becomes_pending_again_is_told"),
    ),
}
