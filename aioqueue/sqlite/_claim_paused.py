"""Claims while something is paused: the lanes of other types, and jobs with other keys. Those with a paused key are parked.

Each function runs inside the claim's own transaction, or in a snapshot before it. Where nothing is paused none of it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.errors import RowRejected
from aioqueue.sqlite._claim_lanes import HEADS, HEADS_WITHIN_QUOTAS
from aioqueue.sqlite._pauses_conditions import GATE_OF, LASTS, key_is_paused, type_is_paused
from aioqueue.sqlite._rows import dump, load, one
from aioqueue.sqlite._rows_claimed import CLAIMED_COLUMNS
from aioqueue.sqlite._rows_ids import any_id

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.sqlite._rows_ids import RowId

__all__ = ["PARKED_AT_ONCE", "open_types", "park", "park_if_paused", "pick_around_pauses"]

PARKED_AT_ONCE = 500
"""Jobs at which a claim looks beyond its limit, while keys are paused: it parks as many at most, and some more."""

_OPEN_TYPES = f"""
SELECT (SELECT json_group_array(asked.value) FROM json_each(:types) AS asked WHERE NOT {type_is_paused("asked.value")}),
    EXISTS (SELECT 1 FROM pause WHERE pause.target = 'key' AND {LASTS})
"""

_HEADS, _HEADS_WITHIN_QUOTAS = (
    f"""
SELECT json_group_array(json_array(picked.id, {key_is_paused("job.key")}))
FROM {heads} AS picked CROSS JOIN job ON job.id = picked.id
"""
    for heads in (HEADS, HEADS_WITHIN_QUOTAS)
)

_ROWS = f"""
SELECT json_group_array(json_array({CLAIMED_COLUMNS})) FROM json_each(:ids) AS asked CROSS JOIN job ON job.id = asked.value
"""

_PARK = f"""
UPDATE job SET state = 0, gate = {GATE_OF} key WHERE state = 1 AND id IN (SELECT value FROM json_each(:ids))
"""

_ARE_PAUSED = f"SELECT {type_is_paused(':type')}, {key_is_paused(':key')}"

_PARK_ONE = f"UPDATE job SET state = 0, gate = {GATE_OF} key WHERE state = 1 AND id = {any_id('row')}"


def open_types(connection: Statements, types: str) -> tuple[str, bool]:
    """Of types, as a JSON array, those that aren't paused; and whether any keys are."""
    left, keys = connection.execute(_OPEN_TYPES, {"types": types}).fetchone()
    return left, bool(keys)


def pick_around_pauses(connection: sqlite3.Connection, heads: Mapping[str, Any]) -> tuple[str, list[str]]:
    """See what a claim would take, and what it would park.

    Arguments:
        connection: Where.
        heads: As of `Wanted.heads`. A paused one counts for its quota too, until it's parked.

    Returns:
        The rows as JSON, and ids.

    Raises:
        Unreadable: Some row is odd.
    """
    left, keys = open_types(connection, heads["types"])
    limit: int = heads["limit"]
    statement = _HEADS_WITHIN_QUOTAS if "quotas" in heads else _HEADS
    asked = {**heads, "types": left, "limit": limit + PARKED_AT_ONCE if keys else limit}
    found: list[tuple[str, int]] = load(one(connection, statement, asked)[0])
    sound = [job_id for job_id, paused in found if not paused][:limit]
    rows: str = one(connection, _ROWS, {"ids": dump(sound)})[0]
    return rows, [job_id for job_id, paused in found if paused]


def park(connection: sqlite3.Connection, ids: Sequence[str]) -> None:
    """Have jobs wait until their keys aren't paused any more, outside of what claims look at.

    Raises:
        RowRejected: One of them can't be parked.
    """
    if connection.execute(_PARK, {"ids": dump(ids)}).rowcount != len(ids):
        raise RowRejected("a row can't be parked: its id can't be found again, or a trigger keeps it as it is")


def park_if_paused(connection: sqlite3.Connection, row_id: RowId, job_type: str, key: str | None) -> bool:
    """Look at the pauses for a single row, and park it if its key is paused. Returns whether it mustn't be claimed."""
    of_type, of_key = connection.execute(_ARE_PAUSED, {"type": job_type, "key": key}).fetchone()
    if of_key and not of_type:
        connection.execute(_PARK_ONE, row_id.parameters("row"))
    return bool(of_type or of_key)
