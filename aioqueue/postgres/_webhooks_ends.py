"""Storing what receivers of webhooks are told: in the transaction that has ended their chains, by a later statement of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from aioqueue.postgres._notifications import notify_statements
from aioqueue.postgres._resolve_ends import error_of
from aioqueue.store_rules._deliveries import FINISHED_KEPT_SECONDS, ChainEnding, delivery_of
from aioqueue.vocabulary._origin import decode_origin
from aioqueue.vocabulary._webhook_url import webhook_host

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from uuid import UUID

    from aioqueue.postgres._connections_driver import Connection, Row
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._webhooks import Delivery

__all__ = [
    "deliveries_note",
    "delivery_columns",
    "FORGET_DELIVERIES",
    "OLD_DELIVERIES",
    "dropped_deliveries",
    "ending_of",
    "insert_deliveries",
    "store_deliveries",
    "store_deliveries_statements",
]

_OLD = f"d.finished_at < now() - make_interval(secs => {FINISHED_KEPT_SECONDS:.0f})"
OLD_DELIVERIES = f"EXISTS (SELECT FROM @schema@.delivery d WHERE {_OLD})"
"""Whether there are some that were finished long ago."""

FORGET_DELIVERIES = f"""DELETE FROM @schema@.delivery d WHERE d.id = ANY(ARRAY(
    SELECT d.id FROM @schema@.delivery d WHERE {_OLD} ORDER BY d.finished_at LIMIT $1::integer
    FOR UPDATE SKIP LOCKED)) RETURNING d.id"""
"""Removes some of those."""

_ENDINGS = """SELECT a.id, a.chain_id, a.type, a.state, a.attempt, a.finished_at, a.webhook, a.key, a.tags, a.outcome, a.output,
       a.error, a.origin
FROM unnest($1::uuid[]) AS given(id)
CROSS JOIN LATERAL (
    SELECT a.id, coalesce(a.chain_id, a.id) AS chain_id, a.type, a.state, a.attempt, a.finished_at,
           a.webhook, a.key, ARRAY(SELECT tag FROM unnest(a.tags) AS tag WHERE tag IS NOT NULL) AS tags, a.outcome,
           a.output::text AS output, a.errors[array_upper(a.errors, 1)]::text AS error, a.origin
    FROM @schema@.archive a WHERE a.id = given.id ORDER BY a.finished_at DESC LIMIT 1) AS a
WHERE a.webhook IS NOT NULL AND a.state IN (4, 6, 7)"""


def insert_deliveries(first: int) -> str:
    """The head of a statement that stores `delivery_columns`, whose parameters begin with this number, as `given`."""
    types = ("uuid", "uuid", "uuid", *["text"] * 4, "bytea")
    columns = ", ".join(f"${number}::{type_}[]" for number, type_ in enumerate(types, first))
    return f"""INSERT INTO @schema@.delivery (id, job_id, chain_id, job_type, event, url, host, body, created_at, next_at)
    SELECT given.*, now(), now() FROM unnest({columns}) AS given(id, job_id, chain_id, job_type, event, url, host, body)"""


def dropped_deliveries(chains: str) -> str:
    """A part of a `WITH`: removes the finished deliveries of chains that go, given by a query for their ids."""
    return f"""dropped_deliveries AS (
    DELETE FROM @schema@.delivery d WHERE d.chain_id = ANY(ARRAY({chains})) AND d.state + 0 <> 1
)"""


def store_deliveries_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {
        "deliveries_endings": schema.render(_ENDINGS),
        "deliveries_store": schema.render(insert_deliveries(1)),
        **notify_statements(schema),
    }


def deliveries_note(origin: str) -> str:
    """Say that deliveries are due."""
    return orjson.dumps({"o": origin, "w": 1}).decode()


async def store_deliveries(
    connection: Connection, statements: dict[str, str], jobs: Collection[UUID], *, origin: str | None
) -> None:
    """Store what is to be sent about chains that this transaction has ended, and tell other processes that it's due.

    Arguments:
        connection: In a transaction that has archived the jobs by an earlier statement.
        statements: Those of this module, and maybe others.
        jobs: The last ones of the chains, which have webhooks.
        origin: Who tells; None if nobody is to be told.
    """
    endings = await connection.fetch(statements["deliveries_endings"], list(jobs))
    made = [delivery for row in endings if (delivery := delivery_of(ending_of(row))) is not None]
    if not made:
        return
    await connection.fetch(statements["deliveries_store"], *delivery_columns(made))
    if origin is not None:
        await connection.fetch(statements["notify"], deliveries_note(origin))


def ending_of(row: Row) -> ChainEnding:
    """Read one row of the columns of `deliveries_endings`."""
    job_id, chain_id, job_type, state, attempt, finished_at, webhook, key, tags, outcome, output, error, origin = row
    return ChainEnding(
        job_id=job_id,
        chain_id=chain_id,
        job_type=job_type,
        state=state,
        attempt=attempt,
        finished_at=finished_at,
        webhook=webhook,
        key=key,
        tags=tuple(tags),
        outcome=outcome,
        output=None if output is None else output.encode(),
        error=error_of(error),
        origin=decode_origin(origin),
    )


def delivery_columns(deliveries: Sequence[Delivery]) -> list[list[object]]:
    """The arguments that store these: a column each."""
    return [
        [each.id for each in deliveries],
        [each.job_id for each in deliveries],
        [each.chain_id for each in deliveries],
        [each.job_type for each in deliveries],
        [each.event for each in deliveries],
        [each.url for each in deliveries],
        [webhook_host(each.url) for each in deliveries],
        [each.body for each in deliveries],
    ]
