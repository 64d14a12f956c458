"""The shop's jobs. The servers enqueue them, and run them in workers of their own; so may other processes:
`python -m aioqueue.worker examples.shop.jobs:registry`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioqueue import Exponential, Fail, Registry, Retry
from examples.shop.database import Order, Shipment, open_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from examples.shop.database import Sessions

__all__ = ["database", "registry", "ship"]

registry = Registry(prefix="shop.")


@registry.resource
async def database() -> AsyncIterator[Sessions]:
    """Sessions for the handlers: opened once per worker, unless the server gives it its own."""
    async with open_database() as sessions:
        yield sessions


@registry.job(retry=Retry(max_attempts=8, backoff=Exponential(initial=1, maximum=60)))
async def ship(order_id: int) -> str:
    """Pack an order, note that it's sent, and return the parcel's number. Run twice, it sends one parcel."""
    sessions = await database.get()
    async with sessions() as session:
        order = await session.get(Order, order_id)
        if order is None:
            raise Fail(f"there is no order {order_id}")
        sent = await session.get(Shipment, order_id)
    if sent is not None:  # an attempt before this one got so far, and was lost before its result was stored
        return sent.parcel
    parcel = await pack(order)
    async with sessions.begin() as session:
        session.add(Shipment(order_id=order_id, parcel=parcel))
    return parcel


async def pack(order: Order) -> str:
    """Stands for slow work: no session is open, and no connection is held, while it goes on."""
    await asyncio.sleep(0.1 * order.quantity)
    return f"P{order.id:06}"
