"""Jobs that wait at gates, and workers that are woken when one opens: polls are an hour apart, and bring nothing."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client, Fail, Fixed, JobState, Limit, Rate, Registry, Reschedule, Retry, Worker, current_attempt
from aioqueue.abc import SupportsGates
from aioqueue.definitions._gates_of_types import gate_rules
from aioqueue.testing import MemoryStore
from aioqueue.vocabulary._gates import NewLimit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from aioqueue import JobHandle

    Another = Callable[[], Client]

pytestmark = pytest.mark.anyio

RARELY = 3600.0
STORES = ["memory", "sqlite", "postgres"]


@pytest.fixture(params=STORES)
def another(request: pytest.FixtureRequest) -> Another:
    """Makes clients of one database, each as another process has it."""
    if request.param == "memory":
        store = MemoryStore()
        return lambda: Client(store.another())
    url = request.getfixturevalue("url" if request.param == "sqlite" else "postgres_url")
    return lambda: Client(url, poll_interval=RARELY)


@pytest.fixture
async def client(another: Another) -> AsyncIterator[Client]:
    async with another() as client:
        yield client


@asynccontextmanager
async def workers(another: Another, registry: Registry, count: int = 2, **settings: Any) -> AsyncIterator[list[Worker]]:
    async with AsyncExitStack() as stack, asyncio.timeout(10):
        made = []
        for number in range(count):
            client = await stack.enter_async_context(another())
            given = {"concurrency": 4, "poll_interval": RARELY, "name": f"w{number}", **settings}
            made.append(await stack.enter_async_context(Worker(client, registry, **given)))
        yield made


async def until_finished(client: Client, handles: Sequence[JobHandle[Any]]) -> None:
    for handle in handles:
        await handle.result(timeout=60)


async def until_held(client: Client, handle: JobHandle[Any]) -> None:
    async with asyncio.timeout(10):
        while True:
            job = await client.job(handle)
            if job is not None and job.state is JobState.HELD:
                return
            await asyncio.sleep(0)


class Running:
    """How many run at once of what, and in which order they began."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.began: dict[str, list[int]] = defaultdict(list)

    async def run(self, what: str, number: int = 0) -> None:
        self.began[what].append(number)
        self.now[what] += 1
        self.most[what] = max(self.most[what], self.now[what])
        for _ in range(5):
            await asyncio.sleep(0)
        self.now[what] -= 1


async def test_a_limit_by_value_holds_across_workers(client: Client, another: Another) -> None:
    running, registry = Running(), Registry()

    @registry.job(limit=Limit(1, by="tenant"))
    async def one(tenant: str) -> None:
        await running.run(tenant)

    async with workers(another, registry):
        handles = await client.enqueue_many([one(tenant) for _ in range(8) for tenant in "abc"])
        await until_finished(client, handles)
    assert running.most == {"a": 1, "b": 1, "c": 1}


async def test_a_shared_limit_counts_all_its_types(client: Client, another: Another) -> None:
    running, registry = Running(), Registry()

    @registry.job(limit="stripe")
    async def charge() -> None:
        await running.run("stripe")

    @registry.job(limit=(Limit(1), "stripe"))
    async def refund() -> None:
        await asyncio.gather(running.run("stripe"), running.run("refund"))

    assert isinstance(client.store, SupportsGates)
    await client.store.put_limits([NewLimit(name="stripe", places=2)])
    async with workers(another, registry):
        await until_finished(client, await client.enqueue_many([call for _ in range(8) for call in (charge(), refund())]))
    assert running.most == {"stripe": 2, "refund": 1}


async def test_jobs_that_wait_at_no_gate_pass_those_that_do(client: Client, another: Another) -> None:
    registry, go_on = Registry(), asyncio.Event()

    @registry.job(limit=Limit(1))
    async def one() -> None:
        await go_on.wait()

    @registry.job
    async def plain() -> str:
        return "passed"

    handles = await client.enqueue_many([one() for _ in range(300)])
    async with workers(another, registry, 1):
        assert await (await client.enqueue(plain())).result(timeout=60) == "passed"
        await asyncio.gather(*(client.cancel(handle) for handle in handles[1:]))
        go_on.set()
        await until_finished(client, handles[:1])


ENDS = ["returns", "raises", "fails", "takes too long", "is rescheduled", "is cancelled", "is given back"]


@pytest.mark.parametrize("how", ENDS)
async def test_whatever_ends_it_the_next_one_comes_at_once(client: Client, another: Another, how: str) -> None:
    registry, began = Registry(), asyncio.Queue[str]()
    go_on = asyncio.Event()

    async def end(number: int) -> None:
        began.put_nowait(f"{number} at {current_attempt().worker_id}")
        if number == 2:
            return
        if how not in ("takes too long", "is cancelled", "is given back"):
            await go_on.wait()
        match how:
            case "raises":
                raise ValueError("no")
            case "fails":
                raise Fail("no")
            case "is rescheduled":
                raise Reschedule(delay=RARELY)
            case "returns":
                return
            case _:
                await asyncio.Event().wait()

    timeout = 0.5 if how == "takes too long" else None
    retry = Retry(max_attempts=3, backoff=Fixed(RARELY))
    one = registry.job(limit=Limit(1), timeout=timeout, retry=retry, name="one")(end)
    first = await client.enqueue(one(1))
    async with workers(another, registry, 1) as (worker,):
        assert await asyncio.wait_for(began.get(), 60) == "1 at w0"
        second = await client.enqueue(one(2))
        if how == "is given back":
            await until_held(client, second)
            async with workers(another, registry, 1, name="other") as (other,):
                worker.stop(force=True)
                assert (await asyncio.wait_for(began.get(), 60)).split()[2] == "other"
                other.stop(force=True)  # it may have the first one, which never ends
            return
        if how != "takes too long":
            await until_held(client, second)
        go_on.set()
        if how == "is cancelled":
            await client.cancel(first)
        assert await asyncio.wait_for(began.get(), 60) == "2 at w0"
        await second.result(timeout=60)


async def test_the_place_of_a_lost_worker_is_free_once_its_job_is_recovered() -> None:
    registry, began = Registry(), asyncio.Queue[int]()
    store = MemoryStore()

    @registry.job(limit=Limit(1), retry=Retry(max_attempts=3, backoff=Fixed(RARELY)))
    async def one(number: int) -> None:
        began.put_nowait(number)

    async with Client(store) as client:
        first, second = await client.enqueue_many([one(1), one(2)])
        await store.put_limits([NewLimit(name="job:one", places=1)], defined=True)
        dead = await store.open_lease("dead", 60)
        assert [each.id for each in await store.claim(dead, ["one"], 5, gates=gate_rules(registry.types))] == [first.id]
        async with workers(lambda: Client(store.another()), registry, 1, lease=100_000, renew_every=0.1):
            await until_held(client, second)
            store.advance(61)
            assert await asyncio.wait_for(began.get(), 60) == 2
            await second.result(timeout=60)
        assert (await first.snapshot()).attempt == 1


async def test_a_sequence_is_kept_across_workers(client: Client, another: Another) -> None:
    running, registry = Running(), Registry()

    @registry.job(sequence_by="account")
    async def book(account: str, number: int) -> None:
        await running.run(account, number)

    @registry.job
    async def other(account: str, number: int) -> None:
        await running.run(account, number)

    calls = [book(account, number) for number in range(6) for account in "ab"]
    by_call = [(book if number % 2 else other)("c", number).options(sequence="c") for number in range(6)]
    async with workers(another, registry):
        await until_finished(client, await client.enqueue_many([*calls, *by_call]))
    assert running.most == {"a": 1, "b": 1, "c": 1}
    assert all(numbers == sorted(numbers) for numbers in running.began.values())


async def test_a_lower_limit_lets_nobody_in_and_a_higher_one_does_at_once(client: Client, another: Another) -> None:
    registry, began, go_on = Registry(), asyncio.Queue[int](), asyncio.Event()

    @registry.job(limit=Limit(0))
    async def one(number: int) -> None:
        began.put_nowait(number)
        await go_on.wait()

    assert isinstance(client.store, SupportsGates)
    async with workers(another, registry):
        handles = await client.enqueue_many([one(number) for number in range(4)])
        for handle in handles:
            await until_held(client, handle)
        await client.store.put_limits([NewLimit(name="job:one", places=2)])
        assert {await began.get(), await began.get()} == {0, 1}
        assert began.empty()
        await client.store.remove_limits(["job:one"])
        assert {await began.get(), await began.get()} == {2, 3}
        go_on.set()
        await until_finished(client, handles)


async def test_a_rate_lets_in_as_many_as_the_time_allows() -> None:
    registry, began = Registry(), asyncio.Queue[int]()
    store = MemoryStore()

    @registry.job(rate=Rate(2, per=3600))
    async def mail(number: int) -> None:
        began.put_nowait(number)

    async with Client(store) as client:
        handles = await client.enqueue_many([mail(number) for number in range(5)])
        async with workers(lambda: Client(store.another()), registry, lease=100_000):
            assert {await began.get(), await began.get()} == {0, 1}
            for handle in handles[2:]:
                await until_held(client, handle)
            store.advance(1801)
            assert await began.get() == 2
            store.advance(3602)
            assert {await began.get(), await began.get()} == {3, 4}
            await until_finished(client, handles)


async def test_tenants_take_turns(client: Client, another: Another) -> None:
    registry, began = Registry(), list[str]()

    @registry.job(fairness_by="tenant")
    async def send(tenant: str) -> None:
        began.append(tenant)

    await client.enqueue_many([*(send("large") for _ in range(60)), send("small")])
    async with another() as own:
        assert (await Worker(own, registry, concurrency=1).run_once()).completed == 61
    assert began.index("small") <= 3


async def test_a_run_until_idle_ends_only_when_all_have_had_their_place(client: Client) -> None:
    running, registry = Running(), Registry()

    @registry.job(limit=Limit(1, by="tenant"), sequence_by="tenant")
    async def one(tenant: str) -> None:
        await running.run(tenant)

    await client.enqueue_many([one(tenant) for _ in range(6) for tenant in "ab"])
    assert (await Worker(client, registry, concurrency=4).run_once()).completed == 12
    assert running.most == {"a": 1, "b": 1}
