"""Jobs that exit in all the ways that there are, and the loops in which they do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import uvloop

from aioqueue import Client, Fixed, Job, Registry, Retry, current_attempt

if TYPE_CHECKING:
    from uuid import UUID

LIMIT = 60
AT_ONCE = Retry(max_attempts=3, backoff=Fixed(0), jitter=0)
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


async def part() -> None:
    raise SystemExit(1)


def callback() -> None:
    raise SystemExit(2)


async def interrupts() -> None:
    raise KeyboardInterrupt


async def whole(*parts: Any) -> None:
    await asyncio.gather(*parts)


async def gather() -> None:
    await whole(part(), asyncio.sleep(1000))


async def gather_alone() -> None:
    await whole(part())


async def nested() -> None:
    await whole(whole(part()), whole(asyncio.sleep(1000)))


async def nobody_waits() -> None:
    task = asyncio.get_running_loop().create_task(part())
    del task
    await asyncio.Event().wait()


async def task_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(part())
        group.create_task(asyncio.sleep(1000))


async def anyio_group() -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep_forever)
        group.start_soon(part)


async def keyboard_interrupt() -> None:
    await whole(interrupts())


async def call_soon() -> None:
    asyncio.get_running_loop().call_soon(callback)
    await asyncio.Event().wait()


async def call_later() -> None:
    asyncio.get_running_loop().call_later(0.001, callback)
    await asyncio.Event().wait()


async def from_a_thread() -> None:
    await asyncio.to_thread(asyncio.get_running_loop().call_soon_threadsafe, callback)
    await asyncio.Event().wait()


async def resource() -> None:
    await exits_when_opened.get()


async def resource_of_the_worker() -> None:
    await exits_in_worker.get()


async def resource_at_its_end() -> None:
    await exits_when_closed.get()


WAITED_FOR = [gather, gather_alone, nested, task_group, anyio_group, keyboard_interrupt]
CALLBACKS = [call_soon, call_later, from_a_thread]
RESOURCES = [resource, resource_of_the_worker, resource_at_its_end]
"""These end no loop at all."""


registry = Registry()
starts: list[int] = []
beside = asyncio.Event()


@registry.resource(scope="attempt")
async def exits_when_opened() -> AsyncIterator[int]:
    raise SystemExit(3)
    yield 1


@registry.resource
async def exits_in_worker() -> AsyncIterator[int]:
    raise SystemExit(4)
    yield 1


@registry.resource(scope="attempt")
async def exits_when_closed() -> AsyncIterator[int]:
    yield 1
    raise SystemExit(5)


BODIES = {each.__name__: each for each in (*WAITED_FOR, nobody_waits, *CALLBACKS, *RESOURCES)}


@registry.job(retry=AT_ONCE)
async def guilty(kind: str) -> None:
    starts.append(current_attempt().number)
    await BODIES[kind]()


@registry.job
async def neighbour() -> int:
    """Ends when the guilty one has; `beside` says that it runs."""
    while len(starts) < 3:
        await asyncio.sleep(0.001)
    return current_attempt().number


@registry.job
async def long_neighbour() -> None:
    await asyncio.Event().wait()


def look(url: str, *ids: UUID) -> list[Job]:
    async def looks() -> list[Job]:
        async with Client(url) as client:
            return [job for job in await client.store.fetch(list(ids)) if job is not None]

    return asyncio.run(looks())


def enqueue(url: str, kind: str, *, long: bool = False) -> list[UUID]:
    async def enqueues() -> list[UUID]:
        async with Client(url) as client:
            one = await client.enqueue((long_neighbour if long else neighbour)())
            return [(await client.enqueue(guilty(kind))).id, one.id]

    return asyncio.run(enqueues())


async def until_finished(client: Client, job_id: UUID) -> None:
    async with asyncio.timeout(LIMIT):
        while not (job := (await client.store.fetch([job_id]))[0]) or not job.state.finished:
            await asyncio.sleep(0.005)


@contextmanager
def runner(loop: str) -> Iterator[asyncio.Runner]:
    """Unretrieved exceptions are told to nobody here: pytest would take them for failures."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as made:
        made.get_loop().set_exception_handler(lambda loop, context: None)
        yield made
