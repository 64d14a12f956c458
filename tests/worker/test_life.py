"""Starting, stopping, losing leases, and a database that's away."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import AsyncExitStack

import pytest

from aioqueue import Client, ConfigurationError, Fixed, JobState, Registry, Retry, StoreUnavailable, current_attempt
from aioqueue.worker import Worker
from tests.worker.insides import parts

pytestmark = pytest.mark.anyio

SOON = Retry(max_attempts=5, backoff=Fixed(0.01))


class Scene:
    """Jobs that tell when they begin, and end when they're let."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.starts: asyncio.Queue[int] = asyncio.Queue()
        self.gate = asyncio.Event()
        self.thread_gate = threading.Event()
        self.ended: list[str] = []
        loop = asyncio.get_running_loop()

        @self.registry.job(retry=SOON)
        async def held() -> int:
            self.starts.put_nowait(current_attempt().number)
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.ended.append("cancelled")
                raise
            return current_attempt().number

        @self.registry.job(retry=SOON)
        def in_thread() -> int:
            loop.call_soon_threadsafe(self.starts.put_nowait, current_attempt().number)
            self.thread_gate.wait(60)
            return current_attempt().number

        @self.registry.job(retry=SOON)
        async def blocks(seconds: float) -> int:
            self.starts.put_nowait(current_attempt().number)
            time.sleep(seconds)
            return current_attempt().number

        @self.registry.job(retry=SOON)
        async def quick() -> int:
            return current_attempt().number

        self.held, self.in_thread, self.blocks, self.quick = held, in_thread, blocks, quick

    async def started(self) -> int:
        async with asyncio.timeout(60):
            return await self.starts.get()


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def test_stopping_lets_jobs_finish_and_claims_nothing_more(client: Client, scene: Scene) -> None:
    running = await client.enqueue(scene.held())
    async with Worker(client, scene.registry, concurrency=1, grace=600) as worker:
        await scene.started()
        waiting = await client.enqueue(scene.quick())
        worker.stop()
        worker.stop()
        assert worker.health().stopping
        scene.gate.set()
    assert (await running.snapshot()).state is JobState.COMPLETED
    assert ((await waiting.snapshot()).state, (await waiting.snapshot()).attempt) == (JobState.READY, 0)
    assert (await client.stats()).workers == ()


@pytest.mark.parametrize("how", ["grace", "force", "cancel"])
async def test_what_is_interrupted_costs_no_attempt(client: Client, scene: Scene, how: str) -> None:
    handle = await client.enqueue(scene.held())
    worker = Worker(client, scene.registry, grace=0.01 if how == "grace" else 600)
    task = asyncio.create_task(worker.run())
    await scene.started()
    if how == "cancel":
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        worker.stop(force=how == "force")
        await task
    job = await handle.snapshot()
    assert (job.state, job.attempt, job.errors) == (JobState.READY, 0, ())
    assert scene.ended == ["cancelled"]
    scene.gate.set()
    await worker.run_once()
    assert await handle.result(timeout=60) == 1


async def test_a_drain_longer_than_the_lease_loses_nothing(client: Client, scene: Scene) -> None:
    handle = await client.enqueue(scene.held())
    other = Worker(client, scene.registry, lease=2, poll_interval=0.1)
    async with Worker(client, scene.registry, lease=2, grace=600) as worker:
        await scene.started()
        async with other:
            worker.stop()
            await asyncio.sleep(4.5)  # two leases: what is waited for is that nothing happens
            scene.gate.set()
    assert await handle.result(timeout=60) == 1
    assert scene.starts.empty()


async def test_a_thread_outlives_the_grace_and_keeps_its_claim(client: Client, scene: Scene) -> None:
    handle = await client.enqueue(scene.in_thread())
    worker = Worker(client, scene.registry, grace=0)
    task = asyncio.create_task(worker.run())
    await scene.started()
    worker.stop()
    done, _ = await asyncio.wait([task], timeout=1.5)
    assert not done
    assert (await handle.snapshot()).state is JobState.RUNNING
    scene.thread_gate.set()
    await task
    assert await handle.result(timeout=60) == 1


async def test_force_leaves_a_thread_behind_with_its_claim(client: Client, scene: Scene) -> None:
    handle = await client.enqueue(scene.in_thread())
    worker = Worker(client, scene.registry, lease=600)
    task = asyncio.create_task(worker.run())
    await scene.started()
    worker.stop(force=True)
    await task
    job = await handle.snapshot()
    assert (job.state, job.attempt) == (JobState.RUNNING, 1)
    scene.thread_gate.set()


async def test_a_blocked_loop_loses_no_lease(url: str, scene: Scene) -> None:
    """With a worker in another thread that waits for just that."""
    rival_registry, stole, ready, end = Registry(), [], threading.Event(), threading.Event()

    @rival_registry.job(name="held")
    async def held() -> int:
        stole.append("held")
        return 0

    @rival_registry.job(name="blocks")
    async def blocks(seconds: float) -> int:
        stole.append("blocks")
        return 0

    async def rival() -> None:
        async with Client(url) as client, Worker(client, rival_registry, lease=1, poll_interval=0.1):
            ready.set()
            while not end.is_set():
                await asyncio.sleep(0.02)

    async with Client(url) as client, Worker(client, scene.registry, lease=3, concurrency=4):
        handles = await client.enqueue_many([scene.held(), scene.held()])
        await scene.started()
        await scene.started()
        handles.append(await client.enqueue(scene.blocks(5.0)))
        thread = threading.Thread(target=lambda: asyncio.run(rival()))
        await scene.started()
        thread.start()
        await asyncio.to_thread(ready.wait, 60)
        scene.gate.set()
        results = [await handle.result(timeout=60) for handle in handles]
        end.set()
        await asyncio.to_thread(thread.join)
    assert (results, stole) == ([1, 1, 1], [])


async def test_a_lost_lease_cancels_its_attempts_and_the_worker_goes_on(client: Client, scene: Scene) -> None:
    async with Worker(client, scene.registry, lease=600, renew_every=0.05, poll_interval=0.1) as worker:
        handle = await client.enqueue(scene.held())
        assert await scene.started() == 1
        (lease_id,) = parts(worker).leases.own
        await client.store.release(lease_id, [], end=True)
        assert await scene.started() == 1  # given back, so that no attempt was used
        assert scene.ended == ["cancelled"]
        scene.gate.set()
        assert await handle.result(timeout=60) == 1


async def test_jobs_of_a_dead_worker_are_taken_over(client: Client, scene: Scene) -> None:
    handle = await client.enqueue(scene.quick())
    lease = await client.store.open_lease("dead", 0.01)
    deadline = time.monotonic() + 60
    while not await client.store.claim(lease, ["quick"], 1):
        assert time.monotonic() < deadline
    async with Worker(client, scene.registry, lease=1, poll_interval=0.1):
        assert await handle.result(timeout=60) == 2
    assert [(error.type, error.worker) for error in (await handle.snapshot()).errors] == [("WorkerLost", "dead")]


VERBS = ["open_lease", "claim", "settle", "take_expired", "next_due", "release"]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("error", [StoreUnavailable("away"), RuntimeError("odd")])
async def test_the_worker_survives_errors_of_every_verb(
    client: Client, scene: Scene, monkeypatch: pytest.MonkeyPatch, verb: str, error: Exception
) -> None:
    if verb == "open_lease" and not isinstance(error, StoreUnavailable):
        pytest.skip("what isn't an outage at the start is told at once")
    store, left = client.store, 3
    works = getattr(store, verb)
    again = asyncio.Event()

    async def flaky(*args, **kwargs):
        nonlocal left
        if left:
            left -= 1
            raise error
        again.set()
        return await works(*args, **kwargs)

    monkeypatch.setattr(store, verb, flaky)
    async with Worker(client, scene.registry, lease=1, poll_interval=0.1, concurrency=2) as worker:
        handles = await client.enqueue_many([scene.quick() for _ in range(10)])
        assert {await handle.result(timeout=60) for handle in handles} == {1}
        if verb != "release":
            async with asyncio.timeout(60):
                await again.wait()
            while worker.health().troubles:
                await asyncio.sleep(0.01)
            assert worker.health().ok


async def test_start_stop_start_and_several_at_once(client: Client, scene: Scene) -> None:
    worker = Worker(client, scene.registry, name="same")
    for _ in range(2):
        async with worker, Worker(client, scene.registry, name="same"):
            handle = await client.enqueue(scene.quick())
            assert await handle.result(timeout=60) == 1
            with pytest.raises(ConfigurationError, match="already"):
                await worker.run()
    assert not worker.health().running


async def test_running_jobs_never_exceed_the_slots(client: Client) -> None:
    registry, running, most = Registry(), 0, 0

    @registry.job
    async def count() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await client.enqueue_many([count() for _ in range(100)])
    await Worker(client, registry, concurrency=3).run_once()
    assert most == 3
    assert sum((await client.stats()).types["count"].counts.values()) == 100


async def test_resources_are_opened_once_and_closed(client: Client) -> None:
    registry, events = Registry(), []

    @registry.resource
    async def shared():
        events.append("open")
        yield 7
        events.append("close")

    @registry.job
    async def uses() -> int:
        return await shared.get()

    handles = await client.enqueue_many([uses() for _ in range(5)])
    await Worker(client, registry).run_once()
    assert events == ["open", "close"]
    assert {await handle.result(timeout=10) for handle in handles} == {7}
    await client.enqueue(uses())
    await Worker(client, registry, resources={shared: 8}).run_once()
    assert events == ["open", "close"]


async def test_a_worker_with_nothing_to_run_says_so(client: Client) -> None:
    with pytest.raises(ConfigurationError, match="no handlers"):
        await Worker(client, Registry()).run()
    async with AsyncExitStack() as stack:
        with pytest.raises(ConfigurationError, match="no handlers"):
            await stack.enter_async_context(Worker(client, Registry()))
