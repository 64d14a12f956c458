"""One lease for each duration that job types have asked for. On both stores."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from aioqueue import Client, ConfigurationError, Fixed, JobState, Registry, Retry, current_attempt
from aioqueue.worker import Worker
from tests.harnesses import PostgresHarness, SQLiteHarness
from tests.worker.faults import Jobs, until
from tests.worker.insides import parts

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]

LIMIT = 120


def typed() -> tuple[Registry, dict[str, int]]:
    registry, leases = Registry(), dict[str, int]()
    soon = Retry(max_attempts=3, backoff=Fixed(0))

    async def note() -> int:
        attempt = current_attempt()
        leases[attempt.job.type] = attempt.job.lease_id
        return attempt.number

    for name, options in {
        "usual": {},
        "short": {"lease": 5, "aliases": ("older",)},
        "as_short": {"lease": timedelta(seconds=5)},
        "long": {"lease": 300.0},
        "as_the_worker": {"lease": 40},
    }.items():
        registry.job(name=name, retry=soon, **options)(note)
    return registry, leases


async def test_each_duration_has_one_lease_and_the_jobs_of_its_types(client: Client) -> None:
    registry, leases = typed()
    async with Worker(client, registry, lease=40, poll_interval=0.1) as worker:
        handles = [await client.enqueue_by_name(name) for name in registry.types]
        assert {await handle.result(timeout=LIMIT) for handle in handles} == {1}
        assert {leases[name] for name in leases} == set(parts(worker).leases.own)
        assert worker.health().lease_valid
    assert leases["short"] == leases["as_short"] == leases["older"]
    assert leases["usual"] == leases["as_the_worker"]
    assert len(set(leases.values())) == 3
    assert (await client.stats()).workers == ()


async def test_a_lease_that_is_lost_loses_its_own_jobs_only(
    client: Client, jobs: Jobs, harness: SQLiteHarness | PostgresHarness
) -> None:
    registry, starts, gate = Registry(), asyncio.Queue[tuple[str, int, int]](), asyncio.Event()
    soon = Retry(max_attempts=3, backoff=Fixed(0))

    async def held() -> int:
        attempt = current_attempt()
        starts.put_nowait((attempt.job.type, attempt.number, attempt.job.lease_id))
        await gate.wait()
        return attempt.number

    short = registry.job(name="short", lease=600, retry=soon)(held)
    usual = registry.job(name="usual", retry=soon)(held)
    handles = [await client.enqueue(usual()), await client.enqueue(short())]
    async with Worker(client, registry, lease=60, renew_every=0.05, poll_interval=0.05) as worker:
        async with asyncio.timeout(LIMIT):
            leases = {name: lease for name, _, lease in [await starts.get(), await starts.get()]}
            await harness.delete_lease(leases["short"])
            assert (await starts.get())[:2] == ("short", 2)
        assert starts.empty()
        await until(lambda: worker.health().ok)
        gate.set()
        assert [await handle.result(timeout=LIMIT) for handle in handles] == [1, 2]


async def test_a_killed_workers_short_jobs_come_back_before_its_long_ones(client: Client, url: str) -> None:
    """The leases that a worker opened, and never renews or ends."""
    jobs = Jobs()

    @jobs.registry.job(name="long", lease=3600)
    async def long() -> None: ...

    long_one, short_one = await client.enqueue(long()), await client.enqueue(jobs.quick())
    short_lease, long_lease = await client.store.open_lease("dead", 2), await client.store.open_lease("dead", 3600)
    claimed = await client.store.claim(short_lease, ["long", "quick"], 2, leases={"long": long_lease})
    assert {job.type: job.lease_id for job in claimed} == {"quick": short_lease, "long": long_lease}
    async with Worker(client, jobs.registry, lease=600, renew_every=0.2, poll_interval=600):
        assert await short_one.result(timeout=LIMIT) == 2
    assert (await long_one.snapshot()).state is JobState.RUNNING


@pytest.mark.parametrize("lease", [0.5, 0, -1, float("nan"), "5", True])
async def test_a_types_lease_must_be_a_duration_of_a_second_at_least(lease: Any) -> None:
    async def job() -> None: ...

    with pytest.raises(ConfigurationError, match="lease"):
        Registry().job(lease=lease)(job)


async def test_renewals_that_do_not_fit_a_types_lease_are_refused_at_the_start(client: Client) -> None:
    registry, _ = typed()
    with pytest.raises(
        ConfigurationError, match=r"renew_every \(4 s\) must be at most half of the lease of the job type .*short"
    ):
        await Worker(client, registry, lease=40, renew_every=4).run()
    with pytest.raises(ConfigurationError, match=r"a renewal may take 0.833333 s, and three of them"):
        await Worker(client, registry, lease=40, renew_every=4).run()
    await Worker(client, registry, lease=40, renew_every=2.5).run_once()
    await Worker(client, registry, lease=40, renew_every=4, types=["long"]).run_once()


async def test_a_handler_says_how_long_the_lease_of_a_declared_type_lives(client: Client) -> None:
    registry = Registry()

    @registry.declare
    async def declared() -> int: ...

    @registry.implement(declared, lease=7)
    async def handler() -> int:
        return current_attempt().job.lease_id

    assert registry.types["declared"].lease == 7
    handle = await client.enqueue(declared())
    async with Worker(client, registry) as worker:
        (lease,) = parts(worker).leases.own
        assert await handle.result(timeout=LIMIT) == lease
