"""One orphan that is broken, locked or refused keeps no other from being recovered."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client, ClientClosed, Fixed, JobState, Registry, Retry, RowRejected, StoreUnavailable
from aioqueue.vocabulary._job import LostReason, SettlementKind, SettleResult
from aioqueue.worker import Worker
from aioqueue.worker._policy import Policy
from tests.harnesses import PostgresHarness, SQLiteHarness
from tests.worker.faults import Faults, Jobs, until
from tests.worker.recovery_bench import Bench, orphan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]

LIMIT = 120


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench(monkeypatch)
    await bench.quiet_for(21)
    return bench


async def look(bench: Bench, seconds: float = 21.0) -> int:
    await bench.quiet_for(seconds)
    return await bench.recovery.reap(())


def policies() -> dict[str, Callable[[Any], Any]]:
    def raises(_: Any) -> Any:
        raise RuntimeError("broken")

    return {"its policy is broken": raises, "its policy is nonsense": lambda _: object()}


@pytest.mark.parametrize("broken", policies())
async def test_one_whose_policy_cannot_be_read_has_the_usual_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    """Whatever it is that raises: recovery asks for the policies of jobs that others have enqueued."""
    bad, works = orphan(type="bad"), Policy.of

    def of(job: Any, *arguments: Any) -> Any:
        return policies()[broken](job) if job.id == bad.id else works(job, *arguments)

    monkeypatch.setattr(Policy, "of", of)
    bench.store.left = [[orphan(), bad, orphan()]]
    assert await look(bench) == 3
    assert {each.kind for each in bench.store.written} == {SettlementKind.RETRIED}
    (told,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert str(bad.id) in told.getMessage()


async def test_a_batch_is_halved_until_the_guilty_one_is_alone(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    jobs = [orphan() for _ in range(16)]
    bench.store.stays, bad = jobs, jobs[5]
    bench.store.errors[bad.id] = RowRejected("a trigger of\nyours raises")
    assert await look(bench) == 15
    assert {each.id for each in bench.store.written} == {job.id for job in jobs} - {bad.id}
    assert len(bench.store.batches) < 20
    (told,) = [record.getMessage() for record in caplog.records if str(bad.id) in record.getMessage()]
    assert "1 jobs of lost workers can't be recovered now" in told
    assert f"a {bad.id}: nothing can be written about it: a trigger of\\nyours raises" in told


async def test_one_that_is_refused_fails_with_what_can_be_written(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bad, fine = orphan(), orphan()
    bench.store.left = [[bad, fine]]
    settle, refused = bench.store.settle, []

    async def refuses(settlements: Any, *, orphaned: bool) -> Any:
        if any(each.id == bad.id and each.kind is SettlementKind.RETRIED for each in settlements):
            refused.append(settlements)
            rest = iter(await settle([each for each in settlements if each.id != bad.id], orphaned=orphaned))
            return [SettleResult(LostReason.ERROR, "out of range") if each.id == bad.id else next(rest) for each in settlements]
        return await settle(settlements, orphaned=orphaned)

    bench.store.settle = refuses
    assert await look(bench) == 2
    assert {each.id: each.kind for each in bench.store.written} == {
        fine.id: SettlementKind.RETRIED,
        bad.id: SettlementKind.FAILED,
    }
    assert [str(bad.id) in record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [True]


@pytest.mark.parametrize("result", [SettleResult(busy=True), SettleResult(LostReason.ERROR, "no")], ids=["busy", "refused"])
async def test_one_that_cannot_be_settled_is_told_once_and_looked_at_less_and_less(
    bench: Bench, caplog: pytest.LogCaptureFixture, result: SettleResult
) -> None:
    """And what comes later isn't kept waiting for it, although the store tells of it all the time."""
    bad = orphan()
    bench.store.results[bad.id] = result
    bench.store.stays = [bad]
    began, tries, looks = bench.clock.now, [0.0], bench.store.taken
    while bench.clock.now < began + 120:
        bench.recovery.expect(0.0)
        before = len(bench.store.batches)
        await bench.recovery.reap(())
        if len(bench.store.batches) > before:
            tries.append(bench.clock.now - began)
        await bench.quiet_for(0.25)
    waits = [later - earlier for earlier, later in pairwise(tries[1:])]
    assert 5 < len(waits) < 20
    assert waits[-1] > 8
    assert waits == sorted(waits) or waits[0] < waits[-1] / 4
    assert 120 <= bench.store.taken - looks <= 300  # one or two a second
    assert len([record for record in caplog.records if str(bad.id) in record.getMessage()]) == 1
    fresh = orphan()
    bench.store.stays = [bad, fresh]
    assert await look(bench, 2.0) == 1
    assert [each.id for each in bench.store.written] == [fresh.id]
    bench.store.results.clear()  # whatever was in the way is gone
    assert await look(bench, 30.0) == 1


async def test_many_that_cannot_be_settled_do_not_hide_the_others(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A store gives the oldest first."""
    bad = [orphan() for _ in range(250)]
    bench.store.results = {job.id: SettleResult(busy=True) for job in bad}
    others = [orphan() for _ in range(250)]
    bench.store.stays = [*bad, *others]
    recovered = 0
    for _ in range(8):
        recovered += await look(bench, 21.0)
    assert recovered == 250
    assert len([record for record in caplog.records if "can't be recovered" in record.getMessage()]) < 5
    assert bench.store.limits[0] == 200
    assert max(bench.store.limits) > 250


async def test_one_of_which_the_database_never_answers_is_alone_before_long(bench: Bench) -> None:
    """Such as one whose trigger waits for a lock: a whole batch with it fails as in an outage."""
    jobs = [orphan() for _ in range(40)]
    bench.store.stays = jobs
    bench.store.errors[jobs[7].id] = StoreUnavailable("no answer within 60 s")
    looks = 0
    while {each.id for each in bench.store.written} != {job.id for job in jobs} - {jobs[7].id}:
        looks += 1
        with suppress(StoreUnavailable):
            await look(bench, 25.0)
    assert looks < 10


async def test_a_closed_client_is_no_reason_to_put_anything_off(bench: Bench) -> None:
    bench.store.left = [[orphan()]]
    (job,) = bench.store.left[0]
    bench.store.errors[job.id] = ClientClosed("closed")
    with pytest.raises(ClientClosed):
        await look(bench)
    bench.store.errors.clear()
    await look(bench)
    assert len(set(bench.store.limits)) == 1  # for what waits there would be more place


# -- with workers and stores ------------------------------------------------------------------------------------------


class Raises:
    """A policy of the user's."""

    def delay(self, attempt: int) -> float:
        raise RuntimeError("my policy fails")

    def encode(self) -> dict[str, object]:
        return {"kind": "mine"}


async def test_orphans_beside_one_whose_policy_raises_are_recovered(client: Client, url: str) -> None:
    registry = Registry()

    async def work() -> None: ...

    bad = registry.job(name="bad", retry=Retry(max_attempts=5, backoff=Raises()))(work)
    good = registry.job(name="good", retry=Retry(max_attempts=5, backoff=Fixed(0)))(work)
    first = await client.enqueue(bad())
    handles = await client.enqueue_many([good() for _ in range(3)])
    dead = await client.store.open_lease("dead", 1)
    assert len(await client.store.claim(dead, ["bad", "good"], 4)) == 4
    async with Worker(client, registry, lease=600, renew_every=0.2, poll_interval=0.2):
        for handle in handles:
            await handle.result(timeout=LIMIT)
        await until_state(first, JobState.SCHEDULED)


async def until_state(handle: Any, state: JobState) -> None:
    deadline = time.monotonic() + LIMIT
    while (await handle.snapshot()).state is not state:
        assert time.monotonic() < deadline


async def test_an_orphan_that_somebody_has_locked_keeps_no_other_waiting(postgres_url: str) -> None:
    jobs, harness = Jobs(), PostgresHarness(postgres_url)
    async with Client(postgres_url) as client:
        locked, *others = await client.enqueue_many([jobs.quick() for _ in range(3)])
        dead = await client.store.open_lease("dead", 1)
        assert len(await client.store.claim(dead, ["quick"], 3)) == 3
        async with Worker(client, jobs.registry, lease=600, renew_every=0.2, poll_interval=0.2):
            async with harness.locked(locked.id):
                assert {await handle.result(timeout=LIMIT) for handle in others} == {2}
                assert (await locked.snapshot()).state is JobState.RUNNING
                late = await client.enqueue(jobs.quick())
                lease = await client.store.open_lease("dead too", 1)
                if await client.store.claim(lease, ["quick"], 1):  # unless the worker was faster
                    assert await late.result(timeout=LIMIT) == 2
            assert await locked.result(timeout=LIMIT) == 2


async def test_a_strange_orphan_is_not_told_of_without_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A number of claims beyond every integer's range: refused, or failed, but not twenty times a second."""
    path = tmp_path / "jobs.db"
    jobs = Jobs()
    async with Client(f"sqlite:///{path}") as client:
        strange, fine = await client.enqueue_many([jobs.quick() for _ in range(2)])
        dead = await client.store.open_lease("dead", 1)
        assert len(await client.store.claim(dead, ["quick"], 2)) == 2
        SQLiteHarness(path).execute(("update job set claims = 9223372036854775807 where id = ?", [str(strange.id)]))
        async with Worker(client, jobs.registry, lease=600, renew_every=0.1, poll_interval=0.05):
            assert await fine.result(timeout=LIMIT) == 2
            until_then = time.monotonic() + 3
            await until(lambda: time.monotonic() > until_then)
    told = [record.getMessage() for record in caplog.records if record.levelname in {"WARNING", "ERROR"}]
    assert len([line for line in told if str(strange.id) in line]) <= 3
    assert len(told) < 12


async def test_trouble_in_one_verb_does_not_put_recovery_off(client: Client, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Such as a row with which the question of what is due fails for ever, or a pool that is never free for a claim."""
    for verb, error in (("next_due", RuntimeError("an odd row")), ("claim", StoreUnavailable("no connection is free"))):
        jobs = Jobs()
        with monkeypatch.context() as patched:
            faults = Faults(client, patched)
            handle = await client.enqueue(jobs.quick())
            dead = await client.store.open_lease("dead", 1)
            assert len(await client.store.claim(dead, ["quick"], 1)) == 1
            faults.before[verb] = [error] * 100_000
            async with Worker(client, jobs.registry, lease=3, poll_interval=0.1):
                await until_state(handle, JobState.READY if verb == "claim" else JobState.COMPLETED)
            faults.before[verb].clear()
            await Worker(client, jobs.registry).run_once()
