"""Stores that make mistakes with limits, and with what leaves them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from aioqueue.store_rules._gates import GateState
from aioqueue.testing.memory import _gates, _gates_limits, _recovery, _rows, _rows_gates, _store, _tend
from aioqueue.testing.memory._rows import Database
from aioqueue.testing.memory._rows_gates import gate_held_at
from aioqueue.vocabulary._gates import JOB_LIMIT, name_of
from aioqueue.vocabulary._job import StoredState
from tests.known_mistakes.mistake import Mistake, instead_of
from tests.simulation.network import Later
from tests.simulation.plan import Theme
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.store_rules._gates import Admission, Candidate
    from aioqueue.testing.memory._rows_gates import Gates
    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._gates import NewLimit

__all__ = ["LIMITS"]


def _only_by_settlements(real: Callable[..., None], gates: Gates, before: Any, row: Row | None) -> None:
    """What is deleted leaves no mark."""
    if row is not None:
        real(gates, before, row)


def _only_what_ran(real: Callable[..., bool], before: Any, row: Row) -> bool:
    return before.state == StoredState.RUNNING and real(before, row)


def _counted_before(real: Callable[..., Any], database: Database, *arguments: Any, **named: Any) -> Any:
    """It's counted who runs before the gates are locked, for which a claim may have to wait."""
    running = [gate for row in database.rows.values() if row.state == StoredState.RUNNING for gate in row.gates or ()]

    def take() -> Any:
        with patch.object(_gates, "count_at", lambda _, gate: running.count(gate)):
            return real(database, *arguments, **named)

    return Later(0.005, take)


def _only_other_states(before: Any, row: Row) -> bool:
    return row.state not in (StoredState.RUNNING, before.state)


def _held_when_it_comes(real: Callable[..., None], database: Database, row: Row) -> None:
    real(database, row)
    if JOB_LIMIT + row.new.type in database.gates.limits and row.state == StoredState.PENDING:
        database.gates.hold(row, JOB_LIMIT + row.new.type)


def _under_valid_leases(database: Database, gate: str) -> int:
    now = database.now()
    return sum(_gates.runs_at(row, gate) and database.valid(row.lease_id, now) for row in database.rows.values())


def _of_all_values(database: Database, gate: str) -> int:
    rows = [row for row in database.rows.values() if row.state == StoredState.RUNNING]
    return sum(name_of(each) == name_of(gate) for row in rows for each in row.gates or ())


def _also_what_waits_for_a_retry(row: Row, gate: str) -> bool:
    return row.state in (StoredState.PENDING, StoredState.RUNNING) and gate in (row.gates or ())


def _only_the_first(rows: Sequence[Row], number: int) -> list[Row]:
    return list(rows)[:number]


def _all_of_them(rows: Sequence[Row], number: int) -> list[Row]:
    del number
    return list(rows)


def _keeps_places(
    real: Callable[..., Admission], candidates: Sequence[Candidate], states: dict[str, GateState], limit: int
) -> Admission:
    """Who is held at one gate has a place at its others."""
    result, left = real(candidates, states, limit), {gate: replace(state) for gate, state in states.items()}
    gates: dict[UUID, tuple[str, ...]] = {each.id: each.gates for each in candidates}
    for job_id, closed in result.parked.items():
        for gate in set(gates[job_id]) - {closed}:
            free = left[gate].free
            left[gate].free = None if free is None else max(0, free - 1)
    return real(candidates, left, limit)


def _what_code_says(stored: object, limit: NewLimit) -> bool:
    del stored, limit
    return True


def _what_was_first(stored: object, limit: NewLimit) -> bool:
    del limit
    return stored is None


def _due(rows: object, row: Row, now: datetime) -> datetime:
    del rows
    return min(row.run_at, now)


def _untold(database: Database) -> None:
    database.gates.look(database.rows)


def _only_marks(database: Database, now: datetime) -> list[datetime]:
    return [now] if database.gates.marks else []


def _always(real: Callable[..., list[datetime]], database: Database, now: datetime) -> list[datetime]:
    """Wakes workers as long as somebody waits."""
    held = any(gate_held_at(row) is not None for row in database.rows.values())
    return [*real(database, now), *([now] if held else [])]


LIMITS: dict[str, Mistake] = {
    "a store that counts who runs before it locks gates": Mistake(
        (instead_of(_store, "claim", _counted_before),), breaks=Promise.NEVER_OVER, theme=Theme.GATES
    ),
    "a store without limits": Mistake(
        ((_gates, "state_of", lambda *_: GateState()),),
        cases=("limits/no_more_run_than_that", "limit_changes/types_share_one", "rates/no_more_start_than_that"),
    ),
    "a store whose deletions let nobody come": Mistake(
        (instead_of(_rows_gates, "left_for_good", _only_by_settlements),),
        cases=("exits/a_deletion", "exits/a_row_that_is_gone", "exits/one_that_has_come_and_is_deleted"),
    ),
    "a store in which only ends let others come": Mistake(
        ((_rows_gates, "has_left", lambda *_: False),),
        cases=(
            "exits/a_retry",
            "exits/a_reschedule",
            "exits/a_release",
            "exits/the_end_of_a_lease",
            "exits/a_recovery",
            "exits/one_that_has_come_and_is_put_off",
        ),
        breaks=Promise.NOT_KEPT,
        theme=Theme.GATES,
    ),
    "a store in which only what ran lets others come": Mistake(
        (instead_of(_rows_gates, "has_left", _only_what_ran),),
        cases=("exits/one_that_has_come_and_is_put_off", "several_gates/a_place_goes_on_to_who_can_use_it"),
    ),
    "a store in which nobody comes for what is put off": Mistake(
        ((_rows_gates, "has_left", _only_other_states),), cases=("exits/one_that_has_come_and_is_put_off",)
    ),
    "a store that holds jobs when they're enqueued": Mistake(
        (instead_of(Database, "add", _held_when_it_comes),),
        cases=("limits/no_more_run_than_that", "limits/a_place_that_is_left_is_taken"),
        breaks=Promise.NOT_KEPT,
        theme=Theme.GATES,
    ),
    "a store whose limits count valid leases": Mistake(
        ((_gates, "count_at", _under_valid_leases),),
        cases=("exits/a_recovery", "limits/future_ones_and_retries_wait_without_a_place"),
        breaks=Promise.NEVER_OVER,
        theme=Theme.GATES,
    ),
    "a store in which a retry keeps its place": Mistake(
        ((_gates, "runs_at", _also_what_waits_for_a_retry),),
        cases=("exits/a_retry", "exits/a_reschedule", "exits/a_release"),
    ),
    "a store whose limits count all values together": Mistake(
        ((_gates, "count_at", _of_all_values),),
        cases=("limit_changes/a_raised_one_lets_in_at_each_value", "several_gates/a_place_goes_on_to_who_can_use_it"),
    ),
    "a store that lets only the first come": Mistake(
        ((_gates, "first_of_each_type", _only_the_first),),
        cases=("exits/types_that_share_a_limit_come_together", "exits/a_place_is_not_lost_on_a_paused_type"),
    ),
    "a store in which who is held has places": Mistake(
        (instead_of(_gates, "admit", _keeps_places),),
        cases=("several_gates/one_that_is_held_at_one_takes_no_place_at_another",),
    ),
    "a store that lets nobody come when a limit is changed": Mistake(
        ((_gates_limits, "let_waiting_come", lambda *_: None),),
        cases=(
            "limit_changes/a_raised_one_lets_the_waiting_in",
            "limit_changes/a_removed_one_limits_nothing",
            "limits/nothing_runs_at_a_limit_of_none",
            "rates/a_changed_one_counts_from_then",
        ),
        breaks=Promise.NOT_KEPT,
        theme=Theme.GATES,
    ),
    "a store in which code undoes what people have changed": Mistake(
        ((_gates_limits, "is_news", _what_code_says),),
        cases=("limit_changes/what_people_change_stays",),
    ),
    "a store in which code never changes a limit": Mistake(
        ((_gates_limits, "is_news", _what_was_first),),
        cases=("limit_changes/what_people_change_stays", "limit_changes/people_have_their_own"),
    ),
    "a store that tells nobody of what has left": Mistake(
        ((_store, "look_at_gates", _untold),),
        cases=(
            "limits/a_place_that_is_left_is_taken",
            "limit_changes/a_raised_one_lets_the_waiting_in",
            "blocking_sequences/a_failed_member_keeps_it",
        ),
    ),
    "a store whose workers aren't woken for what has left": Mistake(
        ((_recovery, "when_gates_open", lambda *_: []),),
        cases=("limits/a_place_that_is_left_is_taken", "rates/workers_are_woken_for_the_next_token"),
    ),
    "a store whose workers aren't woken for tokens": Mistake(
        ((_recovery, "when_gates_open", _only_marks),),
        cases=("rates/workers_are_woken_for_the_next_token",),
    ),
    "a store that wakes workers for what is held": Mistake(
        (instead_of(_recovery, "when_gates_open", _always),), cases=("limits/no_more_run_than_that",)
    ),
    "a store whose upkeep passes over who is held": Mistake(
        ((_tend, "come_back", lambda *_: None),),
        cases=("limit_changes/upkeep_finds_who_was_passed_over",),
    ),
    "a store in which what is to run now has no precedence": Mistake(
        ((_rows, "first_of_held", _due),), cases=("held_at_gates/one_that_is_to_run_now_comes_first",)
    ),
    "a store in which what is put off stays at its gate": Mistake(
        ((_rows, "leave_gate", lambda _: None),), cases=("held_at_gates/one_that_is_put_off_waits_for_its_time",)
    ),
}
