"""Stores that make mistakes when a chain goes on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioqueue.errors import RowRejected
from aioqueue.store_rules._unique_keys import unique_hash
from aioqueue.testing.memory import (
    MemoryStore,
    _insert,
    _insert_decisions,
    _insert_rows,
    _settle,
    _settle_next,
    _settle_with,
    _store,
    _transaction_operations,
)
from aioqueue.testing.memory._rows import Database
from aioqueue.vocabulary._job import LostReason, SettlementKind, SettleResult, StoredState
from tests.known_mistakes.mistake import Mistake, instead_of
from tests.simulation.plan import Theme
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._job import ClaimedJob, NewJob, Settlement

__all__ = ["CHAINS"]


# -- how a chain goes on --------------------------------------------------------------------------------------------


def _next(real: Callable[..., Row], database: Database, row: Row, each: Settlement, now: datetime, **changes: Any) -> Row:
    made = real(database, row, each, now)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def _of_its_own(real: Callable[..., Row], *given: Any) -> Row:
    return _next(real, *given, chain_id=None)


def _of_the_step_before(real: Callable[..., Row], database: Database, row: Row, *rest: Any) -> Row:
    return _next(real, database, row, *rest, chain_id=row.new.id)


def _at_the_same_place(real: Callable[..., Row], database: Database, row: Row, *rest: Any) -> Row:
    return _next(real, database, row, *rest, position=row.position)


def _with_its_own_key(real: Callable[..., Row], database: Database, row: Row, each: Settlement, now: datetime) -> Row:
    made = real(database, row, each, now)
    assert each.next is not None
    made.new = replace(made.new, key=each.next.key)
    return made


def _at_once(real: Callable[..., Row], database: Database, row: Row, each: Settlement, now: datetime) -> Row:
    return _next(real, database, row, each, now, run_at=now)


def _with_its_types_key(real: Callable[..., Row], database: Database, row: Row, each: Settlement, now: datetime) -> Row:
    made = real(database, row, each, now)
    if made.unique_hash is not None:
        made.unique_hash = unique_hash(made.new.type, made.new.key or "")
    return made


def _after_the_end(real: Callable[..., Row], database: Database, row: Row, each: Settlement, now: datetime) -> Row:
    """The step has ended before it's known whether the next one can be stored."""
    try:
        return real(database, row, each, now)
    except RowRejected:
        row.state, row.finished_at = StoredState.CONTINUED, now
        raise


async def _free_for_a_moment(
    store: MemoryStore, settlements: Sequence[Settlement], *, orphaned: bool = False, tx: object | None = None
) -> Any:
    del tx
    database = store.database
    results = await store._verb("settle", lambda database: _settle.settle(database, settlements, orphaned=orphaned))
    following = [each.next.id for each in settlements if each.next is not None]
    rows = [database.rows[each] for each in following if each in database.rows]
    hashes = [row.unique_hash for row in rows]
    for row in rows:
        row.unique_hash = None
    for _ in range(3):
        await asyncio.sleep(0)
    for row, key in zip(rows, hashes, strict=True):
        row.unique_hash = key
    return results


def _without_the_next(_: Database, row: Row, each: Settlement, now: datetime) -> None:
    """It's forgotten, and the step has ended all the same."""
    del row, each, now


def _late_in(*states: StoredState) -> Callable[..., LostReason | None]:
    """What a worker that was lost continues with is stored, if its job is in one of the states."""

    def why_lost_to(
        real: Callable[..., LostReason | None], database: Database, row: Row, each: Settlement, *rest: Any, **named: Any
    ) -> LostReason | None:
        late = each.kind is SettlementKind.CONTINUED and row.state in states
        return None if late else real(database, row, each, *rest, **named)

    return why_lost_to


def _storing_it_again(
    real: Callable[..., Any], database: Database, settlements: Sequence[Settlement], *, orphaned: bool
) -> Any:
    for each in settlements:
        row = database.rows.get(each.id)
        if row is not None and row.state == StoredState.CONTINUED and each.next is not None:
            database.rows.pop(each.next.id, None)
            database.add(_settle_next.next_row(database, row, each, database.now()))
    return real(database, settlements, orphaned=orphaned)


def _storing_what_is_lost(
    real: Callable[..., Any], database: Database, settlements: Sequence[Settlement], *, orphaned: bool
) -> Any:
    results = real(database, settlements, orphaned=orphaned)
    for each, result in zip(settlements, results, strict=True):
        if each.next is not None and result.lost is not None and each.next.id not in database.rows:
            database.add(_insert_rows.make_row(each.next, database.now()))
    return results


def _a_hundred(real: Callable[..., Any], database: Database, settlements: Sequence[Settlement], *, orphaned: bool) -> Any:
    written = real(database, settlements[:100], orphaned=orphaned)
    return [*written, *(SettleResult() for _ in settlements[100:])]


def _all_refused(real: Callable[..., Any], database: Database, settlements: Sequence[Settlement], *, orphaned: bool) -> Any:
    if any(each.next is not None and each.next.id in database.rows for each in settlements):
        return [SettleResult(LostReason.ERROR, "an id is there already") for _ in settlements]
    return real(database, settlements, orphaned=orphaned)


def _one_after_the_other(real: Callable[..., Any], database: Database, ids: Sequence[UUID], **named: bool) -> Any:
    return [real(database, [each], **named)[0] for each in ids]


def _from_one(real: Callable[..., Row], new: NewJob, now: datetime) -> Row:
    made = real(new, now)
    made.position = 1
    return made


# -- where a step stands --------------------------------------------------------------------------------------------


def _without_its_place(real: Callable[..., ClaimedJob], *given: Any) -> ClaimedJob:
    claimed = real(*given)
    return replace(claimed, chain_id=claimed.id, position=0)


def _starting_a_chain(
    real: Callable[..., None], database: Database, row: Row, each: Settlement, *rest: Any, **named: Any
) -> None:
    real(database, row, each, *rest, **named)
    if not each.kind.finishes:
        row.chain_id, row.position = None, 0


CHAINS: dict[str, Mistake] = {
    "a store whose chains begin at 1": Mistake(
        (instead_of(_insert_decisions, "make_row", _from_one),),
        cases=("chains/a_plain_job_is_the_first_of_its_chain", "chains/the_next_step_takes_what_is_the_chains"),
    ),
    "a store that writes a hundred settlements at most": Mistake(
        (instead_of(_store, "settle", _a_hundred),),
        cases=("chains/large_batches_of_continuations", "settle/large_batches"),
    ),
    "a store that deletes one id after the other": Mistake(
        (instead_of(_transaction_operations, "delete", _one_after_the_other),),
        cases=("chains/several_ids_of_one_chain_in_one_call",),
    ),
    "a store that tells of what is due later as if it were due": Mistake(
        (instead_of(Database, "tell", lambda real, database, told: real(database, replace(told, delay=0.0))),),
        cases=("chains/the_next_step_is_told_with_its_delay",),
    ),
    "a store in which a continuation begins a chain of its own": Mistake(
        (instead_of(_settle_with, "next_row", _of_its_own),),
        cases=("chains/the_next_step_takes_what_is_the_chains", "chains/ends_by_any_steps_id"),
        breaks=Promise.FOUND,
        theme=Theme.CHAINS,
    ),
    "a store that takes the step before for the first": Mistake(
        (instead_of(_settle_with, "next_row", _of_the_step_before),),
        cases=("chains/the_next_step_takes_what_is_the_chains", "chains/a_lost_worker_in_the_middle"),
    ),
    "a store that doesn't count positions": Mistake(
        (instead_of(_settle_with, "next_row", _at_the_same_place),),
        cases=("chains/the_next_step_takes_what_is_the_chains", "chains/listed_from_the_first_step"),
        breaks=Promise.IN_ORDER,
        theme=Theme.CHAINS,
    ),
    "a store whose continuations have keys of their own": Mistake(
        (instead_of(_settle_with, "next_row", _with_its_own_key),),
        cases=("chains/the_next_step_takes_what_is_the_chains", "chains/of_a_chain_without_a_key"),
    ),
    "a store in which a continuation lets go of the unique key": Mistake(
        ((_settle_next, "inherited_hash", lambda _: None),),
        cases=(
            "settle_next_blockers/it_waits_and_holds_the_chains_key",
            "end/the_unique_key",
            "hold/the_outcome_may_go_on_and_have_children",
            "chains/the_unique_key_is_the_chains_until_it_ends",
            "chains/nobody_gets_the_key_between_two_steps",
        ),
        breaks=Promise.KEY_HELD,
        theme=Theme.CHAINS,
    ),
    "a store in which the unique key becomes one of the next type": Mistake(
        (instead_of(_settle_with, "next_row", _with_its_types_key),),
        cases=("chains/the_unique_key_is_the_chains_until_it_ends", "chains/nobody_gets_the_key_between_two_steps"),
    ),
    "a store in which a chain's unique key is free for a moment": Mistake(
        ((MemoryStore, "settle", _free_for_a_moment),),
        cases=("chains/nobody_gets_the_key_between_two_steps",),
    ),
    "a store that tells of the step that has the key": Mistake(
        ((_insert_decisions, "told_of", lambda row: row.new.id),),
        cases=("chains/the_unique_key_is_the_chains_until_it_ends", "chains/nobody_gets_the_key_between_two_steps"),
        breaks=Promise.KEY_HELD,
        theme=Theme.CHAINS,
    ),
    "a store that stores a pruned step again when its insert is repeated": Mistake(
        ((_insert, "gone_on", lambda *_: ()),),
        cases=("chains/repeating_an_insert_after_its_chain_went_on",),
    ),
    "a store in which the next step is always due at once": Mistake(
        (instead_of(_settle_with, "next_row", _at_once),),
        cases=("chains/the_next_step_may_be_due_later",),
    ),
    "a store that stores the next step again when that is repeated": Mistake(
        (instead_of(_store, "settle", _storing_it_again),),
        cases=("chains/repeating_a_continuation",),
    ),
    "a store in which the next step takes the place of any job": Mistake(
        ((_settle_next, "is_taken", lambda *_: False),),
        cases=("chains/a_next_id_that_is_there_is_refused_alone",),
    ),
    "a store that ends a step whose next can't be stored": Mistake(
        (instead_of(_settle_with, "next_row", _after_the_end),),
        cases=("chains/a_next_id_that_is_there_is_refused_alone", "chains/a_next_step_that_cant_be_stored"),
    ),
    "a store that forgets the next step": Mistake(
        ((_settle_with, "next_row", _without_the_next),),
        cases=("chains/the_next_step_takes_what_is_the_chains", "chains/among_all_kinds_in_one_batch"),
        breaks=Promise.ONE_NEXT,
        theme=Theme.CHAINS,
    ),
    "a store that continues what another has continued": Mistake(
        (instead_of(_settle, "why_lost_to", _late_in(StoredState.CONTINUED)),),
        cases=("chains/a_lost_worker_in_the_middle",),
        breaks=Promise.ONE_NEXT,
        theme=Theme.CHAINS,
    ),
    "a store that continues what has ended": Mistake(
        (instead_of(_settle, "why_lost_to", _late_in(StoredState.COMPLETED, StoredState.FAILED)),),
        cases=("chains/an_orphaned_step_can_end_its_chain",),
        breaks=Promise.ONE_END,
        theme=Theme.CHAINS,
    ),
    "a store in which an id that is taken stops the batch": Mistake(
        (instead_of(_store, "settle", _all_refused),),
        cases=("chains/a_next_id_that_is_there_is_refused_alone",),
    ),
    "a store that stores the next step of a lost one": Mistake(
        (instead_of(_store, "settle", _storing_what_is_lost),),
        cases=("chains/among_all_kinds_in_one_batch", "chains/what_is_written_about_a_deleted_chain"),
    ),
    "a store in which a retried step forgets its chain": Mistake(
        (instead_of(Database, "write", _starting_a_chain),),
        cases=("chains/tries_of_a_step_keep_its_place", "chains/a_lost_worker_in_the_middle"),
        breaks=Promise.FOUND,
        theme=Theme.CHAINS,
    ),
    "a store whose claims don't tell of the chain": Mistake(
        (instead_of(Database, "take", _without_its_place),),
        cases=("chains/the_next_step_takes_what_is_the_chains", "chains/tries_of_a_step_keep_its_place"),
        breaks=Promise.IN_ORDER,
        theme=Theme.CHAINS,
    ),
    "a store whose recovery doesn't tell of the chain": Mistake(
        (instead_of(Database, "recover", _without_its_place),),
        cases=("chains/a_lost_worker_in_the_middle",),
        breaks=Promise.IN_ORDER,
        theme=Theme.CHAINS,
    ),
}
