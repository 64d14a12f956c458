"""Deliveries of webhooks: taking those that are due, and what became of them. See `SupportsWebhooks`."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from aioqueue.store_rules._cursors import read_cursor, write_cursor
from aioqueue.store_rules._deliveries import FINISHED_KEPT_SECONDS
from aioqueue.store_rules._events import DELIVERIES, body_of_delivery
from aioqueue.vocabulary._listing import ListOrder
from aioqueue.vocabulary._notification import Notification
from aioqueue.vocabulary._webhook_url import webhook_host
from aioqueue.vocabulary._webhooks import Delivery, DeliveryPage, DeliveryState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database
    from aioqueue.vocabulary._webhooks import DeliveryTry

__all__ = ["forget_deliveries", "list_deliveries", "next_delivery", "replay_deliveries", "take_deliveries", "write_tries"]


def take_deliveries(database: Database, limit: int, duration: float, without: Collection[str]) -> list[Delivery]:
    """Take due deliveries. See `SupportsWebhooks.take_deliveries`."""
    now = database.now()
    due = [each for each in pending(database) if each.next_at is not None and each.next_at <= now]
    due = [each for each in due if webhook_host(each.url) not in without]
    due.sort(key=lambda each: (each.next_at or now, each.id))
    taken = [replace(each, tries=each.tries + 1, next_at=now + timedelta(seconds=duration)) for each in due[:limit]]
    for each in taken:
        database.deliveries[each.id] = each
    return taken


def pending(database: Database) -> list[Delivery]:
    """Deliveries that are tried, now or later."""
    return [each for each in database.deliveries.values() if each.state is DeliveryState.PENDING]


def next_delivery(database: Database) -> float | None:
    """When the first is due. See `SupportsWebhooks.next_delivery`."""
    first = min((each.next_at for each in pending(database) if each.next_at is not None), default=None)
    return None if first is None else max(0.0, (first - database.now()).total_seconds())


def write_tries(database: Database, tries: Sequence[DeliveryTry]) -> None:
    """Keep what became of tries. See `SupportsWebhooks.write_tries`."""
    now = database.now()
    for each in tries:
        stored = database.deliveries.get(each.id)
        if stored is not None and is_of_newest_take(stored, each):
            database.deliveries[each.id] = tried(stored, each, now)
            if each.state in DELIVERIES and database.events.watched(now):
                told = DELIVERIES[each.state], now, stored.job_id, stored.chain_id, stored.job_type
                database.events.add(*told, body=body_of_delivery(each))


def is_of_newest_take(stored: Delivery, what: DeliveryTry) -> bool:
    """Whether nobody else has taken a delivery since, and nobody has said yet what became of it."""
    return stored.state is DeliveryState.PENDING and stored.tries == what.tries


def tried(stored: Delivery, what: DeliveryTry, now: datetime) -> Delivery:
    """A delivery after a try."""
    again = what.state is DeliveryState.PENDING
    return replace(
        stored,
        state=what.state,
        status=what.status,
        response=what.response,
        next_at=now + timedelta(seconds=what.delay) if again else None,
        finished_at=None if again else now,
    )


def list_deliveries(
    database: Database, chain_id: UUID | None, state: DeliveryState | None, limit: int, cursor: str | None
) -> DeliveryPage:
    """One page, the newest first. See `SupportsWebhooks.list_deliveries`."""
    before = None if cursor is None else read_cursor(ListOrder.NEWEST, cursor)[0]
    found = [each for each in database.deliveries.values() if chain_id in (None, each.chain_id) and state in (None, each.state)]
    found = [each for each in found if before is None or each.id < before]
    found.sort(key=lambda each: each.id, reverse=True)
    page = found[:limit]
    return DeliveryPage(tuple(page), write_cursor(ListOrder.NEWEST, page[-1].id) if len(found) > limit else None)


def replay_deliveries(database: Database, ids: Sequence[UUID]) -> list[bool]:
    """Make deliveries due anew. See `SupportsWebhooks.replay_deliveries`."""
    now = database.now()
    for delivery_id in ids:
        if delivery_id in database.deliveries:
            stored = database.deliveries[delivery_id]
            database.deliveries[delivery_id] = replace(
                stored, state=DeliveryState.PENDING, tries=0, next_at=now, finished_at=None
            )
    answers = [delivery_id in database.deliveries for delivery_id in ids]
    if any(answers):
        database.tell(Notification(deliveries=True))
    return answers


def forget_deliveries(database: Database, limit: int) -> None:
    """Remove deliveries that were delivered, or have failed, long ago."""
    oldest = database.now() - timedelta(seconds=FINISHED_KEPT_SECONDS)
    old = [each.id for each in database.deliveries.values() if each.finished_at is not None and each.finished_at < oldest]
    for delivery_id in old[:limit]:
        del database.deliveries[delivery_id]
