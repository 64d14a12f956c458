"""Never run: what both type checkers must know about the public interface."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type
from uuid import UUID

from aioqueue import (
    Attempt,
    Call,
    CallNext,
    CancelReason,
    Client,
    EnqueueNext,
    Exponential,
    Job,
    JobHandle,
    JobType,
    Page,
    Registry,
    Resource,
    Retry,
    Stats,
    Transaction,
    Worker,
    current_attempt,
    done,
)
from aioqueue.vocabulary._job import Inserted, NewJob
from aioqueue.vocabulary._unique import Unique

registry = Registry(prefix="site.")


class Summary: ...


# -- the decorator's forms ----------------------------------------------------------------------------------------------


@registry.job
async def fetch(url: str, *, depth: int = 1) -> str:
    return url * depth


@registry.job(retry=Retry(max_attempts=8, backoff=Exponential(initial=10, maximum=300)), timeout=timedelta(minutes=1))
async def fetch_with_options(url: str, *, depth: int = 1) -> str:
    return url * depth


@registry.job
def summarise(pages: list[str]) -> Summary:
    raise NotImplementedError


@registry.job(
    name="summary",
    aliases=("old",),
    priority=1,
    tags=["a"],
    expires=3.5,
    keep=86_400,
    max_reschedules=3,
    lease=timedelta(seconds=5),
)
def summarise_with_options(pages: list[str]) -> Summary:
    raise NotImplementedError


@registry.job
async def mapping(key: str) -> dict[str, Any]:
    return {key: 1}


@registry.job
async def nothing() -> None: ...


assert_type(fetch("a", depth=2), Call[str])
assert_type(fetch_with_options("a"), Call[str])
assert_type(summarise(["a"]), Call[Summary])
assert_type(summarise_with_options(["a"]), Call[Summary])
assert_type(mapping("a"), Call[dict[str, Any]])
assert_type(nothing(), Call[None])

assert_type(fetch.name, str)
assert_type(fetch.aliases, tuple[str, ...])
assert_type(fetch.retry, Retry | None)
assert_type(fetch.timeout, float | None)
assert_type(fetch.is_async, bool)
running: Coroutine[Any, Any, str] = fetch.fn("a", depth=2)
assert_type(summarise.fn(["a"]), Summary)


async def plain_functions() -> None:
    assert_type(await fetch.fn("a", depth=2), str)
    assert_type(await mapping.fn("a"), dict[str, Any])


def takes_any_job_type(job_type: JobType[..., Any, Any]) -> None: ...


takes_any_job_type(fetch)
takes_any_job_type(summarise)


# -- chains -------------------------------------------------------------------------------------------------------------


@registry.job
async def begins(url: str) -> Call[Summary]:  # linear
    return goes_on([url]).options(priority=1)


@registry.job(timeout=60)
def goes_on(pages: list[str]) -> Call[Summary]:  # in a thread, and on to one that doesn't continue
    return summarise(pages)


@registry.job(retry=Retry(max_attempts=2))
async def branches(url: str) -> Call[str]:
    if not url:
        return done("nothing")
    if url.startswith("file:"):
        return fetch_file(url)
    return fetch(url)


@registry.job
def fetch_file(url: str) -> Call[str]:
    return done(url)


@registry.job
async def loops(report_id: int, *, times: int = 0) -> Call[str | None]:
    if times > 10:
        return done(None)
    return done("ready") if report_id else loops(report_id, times=times + 1).options(delay=timedelta(minutes=5))


@registry.job
def goes_to(number: int) -> Call[bool]:
    return goes_back(number) if number else done(True)


@registry.job
async def goes_back(number: int) -> Call[bool]:
    return goes_to(number - 1)


@registry.job
async def ends_with_nothing() -> Call[None]:
    return done(None)


@registry.job
async def ends_with_less() -> Call[float]:  # a call is covariant
    return done(1)


assert_type(begins("a"), Call[Summary])
assert_type(goes_on(["a"]), Call[Summary])
assert_type(branches("a"), Call[str])
assert_type(fetch_file("a"), Call[str])
assert_type(loops(1, times=2), Call[str | None])
assert_type(goes_to(1), Call[bool])
assert_type(goes_back(1), Call[bool])
assert_type(ends_with_nothing(), Call[None])
assert_type(ends_with_less(), Call[float])
assert_type(done(1), Call[int])
assert_type(begins.name, str)


async def plain_functions_of_chains(client: Client) -> None:
    assert_type(await begins.fn("a"), Call[Summary])
    assert_type(goes_on.fn(["a"]), Call[Summary])
    assert await branches.fn("") == done("nothing")
    assert_type(await client.enqueue(begins("a")), JobHandle[Summary])
    assert_type(await (await client.enqueue(loops(1))).result(), str | None)
    assert_type(await client.enqueue_many([branches("a"), fetch("b"), fetch_file("c")]), list[JobHandle[str]])


# -- calls --------------------------------------------------------------------------------------------------------------

call = fetch("a")
assert_type(call.id, UUID)
assert_type(call.copy(), Call[str])
assert_type(call.arguments, dict[str, Any])
assert_type(
    call.options(
        delay=timedelta(minutes=5), key="k", unique=Unique(), priority=4, tags=["a"], metadata={"tenant": 1},
        retry=Retry(max_attempts=None), timeout=3, expires=timedelta(hours=1), keep=timedelta(days=3), webhook=False,
    ),
    Call[str],
)  # fmt: skip
assert_type(call.options(at=datetime.now(UTC), delay=None), Call[str])
assert_type(call.key, str | None)
assert_type(
    call.options(
        id=call.id, delay=5, max_delay=timedelta(hours=1),
        unique=Unique(until="started", on_conflict="replace", by=("url",)),
    ),
    Call[str],
)  # fmt: skip
assert_type(call.options(id="0193f5a2-7c1e-7000-8000-2f0a1b2c3d4e", max_delay=None, unique=None), Call[str])
assert_type(Unique(window=timedelta(days=1), on_conflict="raise").window_seconds, float | None)


def covariant(specific: Call[bool], handle: JobHandle[bool]) -> tuple[Call[int], JobHandle[int]]:
    return specific, handle


# -- declare and implement ------------------------------------------------------------------------------------------------


@registry.declare
async def charge(order_id: int, *, note: str = "") -> Summary: ...  # type: ignore[empty-body]  # pyright: ignore[reportReturnType]  # no body: declared


@registry.declare(name="refund", retry=Retry(max_attempts=2))
def refund(order_id: int) -> bool: ...  # type: ignore[empty-body]  # pyright: ignore[reportReturnType]  # no body: declared


@registry.declare
def decide(order_id: int) -> Call[bool]: ...  # type: ignore[empty-body]  # pyright: ignore[reportReturnType]  # no body: declared


assert_type(charge(1, note="a"), Call[Summary])
assert_type(refund(1), Call[bool])
assert_type(decide(1), Call[bool])

handlers = Registry()


@handlers.implement(charge, timeout=5)
async def charge_here(order_id: int, *, note: str = "") -> Summary:
    raise NotImplementedError


@handlers.implement(charge)
def charge_in_a_thread(order_id: int, *, note: str = "") -> Summary:
    raise NotImplementedError


@handlers.implement(refund)
async def refund_here(order_id: int) -> bool:
    return True


@handlers.implement(refund)
async def refund_in_steps(order_id: int) -> Call[bool]:
    return decide(order_id)


@handlers.implement(decide)
def decide_here(order_id: int) -> Call[bool]:
    return done(False) if order_id else decide(1)


@handlers.implement(decide)
async def decide_at_once(order_id: int) -> bool:
    return True


assert_type(charge_here(1), Call[Summary])
charging: Coroutine[Any, Any, Summary] = charge_here.fn(1)
assert_type(charge_in_a_thread.fn(1), Summary)
assert_type(refund_here(1), Call[bool])
assert_type(refund_in_steps(1), Call[bool])
assert_type(decide_here(1), Call[bool])
assert_type(decide_here.fn(1), Call[bool])
assert_type(decide_at_once(1), Call[bool])


# -- resources, converters, middlewares -------------------------------------------------------------------------------------


@registry.resource
async def http() -> AsyncIterator[sqlite3.Connection]:
    yield sqlite3.connect(":memory:")


@registry.resource(scope="attempt")
async def session() -> AsyncIterator[list[int]]:
    yield []


assert_type(http, Resource[sqlite3.Connection])
assert_type(session, Resource[list[int]])


async def uses_resources() -> None:
    assert_type(await http.get(), sqlite3.Connection)
    assert_type(session.get_from_thread(), list[int])


def encode_summary(value: Summary) -> object:
    return str(value)


def decode_summary(value: Any) -> Summary:
    return Summary()


registry.converter(Summary, encode=encode_summary, decode=decode_summary)


async def timing(attempt: Attempt, call_next: CallNext) -> object:
    assert_type(attempt.number, int)
    assert_type(attempt.cancelled, bool)
    assert_type(attempt.cancel_reason, CancelReason | None)
    attempt.set_outcome("nochange")
    return await call_next()


async def tenant(jobs: Sequence[NewJob], call_next: EnqueueNext) -> Sequence[Inserted]:
    return await call_next(jobs)


with_middlewares = Registry(middlewares=[timing])


@with_middlewares.job(middlewares=[timing])
async def timed() -> int:
    assert_type(current_attempt(), Attempt)
    return 1


# -- the client -----------------------------------------------------------------------------------------------------------


async def producers(connection: sqlite3.Connection, job_id: UUID) -> None:
    async with Client("sqlite:///jobs.db", middlewares=[tenant]) as client:
        assert_type(client, Client)
        handle = await client.enqueue(fetch("a"))
        assert_type(handle, JobHandle[str])
        assert_type(handle.id, UUID)
        assert_type(handle.created, bool)
        assert_type(await handle.result(timeout=30), str)
        assert_type(await handle.result(timeout=timedelta(seconds=30)), str)
        assert_type(await handle.snapshot(), Job)
        assert_type(await client.enqueue_many([fetch(url) for url in "ab"]), list[JobHandle[str]])
        assert_type(await client.enqueue(charge(1), tx=connection), JobHandle[Summary])
        assert_type(await client.enqueue_by_name("site.fetch", {"url": "a"}, priority=1), JobHandle[Any])
        assert_type(client.handle(fetch, job_id), JobHandle[str])
        assert_type(await client.list_jobs(types=[fetch], limit=10), Page)
        assert_type(await client.stats(), Stats)
        async with client.transaction() as tx:
            assert_type(tx, Transaction)
            assert_type(await tx.enqueue(summarise([])), JobHandle[Summary])
            await tx.execute("insert into orders values (?)", 1)
        assert_type(await client.using(connection).enqueue(fetch("a")), JobHandle[str])


# What a signature says survives: parameters, keywords and defaults.
exact: Callable[[str], Call[str]] = fetch


# -- workers ----------------------------------------------------------------------------------------------------------------


async def workers(client: Client) -> None:
    worker = Worker(client, registry, concurrency=3, grace=timedelta(seconds=5), types=[fetch, "site.mapping"])
    await worker.run()
    async with Worker(client, registry, name="w", resources={session: [1]}) as running:
        assert_type(running, Worker)
        running.stop()
    Worker(client, registry, max_attempts=3, renew_every=2.5)
    Client(url="sqlite:///jobs.db", poll_interval=timedelta(seconds=1), retry_for=0, close_timeout=2.5, tracing=None)
