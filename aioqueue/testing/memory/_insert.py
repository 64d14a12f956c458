"""Storing new jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from aioqueue.errors import RowRejected, StoreContended
from aioqueue.store_rules._batches import needed_of_batch
from aioqueue.store_rules._json import require_json
from aioqueue.store_rules._unique_keys import unique_hashes
from aioqueue.testing.memory._insert_blockers import hold_back, stored_ids, wait, waits_of
from aioqueue.testing.memory._rows import Row
from aioqueue.vocabulary._job import Inserted
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database
    from aioqueue.vocabulary._job import NewJob

__all__ = ["announce", "due_at", "holder_of", "insert", "make_row", "store"]


def insert(database: Database, jobs: Sequence[NewJob], *, repeated: bool = False) -> list[Inserted]:
    """Store jobs, all or none. See `Store.insert`. Finished ones are looked at in any case, not only for a repetition."""
    return store(database, jobs, gone_on(database, jobs) if repeated else ())


def store(database: Database, jobs: Sequence[NewJob], there_before: Collection[UUID] = ()) -> list[Inserted]:
    """Store jobs, all or none, with what they wait for."""
    needed_of_batch(jobs)
    for new in jobs:
        held = new.id in database.uncommitted or (new.unique and key_holder(database.uncommitted, new) is not None)
        if held:
            raise StoreContended(f"an open transaction holds the unique key of {new.id}")
    now = database.now()
    rows, results = prepare(database, jobs, there_before)
    waits = waits_of(database, rows, stored_ids(jobs, results), now)
    for row in rows:
        database.add(row)
    wait(database, waits, now)
    announce(database, [row for row in rows if not row.new.blockers])
    return results


def gone_on(database: Database, jobs: Sequence[NewJob]) -> Collection[UUID]:
    """The ids of those jobs of whose chains later steps are left: they were stored, though they may have been pruned since."""
    return {new.id for new in jobs} & {row.chain for row in database.rows.values()}


def prepare(
    database: Database, jobs: Sequence[NewJob], there_before: Collection[UUID] = ()
) -> tuple[list[Row], list[Inserted]]:
    """Make the rows that are new, and the answers; nothing is stored yet."""
    now = database.now()
    fresh: dict[UUID, Row] = {}
    results: list[Inserted] = []
    for new in jobs:
        there = new.id if new.id in there_before else stored_as(new, (database.rows, database.uncommitted, fresh))
        if there is None:
            fresh[new.id] = make_row(new, now)
        results.append(Inserted(new.id if there is None else there, created=there is None))
    return list(fresh.values()), results


def stored_as(new: NewJob, tables: Iterable[Mapping[UUID, Row]]) -> UUID | None:
    """The job that is there already in place of a new one: itself, or the unfinished chain that has its unique key."""
    for rows in tables:
        if new.id in rows:
            return new.id
    for rows in tables:
        if new.unique and (holder := key_holder(rows, new)) is not None:
            return told_of(holder)
    return None


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
    return row.live


def make_row(new: NewJob, now: datetime) -> Row:
    """The row of a new job, if it can be stored."""
    seconds(new.timeout or 0.0)
    require_json(new)
    run_at = first_due(new, now)
    expires_at = None if new.expires is None else due_at(run_at, None, new.expires)
    row = Row(new, now, run_at, expires_at, unique_hash=next(iter(unique_hashes(new)), None))
    hold_back(row)
    return row


def first_due(new: NewJob, now: datetime) -> datetime:
    """When a new job is due. A time in the past means now."""
    return max(now, due_at(now, new.run_at, new.delay))


def due_at(now: datetime, moment: datetime | None, delay: float | None) -> datetime:
    """A moment that was given, or one that is so many seconds away."""
    if moment is not None and moment.tzinfo is None:
        raise RowRejected("a time without a zone")
    try:
        return moment or now + seconds(delay or 0.0)
    except OverflowError as error:
        raise RowRejected(f"in {delay} seconds there is no time any more") from error


def seconds(number: float) -> timedelta:
    """A duration, if it makes sense."""
    try:
        return timedelta(seconds=number)
    except (ValueError, OverflowError) as error:
        raise RowRejected(f"not a number of seconds: {number!r}") from error


def announce(database: Database, rows: Sequence[Row]) -> None:
    """Tell listeners of jobs that were committed."""
    if rows:
        first = min(row.run_at for row in rows)
        delay = max(0.0, (first - database.now()).total_seconds())
        database.tell(Notification(types=frozenset(row.new.type for row in rows), delay=delay))
