"""Each reason to stop an attempt cancels it anew, and what becomes of it is right for each order of reasons and each end."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, cast

import pytest

from aioqueue import Cancel, CancelReason, Client, Fail, Fixed, JobState, Registry, Reschedule, Retry, RetryIn, current_attempt
from aioqueue.definitions._resources import ResourceScope
from aioqueue.definitions._settings import WorkerSettings
from aioqueue.vocabulary._job import LostReason, SettlementKind
from aioqueue.worker import Worker
from aioqueue.worker._attempt import Attempts
from aioqueue.worker._completion import Completions
from aioqueue.worker._holdings import Holdings, Slot
from aioqueue.worker._interruption import Interruptions
from aioqueue.worker._outcome import Interrupted, Outcome, unless_asked_to_end
from aioqueue.worker._policy import Policies
from aioqueue.worker._stop_reason import StopReason
from aioqueue.worker._threads import HandlerThreads
from tests.worker.insides import parts
from tests.worker.test_recovery import orphan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

LIMIT = 60
TIMEOUT, SHUTDOWN, EXIT, LOST = StopReason.TIMEOUT, StopReason.SHUTDOWN, StopReason.EXIT, StopReason.LOST
CANCELLED = StopReason.CANCELLED

COMPLETED = (SettlementKind.COMPLETED, None)
GIVEN_BACK = (Interrupted, None)
TIMED_OUT = (SettlementKind.RETRIED, "TimeoutError")
EXITED = (SettlementKind.RETRIED, "SystemExit")
FAILED_ATTEMPT = (SettlementKind.RETRIED, "ValueError")

CONTROLS = {
    "Fail": (SettlementKind.FAILED, "Fail"),
    "Cancel": (SettlementKind.CANCELLED, "Cancel"),
    "RetryIn": (SettlementKind.RETRIED, "RetryIn"),
    "Reschedule": (SettlementKind.RESCHEDULED, None),
}

TABLE: dict[StopReason, dict[str, tuple[SettlementKind | type[Interrupted], str | None]]] = {
    # What comes first decides; how the body ends after its last cancellation says the rest. A value is a value.
    TIMEOUT: {"cancelled": TIMED_OUT, "raises": FAILED_ATTEMPT, "returns": COMPLETED, **CONTROLS},
    SHUTDOWN: {"cancelled": GIVEN_BACK, "raises": GIVEN_BACK, "returns": COMPLETED, **CONTROLS},
    EXIT: {"cancelled": EXITED, "raises": FAILED_ATTEMPT, "returns": COMPLETED, **CONTROLS},
}
ENDS = tuple(TABLE[TIMEOUT])
ORDERS = [order for length in (1, 2, 3) for order in itertools.permutations((TIMEOUT, SHUTDOWN, EXIT), length)]

ASKED_TO_END: dict[str, tuple[SettlementKind, str | None]] = {
    # In whichever order: what would be tried again is cancelled, with its error.
    "cancelled": (SettlementKind.CANCELLED, "Cancelled"),
    "raises": (SettlementKind.CANCELLED, "ValueError"),
    "returns": COMPLETED,
    "Fail": CONTROLS["Fail"],
    "Cancel": CONTROLS["Cancel"],
    "RetryIn": (SettlementKind.CANCELLED, "RetryIn"),
    "Reschedule": (SettlementKind.CANCELLED, "Cancelled"),
}
ORDERS_ASKED = [(CANCELLED,), *((CANCELLED, each) for each in TABLE), *((each, CANCELLED) for each in TABLE)]

TOLD = (LOST, CANCELLED, SHUTDOWN, EXIT, TIMEOUT)
"""In this order: the first of those that there are."""
TOLD_AS = {
    LOST: CancelReason.TAKEN,
    CANCELLED: CancelReason.CANCELLED,
    SHUTDOWN: CancelReason.SHUTDOWN,
    EXIT: CancelReason.ERROR,
    TIMEOUT: CancelReason.TIMEOUT,
}


class Bench:
    """One attempt whose body swallows every cancellation but the last."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.waits = asyncio.Event()
        self.cancelled: list[str] = []
        self.told: list[CancelReason | None] = []
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
                    bench.told.append(current_attempt().cancel_reason)
                    if len(bench.cancelled) > bench.swallows:
                        return bench.finish()

        self.threads = HandlerThreads("w")
        policies, nobody = Policies(self.registry, WorkerSettings()), cast("Any", None)
        self.attempts = Attempts(
            self.registry,
            policies,
            Interruptions(policies, lambda: False),
            worker_id="w",
            client=None,
            resources=ResourceScope(),
            threads=self.threads,
            processes=nobody,
            bodies=set(),
            completions=Completions(nobody, self.registry, Holdings(), nobody, nobody),
            stages=nobody,
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
            case "Cancel":
                raise Cancel("why")
            case "RetryIn":
                raise RetryIn(5)
            case "Reschedule":
                raise Reschedule(delay=5)

    async def run(self, reasons: tuple[StopReason, ...], end: str) -> Outcome | Interrupted:
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

    def told_rightly(self, order: tuple[StopReason, ...]) -> bool:
        """Whether the attempt was told the weightiest reason each time."""
        weightiest = (next(each for each in TOLD if each in order[:count]) for count in range(1, len(order) + 1))
        return self.told == [TOLD_AS[each] for each in weightiest]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    made.threads.close()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("order", ORDERS, ids=lambda order: " then ".join(order))
async def test_what_becomes_of_an_attempt(bench: Bench, order: tuple[StopReason, ...], end: str) -> None:
    outcome = await bench.run(order, end)
    assert bench.cancelled == [reason.value for reason in order]
    became = (Interrupted, None) if isinstance(outcome, Interrupted) else (outcome.kind, outcome.error and outcome.error.type)
    assert became == TABLE[order[0]][end]
    assert bench.told_rightly(order)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("order", ORDERS_ASKED, ids=lambda order: " then ".join(order))
async def test_what_becomes_of_an_attempt_whose_chain_was_asked_to_end(
    bench: Bench, order: tuple[StopReason, ...], end: str
) -> None:
    outcome = unless_asked_to_end(bench.slot.job, await bench.run(order, end), "because")
    assert bench.cancelled == [reason.value for reason in order]
    assert bench.told_rightly(order)
    expected = ASKED_TO_END[end]
    if end == "cancelled" and order[0] in (TIMEOUT, EXIT):
        expected = (SettlementKind.CANCELLED, TABLE[order[0]][end][1])
    assert (outcome.kind, outcome.error and outcome.error.type) == expected
    if outcome.error is not None and outcome.error.type == "Cancelled":
        assert outcome.error.message == "because"


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("others", [(), (TIMEOUT,), (SHUTDOWN,), (CANCELLED,), (TIMEOUT, SHUTDOWN)], ids=" then ".join)
@pytest.mark.parametrize("first", [False, True], ids=["lost last", "lost first"])
async def test_a_lost_claim_outdoes_all_and_cancels_anew(
    bench: Bench, others: tuple[StopReason, ...], first: bool, end: str
) -> None:
    order = (LOST, *others) if first else (*others, LOST)
    await bench.run(order, end)  # what the outcome is doesn't matter: nobody writes it
    assert bench.cancelled == [reason.value for reason in order]
    assert bench.slot.reason is LOST
    assert bench.told_rightly(order)


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
