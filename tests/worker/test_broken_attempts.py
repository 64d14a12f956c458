"""What is broken around an attempt (a policy, an error's text, our own code) costs that attempt, and no claim is forgotten."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client, Fail, Fixed, Job, JobState, Registry, Reschedule, Retry, RetryIn, current_attempt
from aioqueue.vocabulary._job import ClaimedJob, SettlementKind
from aioqueue.worker import Worker
from aioqueue.worker._attempt import Attempts
from aioqueue.worker._outcome import worker_lost
from aioqueue.worker._policy import Policy
from tests.worker.test_recovery import orphan

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio

LIMIT = 120


class Mine:
    """A backoff of the user's."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def delay(self, attempt: int) -> Any:
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer

    def encode(self) -> dict[str, Any]:
        return {"kind": "mine"}


class Hostile(Exception):
    """Its text is a trap, and it lies about its class."""

    def __str__(self) -> str:
        return Trap("the text")

    @property
    def __class__(self) -> Any:
        raise SystemExit(1)


class Trap(str):
    __slots__ = ()

    def __len__(self) -> int:
        raise SystemExit(2)

    def __str__(self) -> str:
        return self


class Untold:
    def __str__(self) -> str:
        raise SystemExit(3)


class NotInitialised(Fail):
    def __init__(self) -> None: ...


class OddTimes(RetryIn):
    def __init__(self) -> None: ...


class Picky(type):
    """A class of errors that can't be asked about."""

    def __instancecheck__(cls, instance: object) -> bool:
        raise SystemExit(4)


class Unasked(Exception, metaclass=Picky):
    pass


class Fickle(type):
    """A class of errors that has a hash only for some time."""

    has_hash = True

    def __hash__(cls) -> int:
        if not Fickle.has_hash:
            raise ZeroDivisionError("no hash")
        return 1


class Odd(Exception, metaclass=Fickle):
    pass


def policy(backoff: Any, **settings: Any) -> Retry:
    return Retry(max_attempts=2, backoff=backoff, **settings)


async def run_beside_a_neighbour(client: Client, bad: Callable[[], None], retry: Retry) -> Job:
    """Run a job that raises in one slot: a neighbour behind it has to run too, and nothing may stay held."""
    registry = Registry()
    raises = registry.job(name="raises", retry=retry)(bad)

    @registry.job
    async def neighbour() -> int:
        return 1

    handle = await client.enqueue(raises())
    beside = await client.enqueue(neighbour())
    worker = Worker(client, registry, concurrency=1)
    async with asyncio.timeout(LIMIT):
        await worker.run_once()
    assert (await beside.snapshot()).state is JobState.COMPLETED
    return await handle.snapshot()


BROKEN = [
    RuntimeError("my policy fails"),
    SystemExit(1),
    math.nan,
    math.inf,
    -5,
    None,
    "3",
    [],
]


@pytest.mark.parametrize("answer", BROKEN, ids=repr)
async def test_a_policy_that_is_broken_costs_its_job_the_default_wait(client: Client, caplog, answer: Any) -> None:
    def bad() -> None:
        raise ValueError("no")

    job = await run_beside_a_neighbour(client, bad, policy(Mine(answer)))
    assert (job.state, job.attempt, [error.message for error in job.errors]) == (JobState.SCHEDULED, 1, ["no"])
    assert job.started_at is not None
    assert 7 < (job.run_at - job.started_at).total_seconds() < 60  # ten seconds, and jitter
    (told,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert f"raises {job.id}: the retry policy (Mine) fails after attempt 1" in told.getMessage()
    assert "\n" not in told.getMessage()
    assert told.job_id == str(job.id)


async def test_a_stored_policy_that_cannot_be_read_with_its_types_classes_gives_way_and_says_so(
    client: Client, caplog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad() -> None:
        raise ValueError("no")

    registry = Registry()
    raises = registry.job(name="raises", retry=Retry(max_attempts=2, backoff=Fixed(1800), jitter=0, fail_on=(Odd,)))(bad)
    handle = await client.enqueue(raises().options(retry=Retry(max_attempts=2, backoff=Fixed(1))))
    monkeypatch.setattr(Fickle, "has_hash", False)
    await Worker(client, registry).run_once()
    job = await handle.snapshot()
    assert job.started_at is not None
    assert (job.run_at - job.started_at).total_seconds() >= 1800
    (told,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert f"raises {job.id}: the job's own retry policy can't be read" in told.getMessage()
    assert (told.event, told.job_id) == ("attempt.policy_failed", str(job.id))


@pytest.mark.parametrize(
    ("answer", "wait"), [(timedelta(seconds=100), 100), (timedelta.max, 366 * 86_400), (1e300, 366 * 86_400)]
)
async def test_a_policys_wait_may_be_a_timedelta_and_has_an_end(client: Client, caplog, answer: Any, wait: float) -> None:
    def bad() -> None:
        raise ValueError("no")

    job = await run_beside_a_neighbour(client, bad, policy(Mine(answer), jitter=0))
    assert job.started_at is not None
    assert wait - 1 < (job.run_at - job.started_at).total_seconds() < wait + LIMIT
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    ("make", "state", "message"),
    [
        (Hostile, JobState.FAILED, "the text"),
        (lambda: Fail(Untold()), JobState.FAILED, "<its text can't be made: SystemExit>"),
        (lambda: Fail(Trap("why"), Trap("label")), JobState.FAILED, "why"),
        (lambda: Fail("why", Untold()), JobState.FAILED, "why"),
        (NotInitialised, JobState.FAILED, "<its reason can't be read: AttributeError"),
        (OddTimes, JobState.FAILED, "has no attribute 'delay'"),
        (lambda: RetryIn(math.inf), JobState.FAILED, "delay must be"),
        (lambda: RetryIn(math.nan), JobState.FAILED, "delay must be"),
        (lambda: RetryIn(None), JobState.FAILED, "delay must be"),
        (lambda: Reschedule(delay=math.inf), JobState.FAILED, "delay must be"),
        (lambda: Reschedule(delay=10**400), JobState.FAILED, "delay must be"),
        (lambda: Reschedule(at=5), JobState.FAILED, "at must be"),
    ],
)
async def test_what_is_raised_may_be_broken_in_any_way(client: Client, make: Any, state: JobState, message: str) -> None:
    def bad() -> None:
        raise make()

    job = await run_beside_a_neighbour(client, bad, policy(Fixed(0)))
    assert job.state is state, job
    assert job.errors[-1].message.startswith(message) or message in job.errors[-1].message
    assert type(job.errors[-1].message) is str


@pytest.mark.parametrize("which", ["retry_on", "fail_on"])
async def test_classes_that_cannot_be_asked_about_are_retried(client: Client, caplog, which: str) -> None:
    def bad() -> None:
        raise ValueError("no")

    job = await run_beside_a_neighbour(client, bad, policy(Fixed(0), **{which: (Unasked,)}))
    assert (job.state, job.attempt) == (JobState.FAILED, 2)
    assert "its error counts as one that is retried" in caplog.text


async def test_labels_are_plain_texts_that_can_be_stored(client: Client) -> None:
    registry = Registry()

    @registry.job
    async def labels(label: str) -> None:
        current_attempt().set_outcome(Trap(label))

    handles = await client.enqueue_many([labels("a\0b"), labels("fine")])
    await Worker(client, registry).run_once()
    assert [(await handle.snapshot()).outcome for handle in handles] == ["a\\x00b", "fine"]


@pytest.mark.parametrize("error", [RuntimeError("our own mistake"), SystemExit(1), asyncio.CancelledError()], ids=repr)
@pytest.mark.parametrize("where", ["_open", "_failed", "_call"])
async def test_what_goes_wrong_in_our_own_code_is_a_failed_attempt(
    client: Client, caplog, monkeypatch, where: str, error: BaseException
) -> None:
    """Twice as many claims that nobody holds as there are slots would stop the worker, and show nowhere."""
    registry = Registry()
    untouched = getattr(Attempts, where)
    broken: set[str] = set()

    def breaks(self: Attempts, *arguments: Any) -> Any:
        if "bad" in broken:
            raise error
        return untouched(self, *arguments)

    @registry.job
    async def bad() -> None:
        raise ValueError("no")

    @registry.job
    async def canary() -> int:
        return 1

    monkeypatch.setattr(Attempts, where, breaks)
    handles = await client.enqueue_many([bad() for _ in range(4)])
    broken.add("bad")
    async with Worker(client, registry, concurrency=2, poll_interval=0.05) as worker:
        async with asyncio.timeout(LIMIT):
            while {(await handle.snapshot()).state for handle in handles} & {JobState.READY, JobState.RUNNING}:
                await asyncio.sleep(0.01)
        broken.clear()
        assert await (await client.enqueue(canary())).result(timeout=LIMIT) == 1
        assert worker.health().busy == 0
    for handle in handles:
        job = await handle.snapshot()
        assert (job.state, job.attempt, len(job.errors)) == (JobState.SCHEDULED, 1, 1)
    if where != "_call":  # what is raised in there may as well come from the handler
        told = [record for record in caplog.records if "has failed outside of its handler" in record.getMessage()]
        assert len(told) == len(handles)
        assert {record.job_id for record in told} == {str(handle.id) for handle in handles}


async def test_a_machine_without_more_threads_costs_an_attempt_and_the_job_runs_later(client: Client, monkeypatch) -> None:
    """What could not be begun must not run later, beside its next attempt, nor be taken for a body that still runs."""
    registry, refusals = Registry(), [1, 1]
    start, ran = threading.Thread.start, list[int]()

    def starts(thread: threading.Thread) -> None:
        if refusals and "aioqueue handler" in thread.name:
            refusals.pop()
            raise RuntimeError("can't start new thread")
        start(thread)

    @registry.job(retry=Retry(max_attempts=5, backoff=Fixed(0)))
    def in_thread() -> int:
        ran.append(current_attempt().number)
        return current_attempt().number

    monkeypatch.setattr(threading.Thread, "start", starts)
    handles = await client.enqueue_many([in_thread() for _ in range(3)])
    async with asyncio.timeout(LIMIT):
        await Worker(client, registry, concurrency=3).run_once()
    jobs = [await handle.snapshot() for handle in handles]
    assert {job.state for job in jobs} == {JobState.COMPLETED}
    assert sorted(ran) == sorted(job.output for job in jobs) == sorted(job.attempt for job in jobs)
    assert sum(len(job.errors) for job in jobs) == 2


@pytest.mark.parametrize("timeout", [math.nan, math.inf, -1.0, 0.0, 1e300])
async def test_an_odd_timeout_fails_its_job_and_disturbs_no_timer(client: Client, monkeypatch, timeout: float) -> None:
    """NaN among the event loop's timers would end the loop. Only SQL can write it."""
    registry = Registry()

    @registry.job
    async def work(odd: bool) -> int:
        return 1

    claim = client.store.claim

    async def claims(*arguments: Any, **named: Any) -> list[ClaimedJob]:
        jobs = await claim(*arguments, **named)
        return [dataclasses.replace(job, timeout=timeout) if b"true" in job.payload else job for job in jobs]

    monkeypatch.setattr(client.store, "claim", claims)
    odd, fine = await client.enqueue_many([work(True), work(False)])
    async with asyncio.timeout(LIMIT):
        await Worker(client, registry).run_once()
    assert (await fine.snapshot()).state is JobState.COMPLETED
    failed = await odd.snapshot()
    assert (failed.state, failed.errors[0].type) == (JobState.FAILED, "ConfigurationError")
    assert "timeout" in failed.errors[0].message


@pytest.mark.parametrize("answer", BROKEN, ids=repr)
def test_a_lost_workers_job_whose_policy_is_broken_is_recovered(caplog, answer: Any) -> None:
    """One orphan whose policy raises must not keep the others from being recovered."""
    job = orphan(type="bad")
    outcome = worker_lost(job, Policy(policy(Mine(answer)), 2, None))
    assert outcome.kind is SettlementKind.RETRIED
    assert outcome.delay is not None
    assert 8 <= outcome.delay <= 12
    assert f"bad {job.id}: the retry policy (Mine) fails" in caplog.text
