"""What handlers have logged, stored with the outcomes of their attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import RowRejected
from aioqueue.store_rules._phases import KEPT_LOGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import Settlement

__all__ = ["log_statements", "store_logs"]

_STORE = """INSERT INTO @schema@.job_log (job_id, claims, attempt, lines)
SELECT * FROM unnest($1::uuid[], $2::integer[], $3::integer[], $4::text[]::json[])
ON CONFLICT (job_id, claims) DO UPDATE SET attempt = excluded.attempt, lines = excluded.lines"""
_FORGET = f"""DELETE FROM @schema@.job_log l USING unnest($1::uuid[]) AS given(id)
WHERE l.job_id = given.id AND l.claims < (
    SELECT n.claims FROM @schema@.job_log n WHERE n.job_id = given.id ORDER BY n.claims DESC OFFSET {KEPT_LOGS - 1} LIMIT 1)"""


def log_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {"store_logs": schema.render(_STORE), "forget_logs": schema.render(_FORGET)}


async def store_logs(connection: Connection, statements: dict[str, str], settlements: Sequence[Settlement]) -> None:
    """Store what was logged in these attempts, within the connection's open transaction that settles them.

    Raises:
        RowRejected, asyncpg.PostgresError: Such as where somebody has made lines of it that aren't JSON.
    """
    try:
        lines = [None if each.logs is None else each.logs.decode() for each in settlements]
    except UnicodeDecodeError as error:
        raise RowRejected(f"what was logged can't be stored: {error}") from None
    ids = [each.id for each in settlements]
    claims, attempts = [each.claims for each in settlements], [each.attempt for each in settlements]
    await connection.execute(statements["store_logs"], ids, claims, attempts, lines)
    if many := [each.id for each in settlements if each.claims > KEPT_LOGS]:
        await connection.execute(statements["forget_logs"], many)
