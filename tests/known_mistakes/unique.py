"""Stores that make mistakes with unique keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.store_rules._unique_keys import unique_hashes
from aioqueue.testing.memory import (
    _insert_decisions,
    _insert_keys,
    _listing,
    _operate_blockers,
    _resolve,
    _rows,
    _rows_leases,
    _settle_next,
)
from aioqueue.testing.memory._insert_decisions import Decisions
from aioqueue.testing.memory._rows import Database
from aioqueue.vocabulary._job import Inserted
from tests.known_mistakes.mistake import Mistake, instead_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._job import NewJob

__all__ = ["UNIQUE"]


def _with_old_attempts(real: Callable[..., None], database: Database, row: Row, *given: Any) -> None:
    before = row.attempt, row.reschedules, row.started_at
    real(database, row, *given)
    row.attempt, row.reschedules, row.started_at = before


def _not_waiting(
    real: Callable[..., Inserted], decisions: Decisions, new: NewJob, *, takes_over: Row | None = None
) -> Inserted:
    result = real(decisions, new, takes_over=takes_over)
    if decisions.taken.pop(new.id, None) is not None and not new.blockers:
        decisions.fresh[new.id].state, decisions.fresh[new.id].open_blockers = 1, 0
    return result


def _only_completed(real: Callable[..., Any], decisions: Decisions) -> Any:
    wanted = real(decisions)
    for edge in [edge for edges in wanted.values() for edge in edges if edge.job_id in decisions.taken]:
        edge.settled = False
    return wanted


def _window_ends(real: Callable[..., None], decisions: Decisions, new: NewJob, job_id: UUID) -> None:
    real(decisions, new, job_id)
    if new.unique is not None and new.unique.window is None:
        decisions.windows[unique_hashes(new)[0]] = _rows_leases.Window(job_id, decisions._now)


def _for_good(decisions: Decisions, jobs: Sequence[NewJob], _: Any) -> None:
    for place, new in enumerate(jobs):
        decisions.results.setdefault(place, Inserted(new.id, created=False))


UNIQUE: dict[str, Mistake] = {
    "a store in which a start doesn't free the key": Mistake(
        ((_insert_keys, "is_let_go_by_its_start", lambda _: False),),
        cases=(
            "unique/until_started_is_free_with_the_first_claim",
            "unique_table/each_state_and_option",
            "unique_replace/between_attempts_by_one_that_keeps_its_key_until_a_start",
        ),
    ),
    "a store that gives a started one's key to its next step": Mistake(
        ((_settle_next, "inherited_hash", lambda row: row.unique_hash),),
        cases=("unique/until_started_never_comes_back",),
    ),
    "a store that takes a key again that was kept until a start": Mistake(
        ((_rows, "kept_hash", lambda row: row.unique_hash),),
        cases=("unique/until_started_never_comes_back",),
    ),
    "a store whose windows count what has failed": Mistake(
        ((_insert_keys, "ended_well", lambda row: not row.live),),
        cases=("unique_window/no_other_end_counts", "unique_table/each_state_and_option"),
    ),
    "a store in which calls without a window mind it": Mistake(
        ((_insert_keys, "looks_at_windows", lambda new: new.unique is not None),),
        cases=("unique_window/what_has_completed_counts",),
    ),
    "a store in which a replacement without a window ends the earlier one": Mistake(
        (instead_of(Decisions, "_done", _window_ends),),
        cases=("unique_window/a_replacement_without_one_leaves_it",),
    ),
    "a store whose replacement keeps old attempts": Mistake(
        (instead_of(Database, "replace", _with_old_attempts),),
        cases=("unique_replace/it_gets_all_that_was_given",),
    ),
    "a store in which what takes a key over doesn't wait": Mistake(
        (instead_of(Decisions, "_store", _not_waiting),),
        cases=("unique_takeover/it_waits_however_the_other_ends", "unique_table/each_state_and_option"),
    ),
    "a store in which the old one's failure ends what took its key over": Mistake(
        (instead_of(Decisions, "wanted", _only_completed),),
        cases=("unique_takeover/it_waits_however_the_other_ends",),
    ),
    "a store in which a chain stays whose key another has taken over": Mistake(
        ((_operate_blockers, "needs", lambda _: True),),
        cases=("unique_takeover/a_chain_that_is_deleted_has_ended",),
    ),
    "a store whose cascade takes along what has only taken a key over": Mistake(
        ((_resolve, "needs", lambda _: True),),
        cases=(
            "unique_takeover/a_chain_that_is_deleted_has_ended",
            "unique_takeover/only_what_was_to_be_waited_for_keeps_a_chain",
        ),
    ),
    "a store that replaces a later step": Mistake(
        ((_insert_decisions, "can_be_replaced", lambda row: row.state < 2),),
        cases=("unique_takeover/from_a_later_step",),
    ),
    "a store that keeps implied jobs of a parent that isn't stored": Mistake(
        ((_insert_decisions, "implied_in_vain", lambda *_: set()),),
        cases=("unique_implied/of_a_job_whose_key_is_held", "unique_implied/among_the_children_of_a_settlement"),
    ),
    "a store that leaves out what is needed after all": Mistake(
        ((_insert_decisions, "decide_about_left_out", _for_good),),
        cases=("unique_implied/that_is_needed_after_all",),
    ),
    "a store that takes a chosen id as another type": Mistake(
        ((_insert_decisions, "is_of_another_type", lambda *_: False),),
        cases=(
            "unique/a_chosen_id_of_another_type",
            "unique/each_for_itself",
            "settle_children/one_whose_chosen_id_is_another_types_refuses_the_outcome",
        ),
    ),
    "a store that shows the last of a page twice": Mistake(
        ((_listing, "is_behind", lambda row, after, order: _listing._place(row, order)[1] <= after[0]),),
        cases=("list_orders/each_order",),
    ),
}
