"""What no worker's claim leads to: see `Store.tend`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.store_rules._causes import expired
from aioqueue.testing.memory._gates import come_back
from aioqueue.testing.memory._operate_cancel import look_at_requests
from aioqueue.testing.memory._pauses import unpark
from aioqueue.testing.memory._resolve import announce_told, end_found, note_end, tell_dependents
from aioqueue.testing.memory._rows_chains import Chains, the_end
from aioqueue.testing.memory._webhooks import forget_deliveries
from aioqueue.vocabulary._blockers import Tended
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from datetime import datetime

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_jobs import Row

__all__ = ["tend"]


def tend(database: Database, limit: int) -> Tended:
    """Do one portion. See `Store.tend`."""
    now = database.now()
    look_at_requests(database, now)
    look_for_ends(database)
    untold = [chain_id for chain_id, end in database.blockers.ends.items() if end.untold]
    told = tell_dependents(database, untold, now, limit)
    announce_told(database, told, now)
    late = [row for row in database.rows.values() if is_never_started(row, now) and not row.locked(now)]
    for row in late[:limit]:
        _discard(database, row, now)
    forget(database, limit)
    forget_deliveries(database, limit)
    database.pauses.remove(database.pauses.over(now))
    back, parked_left = unpark(database, limit)
    come_back(database, limit, now)
    left = len(late) > limit or any(end.untold for end in database.blockers.ends.values()) or parked_left
    more = left and bool(told.resolved or late or back)  # not if all that is left is locked
    return Tended(resolved=told.resolved, failed=len(told.failed), expired=len(late[:limit]), resumed=back, more=more)


def look_for_ends(database: Database) -> None:
    """Find chains for which jobs wait, and which have ended or are gone without anybody having told."""
    chains = Chains(database)
    waited_for = {edge.chain_id: None for edge in database.blockers.unresolved()}
    for chain_id in waited_for:
        last, end = the_end(chains.steps(chain_id)), database.blockers.ends.get(chain_id)
        if (last is None or not last.live) and (end is None or not end.untold):
            found = end_found(database, chain_id)
            if found is not None:
                database.remember(found)


def is_never_started(row: Row, now: datetime) -> bool:
    """Whether a job waits, and should have been started before."""
    waits = row.state in (StoredState.HELD, StoredState.PENDING) and row.started_at is None
    return waits and row.expires_at is not None and row.expires_at <= now


def _discard(database: Database, row: Row, now: datetime) -> None:
    database.end(row, StoredState.CANCELLED, now, error=expired(now))
    note_end(database, row)
    database.tell(Notification(finished=frozenset({row.chain})))


def forget(database: Database, limit: int) -> None:
    """Forget how chains ended for which nobody waits any more, what those waited for who don't need it, and windows."""
    for job_id in [each for each in database.blockers.edges if has_done_with(database.rows.get(each))]:
        database.drop_edges(job_id)
    named = {edge.chain_id for edges in database.blockers.edges.values() for edge in edges}
    for chain_id in [each for each in database.blockers.ends if each not in named][:limit]:
        database.forget(chain_id)
    now = database.now()
    for unique_hash in [each for each, window in database.windows.items() if window.expires_at <= now][:limit]:
        database.drop_window(unique_hash)


def has_done_with(row: Row | None) -> bool:
    """Whether a job doesn't need what it has waited for: it's gone, or has ended so that nobody retries it."""
    return row is None or row.state in (StoredState.COMPLETED, StoredState.CONTINUED)
