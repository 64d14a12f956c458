"""Who holds which unique key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.store_rules._unique_keys import unique_hashes
from aioqueue.testing.memory._rows_chains import Chains, the_end
from aioqueue.vocabulary._job import StoredState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.testing.memory._rows_leases import Window
    from aioqueue.vocabulary._job import NewJob

__all__ = ["can_be_replaced", "holder_of", "holds_key", "key_holder", "told_of", "window_holder"]


def told_of(holder: Row) -> UUID:
    """The id by which whoever wants a unique key hears of the job that has it: its chain's, which lasts longer than a step."""
    return holder.chain


def key_holder(rows: Mapping[UUID, Row], new: NewJob) -> Row | None:
    """The unfinished job that has a unique key, under any name that the type has had."""
    return holder_of(rows, unique_hashes(new))


def holder_of(rows: Mapping[UUID, Row], hashes: Collection[UUID]) -> Row | None:
    """The unfinished job that has one of the unique keys."""
    return next((row for row in rows.values() if row.unique_hash in hashes and holds_key(row)), None)


def holds_key(row: Row) -> bool:
    """Whether a job keeps its unique key from others."""
    return row.live and not is_let_go_by_its_start(row)


def is_let_go_by_its_start(row: Row) -> bool:
    """Whether a job had its unique key until it was claimed, and it was."""
    return row.until_started and row.claims > 0


def can_be_replaced(holder: Row) -> bool:
    """Whether another job may take the place of one that is there, rather than wait for it."""
    return holder.position == 0 and holder.state in (StoredState.HELD, StoredState.PENDING)


def window_holder(database: Database, new: NewJob, now: datetime) -> UUID | None:
    """The chain that keeps a job's unique key though it has completed; None if the job has no window itself."""
    if not looks_at_windows(new):
        return None
    windows = [database.windows[each] for each in unique_hashes(new) if each in database.windows]
    return next((each.chain_id for each in windows if counts(database, each, now)), None)


def looks_at_windows(new: NewJob) -> bool:
    """Whether a job minds what has completed."""
    return new.unique is not None and new.unique.window is not None


def counts(database: Database, window: Window, now: datetime) -> bool:
    """Whether a window is open, and its chain has completed: one that has failed, was cancelled or is gone frees its key."""
    last = the_end(Chains(database).steps(window.chain_id))
    return window.expires_at > now and last is not None and ended_well(last)


def ended_well(last: Row) -> bool:
    """Whether a chain has completed, of which this is the last step."""
    return last.state == StoredState.COMPLETED
