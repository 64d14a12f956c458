"""Chains that a worker runs on both stores: every step once, the key kept all the while, what can't be written failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioqueue import Call, Client, JobState, OnceResult, Registry, StoreUnavailable, Worker, current_attempt, done
from tests.worker.chains import ended, steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._job import Settlement, SettleResult

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]


async def test_many_chains_at_once_each_run_every_step_once(client: Client, registry: Registry) -> None:
    ran: list[tuple[str, int]] = []

    @registry.job
    async def count(number: int) -> Call[int]:
        job = current_attempt().job
        ran.append((str(job.chain_id), job.position))
        return done(job.position) if number == 0 else count(number - 1)

    handles = await client.enqueue_many([count(number % 5) for number in range(100)])
    assert await Worker(client, registry, concurrency=20).run_once() == OnceResult(continued=200, completed=100)
    expected = [(str(handle.id), position) for number, handle in enumerate(handles) for position in range(number % 5 + 1)]
    assert sorted(ran) == sorted(expected)
    for number, handle in enumerate(handles):
        last = (await steps(client, handle))[-1]
        assert (last.state, last.output, last.position) == (JobState.COMPLETED, number % 5, number % 5)


async def test_a_key_is_its_chains_from_the_first_step_to_the_last(client: Client, registry: Registry) -> None:
    found: list[tuple[Any, bool]] = []

    @registry.job
    async def step(number: int) -> Call[None]:
        again = await client.enqueue(step(9).options(key="k", unique=True))
        found.append((again.id, again.created))
        return done(None) if number == 0 else other(number - 1)

    @registry.job
    def other(number: int) -> Call[None]:
        return step(number)

    first = await client.enqueue(step(3).options(key="k", unique=True))
    await Worker(client, registry).run_once()
    assert found == [(first.id, False)] * 4
    assert (await client.enqueue(step(0).options(key="k", unique=True))).created


async def test_a_continuation_whose_answer_is_lost_is_written_once(
    client: Client, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = client.store.settle
    lost: list[int] = []

    async def settle(settlements: Sequence[Settlement], *, orphaned: bool = False) -> Sequence[SettleResult]:
        results = await works(settlements, orphaned=orphaned)
        if len(lost) < 3:
            lost.append(len(settlements))
            raise StoreUnavailable("the answer is lost")
        return results

    @registry.job
    async def step(number: int) -> Call[int]:
        return done(current_attempt().job.position) if number == 0 else step(number - 1)

    monkeypatch.setattr(client.store, "settle", settle)
    handle = await client.enqueue(step(2))
    assert await Worker(client, registry).run_once() == OnceResult(continued=2, completed=1)
    assert [job.attempt for job in await steps(client, handle)] == [1, 1, 1]
    assert len(lost) == 3


async def test_a_next_step_whose_id_is_there_already_fails_the_job(client: Client, registry: Registry) -> None:
    @registry.job
    async def step() -> Call[None]:
        call = never()
        await client.store.insert([call.to_new_job()])  # as a client does, without saying so to the call
        return call

    @registry.job
    async def beside() -> Call[str]:
        return end()

    @registry.job
    async def end() -> str:
        return "end"

    @registry.job
    async def never() -> None: ...

    handle = await client.enqueue(beside())
    failed = await ended(client, registry, step())
    assert (failed.state, failed.type, failed.position) == (JobState.FAILED, "step", 0)
    assert str(failed.last_error).startswith("OutcomeRefused: the outcome was refused: ")
    assert [job.state for job in await steps(client, handle)] == [JobState.CONTINUED, JobState.COMPLETED]


async def test_a_step_is_written_before_the_next_is_looked_for(
    client: Client, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that came first would find nothing, and have the worker ask when something is due."""
    called: list[str] = []
    last = anyio.Event()

    def noted(verb: str) -> None:
        works = getattr(client.store, verb)

        async def call(*arguments: Any, **options: Any) -> Any:
            called.append(verb)
            return await works(*arguments, **options)

        monkeypatch.setattr(client.store, verb, call)

    @registry.job
    async def step(number: int) -> Call[None]:
        if number == 0:
            last.set()
            return done(None)
        return step(number - 1)

    await client.enqueue(step(3))
    noted("claim")
    noted("settle")
    async with Worker(client, registry, concurrency=1):
        await last.wait()
    assert called[:2] == ["claim", "settle"]
