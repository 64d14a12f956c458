"""Stores that make mistakes with jobs that wait for others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioqueue.errors import BlockerNotFound
from aioqueue.testing.memory import (
    _insert,
    _insert_blockers,
    _insert_decisions,
    _insert_rows,
    _resolve,
    _settle,
    _settle_next,
    _settle_with,
    _store,
)
from aioqueue.testing.memory._insert_blockers import Waits
from aioqueue.testing.memory._rows import Database
from aioqueue.testing.memory._rows_blockers import Blockers, End
from aioqueue.vocabulary._blockers import ChainEnd, Tended
from tests.known_mistakes.mistake import Mistake, instead_of
from tests.simulation.plan import Theme
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioqueue.testing.memory._rows_blockers import Edge
    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._blockers import EndedBlocker
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["WAITING"]


# -- storing what waits ---------------------------------------------------------------------------------------------


def _without_unknown_ones(real: Callable[..., Waits], *given: Any) -> Waits:
    try:
        return real(*given)
    except BlockerNotFound:
        return Waits({}, (), ())


def _by_their_own_ids(jobs: Sequence[Any], _: object) -> dict[Any, Any]:
    return {new.id: new.id for new in jobs}


def _pending_all_the_same(row: Row, number: int) -> None:
    row.open_blockers, row.marked = number, row.marked or number > 0


def _as_if_none_had_ended(real: Callable[..., Waits], *arguments: Any) -> Waits:
    return replace(real(*arguments), ended=())


# -- telling --------------------------------------------------------------------------------------------------------


def _any_end(edge: Edge, end: End) -> bool:
    return end.end is not ChainEnd.COMPLETED and edge.job_id is not None


def _only_failures(edge: Edge, end: End) -> bool:
    return end.end is ChainEnd.FAILED and not edge.settled


def _with_its_own_cause(real: Callable[..., End], row: Row) -> End:
    end = real(row)
    return replace(end, cause="" if end.end is ChainEnd.COMPLETED else f"{row.new.type} {row.chain}: failed")


def _without_output(real: Callable[..., End], row: Row) -> End:
    return replace(real(row), output=None)


def _not_told_of_ends(real: Callable[..., ClaimedJob], *given: Any) -> ClaimedJob:
    return replace(real(*given), blockers=())


def _without_places(real: Callable[..., tuple[EndedBlocker, ...]], *given: Any) -> tuple[EndedBlocker, ...]:
    return tuple(replace(each, places=b"[]") for each in real(*given))


def _in_any_order(real: Callable[..., tuple[EndedBlocker, ...]], *given: Any) -> tuple[EndedBlocker, ...]:
    return real(*given)[::-1]


WAITING: dict[str, Mistake] = {
    "a store that settles what others wait for as any job": Mistake(
        ((_resolve, "is_marked", lambda _: False),),
        cases=(
            "insert_blockers/any_steps_id_stands_for_its_chain",
            "insert_blockers/while_its_blocker_ends",
            "insert_blockers/in_a_transaction",
            "list_blockers/of_a_chain_that_is_gone",
            "delete_blockers/one_that_nobody_waits_for_any_more",
            "delete_blockers/one_that_waits_holds_up_nothing",
            "retry_blockers/those_that_come_later_wait_for_the_new_end",
            "tend/pruned_steps_of_a_living_chain",
            "settle_next_blockers/its_chain_fails_with_its_blocker",
            "settle_children/may_wait_for_each_other_and_for_the_job_itself",
            "insert_blockers/a_repeated_insert_changes_nothing",
            "insert_blockers/is_blocked_until_its_blockers_have_completed",
            "end/those_that_wait_are_told",
        ),
        breaks=Promise.TOLD,
        theme=Theme.WAITING,
    ),
    "a store that counts two blockers of one batch as one": Mistake(
        ((_resolve, "resolved_of", lambda _: 1),),
        cases=(
            "settle_blockers/ends_at_the_same_moment",
            "settle_blockers/two_of_one_job_in_one_batch",
            "insert_blockers/two_blockers_with_one_unique_key",
        ),
        breaks=Promise.NOT_LEFT,
        theme=Theme.WAITING,
    ),
    "a store that doesn't write a mark that is there": Mistake(
        ((_insert_blockers, "has_to_be_written", lambda row: not row.marked),),
        cases=("insert_blockers/a_blocker_that_is_waited_for_can_only_end_after_the_commit",),
        breaks=Promise.TOLD,
        theme=Theme.WAITING,
    ),
    "a store whose cascades die half-way": Mistake(
        ((_store, "tend", lambda *_: Tended()),),
        cases=(
            "insert_blockers/what_fails_with_its_insert_takes_those_along_that_wait_for_it",
            "settle_blockers/more_dependents_than_one_portion",
            "settle_blockers/more_failures_than_one_portion",
            "settle_blockers/a_locked_dependent_is_told_later",
            "settle_next_blockers/what_has_ended_counts_at_once",
            "tend/goes_on_telling_one_level_and_portion_at_a_time",
            "tend/discards_in_portions",
            "tend/leaves_out_what_is_locked",
            "settle_blockers/a_failure_goes_all_the_way_down",
            "tend/a_cascade_whose_worker_died",
        ),
        breaks=Promise.NOT_LEFT,
        theme=Theme.WAITING,
    ),
    "a store in which a failure lets those run that need the output": Mistake(
        ((_resolve, "stops", lambda *_: False),),
        cases=(
            "insert_blockers/an_output_and_a_settled_one",
            "settle_blockers/settled_ones_stop_a_failure_on_its_way",
            "settle_blockers/a_worker_that_dies_on_the_last_attempt",
            "settle_blockers/a_good_and_a_bad_end_in_one_batch",
            "settle_blockers/listeners_hear_of_those_that_fail_with_it",
            "settle_blockers/a_failure_fails_those_that_need_the_output",
            "insert_blockers/what_has_failed_counts_at_once",
        ),
        breaks=Promise.NEEDS_OUTPUT,
        theme=Theme.WAITING,
    ),
    "a store in which a failure stops those that take it": Mistake(
        ((_resolve, "stops", _any_end),),
        cases=("settle_blockers/settled_ones_run_and_see_what_happened", "insert_blockers/settled_counts_either_way"),
        breaks=Promise.NEEDS_OUTPUT,
        theme=Theme.WAITING,
    ),
    "a store that tells those that have ended": Mistake(
        ((_resolve, "waits", lambda _: True),),
        cases=("settle_blockers/what_has_failed_isnt_touched_again",),
    ),
    "a store in which a cancellation is a good end": Mistake(
        ((_resolve, "stops", _only_failures),),
        cases=(
            "tend/what_it_ends_is_told",
            "settle_blockers/a_cancelled_one_fails_them_too",
            "tend/a_blocker_that_was_deleted_by_hand",
        ),
    ),
    "a store that doesn't wait": Mistake(
        ((_insert_rows, "hold_back", _pending_all_the_same), (_insert_decisions, "hold_back", _pending_all_the_same)),
        cases=(
            "insert_blockers/in_one_batch_with_its_blockers",
            "insert_blockers/is_told_when_it_can_run",
            "insert_blockers/a_locked_blocker_is_contended",
            "retry_blockers/in_a_state_that_isnt_an_end",
            "settle_blockers/another_attempt_isnt_an_end",
            "insert_blockers/is_blocked_until_its_blockers_have_completed",
            "settle_next_blockers/it_waits_for_children",
        ),
        breaks=Promise.NOT_EARLY,
        theme=Theme.WAITING,
    ),
    "a store that waits for what has ended": Mistake(
        (instead_of(_insert, "waits_of", _as_if_none_had_ended),),
        cases=("insert_blockers/what_has_completed_counts_at_once", "insert_blockers/what_has_failed_counts_at_once"),
    ),
    "a store that doesn't mind unknown blockers": Mistake(
        (instead_of(_insert, "waits_of", _without_unknown_ones),),
        cases=(
            "insert_blockers/in_a_transaction_a_refusal_leaves_it_as_it_was",
            "insert_blockers/an_unknown_blocker",
            "insert_blockers/a_deleted_blocker",
        ),
    ),
    "a store that doesn't mind the order of a batch": Mistake(
        ((_insert, "needed_of_batch", lambda jobs: {each.chain_id for job in jobs for each in job.blockers}),),
        cases=("insert_blockers/a_blocker_behind_it",),
    ),
    "a store that doesn't look who has a blocker's unique key": Mistake(
        ((_insert, "stored_ids", _by_their_own_ids), instead_of(_insert, "waits_of", _without_unknown_ones)),
        cases=(
            "insert_blockers/a_blocker_whose_unique_key_another_has",
            "insert_blockers/two_blockers_with_one_unique_key",
            "settle_children/a_unique_key_that_another_has",
        ),
    ),
    "a store in which each level names its own cause": Mistake(
        (instead_of(_resolve, "end_of", _with_its_own_cause),),
        cases=("settle_blockers/a_failure_goes_all_the_way_down", "end/those_that_wait_are_told"),
    ),
    "a store that loses outputs": Mistake(
        (instead_of(_resolve, "end_of", _without_output),),
        cases=(
            "settle_blockers/a_recovered_dependent",
            "delete_blockers/a_cascade_leaves_what_has_its_output",
            "end/with_children_and_a_next_that_waits",
            "end/in_a_transaction",
            "retry_blockers/one_of_whose_blockers_lives_again",
            "settle_blockers/a_continuation_inherits_those_that_wait",
            "end/those_that_wait_are_told",
        ),
        breaks=Promise.NEEDS_OUTPUT,
        theme=Theme.WAITING,
    ),
    "a store whose claims don't tell how blockers ended": Mistake(
        (instead_of(Database, "take", _not_told_of_ends),),
        cases=("settle_blockers/outputs_last_until_they_are_needed", "insert_blockers/settled_counts_either_way"),
    ),
    "a store that forgets where outputs stand": Mistake(
        (instead_of(Blockers, "ended", _without_places),),
        cases=("insert_blockers/places_come_back",),
    ),
    "a store that mixes outputs up": Mistake(
        (instead_of(Blockers, "ended", _in_any_order),),
        cases=("insert_blockers/many_blockers_of_one_job", "insert_blockers/places_come_back"),
    ),
    "a store in which those that wait are forgotten when a chain goes on": Mistake(
        ((_settle_next, "inherited_mark", lambda _: False),),
        cases=("settle_blockers/a_continuation_inherits_those_that_wait", "end/a_chain_that_goes_on_passes_on_who_waits"),
        breaks=Promise.TOLD,
        theme=Theme.WAITING,
    ),
    "a store that doesn't close what has been waited for": Mistake(
        ((_settle_with, "closes_edges", lambda _: False),),
        cases=("settle_blockers/a_dependent_that_continues", "end/completes_in_every_state"),
    ),
    "a store in which what was unblocked was due before": Mistake(
        ((_resolve, "ready", lambda row, _: row.run_at),),
        cases=("insert_blockers/due_and_expiry_count_from_the_unblocking",),
    ),
    "a store in which time to start runs out while a job is blocked": Mistake(
        ((_resolve, "expiry", lambda row, _: row.expires_at),),
        cases=("insert_blockers/due_and_expiry_count_from_the_unblocking", "tend/what_was_unblocked_has_its_time_from_there"),
    ),
    "a store that stores part of what it refuses": Mistake(
        ((_settle, "may_be_refused", lambda _: False),),
        cases=(
            "settle_children/one_that_cant_be_stored_refuses_the_outcome",
            "settle_children/one_that_waits_for_nothing_there_refuses_the_outcome",
            "settle_next_blockers/an_unknown_blocker",
        ),
    ),
    "a store in which chains wait for themselves": Mistake(
        ((_settle_with, "waits_for", lambda *_: False),),
        cases=(
            "end/in_a_transaction_what_is_refused_leaves_it_as_it_was",
            "settle_next_blockers/a_chain_that_would_wait_for_itself",
            "settle_next_blockers/chains_that_would_wait_for_each_other",
            "settle_next_blockers/chains_that_would_wait_for_each_other_at_the_same_moment",
            "end/what_cant_be_stored_with_it_refuses_all",
        ),
    ),
    "a store that looks for direct cycles only": Mistake(
        ((_settle_with, "waits_for", lambda _, chain_id, chains: chain_id in chains),),
        cases=(
            "settle_next_blockers/a_chain_that_would_wait_for_itself",
            "settle_next_blockers/chains_that_would_wait_for_each_other",
        ),
    ),
}
