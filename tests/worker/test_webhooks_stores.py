"""Webhooks on each store: whoever ends a job, its message arrives, soon and once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson
import pytest
from standardwebhooks import Webhook

from aioqueue import Call, DeliveryState, Fail, Registry, Worker
from tests.worker.receivers import SECRET, receiver

if TYPE_CHECKING:
    from aioqueue import Client

pytestmark = pytest.mark.anyio

ON_EACH_STORE = True
registry = Registry()


@registry.job
async def first(number: int) -> Call[int]:
    return second(number)


@registry.job
async def second(number: int) -> int:
    if number < 0:
        raise Fail("it's negative")
    return number + 1


@registry.job
async def quiet(number: int) -> Call[int]:
    return second(number).options(webhook=False)


@registry.job
async def behind(number: int) -> int:
    return number


async def test_whoever_ends_it(client: Client) -> None:
    async with receiver() as server:
        async with Worker(client, registry, webhook_secret=SECRET, webhook_allow=["127.0.0.1"]):
            chain = await client.enqueue(first(1).options(webhook=server.url))
            failing = first(-1).options(webhook=server.url)
            waits = await client.enqueue(behind(failing.output).options(webhook=server.url))
            hushed = await client.enqueue(quiet(1).options(webhook=server.url))
            cancelled = await client.enqueue(second(2).options(webhook=server.url, delay=3600))
            await client.cancel(cancelled)
            outside = await client.enqueue(second(3).options(webhook=server.url, delay=3600))
            async with client.transaction() as tx:
                await tx.complete(second, outside, 7)
            async with asyncio.timeout(30):
                assert await hushed.result() == 2
                received = await server.got(5)
                while len((await client.deliveries(state=DeliveryState.DELIVERED)).deliveries) < 5:
                    await asyncio.sleep(0.01)
        for each in received:
            Webhook(SECRET).verify(each.body, each.headers)
        messages = [orjson.loads(each.body) for each in received]
        assert {each["data"]["chain_id"]: (each["type"], each["data"].get("output")) for each in messages} == {
            str(chain.id): ("job.completed", 2),
            str(failing.id): ("job.failed", None),
            str(waits.id): ("job.failed", None),
            str(cancelled.id): ("job.cancelled", None),
            str(outside.id): ("job.completed", 7),
        }
        assert len(server.received) == 5
        assert (await client.job(chain)).webhook == server.url
