"""Stores that make mistakes with sequences, rates and turns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioqueue.store_rules._gates import GateState
from aioqueue.testing.memory import _claim, _gates, _pauses, _rows_gates, _stats
from aioqueue.testing.memory._rows_gates import Gates, Member
from aioqueue.vocabulary._gates import GateKind, kind_of
from aioqueue.vocabulary._job import StoredState
from tests.known_mistakes.mistake import Mistake, instead_of
from tests.simulation.plan import Theme
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_gates import Limit
    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._gates import SequenceMember

__all__ = ["IN_ORDER"]


def _by_due_time(database: Database, gate: str, now: datetime) -> tuple[UUID | None, UUID | None]:
    if _gates.count_at(database, gate):
        return None, None
    chains = {chain for chain, member in database.gates.members.items() if member.gate == gate}
    due = [row for row in database.rows.values() if row.live and row.chain in chains and _gates.may_run(database, row, now)]
    first = min(due, key=lambda row: (row.new.priority, row.run_at, row.new.id), default=None)
    return (None if first is None else first.new.id), None


def _as_a_limit_of_one(real: Callable[..., GateState], database: Database, gate: str, now: datetime) -> GateState:
    if kind_of(gate) is GateKind.SEQUENCE:
        return GateState(free=1 - _gates.count_at(database, gate))
    return real(database, gate, now)


def _ends_with_each_step(real: Callable[..., None], gates: Gates, before: Any, row: Row | None) -> None:
    real(gates, before, row)
    if row is not None and row.state == StoredState.CONTINUED:
        gates.members.pop(before.chain, None)


def _forgets_who_was_cancelled(real: Callable[..., None], gates: Gates, before: Any, row: Row | None) -> None:
    real(gates, before, row)
    if row is not None and row.state == StoredState.CANCELLED:
        gates.members.pop(before.chain, None)
        row.new = replace(row.new, sequence=None)


def _whatever_is_paused(database: Database, row: Row, now: datetime) -> bool:
    del database
    return row.run_at <= now and (row.state == StoredState.PENDING or _gates.gate_held_at(row) is not None)


def _with(**changes: bool) -> Callable[..., None]:
    def enter(real: Callable[..., None], gates: Gates, row: Row, sequence: SequenceMember | None) -> None:
        real(gates, row, None if sequence is None else replace(sequence, **changes))

    return enter


def _saved(database: Database, gate: str, limit: Limit, now: datetime) -> datetime:
    used, burst = database.gates.rates.get(gate), limit.limit.burst or limit.limit.places
    return now - _gates.each_of(limit) * burst if used is None else used.arrival


def _without_burst(real: Callable[..., datetime], database: Database, gate: str, limit: Limit, now: datetime) -> datetime:
    each: timedelta = _gates.each_of(limit)
    return max(real(database, gate, limit, now), now - each)


def _from_the_first_again(real: Callable[..., list[Row]], database: Database, rows: Sequence[Row]) -> list[Row]:
    database.gates.cursors.clear()
    return real(database, rows)


IN_ORDER: dict[str, Mistake] = {
    "a store whose sequences go by urgency": Mistake(
        ((_gates, "turn_of", _by_due_time),),
        cases=("sequences/they_run_in_their_order", "sequences/a_retry_lets_others_pass"),
    ),
    "a store in which a sequence is a limit of one": Mistake(
        (instead_of(_gates, "state_of", _as_a_limit_of_one),),
        cases=("sequences/they_run_in_their_order",),
        breaks=Promise.IN_SEQUENCE,
        theme=Theme.GATES,
    ),
    "a store in which each step ends a chain's place": Mistake(
        (instead_of(_rows_gates, "left_for_good", _ends_with_each_step),),
        cases=("sequences/a_chain_has_its_place_to_its_end",),
        breaks=Promise.IN_SEQUENCE,
        theme=Theme.GATES,
    ),
    "a store in which what was cancelled leaves its sequence for ever": Mistake(
        (instead_of(_rows_gates, "left_for_good", _forgets_who_was_cancelled),),
        cases=("sequences/a_retried_one_is_in_it_again",),
    ),
    "a store in which no sequence is strict": Mistake(
        (instead_of(Gates, "enter", _with(strict=False)),),
        cases=(
            "strict_sequences/nobody_passes_a_retry",
            "strict_sequences/nobody_passes_a_future_one",
            "paused_sequences/nobody_passes_a_strict_one",
        ),
        breaks=Promise.IN_SEQUENCE,
        theme=Theme.GATES,
    ),
    "a store in which each sequence is strict": Mistake(
        (instead_of(Gates, "enter", _with(strict=True)),),
        cases=("sequences/a_retry_lets_others_pass", "strict_sequences/one_that_isnt_strict_lets_others_pass"),
    ),
    "a store in which a paused member keeps others": Mistake(
        ((_gates, "may_run", _whatever_is_paused),),
        cases=(
            "paused_sequences/a_paused_type_lets_others_pass",
            "paused_sequences/one_that_is_held_lets_others_pass",
            "paused_sequences/one_that_has_come_lets_others_pass",
            "paused_sequences/a_paused_key_that_nobody_serves_lets_others_pass",
        ),
        breaks=Promise.NOT_KEPT,
        theme=Theme.GATES,
    ),
    "a store in which a failed member keeps nobody": Mistake(
        ((Member, "keeps_others", property(lambda _: False)),),
        cases=("blocking_sequences/a_failed_member_keeps_it", "gate_statuses/a_sequence_says_whose_turn_it_is"),
        breaks=Promise.IN_SEQUENCE,
        theme=Theme.GATES,
    ),
    "a store in which a cancelled member keeps others": Mistake(
        ((Member, "keeps_others", property(lambda member: member.block and member.ended is not None)),),
        cases=("blocking_sequences/one_that_was_cancelled_keeps_nobody",),
    ),
    "a store in which each failed member keeps its sequence": Mistake(
        ((Member, "keeps_others", property(lambda member: member.ended == StoredState.FAILED)),),
        cases=("sequences/each_end_lets_the_next_come", "strict_sequences/a_failed_one_is_over"),
    ),
    "a store in which a start costs nothing": Mistake(
        ((_gates, "spend", lambda *_: None),),
        cases=("rates/no_more_start_than_that", "rates/each_attempt_costs_one"),
        breaks=Promise.NEVER_FASTER,
        theme=Theme.GATES,
    ),
    "a store that saves unused starts": Mistake(
        ((_gates, "arrival_of", _saved),),
        cases=("rates/unused_time_is_not_saved_beyond_the_burst",),
        breaks=Promise.NEVER_FASTER,
        theme=Theme.GATES,
    ),
    "a store in which one start comes at a time": Mistake(
        (instead_of(_gates, "arrival_of", _without_burst),),
        cases=("rates/no_more_start_than_that", "rates/unused_time_is_not_saved_beyond_the_burst"),
    ),
    "a store that serves one value until it has nothing left": Mistake(
        ((_claim, "fair_order", lambda _, rows: rows),),
        cases=("fairness/one_of_each_comes_before_the_second_of_any", "fairness/a_round_goes_on_where_the_last_claim_ended"),
    ),
    "a store in which each claim begins with the same value": Mistake(
        (instead_of(_claim, "fair_order", _from_the_first_again),),
        cases=("fairness/a_round_goes_on_where_the_last_claim_ended",),
    ),
    "a store whose workers aren't woken for what waits for its turn": Mistake(
        ((_pauses, "is_in_fair_lane", lambda _: False),), cases=("fairness/what_waits_for_its_turn_is_due",)
    ),
    "a store for which nothing is late that waits for its turn": Mistake(
        ((_stats, "is_in_fair_lane", lambda _: False),),
        cases=("fairness/the_oldest_that_waits_for_its_turn_counts_as_ready",),
    ),
    "a store for which what is held at a limit is late": Mistake(
        ((_stats, "is_in_fair_lane", lambda row: row.held_by is not None),),
        cases=("fairness/the_oldest_that_waits_for_its_turn_counts_as_ready",),
    ),
}
