"""Deleting: a chain with all of its steps, whatever its state, unless others wait for its end.

The live or last step is locked first, by a statement of its own: whoever began to wait before is seen by the next one, and
whoever claims or retries it meanwhile keeps its chain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.errors import StoreContended
from aioqueue.postgres._events_log import logged
from aioqueue.postgres._notifications import leases_note, notify_statements
from aioqueue.postgres._resolve import Resolved, resolve, resolve_statements
from aioqueue.postgres._resolve_ends import ends_statements, store_deleted
from aioqueue.postgres._rows_beside import without_beside
from aioqueue.postgres._rows_chain import ENDS
from aioqueue.postgres._webhooks_ends import dropped_deliveries
from aioqueue.store_rules._unique_keys import TAKEN_OVER_ORDINAL
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._event_log import EventKind
from aioqueue.vocabulary._job import StoredState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema

__all__ = ["DELETED_STEPS", "Deleted", "delete", "delete_statements", "delete_steps"]

DELETED_STEPS = 1_000
"""Archived steps of chains that one transaction removes beside the last ones: a statement may take so many seconds only."""

_MOST_LOOKS = 20
"""How often the live steps are looked for, of chains that go on at that moment."""

_LOCK = f"""WITH {ENDS}, live AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j WHERE j.id = ANY(ARRAY(SELECT live FROM ends)) ORDER BY j.id FOR UPDATE
), last AS MATERIALIZED (
    SELECT a.id FROM @schema@.archive a WHERE a.id = ANY(ARRAY(SELECT last FROM ends)) ORDER BY a.id FOR UPDATE
)
SELECT count(*) FROM ends
WHERE coalesce(ends.live, ends.last) IS NOT NULL
  AND coalesce(ends.live, ends.last) NOT IN (SELECT id FROM live UNION ALL SELECT id FROM last)"""

_GONE = (
    """SELECT id FROM changed UNION ALL SELECT id FROM deleted UNION ALL SELECT id FROM last UNION ALL SELECT id FROM earlier"""
)
_LOGGED = logged(
    f"""SELECT '{EventKind.DELETED}', id, coalesce(chain_id, id), type, attempt, claims FROM forgotten
    UNION ALL SELECT '{EventKind.DELETED}', id, coalesce(chain_id, id), type, attempt, claims FROM deleted"""
)
# What is deleted itself waits for nothing; but what stays, since others wait for it, keeps what it waits for. Whoever has taken
# a chain's key over waits for its end, and that it's gone is one.
_DELETE = f"""WITH RECURSIVE {ENDS}, needs AS MATERIALIZED (
    SELECT ends.id AS waiting, needed.id FROM ends
    CROSS JOIN LATERAL (
        SELECT b.chain_id AS id, b.resolved, b.ordinal FROM @schema@.blocker b WHERE b.job_id = ends.live
        ORDER BY b.ordinal OFFSET 0
    ) AS needed
    WHERE NOT $3::boolean AND NOT needed.resolved AND needed.ordinal <> {TAKEN_OVER_ORDINAL}
), kept AS (
    SELECT ends.id FROM ends
    WHERE NOT $3::boolean AND (
        SELECT true FROM @schema@.blocker b
        WHERE b.chain_id = ends.id AND NOT b.resolved AND b.ordinal <> {TAKEN_OVER_ORDINAL}
          AND (SELECT true FROM @schema@.job j WHERE j.id = b.job_id LIMIT 1)
          AND b.job_id NOT IN (SELECT live FROM ends WHERE live IS NOT NULL)
        LIMIT 1)
    UNION
    SELECT needs.id FROM kept JOIN needs ON needs.waiting = kept.id
), awaited AS MATERIALIZED (
    SELECT DISTINCT ends.id FROM ends WHERE ends.id IN (SELECT id FROM kept)
), last AS MATERIALIZED (
    SELECT a.id, a.type FROM @schema@.archive a
    WHERE a.id = ANY(ARRAY(SELECT last FROM ends WHERE id NOT IN (SELECT id FROM awaited))) ORDER BY a.id FOR UPDATE
), deleted AS (
    DELETE FROM @schema@.job j
    WHERE j.id = ANY(ARRAY(SELECT live FROM ends WHERE id NOT IN (SELECT id FROM awaited)))
    RETURNING j.id, j.chain_id, j.type, j.state, j.lease_id, j.attempt, j.claims
), changed AS MATERIALIZED (
    SELECT DISTINCT ON (ends.id) ends.id, gone.type, gone.live, gone.lease_id FROM ends
    JOIN (SELECT id, type, true AS live, CASE WHEN state = 2 THEN lease_id END AS lease_id FROM deleted
          UNION ALL SELECT id, type, false, NULL FROM last) AS gone ON gone.id = coalesce(ends.live, ends.last)
    ORDER BY ends.id
), earlier AS MATERIALIZED (
    SELECT a.id FROM @schema@.archive a WHERE a.chain_id = ANY(ARRAY(SELECT id FROM changed)) LIMIT $2::integer
), forgotten AS (
    DELETE FROM @schema@.archive a
    WHERE a.id = ANY(ARRAY(SELECT id FROM changed UNION ALL SELECT id FROM last UNION ALL SELECT id FROM earlier))
    RETURNING a.id, a.chain_id, a.type, a.attempt, a.claims
), {_LOGGED}, unneeded AS (
    DELETE FROM @schema@.blocker b WHERE b.job_id = ANY(ARRAY(SELECT id FROM deleted UNION ALL SELECT id FROM last))
), {dropped_deliveries("SELECT id FROM changed")}, not_asked AS (
    DELETE FROM @schema@.cancel_request r WHERE r.chain_id = ANY(ARRAY(SELECT id FROM changed))
), {without_beside(_GONE)}
SELECT ends.asked, ends.id, changed.type, (SELECT j.state FROM @schema@.job j WHERE j.id = ends.live), ends.last IS NOT NULL,
       ends.id IN (SELECT id FROM awaited), changed.live, changed.lease_id, (SELECT count(*) FROM earlier)
FROM ends LEFT JOIN changed ON changed.id = ends.id"""

# Of chains whose ends are gone. One that begins anew is left alone.
_DELETE_STEPS = f"""WITH gone AS (
    DELETE FROM @schema@.archive a WHERE a.id = ANY(ARRAY(
        SELECT step.id FROM unnest($1::uuid[]) AS chain(id)
        CROSS JOIN LATERAL (SELECT a.id FROM @schema@.archive a WHERE a.chain_id = chain.id LIMIT $2::integer) AS step
        WHERE NOT EXISTS (SELECT FROM @schema@.job j WHERE j.chain_id = chain.id)
          AND NOT EXISTS (SELECT FROM @schema@.job j WHERE j.id = chain.id)
        LIMIT $2::integer)) RETURNING a.id, a.chain_id, a.type, a.attempt, a.claims
), {logged(f"SELECT '{EventKind.DELETED}', id, coalesce(chain_id, id), type, attempt, claims FROM gone")},
{without_beside("SELECT id FROM gone")}
SELECT count(*) FROM gone"""


def delete_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {"delete_lock": _LOCK, "delete": _DELETE, "delete_steps": _DELETE_STEPS}
    return {
        **{name: schema.render(template) for name, template in templates.items()},
        **notify_statements(schema),
        **ends_statements(schema),
        **resolve_statements(schema),
    }


@dataclass(slots=True)
class Deleted:
    """What is gone.

    Attributes:
        chains: The chains.
        leases: Leases of which a running job was taken.
        told: What those that waited were told.
        more: Whether there may be steps left of the chains: `delete_steps` removes those.
    """

    chains: set[UUID] = field(default_factory=set[UUID])
    leases: set[int] = field(default_factory=set[int])
    told: Resolved = field(default_factory=Resolved)
    more: bool = False


async def delete(
    connection: Connection, statements: dict[str, str], ids: Sequence[UUID], *, cascade: bool, origin: str | None
) -> tuple[list[Changed], Deleted]:
    """Remove chains, within the connection's open transaction.

    Arguments:
        connection: In a transaction, in which rows are waited for briefly.
        statements: Those of this module, and maybe others.
        ids: Of any steps.
        cascade: Whether those that wait for them are removed too: some now, the others by tending.
        origin: Who tells other processes; None if nobody is to be told.

    Raises:
        StoreContended, asyncpg.PostgresError: Such as where somebody's open transaction holds a row.
    """
    for _ in range(_MOST_LOOKS):
        ((moved,),) = await connection.fetch(statements["delete_lock"], list(ids))
        if not moved:
            break
    else:
        raise StoreContended("a chain goes on so quickly that it can't be deleted")
    rows = await connection.fetch(statements["delete"], list(ids), DELETED_STEPS, cascade)
    gone = {row[1]: row for row in rows if row[2] is not None}
    deleted = Deleted(
        chains=set(gone),
        leases={row[7] for row in gone.values() if row[7] is not None},
        more=any(row[8] == DELETED_STEPS for row in rows),
    )
    live = {chain_id: row[2] for chain_id, row in gone.items() if row[6]}
    waited = await store_deleted(connection, statements, live, take_along=cascade)
    if cascade:
        ended = {chain_id: row[2] for chain_id, row in gone.items() if not row[6]}
        waited |= await store_deleted(connection, statements, ended, take_along=True, ended=True)
    await resolve(connection, statements, waited, deleted.told, origin=origin, marked_untold=True)
    if origin is not None:
        for note in leases_note(deleted.leases, origin):
            await connection.fetch(statements["notify"], note)
    found = {row[0]: row for row in rows}
    return [_became(found[each]) for each in ids], deleted


def _became(row: Sequence[object]) -> Changed:
    _, _, changed, live, archived, awaited, *_ = row
    if changed is not None:
        return Changed.DONE
    if awaited:
        return Changed.BLOCKS
    if live == StoredState.RUNNING:
        return Changed.RUNNING
    return Changed.NOT_FOUND if live is None and not archived else Changed.WRONG_STATE


async def delete_steps(connection: Connection, statements: dict[str, str], chains: Collection[UUID]) -> bool:
    """Remove one portion of the steps that deleted chains had behind them; returns whether there may be more."""
    ((removed,),) = await connection.fetch(statements["delete_steps"], list(chains), DELETED_STEPS)
    return int(removed) == DELETED_STEPS
