"""What claims and upkeep share about pauses: which are valid, which jobs they keep, and how those are parked and come back.

A job with a paused key that a claim comes to is parked: held, with the key in its `gate`, outside the index of pending jobs.
It's parked by what the database says at that moment, and not under a lock of the pause: one that is parked just when the pause
is lifted is found by upkeep, as is everything else whose key isn't paused any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aioqueue.postgres._connections_halving import in_halves
from aioqueue.vocabulary._pauses import HELD_BY_PAUSE, PauseTarget

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from uuid import UUID

    from aioqueue.errors import StoreError
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema

__all__ = [
    "GATE",
    "PARKED",
    "VALID",
    "Back",
    "bring_back",
    "key_has_pause",
    "key_is_paused",
    "parked_statements",
    "parking",
    "type_is_free",
]

GATE = f"'{HELD_BY_PAUSE}'::text"
"""What stands before a paused key in the `gate` of a parked job."""

VALID = "(p.until IS NULL OR p.until > now())"
"""Whether a pause `p` isn't over."""

PARKED = "j.state + 0 = 0 AND j.gate IS NOT NULL AND j.open_blockers <= 0"
"""Whether a job `j` is held for another reason than that it waits for chains."""


def type_is_free(type_: str) -> str:
    """An expression: whether jobs of a type may be claimed. What is paused is looked up once for a statement.

    Arguments:
        type_: The column with the type's name.
    """
    return f"""NOT EXISTS (SELECT FROM @schema@.pause p WHERE p.target = '{PauseTarget.ALL}' AND {VALID})
      AND {type_} NOT IN (SELECT p.value FROM @schema@.pause p WHERE p.target = '{PauseTarget.TYPE}' AND {VALID})"""


def key_has_pause(key: str) -> str:
    """An expression: whether a key is paused.

    Arguments:
        key: The column with the key.
    """
    # Looked up for each: as `EXISTS` all pauses might be hashed.
    found = f"SELECT true FROM @schema@.pause p WHERE p.target = '{PauseTarget.KEY}' AND p.value = {key} AND {VALID} LIMIT 1"
    return f"({found}) IS NOT NULL"


def key_is_paused(key: str) -> str:
    """The same for many jobs, of which most have no key: where none is paused, that is seen once for a statement.

    Arguments:
        key: The column with the key, or NULL.
    """
    any_key = f"(SELECT true FROM @schema@.pause p WHERE p.target = '{PauseTarget.KEY}' LIMIT 1)"
    return f"CASE WHEN {key} IS NOT NULL AND {any_key} THEN {key_has_pause(key)} ELSE false END"


def parking(ids: str) -> str:
    """Parts of a `WITH` that park pending jobs with a paused key: `free`, those that nobody has locked, and `parked`.

    Arguments:
        ids: A query for their ids.
    """
    return f"""free AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j
    WHERE j.id = ANY(ARRAY({ids})) AND j.state + 0 = 1 AND {key_is_paused("j.key")} FOR UPDATE OF j SKIP LOCKED
), parked AS (
    UPDATE @schema@.job j SET state = 0, gate = {GATE} || j.key WHERE j.id = ANY(ARRAY(SELECT id FROM free)) RETURNING j.id
)"""


_LOCK = f"""SELECT back.id FROM unnest($1::text[]) AS given(key)
CROSS JOIN LATERAL (
    SELECT j.id FROM @schema@.job j
    WHERE j.state = 0 AND j.gate = {GATE} || given.key AND NOT j.id = ANY($3::uuid[])
    ORDER BY j.priority, j.run_at, j.id LIMIT $2::integer FOR UPDATE OF j SKIP LOCKED) AS back
WHERE NOT ({key_has_pause("given.key")}) LIMIT $2::integer"""
# As whatever becomes pending they're due no earlier than now, and in their order.
_UNPARK = """WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now), back AS (
    UPDATE @schema@.job j
    SET state = CASE WHEN j.open_blockers > 0 THEN 0 ELSE 1 END, gate = NULL,
        run_at = greatest(j.run_at, clock.now - (cardinality($1::uuid[]) - array_position($1::uuid[], j.id)) * interval '1 us')
    FROM clock WHERE j.id = ANY($1::uuid[]) AND j.state + 0 = 0 AND j.gate IS NOT NULL
    RETURNING j.type, CASE WHEN isfinite(j.run_at) THEN greatest(0, extract(epoch FROM j.run_at - clock.now))::float8
                           ELSE 'infinity' END AS delay
)
SELECT type, min(delay), count(*)::integer FROM back GROUP BY type"""


def parked_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {"parked_lock": schema.render(_LOCK), "unpark": schema.render(_UNPARK)}


class Back(NamedTuple):
    """What has come back.

    Attributes:
        jobs: How many.
        types: Their types.
        delay: Seconds until the first of them is due; infinite without any.
        cut: Whether there may be more.
    """

    jobs: int = 0
    types: frozenset[str] = frozenset()
    delay: float = float("inf")
    cut: bool = False


async def bring_back(
    connection: Connection,
    statements: dict[str, str],
    keys: Sequence[str],
    limit: int,
    *,
    passed_over: Collection[UUID] = (),
    refused: dict[UUID, StoreError] | None = None,
) -> Back:
    """Let parked jobs be pending again, a portion, within the connection's open transaction.

    Arguments:
        connection: In a transaction, in which rows are waited for briefly.
        statements: Those of this module, and maybe others.
        keys: Their keys; of those that are paused (still, or again) none comes back.
        limit: Jobs at most.
        passed_over: Jobs that stay.
        refused: Where jobs are put that refuse to come back, and why.
    """
    rows = await connection.fetch(statements["parked_lock"], list(keys), limit, list(passed_over))
    done: list[tuple[str, float, int]] = []

    async def unpark(ids: Sequence[UUID]) -> None:
        done.extend(await connection.fetch(statements["unpark"], ids))

    undone = await in_halves(connection, [row[0] for row in rows], unpark)
    if refused is not None:
        refused.update({job_id: why for job_id, why in undone if why is not None})
    return Back(
        jobs=sum(row[2] for row in done),
        types=frozenset(row[0] for row in done),
        delay=min((row[1] for row in done), default=float("inf")),
        cut=len(rows) >= limit and bool(done),
    )
