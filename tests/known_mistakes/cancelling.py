"""Stores and workers that make mistakes when chains are asked to end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioqueue.store_rules._cancelling import as_cancelled, asked_to_end
from aioqueue.testing.memory import _lease, _operate_cancel, _rows, _settle, _settle_end, _tend, _transaction_operations
from aioqueue.testing.memory._rows import Database
from aioqueue.testing.memory._transaction_draft import Draft
from aioqueue.vocabulary._job import Settlement, SettlementKind, StoredState
from aioqueue.worker._holdings import Holdings, Slot
from aioqueue.worker._outcome import Outcome
from tests.known_mistakes.mistake import Mistake, Patch, instead_of
from tests.simulation.plan import Theme
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._answers import Cancellation
    from aioqueue.vocabulary._job import Claim, SettleResult
    from aioqueue.vocabulary._notification import Notification
    from aioqueue.worker._stop_reason import StopReason

__all__ = ["CANCELLING", "WORKERS_CANCELLING"]


def _giving_way(function: Callable[[Settlement], bool]) -> tuple[Patch, ...]:
    return (_settle, "gives_way", function), (_rows, "gives_way", function)


def _again(each: Settlement) -> bool:
    return not each.kind.finishes


def _every_failure(each: Settlement) -> bool:
    return not each.kind.finishes or each.kind is SettlementKind.FAILED


def _one_by_one(real: Callable[..., list[Any]], database: Database, ids: Sequence[UUID], reason: str) -> list[Any]:
    return [result for each in ids for result in real(database, [each], reason)]


def _the_last_reason(real: Callable[..., Cancellation], database: Database, row: Row, *rest: Any) -> Cancellation:
    row.cancel_reason = None
    return real(database, row, *rest)


def _as_if_it_was_lost(real: Callable[..., dict[Any, Any]], database: Database, lease_id: int, held: Sequence[Claim]) -> Any:
    lost = real(database, lease_id, held)
    rows = [(claim, database.rows.get(claim.id)) for claim in held]
    asked = [claim for claim, row in rows if row is not None and row.cancel_reason is not None]
    return {**dict.fromkeys(asked, _settle.LostReason.CANCELLED), **lost}


def _not_said(real: Callable[..., SettleResult], *arguments: Any, **named: Any) -> SettleResult:
    return replace(real(*arguments, **named), cancelled=False)


def _without_its_error(settlement: Settlement, reason: str, now: datetime) -> Settlement:
    return replace(as_cancelled(settlement, reason, now), error=asked_to_end(reason, now))


def _still_asked(real: Callable[..., None], database: Database, row: Row, *rest: Any) -> None:
    real(database, row, *rest)
    if row.errors and row.errors[-1].type == "Cancelled":
        row.cancel_reason = row.errors[-1].message


def _without_leases(real: Callable[..., None], database: Database, notification: Notification) -> None:
    real(database, replace(notification, leases=frozenset()))


def _quietly(real: Callable[..., None], database: Database, ended: Collection[Row], now: datetime) -> None:
    del ended
    real(database, [], now)


def _what_is_due_only(real: Callable[..., Cancellation], database: Database, row: Row, reason: str, now: datetime) -> Any:
    if row.state == StoredState.HELD or row.run_at > now:
        return _operate_cancel.Cancellation.CANCELLING
    return real(database, row, reason, now)


def _the_row_itself(real: Callable[..., list[Any]], database: Database, ids: Sequence[UUID], reason: str) -> list[Any]:
    """An earlier step of a chain has ended."""
    rows = [database.rows.get(each) for each in ids]
    over = [row is not None and not row.live for row in rows]
    results = iter(real(database, [each for each, ended in zip(ids, over, strict=True) if not ended], reason))
    return [_operate_cancel.Cancellation.FINISHED if ended else next(results) for ended in over]


CANCELLING: dict[str, Mistake] = {
    "a store that settles without looking at requests": Mistake(
        ((_settle, "asked_when_settled", lambda *_: None),),
        cases=(
            "settle_cancelled/what_would_be_pending_is_cancelled",
            "settle_cancelled/without_a_request_all_is_as_ever",
            "settle_cancelled/the_next_is_cancelled_unstarted",
            "settle_cancelled/those_that_wait_are_told",
            "settle_cancelled/the_job_of_a_lost_worker",
            "cancel/the_first_reason_counts",
            "cancel/a_running_row_that_stays_locked",
        ),
        breaks=Promise.ENDS_AS_ASKED,
        theme=Theme.CANCELLING,
    ),
    "a store that gives back without looking at requests": Mistake(
        ((_lease, "asked_when_given_back", lambda *_: None),),
        cases=("settle_cancelled/giving_back_ends_it", "cancel/reasons_are_bounded"),
        breaks=Promise.ENDS_AS_ASKED,
        theme=Theme.CANCELLING,
    ),
    "a store in which chains that were asked to end go on": Mistake(
        ((_settle, "changes_it", _settle.gives_way),),
        cases=("settle_cancelled/the_next_is_cancelled_unstarted", "settle_cancelled/the_next_behind_a_blocker"),
        breaks=Promise.ENDS_AS_ASKED,
        theme=Theme.CANCELLING,
    ),
    "a store that lets chains go on that somebody else continues": Mistake(
        ((_settle_end, "asked_why", lambda *_: None),),
        cases=("settle_cancelled/ending_it_from_outside",),
    ),
    "a store that cancels what is running": Mistake(
        ((_operate_cancel, "is_running", lambda _: False),),
        cases=("cancel/what_is_running_is_asked", "cancel/in_a_transaction", "settle_cancelled/what_is_chosen_stands"),
        breaks=Promise.ONE_HOLDER,
        theme=Theme.CANCELLING,
    ),
    "a store that cancels what was failed on purpose": Mistake(
        _giving_way(_every_failure),
        cases=("settle_cancelled/what_is_chosen_stands",),
        breaks=Promise.ENDS_AS_ASKED,
        theme=Theme.CANCELLING,
    ),
    "a store in which failures yield to no request": Mistake(
        _giving_way(_again),
        cases=("settle_cancelled/what_would_be_pending_is_cancelled",),
        breaks=Promise.ENDS_AS_ASKED,
        theme=Theme.CANCELLING,
    ),
    "a store that doesn't say what was cancelled": Mistake(
        (instead_of(_settle, "_settle", _not_said),),
        cases=("settle_cancelled/without_a_request_all_is_as_ever", "settle_cancelled/the_job_of_a_lost_worker"),
    ),
    "a store that keeps the reason in place of the error": Mistake(
        ((_rows, "as_cancelled", _without_its_error),),
        cases=("settle_cancelled/what_would_be_pending_is_cancelled",),
    ),
    "a store whose renewals don't say what was asked": Mistake(
        ((_lease, "asked_to_stop", lambda *_: {}),),
        cases=(
            "cancel/what_is_running_is_asked",
            "cancel/in_a_transaction",
            "cancel/a_running_row_that_stays_locked",
            "cancel/a_transaction_that_holds_it",
        ),
        breaks=Promise.STOPS_WHEN_ASKED,
        theme=Theme.CANCELLING,
    ),
    "a store in which what was asked to end is lost": Mistake(
        (instead_of(_lease, "lost", _as_if_it_was_lost),),
        cases=("cancel/what_is_running_is_asked",),
    ),
    "a store in which the last reason counts": Mistake(
        (instead_of(_operate_cancel, "_cancel", _the_last_reason),),
        cases=("cancel/the_first_reason_counts",),
    ),
    "a store that keeps any reason": Mistake(
        ((_operate_cancel, "kept_reason", lambda reason: reason),),
        cases=("cancel/reasons_are_bounded",),
    ),
    "a store that retries with the old request": Mistake(
        (instead_of(Database, "reopen", _still_asked),),
        cases=("cancel/a_retry_forgets_it",),
    ),
    "a store that keeps requests when chains have ended": Mistake(
        ((Database, "forget_request", lambda *_: None),),
        cases=("cancel/a_row_that_stays_locked",),
    ),
    "a store that cancels due jobs only": Mistake(
        (instead_of(_operate_cancel, "_cancel", _what_is_due_only),),
        cases=("cancel/what_waits_never_starts", "cancel/any_steps_id_means_the_chain"),
        breaks=Promise.ANSWERED,
        theme=Theme.CANCELLING,
    ),
    "a store that looks at one step of a chain only": Mistake(
        (instead_of(_transaction_operations, "cancel", _the_row_itself),),
        cases=("cancel/any_steps_id_means_the_chain", "settle_cancelled/the_next_is_cancelled_unstarted"),
    ),
    "a store that cancels one after the other": Mistake(
        (instead_of(_transaction_operations, "cancel", _one_by_one),),
        cases=("cancel/those_that_wait_for_each_other", "cancel/any_steps_id_means_the_chain"),
    ),
    "a store that cancels in secret": Mistake(
        (instead_of(_operate_cancel, "tell_of_requested", _quietly),),
        cases=("cancel/the_end_is_told", "cancel/those_that_can_run_are_told"),
        breaks=Promise.TOLD,
        theme=Theme.CANCELLING,
    ),
    "a store that doesn't tell leases what was asked": Mistake(
        (instead_of(Database, "tell", _without_leases),),
        cases=("cancel/its_lease_is_told", "cancel/a_running_row_that_stays_locked"),
    ),
    "a store that forgets requests for locked rows": Mistake(
        ((Database, "request_beside", lambda *_: None),),
        cases=(
            "cancel/a_row_that_stays_locked",
            "cancel/a_running_row_that_stays_locked",
            "cancel/a_transaction_that_holds_it",
        ),
        breaks=Promise.ENDS_AS_ASKED,
        theme=Theme.CANCELLING,
    ),
    "a store that doesn't go on with locked rows": Mistake(
        ((_tend, "look_at_requests", lambda *_: None),),
        cases=("cancel/a_row_that_stays_locked",),
    ),
    "a store whose transactions ask for later": Mistake(
        ((_operate_cancel, "Draft", type("Nothing", (), {})),),
        cases=("cancel/in_a_transaction_a_locked_row_is_contended",),
    ),
    "a store that asks before its transaction's commit": Mistake(
        ((Draft, "request", lambda draft, row, reason: Database.request(draft.base, draft.base.rows[row.new.id], reason)),),
        cases=("cancel/in_a_transaction",),
    ),
}
"""By name."""


def _lost_only(real: Callable[..., None], slot: Slot, reason: StopReason) -> None:
    if reason.value != "cancelled":
        real(slot, reason)


WORKERS_CANCELLING: dict[str, Mistake] = {
    "a worker that goes on with what was asked to end": Mistake(
        (instead_of(Slot, "cancel", _lost_only),), breaks=Promise.STOPS_WHEN_ASKED, theme=Theme.CANCELLING
    ),
    "a worker that doesn't look at what was asked": Mistake(
        ((Holdings, "ask_to_end", lambda *_: None),), breaks=Promise.STOPS_WHEN_ASKED, theme=Theme.CANCELLING
    ),
    "a worker whose failures yield to no request": Mistake(
        ((Outcome, "yields", property(lambda _: False)),), breaks=Promise.ENDS_AS_ASKED, theme=Theme.CANCELLING
    ),
    "a worker whose every failure yields to a request": Mistake(
        ((Outcome, "yields", property(lambda outcome: outcome.kind is SettlementKind.FAILED)),),
        breaks=Promise.ENDS_AS_ASKED,
        theme=Theme.CANCELLING,
    ),
}
"""By name: those of workers."""
