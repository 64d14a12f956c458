"""What a lease holds, one row after the other, where some can't be read."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.sqlite._rows_ids import ANY_ID, RowId
from aioqueue.sqlite._rows_odd import what_is_odd_in
from aioqueue.sqlite._settle_requests import REASON, reason_of
from aioqueue.vocabulary._job import Claim, StoredState

if TYPE_CHECKING:
    import sqlite3

    from aioqueue.sqlite._connections import Connection
    from aioqueue.sqlite._rows_odd import OddRows

__all__ = ["asked_one_by_one", "fail_held", "held_one_by_one"]

_HELD_IDS = f"""
SELECT {ANY_ID} FROM job INDEXED BY job_running WHERE state = 2 AND lease_id = :lease
"""

_ASKED = f"""
SELECT {ANY_ID}, claims, {REASON}
FROM job INDEXED BY job_asked WHERE state = 2 AND lease_id = :lease AND cancel_reason IS NOT NULL
"""


def held_one_by_one(connection: sqlite3.Connection, odd_rows: OddRows, lease_id: int) -> tuple[set[Claim], dict[RowId, str]]:
    """See what a lease holds, in any transaction.

    Returns:
        The sound claims; and the others, with what is wrong with them.
    """
    claims: set[Claim] = set()
    odd: dict[RowId, str] = {}
    for row_id in [RowId.read(*row) for row in connection.execute(_HELD_IDS, {"lease": lease_id}).fetchall()]:
        entry = odd_rows.read(connection, row_id, StoredState.RUNNING)
        if entry is None:
            continue
        if reason := what_is_odd_in({"id": entry[0], "claims": entry[5]}):
            odd[row_id] = reason
        else:
            claims.add(Claim(UUID(entry[0]), entry[5]))
    return claims, odd


def asked_one_by_one(connection: sqlite3.Connection, lease_id: int, owned: set[Claim]) -> dict[Claim, str]:
    """Tell for which of these claims of a lease their chains were asked to end, and why."""
    asked: dict[Claim, str] = {}
    for blob, raw, claims, digits in connection.execute(_ASKED, {"lease": lease_id}).fetchall():
        claim = Claim(RowId.read(blob, raw).shown, claims)
        if claim in owned:
            asked[claim] = reason_of(digits)
    return asked


def fail_held(connection: Connection, odd_rows: OddRows, lease_id: int, odd: dict[RowId, str]) -> list[UUID]:
    """Move what `held_one_by_one` found to be odd to the archive. Returns the ids of the chains that have ended so."""
    failed: list[UUID] = []
    for row_id, reason in odd.items():
        failed += odd_rows.fail(connection, row_id, reason, state=StoredState.RUNNING, lease=lease_id)
    return failed
