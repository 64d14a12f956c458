"""A later attempt goes on behind the phases that have completed; what is written of them is fenced, and costs its own job."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import (
    Client,
    Fail,
    Fixed,
    JobState,
    PhaseState,
    Registry,
    Reschedule,
    Retry,
    RowRejected,
    StoreUnavailable,
    TransactionError,
    Worker,
    current_attempt,
)
from aioqueue.events import Event, JobProgress, PhaseCompleted, PhaseStarted
from aioqueue.telemetry._counters import LEDGER
from aioqueue.vocabulary._job import LostReason
from aioqueue.worker import _phases
from tests.worker.completing import run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioqueue.vocabulary._phases import PhaseWrite

pytestmark = pytest.mark.anyio

ON_EACH_STORE = True

AT_ONCE = Retry(max_attempts=3, backoff=Fixed(0))


def states(phases: Sequence[Any]) -> dict[str, str]:
    return {each.name: each.state.value for each in phases}


async def test_a_later_attempt_goes_on_with_the_phase_that_failed(client: Client, registry: Registry) -> None:
    ran: list[tuple[str, int]] = []

    async def download(url: str) -> bytes:
        ran.append(("download", current_attempt().number))
        return url.encode()

    def measure(data: bytes) -> int:
        ran.append(("measure", current_attempt().number))
        assert threading.current_thread() is not threading.main_thread()
        if current_attempt().number == 1:
            raise ConnectionError("reset")
        return len(data)

    @registry.job(phases=("download", "measure", "upload"), retry=AT_ONCE)
    async def build(url: str) -> int:
        attempt = current_attempt()
        data = await attempt.phase("download", download, f"{url}{attempt.number}")  # the stored result wins
        size = await attempt.phase("measure", measure, data)
        assert await attempt.phase_results() == {"download": "YTE=", "measure": 2}
        return size

    handle, before = await client.enqueue(build("a")), LEDGER.total()
    await Worker(client, registry).run_once()
    counted = LEDGER.total()
    assert counted.phases_completed - before.phases_completed == 2
    assert counted.phases_failed - before.phases_failed == 1
    assert counted.phases_resumed - before.phases_resumed == 1
    assert ran == [("download", 1), ("measure", 1), ("measure", 2)]
    assert await handle.result() == 2
    job = await handle.snapshot()
    assert states(job.phases) == {"download": "completed", "measure": "completed", "upload": "waiting"}
    assert job.progress is not None
    assert (round(job.progress.percent), job.progress.phase) == (67, "measure")


async def test_phases_of_a_job_that_has_failed_for_good(client: Client, registry: Registry) -> None:
    async def declined() -> None:
        raise Fail("declined")

    async def later() -> None:
        raise Reschedule(delay=60)

    @registry.job(phases=("pay", "ship"))
    async def buy(name: str) -> None:
        await current_attempt().phase("pay", declined if name == "no" else later)

    handle = await run(client, registry, buy("no"))
    assert states((await handle.snapshot()).phases) == {"pay": "failed", "ship": "waiting"}
    stored = await client.store.fetch_phases((await run(client, registry, buy("later"))).id)
    assert states(stored) == {"pay": "running"}  # it was put off, and hasn't failed


async def test_plain_handlers_run_phases_from_their_threads(client: Client, registry: Registry) -> None:
    def double(number: int) -> int:
        return 2 * number

    @registry.job(phases=("double",))
    def work() -> int:
        attempt = current_attempt()
        return attempt.from_thread(attempt.phase, "double", double, 21)

    assert await (await run(client, registry, work())).result() == 42


async def test_a_result_that_no_longer_converts_and_names_that_are_gone(client: Client, registry: Registry) -> None:
    steps: list[Callable[[], Any]] = []

    async def text() -> str:
        return "x"

    async def number() -> int:
        return 1

    @registry.job(phases=("old", "step"), retry=AT_ONCE)
    async def work() -> int:
        attempt = current_attempt()
        if attempt.number == 1:
            await attempt.phase("old", text)
        await attempt.phase("step", steps[attempt.number - 1])
        assert attempt.number > 1, "once more"
        return len(await attempt.phase_results())

    steps += [text, number, text]
    handle = await client.enqueue(work())
    worker = Worker(client, registry)
    await worker.run_once()
    job = await handle.snapshot()
    assert [each.type for each in job.errors] == ["AssertionError", "PhaseResultError"]
    assert "retry(from_start=True)" in job.errors[1].message
    assert await handle.result() == 2


class Wrapped:
    """Stands before `Store.write_phases`."""

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes: list[PhaseWrite] = []
        self.answers: list[Any] = []
        self.waits = asyncio.Event()
        works = client.store.write_phases

        async def write_phases(writes: Sequence[PhaseWrite]) -> Sequence[LostReason | None]:
            self.writes += writes
            answer = self.answers.pop(0) if self.answers else None
            if isinstance(answer, Exception):
                raise answer
            if isinstance(answer, asyncio.Event):
                self.waits.set()
                await answer.wait()
            return [answer] * len(writes) if isinstance(answer, LostReason) else await works(writes)

        monkeypatch.setattr(client.store, "write_phases", write_phases)


async def one() -> int:
    return 1


@pytest.mark.parametrize(
    ("answer", "kind", "ran"),
    [(StoreUnavailable("away"), None, 1), (LostReason.TAKEN, "LeaseLost", 0), (RowRejected("no"), "RowRejected", 0)],
)
async def test_what_the_store_says_of_a_phase_that_begins(
    client: Client, registry: Registry, monkeypatch: pytest.MonkeyPatch, answer: Any, kind: str | None, ran: int
) -> None:
    store = Wrapped(client, monkeypatch)
    calls: list[int] = []

    async def step() -> int:
        calls.append(1)
        return 1

    @registry.job(phases=("step",), retry=Retry(max_attempts=1))
    async def work() -> int:
        return await current_attempt().phase("step", step)

    store.answers.append(answer)
    job = await (await run(client, registry, work())).snapshot()
    assert len(calls) == ran
    assert [each.type for each in job.errors] == ([] if kind is None else [kind])


def own_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def test_a_result_is_stored_though_the_attempt_is_cancelled_meanwhile(
    client: Client, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, held = Wrapped(client, monkeypatch), asyncio.Event()

    async def cancel(task: asyncio.Task[Any]) -> None:
        await store.waits.wait()
        task.cancel()
        held.set()

    @registry.job(phases=("step",))
    async def work() -> dict[str, int]:
        attempt, cancelling = current_attempt(), asyncio.create_task(cancel(own_task()))
        store.answers += [None, held]
        with pytest.raises(asyncio.CancelledError):
            await attempt.phase("step", one)
        await cancelling
        return await attempt.phase_results()

    assert await (await run(client, registry, work())).result() == {"step": 1}


async def test_a_plain_phase_is_waited_for_though_its_attempt_is_cancelled(client: Client, registry: Registry) -> None:
    def slow(cancel: Callable[[], object]) -> int:
        cancel()
        attempt = current_attempt()
        while not attempt.cancelled:
            threading.Event().wait(0.005)
        return 7

    @registry.job(phases=("slow",))
    async def work() -> dict[str, int]:
        loop, task = asyncio.get_running_loop(), own_task()
        with pytest.raises(asyncio.CancelledError):
            await current_attempt().phase("slow", slow, lambda: loop.call_soon_threadsafe(task.cancel))
        shown = current_attempt().last_progress
        assert shown is not None
        assert shown.percent == 100
        return await current_attempt().phase_results()

    assert await (await run(client, registry, work())).result() == {"slow": 7}


async def test_inside_of_an_open_transaction_a_phase_is_refused(client: Client, registry: Registry) -> None:
    @registry.job(phases=("step",))
    async def work() -> str:
        attempt = current_attempt()
        with pytest.raises(TransactionError, match="a phase inside a block"):
            async with client.transaction():
                await attempt.phase("step", one)
        async with attempt.completion() as tx:
            with pytest.raises(TransactionError, match="before that"):
                await attempt.phase("step", one)
            return tx.done("ok")

    handle = await run(client, registry, work())
    assert await handle.result() == "ok"
    assert (await handle.snapshot()).state is JobState.COMPLETED


async def test_a_job_without_phases_asks_for_nothing(
    client: Client, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("nobody asked")

    for verb in ("write_phases", "write_progress", "fetch_phases"):
        monkeypatch.setattr(client.store, verb, never)

    @registry.job
    async def work() -> int:
        return 1

    assert await (await run(client, registry, work())).result() == 1


async def test_while_the_database_is_away_for_too_long_a_phase_fails(
    client: Client, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_phases, "_PATIENCE_SECONDS", 0.0)
    store = Wrapped(client, monkeypatch)

    @registry.job(phases=("step",), retry=AT_ONCE)
    async def work() -> int:
        return await current_attempt().phase("step", one)

    store.answers += [None, StoreUnavailable("away")]
    handle = await run(client, registry, work())
    assert await handle.result() == 1  # the second attempt's: it ran again
    assert [each.type for each in (await handle.snapshot()).errors] == ["StoreUnavailable"]
    running, completed = PhaseState.RUNNING, PhaseState.COMPLETED
    assert [each.state for each in store.writes] == [running, completed, running, completed]


async def test_observers_hear_of_phases_and_of_progress_that_is_stored(client: Client, registry: Registry) -> None:
    seen: list[tuple[str, object]] = []

    def observe(event: Event) -> None:
        if isinstance(event, (PhaseStarted, PhaseCompleted)):
            seen.append((type(event).__name__, event.phase))
        elif isinstance(event, JobProgress):
            seen.append(("JobProgress", round(event.percent)))

    @registry.job(phases=("step",))
    async def work() -> int:
        return await current_attempt().phase("step", one)

    with client.observe(observe):
        await run(client, registry, work())
        await asyncio.sleep(0)
    assert [each for each in seen if each[0] != "JobProgress"] == [("PhaseStarted", "step"), ("PhaseCompleted", "step")]
    assert seen[-1] == ("JobProgress", 100)
