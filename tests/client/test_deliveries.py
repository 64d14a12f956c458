"""What operators see of webhooks, and sending them once more: by the client, and on the command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from aioqueue import Client, ConfigurationError, DeliveryState, NotSupported, Registry, Verdict, Worker
from aioqueue.client._diagnosis import judge_deliveries
from aioqueue.testing import MemoryStore
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._webhooks import DeliveryTry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

registry = Registry()
MINE, OTHER = "https://mine.example/in?token=1", "https://other.example/"


@registry.job
async def add(one: int, two: int) -> int:
    return one + two


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client(MemoryStore(), webhook=MINE) as client:
        yield client


async def urls(client: Client) -> list[str | None]:
    return [job.webhook for job in (await client.list_jobs(order="oldest")).jobs]


async def test_whose_webhook_counts(client: Client) -> None:
    await client.enqueue(add(1, 2))
    await client.enqueue_many([add(1, 2).options(webhook=OTHER), add(1, 2).options(webhook=False)])
    async with client.transaction() as tx:
        await tx.enqueue(add(1, 2))
    await client.enqueue_by_name("add", {"one": 1, "two": 2}, webhook=OTHER)
    await client.enqueue(add(add(1, 2).output, 3))
    assert await urls(client) == [MINE, OTHER, None, MINE, OTHER, MINE, MINE]


async def test_pages_by_job_and_state_and_once_more(client: Client) -> None:
    handles = await client.enqueue_many([add(1, number) for number in range(3)])
    assert (await client.deliveries()).deliveries == ()
    await Worker(client, registry).run_once()
    page = await client.deliveries(limit=2)
    rest = await client.deliveries(limit=2, cursor=page.cursor)
    found = [*page.deliveries, *rest.deliveries]
    assert ({each.job_id for each in found}, rest.cursor) == ({each.id for each in handles}, None)
    (mine,) = (await client.deliveries(handles[1])).deliveries
    assert (mine.job_id, mine.state, mine.tries) == (handles[1].id, DeliveryState.PENDING, 0)
    taken = await client.store.take_deliveries(3, 60)
    tries = [DeliveryTry(id=each.id, tries=1, state=DeliveryState.FAILED, status=500, response="no") for each in taken[:2]]
    await client.store.write_tries(tries)
    failed = (await client.deliveries(state="failed")).deliveries
    assert [(each.status, each.response) for each in failed] == [(500, "no")] * 2
    assert await client.replay_deliveries(failed[0], str(failed[1].id), new_id()) == [True, True, False]
    assert (await client.deliveries(state=DeliveryState.FAILED)).deliveries == ()
    assert await client.replay_deliveries() == []


async def test_a_diagnosis_says_that_nobody_sends(client: Client) -> None:
    await client.enqueue(add(1, 2))
    await Worker(client, registry).run_once()
    assert [each for each in await client.diagnose() if each.check == "webhooks"] == []
    page = await client.deliveries()
    found = judge_deliveries(page, datetime.now(UTC) + timedelta(seconds=400))
    assert [(each.check, each.verdict) for each in found] == [("webhooks", Verdict.WARNING)]
    assert "AIOQUEUE_WEBHOOK_SECRET" in found[0].advice


async def test_what_cant_be_asked_for(client: Client) -> None:
    for wrong in ({"state": "sent"}, {"job": "x"}, {"cursor": "x"}):
        with pytest.raises(ValueError, match=r"x|state is pending, delivered, failed.* not 'sent'"):
            await client.deliveries(**wrong)
    with pytest.raises(ConfigurationError):
        await client.deliveries(limit=0)
    handle = await client.enqueue(add(1, 2))
    for not_one in ("x", handle):
        with pytest.raises(ValueError, match=r"client\.deliveries\(job\)"):
            await client.replay_deliveries(not_one)


class Without(MemoryStore):
    replay_deliveries = None


async def test_a_store_without_them_refuses_calls_that_have_one() -> None:
    async with Client(Without()) as client:
        handle = await client.enqueue(add(1, 2))
        call = add(1, 2).options(webhook=MINE)
        with pytest.raises(NotSupported, match="webhook=False"):
            await client.enqueue(call)
        await client.enqueue(call.options(webhook=False))
        with pytest.raises(NotSupported):
            await client.deliveries(handle)
        await Worker(client, registry, webhook_secret="whsec_" + "A" * 32).run_once()
        assert (await client.job(handle)).output == 3
