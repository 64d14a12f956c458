"""Ending jobs from outside: without a claim, or within a worker's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import RowRejected, StoreContended
from aioqueue.testing.memory._operate_cancel import asked_why, end_as_asked
from aioqueue.testing.memory._resolve import tell_of_ends
from aioqueue.testing.memory._settle import lease_allows, why_lost
from aioqueue.testing.memory._settle_with import ends_with, store_with
from aioqueue.testing.memory._transaction_draft import Draft, make_changes
from aioqueue.vocabulary._job import LostReason, SettlementKind, StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._job import Claim, Ending

__all__ = ["end", "hold"]

_KINDS = (SettlementKind.COMPLETED, SettlementKind.CONTINUED, SettlementKind.FAILED, SettlementKind.CANCELLED)


def hold(database: Database, claim: Claim, lease_id: int) -> LostReason | None:
    """Lock a running job by its claim. See `Store.hold`."""
    now, row = database.now(), database.rows.get(claim.id)
    if row is not None and row.locked(now):
        raise StoreContended(f"an open transaction holds the job {claim.id}")
    lost = why_lost(row, claim.claims, lease_id)
    if lost is None and not lease_allows(database, lease_id, now, orphaned=False):
        lost = LostReason.TAKEN
    if row is not None and lost is None:
        database.hold(row)
    return lost


def end(database: Database, endings: Sequence[Ending]) -> list[bool]:
    """End jobs whoever holds them, all or none. See `Store.end`."""
    draft = Draft(database, holding=database.holding)
    results = _end_all(draft, endings, draft.now())
    make_changes(database, draft.changes)
    for notification in draft.told:
        database.tell(notification)
    return results


def _end_all(database: Database, endings: Sequence[Ending], now: datetime) -> list[bool]:
    results: list[bool] = []
    ended: list[Row] = []
    for each in endings:
        row = database.rows.get(each.id)
        if row is not None and row.locked(now):
            raise StoreContended(f"an open transaction holds the job {each.id}")
        if row is None or not row.live:
            results.append(False)
            continue
        last = _end(database, row, each, now)
        if ends_with(database, last, each.kind if last.live else SettlementKind(last.state)):
            ended.append(last)
        results.append(True)
    tell_of_ends(database, ended, now)
    return results


def _end(database: Database, row: Row, each: Ending, now: datetime) -> Row:
    if each.kind not in _KINDS:
        raise RowRejected(f"a job can't be ended from outside as {each.kind.name}")
    lease_id = row.lease_id if row.state == StoredState.RUNNING else 0
    state = StoredState(int(each.kind))

    def write() -> None:
        next_id = None if each.next is None else each.next.id
        database.end(row, state, now, error=each.error, output=each.output, outcome=each.outcome, next_id=next_id)

    reason = asked_why(database, row)
    following = store_with(database, row, each, now, write)
    if following is not None and following.live and reason is not None:
        end_as_asked(database, following, reason, now)
    database.tell(_told(row, following, lease_id, now))
    return following or row


def _told(row: Row, following: Row | None, lease_id: int, now: datetime) -> Notification:
    leases = frozenset({lease_id} if lease_id else ())
    if following is None or not following.live:
        return Notification(finished=frozenset({row.chain}), leases=leases)
    if following.state != StoredState.PENDING:
        return Notification(leases=leases)
    delay = max(0.0, (following.run_at - now).total_seconds())
    return Notification(types=frozenset({following.new.type}), delay=delay, leases=leases)
