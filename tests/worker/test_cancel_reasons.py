"""Each reason to stop an attempt cancels it anew, and what becomes of it is right for each order of reasons and each end."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, cast

import pytest

from aioqueue import Client, Fail, Fixed, JobState, Registry, Reschedule, Retry, RetryIn, current_attempt
from aioqueue.definitions._resources import ResourceScope
from aioqueue.definitions._settings import WorkerSettings
from aioqueue.vocabulary._job import LostReason, SettlementKind
from aioqueue.worker import Worker
from aioqueue.worker._attempt import Attempts
from aioqueue.worker._completion import Completions
from aioqueue.worker._holdings import Holdings, Slot
from aioqueue.worker._interruption import Interruptions
from aioqueue.worker._outcome import CancelReason, Interrupted, Outcome
from aioqueue.worker._policy import Policies
from aioqueue.worker._threads import HandlerThreads
from tests.worker.insides import parts
from tests.worker.test_recovery import orphan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

LIMIT = 60
TIMEOUT, SHUTDOWN, EXIT, LOST = CancelReason.TIMEOUT, CancelReason.SHUTDOWN, CancelReason.EXIT, CancelReason.LOST

COMPLETED = (SettlementKind.COMPLETED, None)
GIVEN_BACK = (Interrupted, None)
TIMED_OUT = (SettlementKind.RETRIED, "TimeoutError")
EXITED = (SettlementKind.RETRIED, "SystemExit")
FAILED_ATTEMPT = (SettlementKind.RETRIED, "ValueError")

CONTROLS = {
    "Fail": (SettlementKind.FAILED, "Fail"),
    "RetryIn": (SettlementKind.RETRIED, "RetryIn"),
    "Reschedule": (SettlementKind.RESCHEDULED, None),
}

TABLE: dict[CancelReason, dict[str, tuple[SettlementKind | type[Interrupted], str | None]]] = {
    # What comes first decides; how the body ends after its last cancellation says the rest. A value is a value.
    TIMEOUT: {"cancelled": TIMED_OUT, "raises": FAILED_ATTEMPT, "returns": COMPLETED, **CONTROLS},
    SHUTDOWN: {"cancelled": GIVEN_BACK, "raises": GIVEN_BACK, "returns": COMPLETED, **CONTROLS},
    EXIT: {"cancelled": EXITED, "raises": FAILED_ATTEMPT, "returns": COMPLETED, **CONTROLS},
}
ENDS = tuple(TABLE[TIMEOUT])
ORDERS = [order for length in (1, 2, 3) for order in itertools.permutations((TIMEOUT, SHUTDOWN, EXIT), length)]


class Bench:
    """One attempt whose body swallows every cancellation but the last."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.waits = asyncio.Event()
        self.cancelled: list[str] = []
        self.swallows = 0
        self.end = "cancelled"
        bench = self

        @self.registry.job(name="body", timeout=1000, retry=Retry(max_attempts=3, backoff=Fixed(1)))
        async def body() -> None:
            while True:
                bench.waits.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError as error:
                    assert current_attempt().cancelled
                    bench.cancelled.append(str(error))
                    if len(bench.cancelled) > bench.swallows:
                        return bench.finish()

        self.threads = HandlerThreads("w")
        policies = Policies(self.registry, WorkerSettings())
        self.attempts = Attempts(
            self.registry,
            policies,
            Interruptions(policies, lambda: False),
            worker_id="w",
            client=None,
            resources=ResourceScope(),
            threads=self.threads,
            bodies=set(),
            completions=Completions(cast("Any", None), self.registry, Holdings(), cast("Any", None)),
        )
        self.slot = Slot(orphan(type="body"))

    def finish(self) -> None:
        match self.end:
            case "cancelled":
                raise asyncio.CancelledError
            case "raises":
                raise ValueError("no")
            case "Fail":
                raise Fail("why")
            case "RetryIn":
                raise RetryIn(5)
            case "Reschedule":
                raise Reschedule(delay=5)

    async def run(self, reasons: tuple[CancelReason, ...], end: str) -> Outcome | Interrupted:
        self.swallows, self.end = len(reasons) - 1, end
        self.slot.exit = SystemExit(1) if EXIT in reasons else None
        self.slot.task = task = asyncio.create_task(self.attempts.run(self.slot))
        for reason in reasons:
            await self.waits.wait()
            self.waits.clear()
            self.slot.cancel(reason)
            self.slot.cancel(reason)  # once more is nothing new
        async with asyncio.timeout(LIMIT):
            return await task


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    made.threads.close()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("order", ORDERS, ids=lambda order: " then ".join(order))
async def test_what_becomes_of_an_attempt(bench: Bench, order: tuple[CancelReason, ...], end: str) -> None:
    outcome = await bench.run(order, end)
    assert bench.cancelled == [reason.value for reason in order]
    became = (Interrupted, None) if isinstance(outcome, Interrupted) else (outcome.kind, outcome.error and outcome.error.type)
    assert became == TABLE[order[0]][end]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("others", [(), (TIMEOUT,), (SHUTDOWN,), (TIMEOUT, SHUTDOWN)], ids=" then ".join)
@pytest.mark.parametrize("first", [False, True], ids=["lost last", "lost first"])
async def test_a_lost_claim_outdoes_all_and_cancels_anew(
    bench: Bench, others: tuple[CancelReason, ...], first: bool, end: str
) -> None:
    order = (LOST, *others) if first else (*others, LOST)
    await bench.run(order, end)  # what the outcome is doesn't matter: nobody writes it
    assert bench.cancelled == [reason.value for reason in order]
    assert bench.slot.reason is LOST


class Swallows:
    """A handler that swallows its timeout, and ends at the next cancellation."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.timed_out = asyncio.Event()
        self.ended = asyncio.Event()

        @self.registry.job(timeout=0.05, retry=Retry(max_attempts=3, backoff=Fixed(3600)))
        async def swallows() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.timed_out.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.set()

        self.swallows = swallows


async def test_a_swallowed_timeout_is_cancelled_again_by_the_stop(client: Client) -> None:
    """The stop would wait for it, for ever, or until the second signal."""
    job = Swallows()
    handle = await client.enqueue(job.swallows())
    async with asyncio.timeout(LIMIT):
        async with Worker(client, job.registry, grace=0.1):
            await job.timed_out.wait()
    snapshot = await handle.snapshot()
    assert (snapshot.state, snapshot.attempt, [error.type for error in snapshot.errors]) == (
        JobState.SCHEDULED,
        1,
        ["TimeoutError"],
    )


async def test_a_swallowed_timeout_is_cancelled_again_by_a_lost_claim(client: Client) -> None:
    job = Swallows()
    await client.enqueue(job.swallows())
    async with asyncio.timeout(LIMIT):
        async with Worker(client, job.registry, grace=0.1) as worker:
            await job.timed_out.wait()
            holdings = parts(worker).holdings
            holdings.lose(list(holdings.held.values()), LostReason.TAKEN)
            await job.ended.wait()
            await holdings.all_ended()
            assert worker.health().busy == 0
