"""Ticks while the chain of the one before goes on: with `overlap="skip"` each is skipped for as long as that has a live
step."""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Call, Client, Fail, Fixed, Registry, Retry, Worker, done
from aioqueue.store_rules._schedules import OVERLAPPED
from tests.worker.scheduling import Troubled, decided, definition, known, outcomes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

registry = Registry()
gates: list[asyncio.Event] = []


@registry.job
async def long() -> None:
    await gates[0].wait()


@registry.job(retry=Retry(max_attempts=5, backoff=Fixed(3600)))
async def flaky() -> None:
    raise RuntimeError("not yet")


@registry.job
async def hopeless() -> None:
    raise Fail("never")


@registry.job
async def stepwise(step: int = 1) -> Call[None]:
    """Its next step is due in an hour."""
    return done(None) if step > 1 else stepwise(step + 1).options(delay=3600)


@registry.job
async def quick() -> None: ...


@pytest.fixture
async def store() -> AsyncIterator[Troubled]:
    gates[:] = [asyncio.Event()]
    store = Troubled()
    async with Client(store):
        yield store


async def two_ticks(store: Troubled, call: Call[Any], **rule: Any) -> list[tuple[str, str, int]]:
    """What became of a tick, and of the one after it, which comes once the first attempt has begun, and, but for a long one,
    ended."""
    async with Client(Troubled(database=store.database)) as client:
        await store.put_schedules([definition(call, "s", **{"overlap": "skip", **rule})])
        async with Worker(client, registry, lease=200_000, poll_interval=60, grace=1) as worker:
            await known(store, "s")
            store.pass_time(61)
            (tick,) = await decided(store, "s")
            assert tick.chain_id is not None
            while (await client.job(tick.chain_id)).attempt < 1:
                await asyncio.sleep(0)
            while worker.health().busy and call.job_type is not long:
                await asyncio.sleep(0)
            store.pass_time(60)
            await decided(store, "s", 2)
            gates[0].set()
    return await outcomes(store, "s")


SKIPPED = [("enqueued", "", 1), ("skipped", OVERLAPPED, 1)]
BOTH = [("enqueued", "", 1)] * 2


@pytest.mark.parametrize(
    ("call", "became"),
    [(long, SKIPPED), (flaky, SKIPPED), (stepwise, SKIPPED), (hopeless, BOTH), (quick, BOTH)],
    ids=["runs", "tried-again", "next-step", "failed", "completed"],
)
async def test_a_tick_is_skipped_while_the_chain_before_it_goes_on(store: Troubled, call: Any, became: Any) -> None:
    assert await two_ticks(store, call()) == became


async def test_ticks_of_a_paused_type_follow_that_too(store: Troubled) -> None:
    async with Client(Troubled(database=store.database)) as client:
        await client.pause(quick)
        await store.put_schedules([definition(quick(), "skip", overlap="skip"), definition(quick(), "allow")])
        async with Worker(client, registry, lease=200_000, poll_interval=60) as worker:
            for minute in (1, 2):
                await known(store, "skip", "allow")
                store.pass_time(60.5)
                await decided(store, "skip", minute)
                await decided(store, "allow", minute)
            assert not worker.health().busy
        assert await outcomes(store, "skip") == SKIPPED
        assert await outcomes(store, "allow") == BOTH


async def test_they_are_all_enqueued_without_it(store: Troubled) -> None:
    assert await two_ticks(store, long(), overlap="allow") == BOTH


async def test_a_handler_in_a_process_of_its_own_has_the_time_too(store: Troubled) -> None:
    """It's sent the claimed job."""
    async with Client(Troubled(database=store.database)) as client:
        await store.put_schedules([definition(quick(), "s")])
        async with Worker(client, registry, lease=200_000, poll_interval=60, types=["long"]):
            await known(store, "s")
            store.pass_time(61)
            (tick,) = await decided(store, "s")
        lease = await store.open_lease("w", 60)
        (claimed,) = await store.claim(lease, ["quick"], 1)
        assert pickle.loads(pickle.dumps(claimed)).nominal_time == tick.nominal_time
