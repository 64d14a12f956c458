"""Asking chains to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import StoreContended
from aioqueue.store_rules._cancelling import asked_to_end, kept_reason
from aioqueue.testing.memory._resolve import note_end, tell_of_ends
from aioqueue.testing.memory._rows_chains import Chains, the_end
from aioqueue.testing.memory._transaction_draft import Draft
from aioqueue.vocabulary._answers import Cancellation
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_jobs import Row

__all__ = ["asked_why", "cancel", "end_as_asked", "look_at_requests", "tell_of_requested"]


def cancel(database: Database, ids: Sequence[UUID], reason: str) -> list[Cancellation]:
    """Ask chains to end. See `Store.cancel`. What is locked isn't waited for: `tend` goes on with it."""
    now, chains, kept = database.now(), Chains(database), kept_reason(reason)
    answers: dict[UUID, Cancellation] = {}
    results: list[Cancellation] = []
    ended: list[Row] = []
    for each in ids:
        row = the_end(chains.steps_of(each))
        if row is None:
            results.append(Cancellation.NOT_FOUND)
            continue
        if row.chain not in answers:
            answers[row.chain] = _cancel(database, row, kept, now)
            if answers[row.chain] is Cancellation.CANCELLED:
                ended.append(row)
        results.append(answers[row.chain])
    tell_of_requested(database, ended, now)
    return results


def _cancel(database: Database, row: Row, reason: str, now: datetime) -> Cancellation:
    if not row.live:
        return Cancellation.FINISHED
    if row.locked(now):
        if isinstance(database, Draft):
            raise StoreContended(f"an open transaction holds the job {row.new.id}")
        if asked_why(database, row) is None:
            database.request_beside(row.chain, reason)
    elif not is_running(row):
        first = asked_why(database, row)
        end_as_asked(database, row, reason if first is None else first, now)
        return Cancellation.CANCELLED
    elif asked_why(database, row) is None:
        database.request(row, reason)
    if is_running(row):
        database.tell(Notification(leases=frozenset({row.lease_id})))
    return Cancellation.CANCELLING


def is_running(row: Row) -> bool:
    """Whether a job's worker has to end it."""
    return row.state == StoredState.RUNNING


def asked_why(database: Database, row: Row) -> str | None:
    """Why a job's chain was asked to end; None if it wasn't."""
    return database.requests.get(row.chain) if row.cancel_reason is None else row.cancel_reason


def end_as_asked(database: Database, row: Row, reason: str, now: datetime) -> None:
    """Archive a job as cancelled. The caller tells of it: `tell_of_requested`."""
    database.end(row, StoredState.CANCELLED, now, error=asked_to_end(reason, now))


def tell_of_requested(database: Database, ended: Collection[Row], now: datetime) -> None:
    """Tell listeners, and those that wait for them, that chains have ended since that was asked for."""
    if ended:
        database.tell(Notification(finished=frozenset(row.chain for row in ended)))
        tell_of_ends(database, [row for row in ended if note_end(database, row)], now)


def look_at_requests(database: Database, now: datetime) -> None:
    """Carry out what was asked for while rows were locked, of those that aren't any more."""
    chains = Chains(database)
    ended: list[Row] = []
    for chain_id, reason in list(database.requests.items()):
        row = the_end(chains.steps(chain_id))
        if row is None or not row.live:
            del database.requests[chain_id]
        elif not row.locked(now):
            if _cancel(database, row, reason, now) is Cancellation.CANCELLED:
                ended.append(row)
            else:
                database.request(row, reason)
                del database.requests[chain_id]
    tell_of_requested(database, ended, now)
