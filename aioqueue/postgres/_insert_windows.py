"""Windows of unique keys: for how long a key is kept from others though its chain has completed.

A row of `dedup` is written by those that have a window, while they hold the key itself: so nobody else is at it, except for who
removes what has expired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from uuid import UUID

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema

__all__ = ["Window", "completed_within", "keep_keys", "window_statements"]

# A chain that has failed, was cancelled, deleted or pruned keeps nothing, and one that has lost its key while it's unfinished
# neither.
_COMPLETED = """coalesce(
    (SELECT a.state = 4 FROM @schema@.archive a WHERE a.chain_id = d.chain_id ORDER BY a.position DESC LIMIT 1),
    (SELECT a.state = 4 FROM @schema@.archive a WHERE a.id = d.chain_id LIMIT 1), false)"""
_KEEP = f"""WITH given AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::float8[], $4::boolean[]) AS given(key, chain_id, seconds, always)
), kept AS (
    INSERT INTO @schema@.dedup AS d (key, chain_id, expires_at)
    SELECT given.key, given.chain_id, clock_timestamp() + given.seconds * interval '1 second' FROM given ORDER BY given.key
    ON CONFLICT (key) DO UPDATE SET chain_id = excluded.chain_id, expires_at = excluded.expires_at
    WHERE (SELECT given.always FROM given WHERE given.key = d.key) OR d.expires_at <= clock_timestamp() OR NOT {_COMPLETED}
    RETURNING key
)
SELECT d.key, d.chain_id FROM @schema@.dedup d WHERE d.key = ANY(ARRAY(SELECT key FROM given EXCEPT SELECT key FROM kept))"""
_WITHIN = f"""SELECT d.key, d.chain_id FROM @schema@.dedup d
WHERE d.key = ANY($1::uuid[]) AND d.expires_at > clock_timestamp() AND {_COMPLETED}"""


class Window(NamedTuple):
    """For how long a chain keeps a key.

    Attributes:
        key: The key's hash.
        chain_id: The chain.
        seconds: From now.
        always: Whether it does so whatever has completed.
    """

    key: UUID
    chain_id: UUID
    seconds: float
    always: bool


def window_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {"windows_keep": schema.render(_KEEP), "windows_within": schema.render(_WITHIN)}


async def keep_keys(connection: Connection, statements: dict[str, str], windows: Sequence[Window]) -> dict[UUID, UUID]:
    """Write windows, each key's once; returns the chains that have completed and keep keys of these, by key.

    Arguments:
        connection: In a transaction that has stored or locked who holds the keys, by an earlier statement.
        statements: Those of this module, and maybe others.
        windows: Of different keys.
    """
    rows = await connection.fetch(
        statements["windows_keep"],
        [each.key for each in windows],
        [each.chain_id for each in windows],
        [each.seconds for each in windows],
        [each.always for each in windows],
    )
    return {row[0]: row[1] for row in rows}


async def completed_within(connection: Connection, statements: dict[str, str], keys: Collection[UUID]) -> dict[UUID, UUID]:
    """The chains that have completed and keep these keys, by key."""
    return {row[0]: row[1] for row in await connection.fetch(statements["windows_within"], list(keys))}
