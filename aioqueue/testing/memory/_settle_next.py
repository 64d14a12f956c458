"""How a chain goes on: the job that takes the place of a continued one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.errors import RowRejected
from aioqueue.testing.memory._insert_rows import make_row
from aioqueue.testing.memory._rows_jobs import kept_hash

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._job import Ending, NewJob, Settlement
    from aioqueue.vocabulary._origin import Origin

__all__ = ["next_row"]


def next_row(database: Database, row: Row, each: Settlement | Ending, now: datetime) -> Row:
    """The row with which a chain goes on from one of its steps, if it can be stored.

    Raises:
        RowRejected: It can't.
    """
    if each.next is None:
        raise RowRejected("continued, and nothing to go on with")
    if is_taken(database, each.next.id):
        raise RowRejected(f"{each.next.id} is there already")
    keep, webhook = inherited_keep(row, each.next), inherited_webhook(row, each.next)
    origin = inherited_origin(row, each.next)
    made = make_row(replace(each.next, key=row.new.key, unique=None, keep=keep, webhook=webhook, origin=origin), now)
    made.chain_id, made.position, made.unique_hash = row.chain, row.position + 1, inherited_hash(row)
    made.marked = made.marked or inherited_mark(row)
    return made


def is_taken(database: Database, job_id: UUID) -> bool:
    """Whether an id is there already, live or finished."""
    return job_id in database.rows


def inherited_hash(row: Row) -> UUID | None:
    """What stands for the unique key of a step's chain: the next one holds it as the first one did."""
    return kept_hash(row)


def inherited_keep(row: Row, following: NewJob) -> float | None:
    """How long a step's chain is kept: the next one says it, or the one before has."""
    return row.new.keep if following.keep is None else following.keep


def inherited_webhook(row: Row, following: NewJob) -> str | None:
    """Who is told when a step's chain has ended: the next one says it, or the one before has."""
    return row.new.webhook if following.webhook is None else following.webhook


def inherited_origin(row: Row, following: NewJob) -> Origin | None:
    """Where a step's chain comes from: all of its steps are of the same tick, or dry runs."""
    return row.new.origin or following.origin


def inherited_mark(row: Row) -> bool:
    """Whether somebody may wait for a step's chain: the next one has to tell them of its end."""
    return row.marked
