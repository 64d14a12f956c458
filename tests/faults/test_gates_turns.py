"""Turns over many values: how soon each has one."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from aioqueue import Client
from aioqueue.vocabulary._abilities import SupportsGates
from aioqueue.vocabulary._gates import By, GateRules
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from aioqueue.abc import Store
    from tests.faults.scene import Scene

pytestmark = [pytest.mark.anyio, pytest.mark.soak]

RULES = {"turns": GateRules(type="turns", fair_by=By("tenant"))}
AT_ONCE = 100
TENANTS = 2_000


@asynccontextmanager
async def store_of(scene: Scene) -> AsyncIterator[Store]:
    async with Client(scene.url) as client:
        assert isinstance(client.store, SupportsGates)
        yield client.store


async def insert(store: Store, tenants: Iterable[str], *, delay: float = 0) -> None:
    jobs = [NewJob(id=new_id(), type="turns", payload=b'{"tenant":"%s"}' % tenant.encode(), delay=delay) for tenant in tenants]
    for first in range(0, len(jobs), 5_000):
        await store.insert(jobs[first : first + 5_000])


async def claimed(store: Store, jobs: int) -> list[str]:
    """The tenants of so many, in the order of their claims; and there may be two claims that come to nothing."""
    lease = await store.open_lease("w", 600)
    found: list[str] = []
    empty = 0
    while len(found) < jobs and empty < 2:
        claims = await store.claim(lease, ["turns"], AT_ONCE, gates=RULES)
        empty += not claims
        found += [each.payload.decode().split('"')[3] for each in claims]
    return found


async def test_one_job_behind_many_of_another_tenant(scene: Scene) -> None:
    async with store_of(scene) as store:
        await insert(store, ["many"] * 5 * TENANTS)
        await insert(store, ["one"])
        assert "one" in await claimed(store, AT_ONCE)


async def test_all_tenants_have_one_turn_before_any_has_a_second(scene: Scene) -> None:
    async with store_of(scene) as store:
        await insert(store, [str(number % TENANTS) for number in range(3 * TENANTS)])
        round_of_all = await claimed(store, TENANTS)
        assert len(set(round_of_all[:TENANTS])) == TENANTS


async def test_what_is_due_later_holds_nobody_up(scene: Scene) -> None:
    async with store_of(scene) as store:
        await insert(store, [str(number) for number in range(TENANTS)], delay=3600)
        await insert(store, ["due"])
        assert await claimed(store, 1) == ["due"]
