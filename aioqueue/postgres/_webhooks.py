"""Deliveries of webhooks: taking those that are due, keeping what became of them, and showing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.postgres._events_log import logged
from aioqueue.postgres._notifications import notify_statements
from aioqueue.postgres._webhooks_ends import deliveries_note
from aioqueue.store_rules._cursors import read_cursor, write_cursor
from aioqueue.vocabulary._event_log import EventKind
from aioqueue.vocabulary._listing import ListOrder
from aioqueue.vocabulary._webhooks import Delivery, DeliveryPage, DeliveryState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from uuid import UUID

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._connections_driver import Row
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._webhooks import DeliveryTry

__all__ = ["Deliveries", "webhook_statements"]

_STATES = {DeliveryState.PENDING: 1, DeliveryState.DELIVERED: 4, DeliveryState.FAILED: 6}
_STATE_OF = {number: state for state, number in _STATES.items()}

_COLUMNS = """d.id, d.job_id, d.chain_id, d.job_type, d.event, d.url, d.body, d.state, d.tries, d.created_at, d.next_at,
    d.status, d.response, d.finished_at"""
_TAKEN = f"""free AS MATERIALIZED (
    SELECT d.id FROM @schema@.delivery d WHERE d.id = ANY(ARRAY(SELECT id FROM due)) AND d.state + 0 = 1 AND d.next_at <= now()
    FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE @schema@.delivery d SET tries = d.tries + 1, next_at = now() + make_interval(secs => $2::float8)
    FROM (SELECT d.id, d.next_at FROM @schema@.delivery d WHERE d.id = ANY(ARRAY(SELECT id FROM free)) OFFSET 0) AS before
    WHERE d.id = before.id
    RETURNING before.next_at AS due_at, {_COLUMNS}
)"""
_ALL_TAKEN = f"{_TAKEN}\nSELECT * FROM taken ORDER BY due_at, id"
# Beyond what somebody has locked at that moment, as long as that isn't much.
_TAKE = f"""WITH due AS MATERIALIZED (
    SELECT d.id FROM @schema@.delivery d WHERE d.state = 1 AND d.next_at <= now()
    ORDER BY d.next_at, d.id LIMIT $1::integer FOR UPDATE SKIP LOCKED
), {_ALL_TAKEN}"""
_MOST_LOOKED_AT = 200
# Mostly it's found among the first ones. Where it may be that there's more than was taken, the next statement looks for it.
_TAKE_NEAR = f"""WITH near AS MATERIALIZED (
    SELECT d.id, d.host, d.next_at FROM @schema@.delivery d WHERE d.state = 1 AND d.next_at <= now()
    ORDER BY d.next_at, d.id LIMIT {_MOST_LOOKED_AT}
), due AS MATERIALIZED (
    SELECT near.id FROM near WHERE near.host <> ALL($3::text[]) ORDER BY near.next_at, near.id LIMIT $1::integer
), {_TAKEN}
SELECT (SELECT count(*) FROM near) = {_MOST_LOOKED_AT} OR (SELECT count(*) FROM due) > (SELECT count(*) FROM taken), taken.*
FROM (SELECT) AS once LEFT JOIN taken ON true ORDER BY taken.due_at, taken.id"""
# Those that are left out may have any number of them. Where all of the first ones are theirs, each host is looked up by itself,
# one after the other.
_TAKE_WITHOUT = f"""WITH RECURSIVE host(name) AS (
    SELECT (SELECT d.host FROM @schema@.delivery d WHERE d.state = 1 ORDER BY d.host LIMIT 1)
    UNION ALL
    SELECT (SELECT d.host FROM @schema@.delivery d WHERE d.state = 1 AND d.host > host.name ORDER BY d.host LIMIT 1)
    FROM host WHERE host.name IS NOT NULL
), due AS MATERIALIZED (
    SELECT first.id
    FROM host CROSS JOIN LATERAL (
        SELECT d.id, d.next_at FROM @schema@.delivery d WHERE d.state = 1 AND d.host = host.name AND d.next_at <= now()
        ORDER BY d.next_at, d.id LIMIT $1::integer FOR UPDATE SKIP LOCKED) AS first
    WHERE host.name <> ALL($3::text[])
    ORDER BY first.next_at, first.id LIMIT $1::integer
), {_ALL_TAKEN}"""
_NEXT = """SELECT greatest(0, extract(epoch FROM first.next_at - clock_timestamp()))::float8
FROM (SELECT d.next_at FROM @schema@.delivery d WHERE d.state = 1 ORDER BY d.next_at LIMIT 1) AS first"""
_LOGGED = logged(
    f"""SELECT CASE state WHEN 4 THEN '{EventKind.DELIVERED}' ELSE '{EventKind.UNDELIVERED}' END, job_id, chain_id, job_type,
           0, 0, status FROM tried WHERE state <> 1""",
    "status",
)
_TRIED = f"""WITH locked AS MATERIALIZED (
    SELECT d.id FROM @schema@.delivery d WHERE d.id = ANY($1::uuid[]) AND d.state + 0 = 1 ORDER BY d.id FOR UPDATE
), tried AS (
    UPDATE @schema@.delivery d
    SET state = given.state, status = given.status, response = given.response,
        next_at = CASE given.state WHEN 1 THEN now() + make_interval(secs => given.delay) END,
        finished_at = CASE given.state WHEN 1 THEN NULL ELSE now() END
    FROM unnest($1::uuid[], $2::integer[], $3::smallint[], $4::float8[], $5::integer[], $6::text[])
        AS given(id, tries, state, delay, status, response)
    WHERE d.id = given.id AND d.tries = given.tries AND d.state + 0 = 1 AND d.id = ANY(ARRAY(SELECT id FROM locked))
    RETURNING d.id, d.job_id, d.chain_id, d.job_type, d.state, d.tries, d.status
), {_LOGGED}
SELECT id FROM tried"""
_LIST = f"""SELECT {_COLUMNS} FROM @schema@.delivery d WHERE @where@ AND ($1::uuid IS NULL OR d.id < $1::uuid)
ORDER BY d.id DESC LIMIT $2::integer"""
# Locked in the order of ids, as where tries are written: both may be about the same ones.
_REPLAY = """WITH wanted AS MATERIALIZED (
    SELECT d.id FROM @schema@.delivery d WHERE d.id = ANY($1::uuid[]) ORDER BY d.id FOR UPDATE
)
UPDATE @schema@.delivery d SET state = 1, tries = 0, next_at = now(), finished_at = NULL
WHERE d.id = ANY(ARRAY(SELECT id FROM wanted)) RETURNING d.id"""


def webhook_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "deliveries_take": _TAKE,
        "deliveries_take_near": _TAKE_NEAR,
        "deliveries_take_without": _TAKE_WITHOUT,
        "deliveries_next": _NEXT,
        "deliveries_tried": _TRIED,
        "deliveries_replay": _REPLAY,
        "deliveries_all": _LIST.replace("@where@", "true"),
        "deliveries_of_chain": _LIST.replace("@where@", "d.chain_id = $3::uuid"),
        "deliveries_in_state": _LIST.replace("@where@", "d.state = $3::smallint"),
        "deliveries_of_chain_in_state": _LIST.replace("@where@", "d.chain_id = $3::uuid AND d.state + 0 = $4::smallint"),
    }
    return {name: schema.render(template) for name, template in templates.items()} | notify_statements(schema)


class Deliveries:
    """The deliveries of a store, over the pool that serves its workers.

    Arguments:
        pool: Serves the workers.
        schema: Where the tables are.
        origin: Who tells other processes of what is due; None if nobody is to be told.
    """

    def __init__(self, pool: Pool, schema: Schema, origin: str | None) -> None:
        self._pool = pool
        self._statements = webhook_statements(schema)
        self._origin = origin

    async def take(self, limit: int, duration: float, without: Collection[str]) -> list[Delivery]:
        """See `aioqueue.abc.SupportsWebhooks.take_deliveries`."""
        if without:
            near = await self._pool.fetch(self._statements["deliveries_take_near"], limit, duration, list(without))
            rows = [row[1:] for row in near if row[2] is not None]
            if near[0][0] and (left := limit - len(rows)) > 0:
                rows += await self._pool.fetch(self._statements["deliveries_take_without"], left, duration, list(without))
        else:
            rows = list(await self._pool.fetch(self._statements["deliveries_take"], limit, duration))
        return [_delivery(row[1:]) for row in rows]

    async def due(self) -> float | None:
        """See `aioqueue.abc.SupportsWebhooks.next_delivery`."""
        rows = await self._pool.fetch(self._statements["deliveries_next"])
        return rows[0][0] if rows else None

    async def write(self, tries: Sequence[DeliveryTry]) -> None:
        """See `aioqueue.abc.SupportsWebhooks.write_tries`."""
        if not tries:
            return
        await self._pool.fetch(
            self._statements["deliveries_tried"],
            [each.id for each in tries],
            [each.tries for each in tries],
            [_STATES[each.state] for each in tries],
            [each.delay for each in tries],
            [each.status for each in tries],
            [each.response.replace("\0", "\ufffd") for each in tries],
        )

    async def page(self, chain_id: UUID | None, state: DeliveryState | None, limit: int, cursor: str | None) -> DeliveryPage:
        """See `aioqueue.abc.SupportsWebhooks.list_deliveries`."""
        before = None if cursor is None else read_cursor(ListOrder.NEWEST, cursor)[0]
        asked = [each for each in (chain_id, None if state is None else _STATES[state]) if each is not None]
        name = {
            (True, True): "deliveries_all",
            (False, True): "deliveries_of_chain",
            (True, False): "deliveries_in_state",
            (False, False): "deliveries_of_chain_in_state",
        }[chain_id is None, state is None]
        rows = await self._pool.fetch(self._statements[name], before, limit + 1, *asked)
        page = [_delivery(row) for row in rows[:limit]]
        return DeliveryPage(tuple(page), write_cursor(ListOrder.NEWEST, page[-1].id) if len(rows) > limit and page else None)

    async def replay(self, ids: Sequence[UUID]) -> list[bool]:
        """See `aioqueue.abc.SupportsWebhooks.replay_deliveries`."""
        async with self._pool.transaction() as connection:
            there = {row[0] for row in await connection.fetch(self._statements["deliveries_replay"], list(ids))}
            if there and self._origin is not None:
                await connection.fetch(self._statements["notify"], deliveries_note(self._origin))
        return [each in there for each in ids]


def _delivery(row: Row) -> Delivery:
    (
        delivery_id, job_id, chain_id, job_type, event, url, body, state, tries, created_at, next_at, status, response,
        finished_at,
    ) = row  # fmt: skip
    return Delivery(
        id=delivery_id,
        job_id=job_id,
        chain_id=chain_id,
        job_type=job_type,
        event=event,
        url=url,
        body=body,
        state=_STATE_OF.get(state, DeliveryState.FAILED),
        tries=tries,
        created_at=created_at,
        next_at=next_at,
        status=status,
        response=response,
        finished_at=finished_at,
    )
