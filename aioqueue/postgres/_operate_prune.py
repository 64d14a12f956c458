"""Removing what finished long ago, in portions along the index by state and time of the end."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.postgres._connections_source import WAIT_BRIEFLY
from aioqueue.postgres._events_log import logged
from aioqueue.postgres._rows_beside import without_beside
from aioqueue.postgres._webhooks_ends import dropped_deliveries
from aioqueue.vocabulary._answers import Pruned
from aioqueue.vocabulary._event_log import EventKind
from aioqueue.vocabulary._job import StoredState

if TYPE_CHECKING:
    from collections.abc import Collection

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._options_schema import Schema

__all__ = ["prune", "prune_statements"]

_OLD = "a.finished_at <= now() - make_interval(secs => $2::double precision)"

_LOGGED = logged(f"SELECT '{EventKind.DELETED}', id, coalesce(chain_id, id), type, attempt, claims FROM gone")
# Locked before they're deleted: who was retried since this statement began is gone, and who is being retried is skipped.
# `state + 0`: found by their ids. JSON writes a time in one way, whatever the session's settings.
_PRUNE = f"""WITH looked AS MATERIALIZED (
    SELECT a.id, a.type, a.finished_at FROM @schema@.archive a
    WHERE a.state = $1::smallint AND {_OLD} AND (a.finished_at, a.id) > ($4::text::timestamptz, $5::uuid)
    ORDER BY a.finished_at, a.id LIMIT $6::integer
), wanted AS MATERIALIZED (
    SELECT a.id FROM @schema@.archive a
    WHERE a.id = ANY(ARRAY(SELECT id FROM looked WHERE $3::text[] IS NULL OR type = ANY($3::text[])))
      AND a.state + 0 = $1::smallint AND {_OLD} FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM @schema@.archive a WHERE a.id = ANY(ARRAY(SELECT id FROM wanted))
    RETURNING a.id, a.chain_id, a.type, a.attempt, a.claims
), {dropped_deliveries("SELECT coalesce(chain_id, id) FROM gone WHERE $1::smallint <> 5")}, {_LOGGED},
{without_beside("SELECT id FROM gone")}
SELECT ARRAY(SELECT id FROM gone), ARRAY(SELECT coalesce(chain_id, id) FROM gone), (SELECT count(*) FROM looked),
       (SELECT to_json(finished_at) #>> '{{}}' || ' ' || id FROM looked ORDER BY finished_at DESC, id DESC LIMIT 1)"""

_BEGIN = f"-infinity {UUID(int=0)}"


def prune_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {"prune": schema.render(_PRUNE)}


async def prune(
    pool: Pool,
    statement: str,
    state: StoredState,
    older_than: float,
    types: Collection[str] | None,
    limit: int,
    cursor: str | None,
) -> tuple[Pruned, frozenset[UUID]]:
    """Remove one portion, as `aioqueue.abc.SupportsPrune` promises; returns the chains of which it was the last step, too."""
    finished_at, _, after = (cursor or _BEGIN).rpartition(" ")
    names = None if types is None else list(types)
    async with pool.transaction() as connection:
        await connection.execute(WAIT_BRIEFLY)
        ((gone, chains, looked, last),) = await connection.fetch(
            statement, int(state), older_than, names, finished_at, UUID(after), limit
        )
    ended = () if state == StoredState.CONTINUED else chains
    return Pruned(tuple(gone), last if looked == limit else None), frozenset(ended)
