"""Labels, outputs, groups and middlewares that aren't as they should be: each costs its own attempt what it says."""

from __future__ import annotations

import asyncio
import enum
import json
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from aioqueue import (
    Client,
    Fail,
    Fixed,
    JobState,
    Registry,
    Reschedule,
    Retry,
    RetryIn,
    Worker,
    current_attempt,
)
from aioqueue.vocabulary._job import JobState as State
from aioqueue.vocabulary._retry import Retry as Policy

if TYPE_CHECKING:
    from aioqueue import Job, JobType

pytestmark = pytest.mark.anyio

SOON = Retry(max_attempts=3, backoff=Fixed(0))


async def run(url: str, registry: Registry, job_type: JobType[..., Any, Any]) -> Job:
    """Enqueue one, and run what is due until nothing is."""
    async with Client(url) as client:
        handle = await client.enqueue(job_type())
        await Worker(client, registry).run_once()
        return await handle.snapshot()


# -- labels -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["p\x00q", "p\ud800q", "\x1b[31mred", "ä" * 200], ids=ascii)
@pytest.mark.parametrize("ends", ["value", "retried", "failed", "fail"])
async def test_a_label_is_cleaned_and_costs_nothing(each_url: str, label: str, ends: str) -> None:
    registry = Registry()

    @registry.job(retry=SOON)
    async def work() -> int:
        attempt = current_attempt()
        attempt.set_outcome(label)
        if ends == "fail":
            raise Fail("no", outcome=label)
        if ends == "failed" or (ends == "retried" and attempt.number < 3):
            raise ValueError("again")
        return 1

    job = await run(each_url, registry, work)
    expected = {
        "value": (State.COMPLETED, 1),
        "retried": (State.COMPLETED, 3),
        "failed": (State.FAILED, 3),
        "fail": (State.FAILED, 1),
    }
    assert (job.state, job.attempt) == expected[ends]
    assert job.outcome is not None
    assert "q" in job.outcome or "red" in job.outcome or "ä" in job.outcome
    assert not set(job.outcome) & {"\x00", "\ud800", "\x1b"}
    assert len([error for error in job.errors if "refused" in error.message]) == 0


# -- outputs that can't be looked at ------------------------------------------------------------------------------------


class Proxy:
    """As ORMs and mocks have them: asking for anything raises."""

    def __getattr__(self, name: str) -> Any:
        raise LookupError(name)


class Items(dict[str, int]):
    def items(self) -> Any:
        raise KeyError("items")


class Uneven(enum.Enum):
    A = "a"

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError

    __hash__ = None


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise OSError("no text")


class Converted:
    pass


@pytest.mark.parametrize(
    "output", [Proxy(), Items(a=1), Uneven.A, Converted(), [[Proxy()]]], ids=lambda each: type(each).__name__
)
async def test_an_output_that_raises_when_its_looked_at_fails_the_job_once(each_url: str, output: object) -> None:
    registry = Registry()
    runs: list[int] = []

    def broken(value: Converted) -> object:
        raise Unspeakable

    registry.converter(Converted, encode=broken, decode=lambda value: Converted())

    @registry.job(retry=SOON)
    async def work() -> Any:
        runs.append(1)
        return output

    job = await run(each_url, registry, work)
    assert runs == [1]
    assert (job.state, job.attempt) == (State.FAILED, 1)
    assert job.last_error is not None
    assert job.last_error.type == "OutputError"


async def test_a_payload_nested_too_deeply_fails_as_any_that_cant_be_read(postgres_url: str) -> None:
    """Both decoders, that of the whole and that of one argument, stop at some depth."""
    registry = Registry()

    @registry.job(retry=SOON)
    async def work(n: Any = None) -> None: ...

    connection = await asyncpg.connect(postgres_url)
    deep = "[" * 3000 + "]" * 3000
    try:
        async with Client(postgres_url) as client:
            for payload in ('{"n": ' + deep + "}", '{"other": ' + deep + "}"):
                document = json.dumps({"type": "work", "payload": payload})
                await connection.execute("select aioqueue.enqueue_v1($1::json)", document)
            await Worker(client, registry).run_once()
            jobs = (await client.list_jobs()).jobs
    finally:
        await connection.close()
    # How deep is too deep depends on Python's version; what can't be read is never tried again.
    assert {job.attempt for job in jobs} == {1}
    assert {job.state for job in jobs} <= {JobState.FAILED, JobState.COMPLETED}
    assert {job.last_error.type for job in jobs if job.last_error is not None} == {"ArgumentsError"}


# -- groups -------------------------------------------------------------------------------------------------------------


async def raising(error: BaseException) -> None:
    raise error


async def together(*errors: BaseException) -> None:
    """All raise in one turn, within a group and a group within it."""
    async with asyncio.TaskGroup() as group:
        for error in errors:
            group.create_task(raising(error))


GROUPS: list[tuple[tuple[BaseException, ...], State, int, int]] = [
    ((Fail("declined"),), State.FAILED, 1, 1),
    ((ValueError("x"), Fail("declined")), State.FAILED, 1, 1),
    ((Reschedule(delay=3600), RetryIn(3600), Fail("declined")), State.FAILED, 1, 1),
    ((Reschedule(delay=3600), RetryIn(3600), ValueError("x")), State.SCHEDULED, 1, 1),
    ((Reschedule(delay=3600), ValueError("x")), State.SCHEDULED, 0, 0),
    ((ExceptionGroup("inner", [KeyError("k"), Fail("declined")]),), State.FAILED, 1, 1),
    ((KeyError("k"),), State.FAILED, 1, 1),  # in fail_on
    ((ValueError("x"), ExceptionGroup("inner", [OSError(), KeyError("k")])), State.FAILED, 1, 1),
    ((ValueError("x"), OSError()), State.FAILED, 3, 3),
]


@pytest.mark.parametrize(("errors", "state", "attempt", "history"), GROUPS, ids=lambda each: repr(each)[:60])
async def test_a_group_counts_as_the_most_final_of_what_it_holds(
    tmp_path: Any, errors: tuple[BaseException, ...], state: State, attempt: int, history: int
) -> None:
    registry = Registry()

    @registry.job(retry=Retry(max_attempts=3, backoff=Fixed(0), fail_on=(KeyError,)))
    async def pay() -> None:
        await together(*errors)

    job = await run(f"sqlite:///{tmp_path / 'jobs.db'}", registry, pay)
    assert (job.state, job.attempt, len(job.errors)) == (state, attempt, history)


def test_retry_on_wants_each_of_a_group() -> None:
    policy = Policy(retry_on=(OSError, ExceptionGroup))
    assert policy.retries(ExceptionGroup("g", [ValueError()]))  # the class of groups is named itself
    policy = Policy(retry_on=(OSError,), fail_on=(FileNotFoundError,))
    assert policy.retries(ExceptionGroup("g", [OSError(), ExceptionGroup("h", [TimeoutError()])]))
    assert not policy.retries(ExceptionGroup("g", [OSError(), ValueError()]))
    assert not policy.retries(ExceptionGroup("g", [OSError(), ExceptionGroup("h", [FileNotFoundError()])]))
    assert not policy.retries(BaseExceptionGroup("g", [OSError(), asyncio.CancelledError()]))


# -- middlewares --------------------------------------------------------------------------------------------------------


async def forgets(attempt: Any, call_next: Any) -> object:
    call_next()
    return None


async def returns_it(attempt: Any, call_next: Any) -> object:
    return call_next()


async def leaves_it(attempt: Any, call_next: Any) -> object:
    task = asyncio.ensure_future(call_next())
    await asyncio.sleep(0)
    task.cancel()
    return None


async def never_calls(attempt: Any, call_next: Any) -> object:
    attempt.set_outcome("skipped")
    return None


@pytest.mark.parametrize("middleware", [forgets, returns_it, leaves_it])
async def test_a_middleware_that_forgets_to_wait_is_told(tmp_path: Any, middleware: Any) -> None:
    registry = Registry(middlewares=[middleware])
    runs: list[int] = []

    @registry.job(retry=Retry(max_attempts=1))
    async def work() -> None:
        await asyncio.sleep(0.01)
        runs.append(1)

    job = await run(f"sqlite:///{tmp_path / 'jobs.db'}", registry, work)
    assert (job.state, runs) == (State.FAILED, [])
    assert job.last_error is not None
    assert f"the middleware {middleware.__name__} has returned without waiting for call_next()" in job.last_error.message


async def test_a_middleware_may_skip_the_handler_and_say_so(tmp_path: Any) -> None:
    registry = Registry(middlewares=[never_calls])

    @registry.job
    async def work() -> None:
        raise AssertionError

    job = await run(f"sqlite:///{tmp_path / 'jobs.db'}", registry, work)
    assert (job.state, job.outcome) == (State.COMPLETED, "skipped")


async def test_an_enqueue_middleware_that_forgets_to_wait_is_told(tmp_path: Any) -> None:
    async def forgetful(jobs: Any, call_next: Any) -> Any:
        call_next(jobs)
        return []

    registry = Registry()

    @registry.job
    async def work() -> None: ...

    async with Client(f"sqlite:///{tmp_path / 'jobs.db'}", middlewares=[forgetful]) as client:
        call = work()
        with pytest.raises(RuntimeError, match="forgetful has returned without waiting"):
            await client.enqueue(call)
        assert (await client.stats()).types == {}
