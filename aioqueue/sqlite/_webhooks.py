"""Deliveries of webhooks: taken by whoever sends them, and what became of that."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from aioqueue.errors import AioqueueError
from aioqueue.runtime._log import event
from aioqueue.sqlite._connections_halving import halved
from aioqueue.sqlite._rows import dump, text_of
from aioqueue.sqlite._rows_ids import id_of
from aioqueue.sqlite._rows_times import NOW, due_after, moment
from aioqueue.store_rules._cursors import read_cursor, write_cursor
from aioqueue.store_rules._deliveries import FINISHED_KEPT_SECONDS
from aioqueue.vocabulary._listing import ListOrder
from aioqueue.vocabulary._notification import Notification
from aioqueue.vocabulary._webhooks import Delivery, DeliveryPage, DeliveryState

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections import Connection
    from aioqueue.sqlite._connections_access import Reader, Writer
    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._webhooks import DeliveryTry

__all__ = ["FORGOTTEN", "Webhooks"]

logger = logging.getLogger("aioqueue.sqlite")

_COLUMNS = (
    """id, job_id, chain_id, job_type, event, url, body, state, tries, created_at, next_at, status, response, finished_at"""
)

_DUE = f"""
SELECT id FROM delivery INDEXED BY delivery_due WHERE state = 1 AND next_at <= {NOW} ORDER BY next_at, id LIMIT :limit
"""

_DUE_ELSEWHERE = f"""
WITH RECURSIVE place(host) AS (
    SELECT (SELECT min(host) FROM delivery INDEXED BY delivery_due_by_host WHERE state = 1)
    UNION ALL
    SELECT (SELECT min(host) FROM delivery INDEXED BY delivery_due_by_host WHERE state = 1 AND host > place.host)
    FROM place WHERE host IS NOT NULL)
SELECT head.value ->> 1 FROM place, json_each((
    SELECT json_group_array(json_array(next_at, id)) FROM (
        SELECT next_at, id FROM delivery INDEXED BY delivery_due_by_host
        WHERE state = 1 AND delivery.host = place.host AND next_at <= {NOW} ORDER BY next_at, id LIMIT :limit))) AS head
WHERE place.host IS NOT NULL AND place.host NOT IN (SELECT value FROM json_each(:without))
ORDER BY head.value ->> 0, head.value ->> 1 LIMIT :limit
"""
"""From host to host: what waits for those that are left out isn't looked at, however much it is."""

_TAKE = f"""
UPDATE delivery SET tries = tries + 1, next_at = {NOW} + :duration
WHERE id IN (SELECT value FROM json_each(:ids)) RETURNING {_COLUMNS}
"""

_NEXT = f"SELECT min(next_at) - {NOW} FROM delivery INDEXED BY delivery_due WHERE state = 1"

_WRITE_TRY = f"""
UPDATE delivery SET state = :to, status = :status, response = :response,
    next_at = iif(:to = 1, :due, NULL), finished_at = iif(:to = 1, NULL, {NOW})
WHERE id = :id AND state = 1 AND tries = :tries
"""

_REPLAY = f"""
UPDATE delivery SET state = 1, tries = 0, next_at = {NOW}, finished_at = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) RETURNING id
"""

FORGOTTEN = f"finished_at < {NOW} - {round(FINISHED_KEPT_SECONDS * 1e6)}"
"""Deliveries that were finished long ago."""

_STATES = {1: DeliveryState.PENDING, 4: DeliveryState.DELIVERED, 6: DeliveryState.FAILED}
_CODES = {state: code for code, state in _STATES.items()}


class Webhooks:
    """Deliveries of one open store.

    Arguments:
        writer: Where they're taken, and written.
        looks: Where is looked what is due; listings don't come in its way.
        reader: Where they're listed.
    """

    def __init__(self, writer: Writer, looks: Reader, reader: Reader) -> None:
        self._writer = writer
        self._looks = looks
        self._reader = reader

    async def take(self, limit: int, duration: float, without: Collection[str]) -> Sequence[Delivery]:
        """Take due deliveries, as `aioqueue.abc.SupportsWebhooks.take_deliveries` promises."""
        pick = functools.partial(_due, limit=limit, without=without)
        # Those who find nothing don't take the write lock in turns.
        if limit < 1 or not await self._looks.read(pick):
            return []

        def body(connection: sqlite3.Connection) -> tuple[list[Delivery], None]:
            ids = pick(connection)
            taken = {"ids": dump(ids), "duration": round(duration * 1e6)}
            found = {row[0]: _delivery(row) for row in connection.execute(_TAKE, taken).fetchall()}
            return [found[each] for each in ids], None

        return await self._writer.write(body)

    async def next_due(self) -> float | None:
        """When the first is due, as `aioqueue.abc.SupportsWebhooks.next_delivery` says."""
        wait: int | None = (await self._looks.read(lambda connection: connection.execute(_NEXT).fetchone()))[0]
        return None if wait is None else max(0.0, wait / 1e6)

    async def write_tries(self, tries: Sequence[DeliveryTry]) -> None:
        """Keep what became of tries, as `aioqueue.abc.SupportsWebhooks.write_tries` promises."""

        def run(connection: Connection, abandoned: Callable[[], bool]) -> tuple[None, None]:
            for part, outcome in halved(connection, self._writer.timeout, tries, _write_tries, abandoned):
                if isinstance(outcome, AioqueueError):
                    logger.error(
                        "what became of delivery %s can't be kept: %s",
                        part[0].id,
                        outcome,
                        extra=event("store.delivery_not_written", delivery_id=str(part[0].id)),
                    )
            return None, None

        await self._writer.hop(run)

    async def list(self, chain_id: UUID | None, state: DeliveryState | None, limit: int, cursor: str | None) -> DeliveryPage:
        """One page, the newest first.

        Raises:
            ValueError: The cursor isn't one of ours, or the limit isn't positive.
        """
        if limit < 1:
            raise ValueError(f"limit must be positive, not {limit!r}")
        after = None if cursor is None else str(read_cursor(ListOrder.NEWEST, cursor)[0])
        return await self._reader.read(functools.partial(_page, chain_id=chain_id, state=state, limit=limit, after=after))

    async def replay(self, ids: Sequence[UUID]) -> Sequence[bool]:
        """Make deliveries due anew, as `aioqueue.abc.SupportsWebhooks.replay_deliveries` promises."""

        def body(connection: sqlite3.Connection) -> tuple[list[bool], Notification | None]:
            rows = connection.execute(_REPLAY, {"ids": dump([str(each) for each in ids])}).fetchall()
            found = {row[0] for row in rows}
            return [str(each) in found for each in ids], Notification(deliveries=True) if found else None

        return await self._writer.write(body)


def _due(connection: Statements, limit: int, without: Collection[str]) -> list[str]:
    """The ids of those that are due, in their order."""
    statement = _DUE_ELSEWHERE if without else _DUE
    asked: dict[str, Any] = {"limit": limit, "without": dump(sorted(without))}
    return [row[0] for row in connection.execute(statement, asked).fetchall()]


def _write_tries(connection: Statements, tries: Sequence[DeliveryTry]) -> None:
    now: int = connection.execute(f"SELECT {NOW}").fetchone()[0]
    for each in tries:
        connection.execute(_WRITE_TRY, _try_row(each, now))


def _try_row(each: DeliveryTry, now: int) -> dict[str, Any]:
    due = due_after(now, each.delay, f"delivery {each.id}: the delay") if each.state is DeliveryState.PENDING else None
    known = {"id": str(each.id), "tries": each.tries, "to": _CODES[each.state], "due": due}
    return {**known, "status": each.status, "response": each.response}


def _page(
    connection: Statements, chain_id: UUID | None, state: DeliveryState | None, limit: int, after: str | None
) -> DeliveryPage:
    wanted = {"id < :after": after is not None, "chain_id = :chain": chain_id is not None, "state = :state": state is not None}
    where = " AND ".join(["true", *(condition for condition, applies in wanted.items() if applies)])
    asked = {"after": after, "chain": str(chain_id), "state": None if state is None else _CODES[state], "limit": limit + 1}
    index = "INDEXED BY delivery_chain" if chain_id is not None else "" if state is None else "INDEXED BY delivery_state"
    statement = f"SELECT {_COLUMNS} FROM delivery {index} WHERE {where} ORDER BY id DESC LIMIT :limit"
    rows = connection.execute(statement, asked).fetchall()
    page = tuple(map(_delivery, rows[:limit]))
    return DeliveryPage(page, write_cursor(ListOrder.NEWEST, page[-1].id) if len(rows) > limit else None)


def _delivery(row: Sequence[Any]) -> Delivery:
    (delivery_id, job_id, chain_id, job_type, kind, url, body) = row[:7]
    (state, tries, created_at, next_at, status, response, finished_at) = row[7:]
    return Delivery(
        id=id_of(delivery_id),
        job_id=id_of(job_id),
        chain_id=id_of(chain_id),
        job_type=text_of(job_type),
        event=text_of(kind),
        url=url,
        body=body,
        state=_STATES[state],
        tries=tries,
        created_at=moment(created_at),
        next_at=None if next_at is None else moment(next_at),
        status=status if isinstance(status, int) else None,
        response=response,
        finished_at=None if finished_at is None else moment(finished_at),
    )
