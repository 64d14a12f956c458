"""What is counted: every attempt once, by how it ended; and no counter falls when a worker ends."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from aioqueue import Client, Fail, Fixed, Registry, Reschedule, Retry, StoreUnavailable, current_attempt
from aioqueue.telemetry._counters import LEDGER, OTHER, AttemptOutcome, Counters, TypeCounters
from aioqueue.worker import Worker
from tests.worker.faults import Faults
from tests.worker.stubborn import Stubborn

pytestmark = pytest.mark.anyio

ONCE = Retry(max_attempts=1)


def outcomes(counters: Counters) -> dict[str, dict[str, int]]:
    """By label, what isn't zero."""
    return {
        label: {outcome.value: count for outcome, count in each.outcomes.items() if count}
        for label, each in counters.by_label().items()
    }


def test_a_value_on_a_bound_is_in_its_bucket() -> None:
    counters = TypeCounters()
    for count, histogram in ((counters.begun, counters.delay), (counters.ended, counters.duration)):
        first, second = histogram.bounds[:2]
        for value in (0.0, first, (first + second) / 2, second, histogram.bounds[-1] * 2):
            count(value)
        assert histogram.counts[:2] == [2, 2]
        assert histogram.counts[-1] == 1
        assert histogram.sum == pytest.approx(first * 1.5 + second * 1.5 + histogram.bounds[-1] * 2)


def test_sums_stay_when_those_who_counted_are_gone() -> None:
    LEDGER.forget()
    first, second = Counters({"a": "a", "old_a": "a"}), Counters({"a": "a", "b": "b"})
    LEDGER.open(first)
    LEDGER.open(second)
    first.of("old_a").outcomes[AttemptOutcome.OK] += 2
    first.of("never registered").outcomes[AttemptOutcome.LOST] += 1
    second.of("a").outcomes[AttemptOutcome.OK] += 3
    second.of("b").ended(0.5)
    second.claims += 7
    before = LEDGER.total()
    for each in (first, first, second):
        LEDGER.close(each)
    after = LEDGER.total()
    assert outcomes(before) == outcomes(after) == {"a": {"ok": 5}, "b": {}, OTHER: {"lost": 1}}
    assert before.claims == after.claims == 7
    assert sum(after.by_label()["b"].duration.counts) == 1


def test_names_that_somebody_makes_up_are_counted_together() -> None:
    counters = Counters()
    for number in range(1000):
        counters.count_enqueued(f"made up {number}")
    assert len(counters.enqueued) == 201
    assert sum(counters.enqueued.values()) == 1000


def test_so_are_those_of_many_clients_and_none_of_the_sums_falls() -> None:
    """Whichever of them ends first: names that were shown once stay, and the rest stays with the others."""
    LEDGER.forget()
    clients = [Counters() for _ in range(3)]
    for number, counters in enumerate(clients):
        LEDGER.open(counters)
        for name in range(150):
            counters.count_enqueued(f"{number} {name}")
    before = LEDGER.total().enqueued
    for counters in reversed(clients):
        LEDGER.close(counters)
        assert LEDGER.total().enqueued == before
    assert len(before) == 201
    assert sum(before.values()) == 450


async def test_each_attempt_is_counted_once_by_how_it_ended(client: Client, untended: None) -> None:
    LEDGER.forget()
    registry = Registry()

    @registry.job(aliases=["earlier"], retry=Retry(max_attempts=2, backoff=Fixed(0), jitter=0, fail_on=(KeyError,)))
    async def work(what: str) -> None:
        match what:
            case "fails":
                raise ValueError
            case "says so":
                raise Fail("no")
            case "fail_on":
                raise KeyError
            case "waits":
                if current_attempt().job.reschedules == 0:
                    raise Reschedule(delay=0)

    calls = [work(what) for what in ("works", "fails", "says so", "fail_on", "waits")]
    await client.enqueue_many([*calls, work("late").options(expires=timedelta(microseconds=1))])
    await client.enqueue_by_name("earlier", {"what": "works"})
    await client.enqueue_by_name("work", {"nonsense": 1})
    await Worker(client, registry).run_once()
    counters = LEDGER.total()
    ended = outcomes(counters)["work"]
    assert ended == {"ok": 3, "retry": 1, "failed": 1, "poison": 3, "rescheduled": 1, "cancelled": 1}
    of_work = counters.by_label()["work"]
    assert sum(of_work.duration.counts) == sum(of_work.delay.counts) == sum(ended.values()) - ended["cancelled"]
    assert counters.claimed == sum(ended.values())
    assert counters.claims >= 2


async def test_an_enqueue_counts_what_it_has_stored(client: Client) -> None:
    registry = Registry()

    @registry.job
    async def work() -> None: ...

    before = LEDGER.total().enqueued.get("work", 0)
    for _ in range(2):
        await client.enqueue(work().options(key="one", unique=True))
    await client.enqueue_many([work(), work()])
    async with client.transaction() as tx:
        await tx.enqueue(work())
    assert LEDGER.total().enqueued["work"] - before == 4


async def test_attempts_that_a_stop_interrupts_are_counted(client: Client) -> None:
    LEDGER.forget()
    registry = Registry()
    started = asyncio.Event()

    @registry.job
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    await client.enqueue(endless())
    async with asyncio.timeout(60), Worker(client, registry, grace=0):
        await started.wait()
    assert outcomes(LEDGER.total())["endless"] == {"interrupted": 1}


async def test_renewals_are_counted_and_those_that_fail(client: Client, faults: Faults, stubborn: Stubborn) -> None:
    LEDGER.forget()
    await client.enqueue(stubborn.stubborn())
    worker = Worker(client, stubborn.registry, lease=3, renew_every=0.05, grace=0)
    async with asyncio.timeout(60), worker:
        await stubborn.started()
        while LEDGER.total().renewals < 2:
            await asyncio.sleep(0.01)
        faults.before["renew"] = [StoreUnavailable("away")]
        while LEDGER.total().renewals_failed < 1:
            await asyncio.sleep(0.01)
        stubborn.release.set()
