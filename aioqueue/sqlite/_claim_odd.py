"""Claiming one row after the other, where some can't be read or claimed."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from aioqueue.errors import LeaseLost, StoreError
from aioqueue.sqlite._claim_blockers import with_blockers
from aioqueue.sqlite._claim_paused import open_types, park_if_paused
from aioqueue.sqlite._claim_take import take, valid_now
from aioqueue.sqlite._connections import in_transaction
from aioqueue.sqlite._errors import concerns_a_row
from aioqueue.sqlite._gates_through import through_gates
from aioqueue.sqlite._rows import load
from aioqueue.sqlite._rows_claimed import claimed_job, is_gated, is_marked
from aioqueue.sqlite._rows_ids import ANY_ID, RowId
from aioqueue.sqlite._rows_odd import what_is_odd
from aioqueue.sqlite._rows_times import NOW
from aioqueue.store_rules._quotas import Rooms
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from aioqueue.sqlite._claim_take import Wanted
    from aioqueue.sqlite._connections import Connection
    from aioqueue.sqlite._rows_odd import OddRows
    from aioqueue.vocabulary._gates import GateRules
    from aioqueue.vocabulary._job import ClaimedJob
    from aioqueue.vocabulary._quota import Quota

__all__ = ["claim_one_by_one"]

_MORE_ROWS = 100
"""How many rows beyond its limit a claim looks at, in search for sound ones."""

_HEADS = f"""
SELECT {ANY_ID}, run_at FROM job INDEXED BY job_due
WHERE state = 1 AND type = :type AND priority = :priority AND run_at <= {NOW} ORDER BY run_at, id LIMIT :limit
"""


class _OddRow(Exception):
    """This row can't be read."""


def claim_one_by_one(
    connection: Connection, wanted: Wanted, odd_rows: OddRows, quotas: Sequence[Quota], rules: Mapping[str, GateRules]
) -> tuple[list[ClaimedJob], Notification | None]:
    """Claim one row after the other, each in a transaction of its own.

    A row that can't be read is failed at once. One that is refused for another reason (a trigger) is failed if others
    could be claimed: otherwise it's the installation that is broken, and not the row.

    Raises:
        LeaseLost: One of the leases isn't valid; nothing was taken.
        StoreError: All that is due is refused: why the first was.
    """
    jobs: list[ClaimedJob] = []
    rooms = Rooms(quotas)
    failed: list[UUID] = []
    refused: dict[RowId, StoreError] = {}
    valid_now(connection, wanted)
    types = open_types(connection, wanted.types)[0]
    for row_id in _heads(connection, types, wanted.limit + len(odd_rows) + _MORE_ROWS):
        if len(jobs) == wanted.limit:
            break
        if row_id in odd_rows:
            continue
        try:
            take_it = functools.partial(_claim, row_id=row_id, wanted=wanted, odd_rows=odd_rows, rooms=rooms, rules=rules)
            taken = in_transaction(connection, odd_rows.timeout, take_it)
            rooms.fill(job.type for job in taken)
            jobs += taken
        except LeaseLost:
            break  # the others were taken while it was valid
        except _OddRow as odd:
            failed += odd_rows.fail(connection, row_id, str(odd))
        except StoreError as error:
            if not concerns_a_row(error):
                raise
            refused[row_id] = error
    if refused and not jobs and not failed:
        raise next(iter(refused.values()))
    for row_id, why in refused.items() if jobs else ():
        failed += odd_rows.fail(connection, row_id, f"it can't be claimed: {why}")
    return jobs, Notification(finished=frozenset(failed)) if failed else None


def _heads(connection: sqlite3.Connection, types: str, limit: int) -> list[RowId]:
    # As a claim picks them, without JSON, which can't hold everything that an id or a due time may be.
    # The first of each lane come too, so that no lane stands before all others.
    found: list[tuple[int, float, bytes, RowId]] = []
    firsts: list[RowId] = []
    for job_type in load(types):
        for priority in (1, 2, 3, 4):
            lane = {"type": job_type, "priority": priority, "limit": limit}
            rows = connection.execute(_HEADS, lane).fetchall()
            found += [(priority, run_at, raw, RowId.read(blob, raw)) for blob, raw, run_at in rows]
            firsts += [RowId.read(blob, raw) for blob, raw, _ in rows[:1]]
    ordered = [entry[3] for entry in sorted(found, key=lambda entry: entry[:3])[:limit]]
    return list(dict.fromkeys([*ordered, *firsts]))


def _claim(
    connection: sqlite3.Connection,
    row_id: RowId,
    wanted: Wanted,
    odd_rows: OddRows,
    rooms: Rooms,
    rules: Mapping[str, GateRules],
) -> list[ClaimedJob]:
    taken = wanted.taken(valid_now(connection, wanted))
    entry = odd_rows.read(connection, row_id, StoredState.PENDING)
    if entry is None or not rooms.has_room(entry[1]):
        return []
    if park_if_paused(connection, row_id, entry[1], entry[15]):
        return []
    if reason := what_is_odd(entry):
        raise _OddRow(reason)
    job = claimed_job(entry, taken)
    passage = through_gates(connection, [job], {job.id} if is_gated(entry) else (), rules, taken.now)
    if not passage.jobs:
        return []
    take(connection, [job], taken)
    passage.write(connection)
    return with_blockers(connection, [job], [job.id]) if is_marked(entry) else [job]
