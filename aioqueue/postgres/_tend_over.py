"""What is over by its time: windows of unique keys, pauses, finished deliveries of webhooks, and the log that nobody reads any
more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.postgres._webhooks_ends import FORGET_DELIVERIES, OLD_DELIVERIES
from aioqueue.store_rules._events import KEPT_SECONDS

if TYPE_CHECKING:
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema

__all__ = ["OVER", "over_statements", "remove_over"]

# One that somebody renews at that moment is locked, and not over any more afterwards.
_FORGET_WINDOWS = """DELETE FROM @schema@.dedup d WHERE d.key = ANY(ARRAY(
    SELECT d.key FROM @schema@.dedup d WHERE d.expires_at <= now() ORDER BY d.expires_at LIMIT $1::integer
    FOR UPDATE SKIP LOCKED)) RETURNING d.key"""

# One that somebody makes longer at that moment is looked at again.
_FORGET_PAUSES = """WITH old AS MATERIALIZED (
    SELECT p.target, p.value, p.by FROM @schema@.pause p WHERE p.until <= now() ORDER BY p.until LIMIT $1::integer
)
DELETE FROM @schema@.pause p USING old
WHERE p.target = old.target AND p.value = old.value AND p.by = old.by AND p.until <= now() RETURNING p.target"""

# Readers mark how far the log is removed, and remove it. What the last one leaves, nobody can resume from.
_LONG_AGO = f"now() - make_interval(secs => {KEPT_SECONDS})"
_UNREAD = f"""EXISTS (SELECT FROM @schema@.event_mark m WHERE m.at < {_LONG_AGO})
            AND NOT EXISTS (SELECT FROM @schema@.reader r WHERE r.expires_at > {_LONG_AGO})"""
_FORGET_EVENTS = f"""WITH old AS MATERIALIZED (
    SELECT e.sequence FROM @schema@.event e WHERE e.at < {_LONG_AGO} ORDER BY e.sequence LIMIT $1::integer
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM @schema@.event e WHERE e.sequence = ANY(ARRAY(SELECT sequence FROM old)) RETURNING e.sequence
), marks AS (
    DELETE FROM @schema@.event_mark m WHERE m.at < {_LONG_AGO} AND (SELECT count(*) FROM old) < $1::integer
)
SELECT sequence FROM gone"""
_FEWEST_EVENTS = 5_000

OVER = f"""array_remove(ARRAY[
           CASE WHEN EXISTS (SELECT FROM @schema@.dedup d WHERE d.expires_at <= now()) THEN 'windows' END,
           CASE WHEN EXISTS (SELECT FROM @schema@.pause p WHERE p.until <= now()) THEN 'pauses' END,
           CASE WHEN {OLD_DELIVERIES} THEN 'deliveries' END,
           CASE WHEN {_UNREAD} THEN 'events' END], NULL)"""
"""An expression: which of these there is something of, as `remove_over` takes it."""


def over_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {
        "over_windows": schema.render(_FORGET_WINDOWS),
        "over_pauses": schema.render(_FORGET_PAUSES),
        "over_deliveries": schema.render(FORGET_DELIVERIES),
        "over_events": schema.render(_FORGET_EVENTS),
    }


async def remove_over(connection: Connection, statements: dict[str, str], what: str, limit: int) -> bool:
    """Remove some of it, within the connection's open transaction; returns whether there may be more.

    Arguments:
        connection: In a transaction.
        statements: Those of this module, and maybe others.
        what: As `OVER` says.
        limit: Rows at most; of the log there may be more, which are small.
    """
    most = max(limit, _FEWEST_EVENTS) if what == "events" else limit
    return len(await connection.fetch(statements[f"over_{what}"], most)) >= most
