"""Stores that make mistakes with claims."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aioqueue.testing.memory import _claim, _rows, _store
from aioqueue.testing.memory._rows import Database
from aioqueue.testing.memory._rows_leases import Lease
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._quota import Quota
from tests.known_mistakes.mistake import Mistake, instead_of
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["CLAIMS"]


def _pending(row: Row, now: datetime) -> bool:
    return row.state == StoredState.PENDING and not row.locked(now)


def _pending_or_running(row: Row, now: datetime) -> bool:
    return row.state in (StoredState.PENDING, StoredState.RUNNING) and row.run_at <= now and not row.locked(now)


def _due(row: Row, now: datetime) -> bool:
    return row.state != StoredState.RUNNING and row.run_at <= now


def _without_attempt(real: Callable[..., ClaimedJob], database: Database, row: Row, *rest: Any) -> ClaimedJob:
    job = real(database, row, *rest)
    row.attempt -= 1
    return replace(job, attempt=row.attempt)


def _without_fence(real: Callable[..., ClaimedJob], database: Database, row: Row, *rest: Any) -> ClaimedJob:
    job = real(database, row, *rest)
    row.claims -= 1
    return replace(job, claims=row.claims)


def _first_lease_only(
    real: Callable[..., Any], database: Database, lease_id: int, types: Any, limit: int, leases: Any, **named: Any
) -> list[ClaimedJob]:
    """Only one of the leases is looked at."""
    valid = database.valid(lease_id, database.now())
    with_all = {each: Lease("w", datetime.max.replace(tzinfo=UTC)) for each in leases.values()} if valid else {}
    kept, database.leases = database.leases, {**database.leases, **with_all}
    try:
        return list(real(database, lease_id, types, limit, leases, **named))
    finally:
        database.leases = kept


def _started_counts_for_nothing(row: Row, now: datetime) -> bool:
    return row.expires_at is not None and row.expires_at <= now


def _none_if_any_is_odd(real: Callable[..., list[Row]], database: Database, rows: list[Row], now: datetime) -> list[Row]:
    return [] if any(row.unreadable for row in rows) else real(database, rows, now)


_within = _claim.within


def _a_quota_for_each_type(rows: list[Row], quotas: Sequence[Quota]) -> list[Row]:
    return _within(rows, [Quota(frozenset({name}), each.jobs) for each in quotas for name in each.types])


CLAIMS: dict[str, Mistake] = {
    "a store that claims before the due time": Mistake(
        ((_claim, "is_claimable", _pending),),
        cases=(
            "claim/takes_only_what_is_due",
            "settle/retried",
        ),
        breaks=Promise.DUE_FIRST,
    ),
    "a store that claims what runs already": Mistake(
        ((_claim, "is_claimable", _pending_or_running),),
        cases=("claim/running_and_finished_jobs_are_left_alone",),
        breaks=Promise.ONE_HOLDER,
    ),
    "a store that claims for a lease that is over": Mistake(
        ((_claim, "require_valid", lambda *_: None),),
        cases=(
            "claim/needs_a_valid_lease",
            "claim/needs_all_leases_that_are_named",
        ),
        breaks=Promise.VALID_LEASE,
    ),
    "a store that looks at the first lease of a claim only": Mistake(
        (instead_of(_store, "claim", _first_lease_only),),
        cases=("claim/needs_all_leases_that_are_named",),
    ),
    "a store that claims everything for the first lease": Mistake(
        ((_claim, "owner", lambda _, lease_id, __: lease_id),),
        cases=("claim/types_with_a_lease_of_their_own",),
    ),
    "a store that claims types that weren't asked for": Mistake(
        ((_claim, "is_of", lambda *_: True),),
        cases=("claim/takes_only_the_types_it_is_asked_for",),
    ),
    "a store that claims in the order of insertion": Mistake(
        ((_claim, "urgency", lambda _: 0),),
        cases=("claim/prefers_the_longest_due_whatever_the_order_of_insertion",),
    ),
    "a store in which a type waits behind the backlog of another": Mistake(
        ((_claim, "in_turn", lambda _, rows: sorted(rows, key=_claim.urgency)),),
        cases=(
            "shares/has_something_of_each_type_that_has_due_jobs",
            "shares/gives_types_their_turns_where_theres_room_for_one",
        ),
    ),
    "a store that knows no quotas": Mistake(
        ((_claim, "within", lambda rows, _: rows),),
        cases=("shares/takes_no_more_of_types_than_their_quota",),
    ),
    "a store in which a quota is one for each type": Mistake(
        ((_claim, "within", _a_quota_for_each_type),),
        cases=("shares/takes_no_more_of_types_than_their_quota",),
    ),
    "a store that doesn't count attempts": Mistake(
        (instead_of(Database, "take", _without_attempt),),
        cases=(
            "claim/counts_each_attempt",
            "take_expired/the_crash_counts_as_an_attempt",
        ),
        breaks=Promise.ATTEMPTS_COUNT,
    ),
    "a store that doesn't count claims": Mistake(
        (instead_of(Database, "take", _without_fence),),
        cases=(
            "claim/gives_all_that_was_inserted",
            "settle/is_fenced_after_a_new_claim",
        ),
        breaks=Promise.FENCES_COUNT,
    ),
    "a store that doesn't mark what has expired": Mistake(
        ((_rows, "is_late", lambda *_: False),),
        cases=("claim/marks_expired_jobs",),
        breaks=Promise.EXPIRY,
    ),
    "a store in which what started in time expires all the same": Mistake(
        ((_rows, "is_late", _started_counts_for_nothing),),
        cases=("claim/expiry_counts_until_the_first_start",),
        breaks=Promise.EXPIRY,
    ),
    "a store in which an odd row stops all claims": Mistake(
        (instead_of(_claim, "readable", _none_if_any_is_odd),),
        cases=("odd_rows/claims_go_on",),
    ),
    "a store that claims what has finished": Mistake(
        ((_claim, "is_claimable", _due),),
        cases=("claim/running_and_finished_jobs_are_left_alone",),
        breaks=Promise.NOT_AGAIN,
    ),
}
