"""How a worker ends: before it has begun, in the turn in which a job starts, with jobs that don't stop, with outcomes that
can't be written, and after its client was closed. On both stores.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client, ClientClosed, Fixed, JobState, Registry, Retry, current_attempt
from aioqueue.vocabulary._job import LostReason
from aioqueue.worker import Worker, _shutdown, run_until_signalled
from aioqueue.worker._outcome import CancelReason
from aioqueue.worker._run import _BODIES
from aioqueue.worker._slots import Slots
from tests.worker.faults import Faults, Jobs, until
from tests.worker.insides import left_behind, parts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio

SOON = Retry(max_attempts=5, backoff=Fixed(0))


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
async def jobs() -> Jobs:
    return Jobs()


@pytest.fixture
def faults(client: Client, monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(client, monkeypatch)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is bounded in seconds is bounded in tenths."""
    for name in ("_LAST_CLAIM_SECONDS", "_INTERRUPTED_SECONDS", "_LOOP_SECONDS", "_FLUSH_SECONDS", "_LEASE_LEAST_SECONDS"):
        monkeypatch.setattr(_shutdown, name, 0.2)


class Stubborn:
    """A job that swallows every cancellation until it's let go, and one whose child does."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.release = asyncio.Event()
        self.starts: asyncio.Queue[int] = asyncio.Queue()
        self.swallowed = 0

        @self.registry.job(retry=SOON)
        async def stubborn() -> int:
            self.starts.put_nowait(current_attempt().number)
            await self.hold_on()
            return current_attempt().number

        @self.registry.job(retry=SOON)
        async def parent() -> None:
            self.starts.put_nowait(current_attempt().number)
            await asyncio.gather(self.hold_on(), self.hold_on())

        self.stubborn, self.parent = stubborn, parent

    async def hold_on(self) -> None:
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.swallowed += 1

    async def started(self) -> int:
        async with asyncio.timeout(60):
            return await self.starts.get()


@pytest.fixture
async def stubborn() -> AsyncIterator[Stubborn]:
    made = Stubborn()
    yield made
    made.release.set()


async def ended(task: asyncio.Task[Any], within: float = 60.0) -> None:
    async with asyncio.timeout(within):
        await task


# -- a stop before the first step -------------------------------------------------------------------------------------


@pytest.mark.parametrize("force", [False, True])
async def test_a_stop_before_the_first_step_is_remembered(client: Client, jobs: Jobs, faults: Faults, *, force: bool) -> None:
    handle = await client.enqueue(jobs.quick())
    worker = Worker(client, jobs.registry, grace=600, poll_interval=600)
    task = asyncio.create_task(worker.run())
    worker.stop(force=force)
    await ended(task)
    assert not faults.calls["claim"]
    assert (await handle.snapshot()).state is JobState.READY
    assert await worker.run_once()  # the request was for that run
    assert (await handle.snapshot()).state is JobState.COMPLETED


async def test_a_stop_before_a_block_ends_it_at_once_and_only_that(client: Client, jobs: Jobs, faults: Faults) -> None:
    worker = Worker(client, jobs.registry, grace=600)
    worker.stop()
    async with worker:
        await until(lambda: not worker.health().running)
        worker.stop()  # again, after it has ended
    assert not faults.calls["claim"]
    async with worker:
        assert worker.health().running
        assert await (await client.enqueue(jobs.quick())).result(timeout=60) == 1


async def test_a_stop_after_the_end_of_a_block_s_run_isnt_kept_for_the_next(client: Client, jobs: Jobs) -> None:
    worker = Worker(client, jobs.registry)
    for _ in range(2):
        async with worker:
            assert await (await client.enqueue(jobs.quick())).result(timeout=60) == 1
            worker.stop()
            await until(lambda: not worker.health().running)
            worker.stop()


async def test_a_stop_while_the_lease_is_being_opened(client: Client, jobs: Jobs, faults: Faults) -> None:
    """It waits for nothing: nothing has been claimed."""
    faults.gates["open_lease"] = asyncio.Event()
    worker = Worker(client, jobs.registry, grace=600)
    task = asyncio.create_task(worker.run())
    await until(lambda: faults.calls["open_lease"])
    began = time.monotonic()
    worker.stop()
    await ended(task)
    assert time.monotonic() - began < _shutdown._LAST_CLAIM_SECONDS
    faults.gates["open_lease"].set()


# -- in the turn in which a job starts --------------------------------------------------------------------------------


def lose(worker: Worker) -> None:
    holdings = parts(worker).holdings
    holdings.lose(list(holdings.running.values()), LostReason.TAKEN)


def cancel(worker: Worker) -> None:
    for slot in parts(worker).holdings.running.values():
        assert slot.task is not None
        slot.task.cancel()


def time_out(worker: Worker) -> None:
    for slot in parts(worker).holdings.running.values():
        slot.cancel(CancelReason.TIMEOUT)


def stop(worker: Worker) -> None:
    worker.stop()


def force(worker: Worker) -> None:
    worker.stop(force=True)


def stop_and_cancel(worker: Worker) -> None:
    worker.stop()
    parts(worker).holdings.cancel_all(CancelReason.SHUTDOWN)


@pytest.mark.parametrize("act", [lose, cancel, time_out, stop, force, stop_and_cancel])
async def test_a_slot_is_freed_though_its_task_took_no_step(
    client: Client, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, act: Callable[[Worker], None]
) -> None:
    real, done = Slots.start, asyncio.Event()

    def start(slots: Slots, job: ClaimedJob) -> None:
        real(slots, job)
        if not done.is_set():
            done.set()
            act(worker)

    monkeypatch.setattr(Slots, "start", start)
    handle = await client.enqueue(jobs.quick())
    worker = Worker(client, jobs.registry, concurrency=1, grace=600, poll_interval=600, renew_every=0.1)
    task = asyncio.create_task(worker.run())
    async with asyncio.timeout(60):
        await done.wait()
    await until(lambda: worker.health().busy == 0)
    assert not _BODIES
    if act in {lose, cancel, time_out}:
        assert await handle.result(timeout=60) == 1  # the slot takes it again when it's given back
        worker.stop()
    else:
        await ended(task)
        job = await handle.snapshot()
        assert (job.state, job.attempt) == ((JobState.READY, 0) if act is stop_and_cancel else (JobState.COMPLETED, 1))
    begun = time.monotonic()
    await ended(task)
    assert time.monotonic() - begun < 30  # and not the grace
    assert (worker.health().busy, left_behind(worker)) == (0, 0)


# -- jobs that don't stop ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "block", "force"])
@pytest.mark.usefixtures("hurried")
async def test_a_worker_lets_go_of_a_job_that_swallows_its_cancellation(
    client: Client, stubborn: Stubborn, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """It ends, and names the job, whose claim stays."""
    handle = await client.enqueue(stubborn.stubborn())
    worker = Worker(client, stubborn.registry, lease=1, grace=0.1)
    if how == "block":
        async with asyncio.timeout(60), worker:
            await stubborn.started()
    else:
        task = asyncio.create_task(worker.run())
        await stubborn.started()
        worker.stop(force=how == "force")
        await ended(task)
    assert not worker.health().running
    (named,) = [record for record in caplog.records if str(handle.id) in record.message and record.levelno == logging.WARNING]
    assert "stubborn" in named.message
    assert left_behind(worker) == 1
    assert stubborn.swallowed >= 1
    assert (await handle.snapshot()).state is JobState.RUNNING


@pytest.mark.usefixtures("hurried")
async def test_a_body_that_was_left_behind_isnt_begun_again_beside_it(
    client: Client, stubborn: Stubborn, caplog: pytest.LogCaptureFixture
) -> None:
    """Its lease is renewed no more, so that others get it; here it waits until the body has ended."""
    handle = await client.enqueue(stubborn.stubborn())
    async with Worker(client, stubborn.registry, lease=1, grace=0.1):
        await stubborn.started()
    async with Worker(client, stubborn.registry, lease=1, poll_interval=0.05):
        await until(lambda: "took over 1 jobs" in caplog.text)
        assert handle.id in _BODIES
        await asyncio.sleep(0.3)  # what is waited for is that nothing happens
        assert stubborn.starts.empty()
        stubborn.release.set()
        assert await handle.result(timeout=60) == 2


@pytest.mark.usefixtures("hurried")
async def test_a_thread_that_doesnt_stop_is_left_behind(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    registry, gate, started = Registry(), threading.Event(), threading.Event()

    @registry.job
    def in_thread() -> None:
        started.set()
        gate.wait(120)

    handle = await client.enqueue(in_thread())
    worker = Worker(client, registry, lease=600, grace=0)
    task = asyncio.create_task(worker.run())
    await until(started.is_set)
    worker.stop()
    try:
        await ended(task)
        assert (await handle.snapshot()).state is JobState.RUNNING
        assert handle.id in _BODIES
        assert [record.levelname for record in caplog.records if str(handle.id) in record.message][-1] == "WARNING"
    finally:
        gate.set()
    await until(lambda: handle.id not in _BODIES)


async def test_what_ends_while_it_is_interrupted_is_given_back(client: Client, jobs: Jobs) -> None:
    """The time after the grace is for that."""
    registry, started = Registry(), asyncio.Event()

    @registry.job
    async def slow_to_stop() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1.5)

    handle = await client.enqueue(slow_to_stop())
    worker = Worker(client, registry, grace=0.01, lease=600)
    async with worker:
        await started.wait()
    job = await handle.snapshot()
    assert (job.state, job.attempt, left_behind(worker)) == (JobState.READY, 0, 0)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("job", ["stubborn", "parent"])
def test_what_is_left_behind_doesnt_keep_the_event_loop_from_ending(
    url: str, job: str, hurried: None, caplog: pytest.LogCaptureFixture, *, force: bool
) -> None:
    """`asyncio.run`, in which servers run, waits for every task that it sees: for the job's, and those that it has started."""

    async def serve() -> None:
        stubborn = Stubborn()
        async with Client(url) as client:
            async with Worker(client, stubborn.registry, grace=0.1, lease=600) as worker:
                await client.enqueue(getattr(stubborn, job)())
                await stubborn.started()
                worker.stop(force=force)
            if force:  # it had no time to react yet
                await until(lambda: not jobs_in_sight())

    def jobs_in_sight() -> list[str]:
        names = {getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()}
        return list({"Slots._run", "Stubborn.hold_on"} & names)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert len([record for record in caplog.records if "doesn't stop" in record.message]) == 1


def test_a_body_whose_event_loop_is_closed_is_forgotten(tmp_path: Path, hurried: None) -> None:
    """It will never go on: the job may run in another loop of the process."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"

    async def leave() -> None:
        stubborn = Stubborn()
        async with Client(url) as client, Worker(client, stubborn.registry, grace=0.1, lease=1):
            await client.enqueue(stubborn.stubborn())
            await stubborn.started()

    async def run() -> int:
        stubborn = Stubborn()
        stubborn.release.set()
        async with Client(url) as client, Worker(client, stubborn.registry, lease=1, poll_interval=0.05):
            return await stubborn.started()

    asyncio.run(leave())
    assert _BODIES
    assert asyncio.run(run()) == 2
    assert not _BODIES


# -- outcomes that can't be written -----------------------------------------------------------------------------------


async def test_a_stop_waits_for_outcomes_as_long_as_its_grace(
    client: Client, jobs: Jobs, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_shutdown, "_FLUSH_SECONDS", 0.05)
    gate = faults.gates["settle"] = asyncio.Event()
    handle = await client.enqueue(jobs.quick())
    worker = Worker(client, jobs.registry, grace=600, lease=1)
    task = asyncio.create_task(worker.run())
    await until(lambda: faults.calls["settle"])
    worker.stop()
    done, _ = await asyncio.wait([task], timeout=2.5)  # also for longer than a lease: it's renewed meanwhile
    assert not done
    assert worker.health().lease_valid
    gate.set()
    await ended(task)
    assert (await handle.snapshot()).state is JobState.COMPLETED
    assert left_behind(worker) == 0


@pytest.mark.usefixtures("hurried")
async def test_outcomes_that_werent_written_are_named_and_the_exit_code_says_so(
    client: Client, jobs: Jobs, faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    faults.gates["settle"] = asyncio.Event()
    handles = await client.enqueue_many([jobs.quick() for _ in range(3)])
    worker = Worker(client, jobs.registry, grace=0.1, lease=600)
    task = asyncio.create_task(run_until_signalled(worker))
    await until(lambda: faults.calls["settle"])
    await until(lambda: worker.health().busy == 0)
    worker.stop()
    await ended(task)
    assert task.result() == 4
    named = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(named) == 3
    for handle in handles:
        assert any(str(handle.id) in record.message and "quick" in record.message for record in named)
        assert (await handle.snapshot()).state is JobState.RUNNING


@pytest.mark.usefixtures("hurried")
async def test_jobs_that_couldnt_be_given_back_are_named(
    client: Client, jobs: Jobs, faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    handle = await client.enqueue(jobs.held())
    worker = Worker(client, jobs.registry, grace=0, lease=600)
    task = asyncio.create_task(worker.run())
    await jobs.started()
    faults.failing.add("release")
    worker.stop()
    await ended(task)
    assert any(str(handle.id) in record.message for record in caplog.records if record.levelno == logging.ERROR)
    assert left_behind(worker) == 1


@pytest.mark.usefixtures("hurried")
async def test_a_claim_that_arrives_after_the_stop_is_given_back(client: Client, jobs: Jobs, faults: Faults) -> None:
    gate = faults.gates["claim"] = asyncio.Event()
    handle = await client.enqueue(jobs.quick())
    worker = Worker(client, jobs.registry, grace=600, lease=600)
    task = asyncio.create_task(worker.run())
    await until(lambda: faults.calls["claim"])
    worker.stop()
    gate.set()
    await ended(task)
    job = await handle.snapshot()
    assert (job.state, job.attempt) == (JobState.READY, 0)


@pytest.mark.parametrize("verb", ["claim", "settle", "release", "next_due"])
@pytest.mark.usefixtures("hurried")
async def test_a_stop_is_bounded_whatever_hangs(
    client: Client, jobs: Jobs, faults: Faults, stubborn: Stubborn, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Also a call of the store that doesn't react to being cancelled."""
    real = getattr(client.store, verb)

    async def deaf(*arguments: Any, **named: Any) -> Any:
        await stubborn.hold_on()
        return await real(*arguments, **named)

    await client.enqueue_many([jobs.quick(), jobs.held()])
    monkeypatch.setattr(client.store, verb, deaf)
    worker = Worker(client, jobs.registry, grace=0.2, lease=600, concurrency=1)
    task = asyncio.create_task(worker.run())
    await asyncio.sleep(0.3)
    begun = time.monotonic()
    worker.stop()
    await ended(task)
    assert time.monotonic() - begun < _shutdown.longest_stop(0.2) + 10


# -- what is cleaned up whatever is cancelled -------------------------------------------------------------------------


@pytest.mark.parametrize("steps", range(6))
def test_the_end_of_the_event_loop_in_any_step_of_a_stop_gives_everything_back(url: str, steps: int) -> None:
    """Every task is cancelled then, those that clean up too, perhaps before their first step."""
    threads: list[threading.Thread] = []
    owners: list[asyncio.Task[None]] = []

    async def main() -> None:
        jobs, begun = Jobs(), asyncio.Event()
        workers: list[Worker] = []

        async def own() -> None:
            async with Client(url) as client:
                workers.append(worker := Worker(client, jobs.registry, name="ended early", grace=600, lease=600))
                running = asyncio.create_task(worker.run())
                await client.enqueue(jobs.held())
                begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.wait([running])

        owners.append(asyncio.create_task(own()))
        await begun.wait()
        await jobs.started()
        threads.extend(each for each in threading.enumerate() if "ended early" in each.name)
        workers[0].stop(force=True)
        for _ in range(steps):
            await asyncio.sleep(0)

    async def look() -> None:
        async with Client(url) as client:
            (job,) = (await client.list_jobs()).jobs
            assert (job.state, job.attempt) == (JobState.READY, 0)
            assert (await client.stats()).workers == ()

    asyncio.run(main())
    asyncio.run(look())
    assert threads
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize("steps", range(1, 4))
async def test_a_client_is_closed_though_its_closing_was_cancelled(url: str, steps: int) -> None:
    """As the event loop's end does, also before its first step. What is left open on PostgreSQL is found by the fixture."""
    before = set(threading.enumerate())
    client = await Client(url).open()
    closing = asyncio.create_task(client.close())
    for _ in range(steps):
        await asyncio.sleep(0)
    cancelled = [task for task in asyncio.all_tasks() if task.get_name() == "aioqueue close"]
    assert cancelled
    for task in cancelled:
        task.cancel()
    await asyncio.wait([closing])
    await until(lambda: not set(threading.enumerate()) - before)


@pytest.mark.parametrize("steps", range(3))
async def test_a_worker_ends_its_lease_though_its_own_end_was_cancelled(client: Client, jobs: Jobs, steps: int) -> None:
    """As the event loop's end does, also before its first step."""
    handle = await client.enqueue(jobs.held())
    worker = Worker(client, jobs.registry, grace=600, lease=600)
    task = asyncio.create_task(worker.run())
    await jobs.started()
    worker.stop()

    def ending() -> list[asyncio.Task[Any]]:
        return [each for each in asyncio.all_tasks() if each.get_name() == "aioqueue worker's end"]

    while not ending():
        await asyncio.sleep(0)
    for _ in range(steps):
        await asyncio.sleep(0)
    for each in ending():
        each.cancel()
    await ended(task)
    job = await handle.snapshot()
    assert (job.state, job.attempt) == (JobState.READY, 0)
    assert (await client.stats()).workers == ()


# -- a client that was closed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["claim", "settle", "release", "next_due", "take_expired", "renew", "open_lease"])
async def test_a_closed_client_ends_the_worker_whoever_notices(client: Client, jobs: Jobs, faults: Faults, verb: str) -> None:
    faults.before[verb] = [ClientClosed("the client was closed")] * 100
    worker = Worker(client, jobs.registry, grace=600, lease=1, renew_every=0.1, poll_interval=600 if verb == "renew" else 0.1)
    if verb in {"settle", "release"}:
        await client.enqueue((jobs.quick if verb == "settle" else jobs.held)())
    task = asyncio.create_task(worker.run())
    if verb == "release":
        await jobs.started()
        run = parts(worker)
        (slot,) = run.holdings.running.values()
        assert slot.task is not None
        slot.task.cancel()
        run.writer.give_back(slot.job.lease_id, slot.claim)
    with pytest.raises(ClientClosed):
        await ended(task)
    assert not worker.health().running


@pytest.mark.parametrize("busy", [False, True])
async def test_a_client_that_is_closed_under_its_worker(url: str, jobs: Jobs, *, busy: bool) -> None:
    client = await Client(url).open()
    worker = Worker(client, jobs.registry, grace=600, lease=600, poll_interval=600 if busy else 0.1, concurrency=1)
    if busy:
        await client.enqueue(jobs.held())
    task = asyncio.create_task(worker.run())
    if busy:
        await jobs.started()
    else:
        await until(lambda: worker.health().last_claim is not None)
    await client.close()
    jobs.gate.set()
    with pytest.raises(ClientClosed):
        await ended(task)
