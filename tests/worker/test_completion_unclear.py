"""A completing transaction whose commit isn't answered, or is cancelled: it's found out whether it was one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioqueue import Client, JobState, Registry, StoreUnavailable, Worker, current_attempt
from aioqueue.worker import _completion
from aioqueue.worker._stop_reason import StopReason
from tests.worker.chains import once
from tests.worker.completing import Notes, run
from tests.worker.insides import parts

pytestmark = pytest.mark.anyio
ON_EACH_STORE = True


class Commits:
    """Lets the next transactions of a store end without an answer.

    Attributes:
        unanswered: Of the next ones, whether each is committed all the same.
    """

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.unanswered: list[bool] = []
        begin = client.store.transaction
        monkeypatch.setattr(client.store, "transaction", lambda: _Unanswered(begin(), self))


class _Unanswered:
    def __init__(self, inner: Any, commits: Commits) -> None:
        self._inner = inner
        self._commits = commits

    async def __aenter__(self) -> Any:
        return await self._inner.__aenter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if kind is not None or not self._commits.unanswered:
            await self._inner.__aexit__(kind, error, traceback)
            return
        if self._commits.unanswered.pop(0):
            await self._inner.__aexit__(None, None, None)
        else:
            await self._inner.__aexit__(ValueError, ValueError("lost"), None)
        raise StoreUnavailable("no answer")


@pytest.mark.parametrize("committed", [True, False])
async def test_a_commit_without_an_answer_is_looked_up(
    client: Client, notes: Notes, monkeypatch: pytest.MonkeyPatch, *, committed: bool
) -> None:
    registry, commits = Registry(), Commits(client, monkeypatch)

    @registry.job
    async def child() -> None: ...

    @registry.job(retry=once)
    async def parent() -> str:
        attempt = current_attempt()
        attempt.enqueue(child())
        commits.unanswered = [committed]
        async with attempt.completion() as tx:
            await notes.write(tx, "kept")
            return tx.done("value")

    job = await (await run(client, registry, parent())).snapshot()
    assert job.state is (JobState.COMPLETED if committed else JobState.FAILED)
    assert [error.type for error in job.errors] == ([] if committed else ["StoreUnavailable"])
    assert await notes.all() == (["kept"] if committed else [])
    assert len((await client.list_jobs(types=["child"])).jobs) == int(committed)


@pytest.mark.without_postgres
async def test_what_cannot_be_found_out_is_decided_by_the_fence(
    client: Client, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, commits = Registry(), Commits(client, monkeypatch)
    monkeypatch.setattr(_completion, "_LOOK_SECONDS", 0.01)

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    @registry.job(retry=once)
    async def parent() -> str:
        commits.unanswered = [True]
        async with current_attempt().completion() as tx:
            await notes.write(tx, "kept")
            return tx.done("value")

    monkeypatch.setattr(_completion.Completions, "_look", never)
    handle = await client.enqueue(parent())
    await Worker(client, registry).run_once()
    assert (await handle.snapshot()).output == "value"
    assert await notes.all() == ["kept"]


async def test_whenever_it_is_cancelled_all_of_it_is_there_or_nothing(client: Client, notes: Notes) -> None:
    registry = Registry()

    @registry.job
    async def child(number: int) -> None: ...

    @registry.job(retry=once)
    async def parent(number: int) -> str:
        attempt = current_attempt()
        attempt.enqueue(child(number))
        slot = next(iter(parts(worker).holdings.running.values()))
        cancelling = asyncio.create_task(cancel_after(slot, number))
        try:
            async with attempt.completion() as tx:
                await notes.write(tx, str(number))
                result = tx.done("value")
            await asyncio.sleep(0)
            return result
        finally:
            cancelling.cancel()

    async def cancel_after(slot: Any, number: int) -> None:
        for _ in range(min(number, 30)):
            await asyncio.sleep(0)
        if number > 30:  # a database of another process takes many turns
            await asyncio.sleep((number - 30) * 0.0003)
        slot.cancel(StopReason.TIMEOUT)

    handles = {
        str(number): await client.enqueue(parent(number).options(timeout=1000)) for number in (*range(0, 70, 2), 1_000_000)
    }
    worker = Worker(client, registry, concurrency=1)
    await worker.run_once()
    ends = {number: (await handle.snapshot()).state for number, handle in handles.items()}
    assert set(ends.values()) == {JobState.COMPLETED, JobState.FAILED}
    kept = await notes.all()
    assert kept == sorted(number for number, state in ends.items() if state is JobState.COMPLETED)
    assert len((await client.list_jobs(types=["child"], limit=500)).jobs) == len(kept)
