"""Never run: each marked line, and no other, must be an error in mypy and in pyright."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from aioqueue import (
    Attempt,
    Call,
    CallNext,
    Client,
    Completed,
    Failed,
    InSequence,
    JobFilter,
    JobHandle,
    Limit,
    Rate,
    Registry,
    Resource,
    Retry,
    Unique,
    Worker,
    current_attempt,
    done,
)

registry = Registry()


@registry.job
async def fetch(url: str, *, depth: int = 1) -> str:
    return url * depth


@registry.job(retry=Retry(max_attempts=3))
def add(a: int, b: int) -> int:
    return a + b


@registry.declare
def charge(order_id: int) -> bool:
    raise NotImplementedError


@registry.resource
async def http() -> AsyncIterator[int]:
    yield 1


# Arguments.
fetch()  # error
fetch(1)  # error
fetch("a", 2)  # error
fetch("a", deep=2)  # error
fetch("a", depth="2")  # error
add(1)  # error
add(1, 2, 3)  # error
fetch.fn(1)  # error
add.fn("a", 1)  # error

# Options.
fetch("a").options(later=1)  # error
fetch("a").options(delay="1")  # error
fetch("a").options(id=7)  # error
fetch("a").options(max_delay="1")  # error
fetch("a").options(unique="started")  # error
Unique(until="claimed")  # error
Unique(on_conflict="ignore")  # error
Unique(by=["url"])  # error
Unique(window="1")  # error
fetch("a").options(priority=5)  # error
fetch("a").options(unique="yes")  # error
fetch("a").options(retry=3)  # error
fetch("a").options(after=["b"])  # error
fetch("a").options(after=fetch("b"))  # error
fetch("a").options(sequence=42)  # error
Limit("3")  # error
Rate(1)  # error
InSequence("a", on_failure="stop")  # error
registry.job(limit=3)  # error
registry.job(rate=Limit(3))  # error
registry.job(fairness_by=("a",))  # error


@registry.job(retries=3)  # error
async def wrong_option() -> None: ...


@registry.job(priority=9)  # error
async def wrong_priority() -> None: ...


@registry.job(middlewares=[3])  # error
async def wrong_middleware() -> None: ...


# Results.
wrong_call: Call[int] = fetch("a")  # error
right_call: Call[object] = fetch("a")
wrong_sum: Call[str] = add(1, 2)  # error


def contravariant(call: Call[object], handle: JobHandle[object]) -> None:
    one: Call[str] = call  # error
    two: JobHandle[str] = handle  # error
    del one, two


async def results(client: Client) -> None:
    await fetch("a")  # error
    fetch("a") + "b"  # error
    handle = await client.enqueue(fetch("a"))
    wrong: int = await handle.result()  # error
    await client.enqueue("a")  # error
    await client.enqueue(fetch)  # error
    await client.enqueue(fetch("a"), tx=5)  # error
    await client.enqueue(fetch("a"), delay=5)  # error
    await client.enqueue_many(fetch("a"))  # error
    await client.enqueue_by_name("fetch", {}, later=1)  # error
    client.handle("fetch", handle.id)  # error
    del wrong


# Handlers of declared types.
@registry.implement(charge)  # error
def other_parameter(order_id: str) -> bool:
    return True


@registry.implement(charge)  # error
def other_result(order_id: int) -> str:
    return ""


@registry.implement(charge)  # error
async def other_async_result(order_id: int) -> str:
    return ""


@registry.implement(charge)  # error
async def more_parameters(order_id: int, extra: int) -> bool:
    return True


registry.implement(fetch.fn)  # error


# Chains.
@registry.declare
async def decide(order_id: int) -> Call[bool]:
    raise NotImplementedError


@registry.implement(decide)  # error
async def other_end(order_id: int) -> Call[str]:
    raise NotImplementedError


@registry.implement(charge)  # error
def other_end_in_a_thread(order_id: int) -> Call[str]:
    raise NotImplementedError


@registry.job
async def ends_otherwise() -> Call[int]:
    return done("one")  # error


@registry.job
def goes_on_otherwise() -> Call[int]:
    return fetch("a")  # error


@registry.job
async def returns_a_value() -> Call[int]:
    return 1  # error


@registry.job
async def returns_nothing(number: int) -> Call[int]:  # error
    if number:
        done(number)


@registry.job
async def loops(number: int) -> Call[int]:
    return loops("one") if number else loops(number - 1, 2)  # error


@registry.job
async def goes_on_undeclared() -> int:
    return add(1, 2)  # error


@registry.job
async def ends_undeclared() -> int:
    return done(1)  # error


@registry.job
async def takes_options() -> Call[int]:
    return loops(1).options(delay="5")  # error


wrong_end: Call[str] = loops(1)  # error
wrong_done: Call[str] = done(1)  # error


async def chains(client: Client) -> None:
    wrong_handle: JobHandle[str] = await client.enqueue(loops(1))  # error
    wrong: str = await (await client.enqueue(loops(1))).result()  # error
    await loops(1)  # error
    await done(1)  # error
    done()  # error
    del wrong, wrong_handle


# Outputs, and jobs that are ended from outside.
add(1, fetch("a").output)  # error
add(1, loops(1).settled)  # error
fetch(loops(1).output)  # error
wrong_settled: Completed[str] | Failed = add(1, 2).settled  # error
wrong_completed: Completed[int] = add(1, 2).settled  # error
fetch("a").options(after=[fetch("b").output])  # error


async def ends_from_outside(client: Client, handle: JobHandle[str]) -> None:
    add(1, handle.output)  # error
    await client.complete(charge, handle, "yes")  # error
    await client.complete(charge, handle)  # error
    await client.complete(decide, handle, charge.fn)  # error
    await client.complete(decide, handle, loops(1))  # error
    await client.complete("charge", handle, True)  # error
    await client.complete(charge, 5, True)  # error
    await client.complete(charge, handle, True, tx=5)  # error
    await client.fail(handle)  # error
    await client.fail(handle, 5)  # error
    await client.retry(handle, cascade="yes")  # error


async def looks_and_changes(client: Client, handle: JobHandle[str]) -> None:
    await client.retry(handle, where=JobFilter(states=["failed"]))  # error
    await client.retry(handle, on_portion=print)  # error
    await client.run_now(where=JobFilter(key="k"), cascade=True)  # error
    await client.delete(where="failed")  # error
    await client.delete(handle, tx=5)  # error
    await client.cancel(handle, where=JobFilter(key="k"))  # error
    await client.cancel(handle, reason=5)  # error
    await handle.cancel("no")  # error
    wrong: dict[str, int] = await client.delete(where=JobFilter(key="k"))  # error
    await client.list_jobs(state="failed")  # error
    await client.list_jobs(created_after=3600)  # error
    await client.find("charge", key="k")  # error
    other: JobHandle[int] | None = await client.find(fetch, key="k")  # error
    JobFilter(created_after=3600)  # error
    del wrong, other


# Resources.
wrong_resource: Resource[str] = http  # error


@registry.resource  # error
async def not_a_generator() -> int:
    return 1


@registry.resource(scope="process")  # error
async def wrong_scope() -> AsyncIterator[int]:
    yield 1


async def resources() -> None:
    wrong: str = await http.get()  # error
    del wrong


# Middlewares.
async def no_attempt(call_next: CallNext) -> object:
    return await call_next()


def not_async(attempt: Attempt, call_next: CallNext) -> object:
    return None


Registry(middlewares=[no_attempt])  # error
Registry(middlewares=[not_async])  # error
registry.converter(int, encode=str)  # error


async def workers(client: Client) -> None:
    Worker(registry, client)  # error
    Worker(client, registry, slots=3)  # error
    Worker(client, registry, max_attempts="3")  # error
    Client(url=3)  # error
    Client(poll_interval="5s")  # error
    async with Worker(client, registry, concurrency="3"):  # error
        pass


# A handler's own transaction.
@registry.job
async def completes() -> str:
    async with current_attempt().completion() as tx:
        await tx.enqueue("fetch")  # error
        return tx.done(5)  # error


@registry.job
async def completes_a_chain() -> Call[str]:
    current_attempt().enqueue(fetch)  # error
    async with current_attempt().completion() as tx:
        return tx.done("a")  # error


# Phases.
@registry.job(phases=("add",))
async def in_phases() -> int:
    attempt = current_attempt()
    attempt.progress("half")  # error
    await attempt.phase("add", add.fn, 1)  # error
    await attempt.phase("add", add.fn(1, 2))  # error
    wrong: str = await attempt.phase("add", add.fn, 1, 2)  # error
    return len(wrong)


# Schedules and pauses.
async def plans(client: Client) -> None:
    await client.pause()  # error
    await client.pause(fetch, key="k")  # error
    await client.pause(all=False)  # error
    await client.pause(fetch, until=3600)  # error
    await client.resume(key="k", all=True)  # error
    await client.schedules.put("often", fetch, every=60)  # error
    await client.schedules.put("often", fetch("a"), each=60)  # error
    await client.schedules.put("often", fetch("a"), every=60, catch_up="some")  # error
    await client.schedules.preview("often", every=60)  # error


# Processes.
registry.job(executor="fork")  # error


def names(registry: Registry) -> None:
    registry.types["a"] = fetch  # error
    anything: dict[str, Any] = {}
    del anything
