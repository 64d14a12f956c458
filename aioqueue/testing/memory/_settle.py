"""Writing how attempts ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import BlockerCycle, BlockerNotFound, DuplicateJob, RowRejected, StoreContended, WrongJobType
from aioqueue.store_rules._cancelling import as_cancelled, gives_way
from aioqueue.store_rules._lost import lost_reason
from aioqueue.testing.memory._insert_rows import due_at
from aioqueue.testing.memory._operate_cancel import asked_why, end_as_asked
from aioqueue.testing.memory._resolve import tell_of_ends
from aioqueue.testing.memory._settle_with import ends_with, may_be_refused, store_with
from aioqueue.testing.memory._transaction_draft import Draft, make_changes
from aioqueue.vocabulary._job import LostReason, SettlementKind, SettleResult, StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.errors import AioqueueError
    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._job import Settlement

__all__ = ["holds", "lease_allows", "settle", "why_lost"]


def settle(database: Database, settlements: Sequence[Settlement], *, orphaned: bool) -> list[SettleResult]:
    """Write each on its own. See `Store.settle`."""
    now = database.now()
    # What is locked or refused is told before anything is written: a database that can't tell which row it refuses raises.
    refused = [_refused(database, each, now, orphaned=orphaned) for each in settlements]
    written: list[tuple[Settlement, Row]] = []
    results: list[SettleResult] = []
    for each, refusal in zip(settlements, refused, strict=True):
        result = refusal or _settle(database, each, now, written, orphaned=orphaned)
        results.append(result)
    _tell(database, written, now, orphaned=orphaned)
    tell_of_ends(database, [row for each, row in written if ends_with(database, row, each.kind)], now)
    return results


def _refused(database: Database, each: Settlement, now: datetime, *, orphaned: bool) -> SettleResult | None:
    row = database.rows.get(each.id)
    if row is None:
        return None
    if row.locked(now):
        return SettleResult(busy=True)
    if is_repeated(row, each, orphaned=orphaned) or why_lost_to(database, row, each, now, orphaned=orphaned) is not None:
        return None
    reason = asked_when_settled(database, row)
    if reason is not None and gives_way(each):
        each = as_cancelled(each, reason, now)
    try:
        due_again(each, now)
    except RowRejected as error:
        return SettleResult(LostReason.ERROR, str(error))
    message = database.refusal(row, each)
    return SettleResult(LostReason.ERROR, message) if message else None


def _settle(
    database: Database, each: Settlement, now: datetime, written: list[tuple[Settlement, Row]], *, orphaned: bool
) -> SettleResult:
    row = database.rows.get(each.id)
    if row is None:
        return SettleResult(why_lost(None, each.claims, each.lease_id))
    if is_repeated(row, each, orphaned=orphaned):
        return SettleResult(cancelled=row.written_cancelled)
    lost = why_lost_to(database, row, each, now, orphaned=orphaned)
    if lost is not None:
        return SettleResult(lost)
    reason = asked_when_settled(database, row)
    if reason is not None and not changes_it(each):
        reason = None
    try:
        following = _write(database, each, now, reason, orphaned=orphaned)
    except RowRejected as error:
        return SettleResult(LostReason.ERROR, str(error))
    except StoreContended:
        return SettleResult(busy=True)
    except (BlockerNotFound, BlockerCycle, DuplicateJob, WrongJobType) as error:
        return refusal(error)
    written.append((each if reason is None else as_cancelled(each, reason, now), following or row))
    if orphaned:
        end_lease_of_orphan(database, each.lease_id, now)
    return SettleResult(cancelled=reason is not None)


def refusal(error: AioqueueError) -> SettleResult:
    """What is answered where something that belongs to a settlement can't be stored: nothing of it was."""
    return SettleResult(refused=error)


def _write(database: Database, each: Settlement, now: datetime, reason: str | None, *, orphaned: bool) -> Row | None:
    if may_be_refused(each):
        draft = Draft(database, holding=database.holding)
        following = _write_to(draft, each, now, reason, orphaned=orphaned)
        make_changes(database, draft.changes)
        for notification in draft.told:
            database.tell(notification)
        return None if following is None else database.rows[following.new.id]
    return _write_to(database, each, now, reason, orphaned=orphaned)


def _write_to(database: Database, each: Settlement, now: datetime, reason: str | None, *, orphaned: bool) -> Row | None:
    row = database.rows[each.id]
    became = as_cancelled(each, reason, now) if reason is not None and gives_way(each) else each

    def write() -> None:
        database.write(row, each, now, due_again(became, now), orphaned=orphaned, cancelled=reason)

    following = store_with(database, row, became, now, write)
    if following is not None and following.live and reason is not None:
        end_as_asked(database, following, reason, now)
    return following


def asked_when_settled(database: Database, row: Row) -> str | None:
    """Why the chain of a job whose attempt has ended was asked to end; None if it wasn't."""
    return asked_why(database, row)


def changes_it(each: Settlement) -> bool:
    """Whether something else is written where the chain was asked to end."""
    return gives_way(each) or each.kind is SettlementKind.CONTINUED


def is_repeated(row: Row, each: Settlement, *, orphaned: bool) -> bool:
    """Whether this is what was written last, and its answer got lost."""
    last = row.written
    if last is None or row.written_about_orphan != orphaned:
        return False
    return (last.claims, last.lease_id, last.kind) == (each.claims, each.lease_id, each.kind)


def why_lost_to(database: Database, row: Row, each: Settlement, now: datetime, *, orphaned: bool) -> LostReason | None:
    """Why a settlement can't be written; None if it can."""
    lost = why_lost(row, each.claims, each.lease_id)
    if each.id in database.holding:
        return lost
    if lost is None and not lease_allows(database, each.lease_id, now, orphaned=orphaned):
        return LostReason.TAKEN
    return lost


def why_lost(row: Row | None, claims: int, lease_id: int) -> LostReason | None:
    """Why a lease doesn't hold a claim any more; None if it does."""
    if row is None:
        return lost_reason(live=False, archived=None)
    if holds(row, claims, lease_id):
        return None
    return lost_reason(live=row.live, archived=None if row.live else row.state)


def holds(row: Row, claims: int, lease_id: int) -> bool:
    """Whether a lease has a job, by this claim."""
    return row.state == StoredState.RUNNING and row.claims == claims and row.lease_id == lease_id


def lease_allows(database: Database, lease_id: int, now: datetime, *, orphaned: bool) -> bool:
    """Its own worker writes as long as the lease is there; about an orphan others do, once it isn't valid."""
    return not database.valid(lease_id, now) if orphaned else lease_id in database.leases


def due_again(each: Settlement, now: datetime) -> datetime:
    """When a job is due after its attempt."""
    return max(now, due_at(now, each.run_at, each.delay))


def end_lease_of_orphan(database: Database, lease_id: int, now: datetime) -> None:
    """A lease that has run out goes with the first of its orphans: no late renewal gets it back."""
    if lease_id in database.leases and not database.valid(lease_id, now):
        database.take_lease(lease_id)


def ended(each: Settlement) -> bool:
    """Whether somebody who waits for a result has one now."""
    return each.kind.ends_chain


def waited_for(row: Row) -> UUID:
    """The id by which whoever waits for a job's result is told that there is one."""
    return row.chain


def _tell(database: Database, written: Iterable[tuple[Settlement, Row]], now: datetime, *, orphaned: bool) -> None:
    types: set[str] = set()
    finished: set[UUID] = set()
    leases: set[int] = set()
    waits: list[float] = []
    for each, row in written:
        if orphaned:
            leases.add(each.lease_id)
        if ended(each):
            finished.add(waited_for(row))
        elif row.state == StoredState.PENDING:
            types.add(row.new.type)
            waits.append((row.run_at - now).total_seconds())
    if types or finished:
        database.tell(
            Notification(
                types=frozenset(types),
                delay=min(waits, default=0.0),
                finished=frozenset(finished),
                leases=frozenset(leases),
            )
        )
