"""A worker's leases: what it may claim for them, what becomes of its jobs when one is lost or over, and one for each duration.
On both stores.
"""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client, Fixed, JobState, Registry, Retry, StoreUnavailable, current_attempt
from aioqueue.definitions._settings import WorkerSettings
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import ClaimedJob, LostReason
from aioqueue.worker import Worker, _lease
from aioqueue.worker._health import Troubles
from aioqueue.worker._holdings import Holdings
from aioqueue.worker._lease import Leases
from aioqueue.worker._lease_groups import lease_groups
from aioqueue.worker._policy import Policies
from aioqueue.worker._recovery import Recovery
from aioqueue.worker._wakeup import Wakeup
from aioqueue.worker._watchdog import Watchdog
from tests.harnesses import PostgresHarness, SQLiteHarness
from tests.worker.faults import Faults, Jobs, until
from tests.worker.insides import parts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable

    from aioqueue.vocabulary._job import Claim
    from aioqueue.worker._lease_thread import KeptLease

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]

LIMIT = 120


# -- leases that can't be renewed -------------------------------------------------------------------------------------


async def test_a_worker_that_cannot_renew_stops_claiming_then_cancels_and_later_gives_back(
    client: Client, jobs: Jobs, faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    """When its lease is over others may run its jobs. If they didn't, and the lease is renewed late, the jobs are given back
    with no attempt used: one whose body has ended is, that is.
    """
    handle = await client.enqueue(jobs.held())
    async with Worker(client, jobs.registry, lease=6, poll_interval=0.05) as worker:
        assert await jobs.started() == 1
        lease = parts(worker).leases.groups[0].lease
        assert lease is not None
        faults.failing.add("renew")
        await until(lambda: "renew" in worker.health().troubles)
        assert worker.health().lease_valid
        await until(lambda: not lease.can_be_answered_for(time.monotonic()))
        assert time.monotonic() < lease.ends - 1
        await until(lambda: not faults.busy)
        claims, later = faults.calls["claim"], await client.enqueue(jobs.quick())
        await until(lambda: jobs.cancelled)
        assert lease.ends <= time.monotonic() < lease.ends + 3
        assert faults.calls["claim"] == claims
        assert not worker.health().lease_valid
        assert (await later.snapshot()).state is JobState.READY
        faults.failing.clear()
        assert await jobs.started() == 1
        assert await later.result(timeout=LIMIT) == 1
        jobs.gate.set()
        assert await handle.result(timeout=LIMIT) == 1
        await until(lambda: worker.health().ok)
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    of_lease = [(level, text) for level, text in told if f"lease {lease.id} " in text]
    assert [level for level, _ in of_lease] == ["WARNING", "ERROR", "ERROR"]
    assert "ends in" in of_lease[1][1]
    assert "(1 jobs) is cancelled" in of_lease[2][1]
    assert [text for _, text in told if "attempt 1 is lost" in text and LostReason.LAPSED in text]
    assert (await handle.snapshot()).errors == ()


async def test_a_job_whose_body_goes_on_past_the_lease_isnt_given_back_beside_it(client: Client, faults: Faults) -> None:
    """A thread can't be stopped. When it has ended, the job is given back."""
    registry, begun, loop = Registry(), asyncio.Event(), asyncio.get_running_loop()
    let_go, running, most = asyncio.Event(), 0, 0

    @registry.job(retry=Retry(max_attempts=3, backoff=Fixed(0)))
    def stubborn() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            loop.call_soon_threadsafe(begun.set)
            asyncio.run_coroutine_threadsafe(let_go.wait(), loop).result(LIMIT)
            return current_attempt().number
        finally:
            running -= 1

    handle = await client.enqueue(stubborn())
    async with Worker(client, registry, lease=1, renew_every=0.1, poll_interval=0.05) as worker:
        async with asyncio.timeout(LIMIT):
            await begun.wait()
        faults.failing.add("renew")
        await until(lambda: not worker.health().lease_valid)
        await until(lambda: not parts(worker).holdings.held)
        faults.failing.clear()
        await until(lambda: worker.health().ok)
        renewals = faults.calls["renew"]
        await until(lambda: faults.calls["renew"] > renewals + 4)
        assert (await handle.snapshot()).state is JobState.RUNNING
        let_go.set()
        assert await handle.result(timeout=LIMIT) == 1
    assert most == 1


class QuietThread:
    """In place of the leases' thread: it renews nothing, and notes what it was asked to renew at once."""

    def __init__(self, *_: object, on_error: Callable[[KeptLease, BaseException], None], **__: object) -> None:
        self.on_error = on_error
        self.alive = True
        self.asked: list[int] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self) -> None: ...

    async def connect(self) -> None: ...

    def keep(self, lease: KeptLease) -> None: ...

    def drop_all(self) -> None: ...

    def renew_now(self, leases: Iterable[KeptLease]) -> None:
        self.asked += [lease.id for lease in leases]

    def stop(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


class Bench:
    """Leases whose thread says nothing by itself, over a store that opens them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *durations: float) -> None:
        registry = Registry()
        settings = WorkerSettings.resolve(environment={})
        names = [f"a{number}" for number in range(len(durations))]
        for name, duration in zip(names, durations, strict=True):

            async def job() -> None: ...

            registry.job(name=name, lease=duration)(job)
        self.opened = 0
        threads: list[QuietThread] = []

        def thread(*arguments: Any, **named: Any) -> QuietThread:
            threads.append(QuietThread(*arguments, **named))
            return threads[-1]

        monkeypatch.setattr(_lease, "LeaseThread", thread)
        store: Any = SimpleNamespace(lease_session=lambda **_: None, open_lease=self._open)
        self.holdings, wakeup, troubles, writer = Holdings(), Wakeup(), Troubles("w"), SimpleNamespace()
        recovery = Recovery(store, Policies(registry, settings), settings, "w")
        self.leases = Leases(
            store,
            lease_groups(names, registry.types, settings),
            "w",
            holdings=self.holdings,
            writer=writer,
            wakeup=wakeup,
            recovery=recovery,
            watchdog=Watchdog("w", 0, self.holdings.held, troubles),
            troubles=troubles,
        )
        (self.thread,) = threads

    async def _open(self, worker: str, duration: float, **_: Any) -> int:
        self.opened += 1
        return self.opened

    def hold(self, lease_id: int) -> Claim:
        now: Any = None
        job_id = new_id()
        job = ClaimedJob(
            id=job_id, chain_id=job_id, type="a0", payload=b"{}", priority=2, attempt=1, claims=1, lease_id=lease_id,
            created_at=now, run_at=now, started_at=now, max_attempts=10,
        )  # fmt: skip
        slot = self.holdings.hold(job)
        slot.task = asyncio.get_running_loop().create_task(asyncio.sleep(3600))
        self.holdings.running[slot.claim] = slot
        return slot.claim

    async def close(self) -> None:
        for slot in self.holdings.running.values():
            assert slot.task is not None
            slot.task.cancel()
        await self.leases.close(60)


@pytest.fixture
async def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    bench = Bench(monkeypatch, *getattr(request, "param", (60.0,)))
    await bench.leases.opened()
    yield bench
    await bench.close()


async def test_a_process_that_stood_still_asks_before_it_cancels(bench: Bench) -> None:
    """A renewal had failed before, and the end is over: by now it might be granted."""
    ours = bench.hold(1)
    lease = bench.leases.groups[0].lease
    assert lease is not None
    now = time.monotonic()
    lease.ends, lease.failing, lease.failed_at = now - 1, True, now - 60
    bench.thread.on_error(lease, StoreUnavailable("no answer"))
    assert bench.thread.asked == [1]
    assert ours in bench.holdings.held
    lease.failed_at = now  # asked, and failed past the end
    bench.thread.on_error(lease, StoreUnavailable("no answer"))
    assert ours not in bench.holdings.held
    assert bench.holdings.running[ours].lost is LostReason.LAPSED


async def test_a_lease_that_was_renewed_meanwhile_cancels_nothing(bench: Bench) -> None:
    """The event loop was blocked, and hears late of a failure; the thread has renewed since."""
    ours = bench.hold(1)
    lease = bench.leases.groups[0].lease
    assert lease is not None
    lease.failing, lease.ends = False, time.monotonic() + 60
    bench.thread.on_error(lease, StoreUnavailable("long ago"))
    lease.failing, lease.failed_at = True, time.monotonic()
    bench.thread.on_error(lease, StoreUnavailable("again"))
    assert ours in bench.holdings.held


@pytest.mark.parametrize("bench", [(60.0, 5.0, 600.0, 5.0)], indirect=True)
async def test_what_is_claimed_is_of_the_leases_that_can_be_answered_for(bench: Bench) -> None:
    leases = bench.leases
    assert bench.opened == 3
    assert leases.claimable() == (1, ("a0", "a1", "a3", "a2"), {"a1": 2, "a3": 2, "a2": 3})
    groups = {group.duration: group.lease for group in leases.groups}
    short, main = groups[5.0], groups[60.0]
    assert short is not None
    assert main is not None
    short.ends = time.monotonic() - 1
    assert leases.claimable() == (1, ("a0", "a2"), {"a2": 3})
    assert bench.thread.asked == [2]  # nothing says that it can't be renewed
    main.failing, main.ends = True, time.monotonic() + 19
    assert leases.claimable() == (3, ("a2",), None)
    assert not leases.valid
    assert [leases.may_start(each) for each in (1, 2, 3, 4)] == [True, False, True, False]


# -- its own ----------------------------------------------------------------------------------------------------------


async def test_a_worker_names_its_own_leases_whenever_it_looks_for_lost_jobs(
    client: Client, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, harness: SQLiteHarness | PostgresHarness
) -> None:
    """Those that it has, all of them, and one that it has just lost, while bodies of it still run here."""
    named: dict[str, list[Collection[int]]] = {"next_due": [], "take_expired": []}

    def noted(verb: str, works: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*arguments: Any, own: Collection[int] = (), **others: Any) -> Any:
            named[verb].append(own)
            return await works(*arguments, own=own, **others)

        return call

    for verb in named:
        monkeypatch.setattr(client.store, verb, noted(verb, getattr(client.store, verb)))
    lasting = asyncio.Event()

    @jobs.registry.job(lease=600)
    async def unwilling() -> None:
        jobs.starts.put_nowait(0)
        while not lasting.is_set():
            try:
                await lasting.wait()
            except asyncio.CancelledError:
                jobs.cancelled += 1

    await client.enqueue(unwilling())
    async with Worker(client, jobs.registry, lease=60, renew_every=0.05, poll_interval=0.05, concurrency=3) as worker:
        assert await jobs.started() == 0
        both = set(parts(worker).leases.own)
        assert len(both) == 2
        assert await (await client.enqueue(jobs.quick())).result(timeout=LIMIT) == 1
        await until(lambda: named["take_expired"])
        assert {frozenset(own) for owns in named.values() for own in owns} == {frozenset(both)}
        (slot,) = parts(worker).holdings.held.values()
        lost = slot.job.lease_id
        await harness.delete_lease(lost)
        await until(lambda: jobs.cancelled)
        await until(lambda: len(set(parts(worker).leases.own)) == 3)
        for owns in named.values():
            owns.clear()
        await until(lambda: named["next_due"])
        assert lost in named["next_due"][0]
        lasting.set()
        await until(lambda: lost not in parts(worker).leases.own)


async def test_a_worker_whose_renewals_get_no_answer_does_not_take_its_own_jobs(
    client: Client, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its slots are full, its other connections work, and its lease is over: as in a black hole on one line."""
    make, silent, asked = client.store.lease_session, asyncio.Event(), 0

    class Silent:
        def __init__(self, timeout: float) -> None:
            self._session, self._timeout = make(timeout=timeout), timeout

        def connect(self) -> None:
            self._session.connect()

        def renew(self, *arguments: Any) -> Any:
            nonlocal asked
            if not silent.is_set():
                return self._session.renew(*arguments)
            asked += 1
            time.sleep(self._timeout)
            raise StoreUnavailable("no answer")

        def close(self) -> None:
            self._session.close()

    monkeypatch.setattr(client.store, "lease_session", lambda timeout: Silent(timeout))
    handles = [await client.enqueue(jobs.held()) for _ in range(2)]
    async with Worker(client, jobs.registry, lease=3, poll_interval=0.1, concurrency=2):
        assert [await jobs.started() for _ in handles] == [1, 1]
        silent.set()
        await until(lambda: jobs.cancelled == 2)
        assert asked >= 3  # each was given up in time for another
        until_then = time.monotonic() + 2
        await until(lambda: time.monotonic() > until_then)  # past the end, and past looks for lost jobs
        assert "took over" not in caplog.text
        assert jobs.starts.empty()
        silent.clear()
        assert [await jobs.started() for _ in handles] == [1, 1]
        jobs.gate.set()
        assert {await handle.result(timeout=LIMIT) for handle in handles} == {1}
