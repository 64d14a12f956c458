"""What metrics show of pauses, of limits and kept sequences, and of ticks that nobody decides."""

from __future__ import annotations

from typing import Any

import pytest

from aioqueue import Client, Fail, InSequence, Registry, StoreUnavailable, serve_metrics
from aioqueue.testing import MemoryStore
from aioqueue.vocabulary._gates import GateRules
from aioqueue.vocabulary._schedules import NewSchedule
from aioqueue.worker import Worker
from tests.telemetry.test_server import samples, until

pytestmark = pytest.mark.anyio

registry = Registry(prefix="seen.")


@registry.job
async def seen() -> None: ...


class Store(MemoryStore):
    """Whose pauses can't be read, if that is said."""

    broken = False

    async def perform(self, verb: str, work: Any) -> Any:
        if verb == "list_pauses" and self.broken:
            raise StoreUnavailable("no right to")
        return await super().perform(verb, work)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def client(store: Store) -> Any:
    async with Client(store) as client:
        yield client


async def shown(client: Client, name: str) -> dict[tuple[str, ...], float]:
    async with Worker(client, registry, concurrency=1):
        with serve_metrics(0) as server:

            async def found() -> dict[tuple[str, ...], float] | None:
                values = await samples(server.url)
                return values if any(each[0] == name for each in values) else None

            values: dict[tuple[str, ...], float] = await until(found)
            return values


async def test_pauses_by_what_is_paused(client: Client) -> None:
    await client.pause(seen, by="Ada")
    await client.pause(seen, by="Eve")
    await client.pause(key="k")
    values = await shown(client, "aioqueue_pauses")
    assert [values["aioqueue_pauses", target] for target in ("type", "key", "all")] == [2, 1, 0]
    assert values["aioqueue_schedule_overdue_seconds",] == 0


async def test_limits_and_sequences(client: Client) -> None:
    await client.limits.put("stripe", 1)
    await client.limits.put("idle", 7)
    await client.limits.put_rate("rate:other", 5, per=60)
    registry = Registry(prefix="seen.")

    @registry.job(limit="stripe")
    async def charges() -> None:
        raise Fail("no")

    kept = InSequence("s", on_failure="block")
    await client.enqueue_many([charges().options(sequence=kept) for _ in range(3)])
    await Worker(client, registry).run_once()
    lease = await client.store.open_lease("w", 60)
    rules = {"seen.charges": GateRules(type="seen.charges", shared="stripe")}
    await client.enqueue_many([charges() for _ in range(3)])
    assert len(await client.store.claim(lease, ["seen.charges"], 10, gates=rules)) == 1
    values = await shown(client, "aioqueue_sequences_kept")
    assert values["aioqueue_sequences_kept",] == 1
    names = ("idle", "rate:other", "stripe")
    assert [values["aioqueue_limit_places", name] for name in names] == [7, 5, 1]
    assert [values.get(("aioqueue_limit_running", name)) for name in names] == [0, None, 1]
    assert [values["aioqueue_limit_waiting", name] for name in names] == [0, 0, 2]


async def test_a_tick_that_nobody_can_work_out(client: Client, store: Store) -> None:
    unknown = NewSchedule(name="s", owner=None, job_type="t", template=b"{}", cron="0 3 * * *", timezone="Nowhere/Atall")
    await store.put_schedules([unknown])
    store.advance(3600)
    values = await shown(client, "aioqueue_schedule_overdue_seconds")
    assert values["aioqueue_schedule_overdue_seconds",] >= 3600


async def test_jobs_are_counted_though_pauses_can_t_be_read(client: Client, store: Store) -> None:
    store.broken = True
    await client.enqueue_by_name("no.handler")
    values = await shown(client, "aioqueue_jobs")
    assert values["aioqueue_jobs", "other", "ready"] == 1
    assert not [each for each in values if each[0] == "aioqueue_pauses"]


async def test_held_jobs_are_a_state_of_their_own(client: Client) -> None:
    await client.pause(key="k")
    handle = await client.enqueue(seen().options(key="k"))
    await Worker(client, registry).run_once()
    values = await shown(client, "aioqueue_jobs")
    assert values["aioqueue_jobs", "seen.seen", "held"] == 1
    assert values["aioqueue_jobs", "seen.seen", "ready"] == 0
    await client.delete(handle)
