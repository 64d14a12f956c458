"""What is no attempt isn't counted as one, and no attempt is counted twice."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client, Registry
from aioqueue.telemetry._counters import LEDGER, AttemptOutcome, TypeCounters
from aioqueue.vocabulary._job import LostReason
from aioqueue.worker import Worker, _slots
from aioqueue.worker._health import Health
from aioqueue.worker._holdings import Holdings
from aioqueue.worker._slots import Slots
from aioqueue.worker._stop_reason import StopReason
from tests.worker.recovery_bench import orphan

if TYPE_CHECKING:
    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("begun", "returning", "lost"), [(True, False, 1), (True, True, 0), (False, False, 0)])
def test_only_an_attempt_that_isnt_given_back_counts_as_lost(begun: bool, returning: bool, lost: int) -> None:
    holdings = Holdings()
    slot = holdings.hold(orphan(type="a"))
    slot.began = time.monotonic() if begun else 0.0
    if returning:
        holdings.returning.add(slot.claim)
    holdings.lose([slot], LostReason.NOT_FOUND)
    assert slot.lost is LostReason.NOT_FOUND
    assert holdings.counters.of("a").outcomes[AttemptOutcome.LOST] == lost


def test_a_late_attempt_that_never_began_has_run_for_no_time() -> None:
    holdings = Holdings()
    slot = holdings.hold(orphan(type="a"))
    holdings.running[slot.claim] = slot
    slot.cancel(StopReason.SHUTDOWN)
    slot.cancelled_at -= 5
    (late,) = holdings.late_attempts()
    assert late.running == 0.0


@pytest.mark.parametrize("reason", list(StopReason))
def test_a_worker_s_health_names_each_attempt_that_should_have_ended(reason: StopReason) -> None:
    holdings = Holdings()
    slot = holdings.hold(orphan(type="a"))
    holdings.running[slot.claim] = slot
    slot.began = time.monotonic() - 60
    slot.cancel(reason)
    assert holdings.late_attempts() == ()  # it may take a moment
    slot.cancelled_at -= 5
    health = Health(running=True, stopping=False, lease_valid=True, busy=1, concurrency=1, late=holdings.late_attempts())
    (note,) = health.notes
    assert note.startswith(f"a {slot.job.id}: attempt {slot.job.attempt} runs for 60 s")
    assert note.endswith(f"({reason.value})")
    assert health.ready


async def test_a_job_that_is_put_off_unbegun_is_no_attempt(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    LEDGER.forget()
    registry = Registry()
    asked: list[ClaimedJob] = []

    @registry.job
    async def work() -> None: ...

    def runs_body_of(_: Slots, job: ClaimedJob) -> bool:
        asked.append(job)
        return len(asked) == 1

    monkeypatch.setattr(Slots, "runs_body_of", runs_body_of)
    monkeypatch.setattr(_slots, "_BODY_RUNS_SECONDS", 0.0)
    await client.enqueue(work())
    await Worker(client, registry, poll_interval=0.05).run_once()
    assert len(asked) == 2
    counted = LEDGER.total().by_label()["work"].outcomes
    assert {outcome.value: count for outcome, count in counted.items() if count} == {"ok": 1}


async def test_a_count_that_fails_costs_no_outcome(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()

    @registry.job
    async def work() -> int:
        return 1

    def ended(*_: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(TypeCounters, "ended", ended)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # nobody retrieves what the task raises
    handle = await client.enqueue(work())
    await Worker(client, registry).run_once()
    assert await handle.result(timeout=60) == 1
    gc.collect()
