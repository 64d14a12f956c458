"""Inserting, as a conversation: statements out, rows in. So one text serves every kind of connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioqueue.abc import Notification
from aioqueue.sqlite import _statements as sql
from aioqueue.sqlite._rows import dump, id_of, job_row, load, unique_key
from aioqueue.vocabulary._job import Inserted

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Generator, Sequence
    from uuid import UUID

    from aioqueue.vocabulary._job import NewJob

__all__ = ["Conversation", "InsertResult", "insert_conversation", "insert_rows"]

if TYPE_CHECKING:
    Conversation = Generator[tuple[str, dict[str, Any]], Sequence[Any] | None, "InsertResult"]

_CHUNK = 1000


@dataclass(frozen=True, slots=True)
class InsertResult:
    """What an insert has done.

    Attributes:
        inserted: One for each job, in order.
        notification: What listeners are told after the commit; None when nothing was created.
    """

    inserted: list[Inserted]
    notification: Notification | None


def insert_conversation(jobs: Sequence[NewJob]) -> Conversation:
    """Store jobs inside an open write transaction.

    Yields a statement with its parameters, and is sent its first row (or None), for as long as there are statements.

    Raises:
        RowRejected: A row can't be stored.
    """
    inserted: list[Inserted] = []
    types: set[str] = set()
    delay: float | None = None
    for start in range(0, len(jobs), _CHUNK):
        chunk = jobs[start : start + _CHUNK]
        keys = {job.id: _unique_keys(job) for job in chunk if job.unique and job.key is not None}
        parameters = {
            "ids": dump([str(job.id) for job in chunk]),
            "keys": dump([key for each in keys.values() for key in each]),
        }
        row = yield sql.INSERT_LOOK, parameters
        assert row is not None
        now, existing, holders = row[0], set(load(row[1])), _holders(load(row[2]))
        rows: list[list[object]] = []
        for job in chunk:
            values = job_row(job, now)
            job_id, unique = str(job.id), values[9]
            if job_id in existing:
                inserted.append(Inserted(job.id, created=False))
            elif (holder := next((holders[key] for key in keys.get(job.id, ()) if key in holders), None)) is not None:
                inserted.append(Inserted(holder, created=False))
            else:
                rows.append(values)
                existing.add(job_id)
                if unique is not None:
                    holders[unique] = job.id
                types.add(job.type)
                due = (int(str(values[3])) - now) / 1_000_000
                delay = due if delay is None else min(delay, due)
                inserted.append(Inserted(job.id, created=True))
        if rows:
            yield sql.INSERT, {"rows": dump(rows), "now": now}
    notification = None if delay is None else Notification(types=frozenset(types), delay=delay)
    return InsertResult(inserted, notification)


def _unique_keys(job: NewJob) -> list[str]:
    """What its unique key is stored as, now or under an older name of its type."""
    return [] if job.key is None else [unique_key(name, job.key) for name in job.unique_names]


def _holders(found: dict[str, str]) -> dict[object, UUID]:
    return {key: id_of(value) for key, value in found.items()}


def insert_rows(connection: sqlite3.Connection, jobs: Sequence[NewJob]) -> InsertResult:
    """Hold the conversation with a connection of sqlite3, whatever its row factory is."""
    conversation = insert_conversation(jobs)
    row: Sequence[Any] | None = None
    cursor = connection.cursor()
    cursor.row_factory = None
    try:
        while True:
            statement, parameters = conversation.send(row)
            row = cursor.execute(statement, parameters).fetchone()
    except StopIteration as stop:
        result: InsertResult = stop.value
        return result
    finally:
        cursor.close()
