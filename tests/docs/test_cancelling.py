"""The table in docs/how-to/cancelling.md of what a running job ends as: each row is enacted, on two stores."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioqueue import Call, Cancellation, Client, Fail, Job, JobState, Registry, Reschedule, RetryIn, Worker, current_attempt
from aioqueue.testing import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "cancelling.md"
TABLE = PAGE.read_text().split("| the handler … | then the job is |\n|---|---|\n")[1].split("\n\n")[0]
ROWS: dict[str, str] = dict(re.findall(r"^\| (.*) \| (.*) \|$", TABLE, re.MULTILINE))

pytestmark = pytest.mark.anyio

registry = Registry(prefix="docs.")
begun = threading.Event()
went_on: list[int] = []


async def _cancellation() -> None:
    """Wait for it, and catch it."""
    begun.set()
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        return


@registry.job
async def value() -> int:
    await _cancellation()
    return 1


@registry.job
def value_in_thread() -> int:
    begun.set()
    while not current_attempt().cancelled:
        threading.Event().wait(0.01)
    return 1


@registry.job
async def following() -> int:
    went_on.append(1)
    return 2


@registry.job
async def another_call() -> Call[int]:
    await _cancellation()
    return following()


@registry.job
async def sealed() -> int:
    async with current_attempt().completion() as tx:
        tx.done(1)
        await _cancellation()
    raise ValueError("after the block")


@registry.job
async def failing() -> None:
    await _cancellation()
    raise Fail("not so")


@registry.job
async def obedient() -> None:
    begun.set()
    await asyncio.sleep(3600)


@registry.job
async def raising(what: str) -> None:
    await _cancellation()
    raise {"ValueError": ValueError("odd"), "RetryIn": RetryIn(0), "Reschedule": Reschedule(delay=0)}[what]


@registry.job(timeout=0.5)
async def slow() -> None:
    await _cancellation()
    await asyncio.sleep(3600)


@registry.job
async def unstorable() -> Any:
    await _cancellation()
    return object()


RUNS: list[tuple[str, Call[Any]]] = [
    ("returns a value, also after it has caught the cancellation, also in a thread", value()),
    ("returns a value, also after it has caught the cancellation, also in a thread", value_in_thread()),
    ("returns another call", another_call()),
    ("raises `Fail`", failing()),
    ("lets the cancellation through", obedient()),
    ("raises any other exception, `RetryIn`, `Reschedule`", raising("ValueError")),
    ("raises any other exception, `RetryIn`, `Reschedule`", raising("RetryIn")),
    ("raises any other exception, `RetryIn`, `Reschedule`", raising("Reschedule")),
    ("comes to its timeout", slow()),
    ("returns what can't be stored", unstorable()),
]
SEALED = "has said `tx.done(…)` in its [`completion()`](transactions.md#completion) block, and that commits"
LOST = "loses its worker"
GIVEN_BACK = "is given back, since its worker stops"


@pytest.fixture(params=["memory", "sqlite"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    begun.clear()
    went_on.clear()
    source: object = f"sqlite:///{tmp_path}/jobs.db" if request.param == "sqlite" else MemoryStore()
    async with Client(source) as client:
        yield client


def test_each_row_is_enacted() -> None:
    assert {row for row, _ in RUNS} | {SEALED, LOST, GIVEN_BACK} == set(ROWS)


async def _ended(client: Client, job_id: Any) -> Job:
    with anyio.fail_after(30):
        while not (end := await client.chain(job_id)).state.finished:
            await anyio.sleep(0.01)
    return end


@pytest.mark.parametrize(("row", "call"), RUNS, ids=lambda each: each if isinstance(each, str) else each.job_type.name)
async def test_what_a_handler_ends_as(client: Client, row: str, call: Call[Any]) -> None:
    handle = await client.enqueue(call.copy())
    async with Worker(client, registry):
        await anyio.to_thread.run_sync(begun.wait, 30)
        assert await handle.cancel(reason="because") is Cancellation.CANCELLING
        end = await _ended(client, handle)
    first = await client.job(handle)
    assert ROWS[row].startswith(first.state.value)
    if first.state is JobState.CONTINUED:
        assert (end.state, went_on) == (JobState.CANCELLED, [])
    if "with that error" in ROWS[row]:
        assert first.last_error is not None
        assert first.attempt == 1


async def test_what_is_sealed_stands() -> None:
    """In memory: SQLite's file is the block's own until it ends, so nobody else can ask meanwhile."""
    assert ROWS[SEALED] == "as it has said there"
    begun.clear()
    async with Client(MemoryStore()) as client:
        handle = await client.enqueue(sealed())
        async with Worker(client, registry):
            await anyio.to_thread.run_sync(begun.wait, 30)
            assert await handle.cancel(reason="because") is Cancellation.CANCELLING
            assert await handle.result(timeout=30) == 1


@pytest.mark.parametrize("row", [LOST, GIVEN_BACK])
async def test_without_a_handlers_word(client: Client, row: str) -> None:
    assert ROWS[row].startswith("cancelled")
    handle = await client.enqueue(obedient())
    lease = await client.store.open_lease("one", 600 if row == GIVEN_BACK else 0.2)
    (claimed,) = await client.store.claim(lease, [obedient.name], 1)
    assert await handle.cancel(reason="because") is Cancellation.CANCELLING
    if row == GIVEN_BACK:
        await client.store.release(lease, [claimed.claim])
        end = await client.chain(handle)
    else:
        async with Worker(client, registry, lease=1.5, poll_interval=0.1):
            end = await _ended(client, handle)
    assert end.state is JobState.CANCELLED
    assert not begun.is_set()
