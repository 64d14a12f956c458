"""Large arguments: one statement never carries more of them than it can, and one call none that a row can't have."""

from __future__ import annotations

import dataclasses
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import pytest

from aioqueue import Client, ConfigurationError, Registry
from aioqueue.runtime import _batcher
from aioqueue.vocabulary import _codec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from aioqueue.abc import StoreTransaction
    from aioqueue.definitions._middleware import EnqueueNext
    from aioqueue.vocabulary._job import Inserted, NewJob

pytestmark = pytest.mark.anyio

registry = Registry()


@registry.job
async def take(text: str) -> None: ...


async def test_many_large_ones_are_stored_all_or_none_in_statements_of_bounded_size(
    each_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_batcher, "LARGEST_BATCH_BYTES", 3500)
    async with Client(each_url) as client:
        sizes: list[int] = []
        insert = client.store.insert

        async def watched(
            jobs: Sequence[NewJob], *, tx: object | None = None, repeated: bool = False, apart: bool = False
        ) -> Sequence[Inserted]:
            sizes.append(sum(len(job.payload) for job in jobs))
            return await insert(jobs, tx=tx, repeated=repeated, apart=apart)

        within: list[int] = []
        begin = client.store.transaction

        @asynccontextmanager
        async def transaction() -> AsyncIterator[StoreTransaction]:
            async with begin() as opened:
                insert_within = opened.insert

                async def watched_within(jobs: Sequence[NewJob]) -> Sequence[Inserted]:
                    within.append(sum(len(job.payload) for job in jobs))
                    return await insert_within(jobs)

                monkeypatch.setattr(opened, "insert", watched_within)
                yield opened

        monkeypatch.setattr(client.store, "insert", watched)
        monkeypatch.setattr(client.store, "transaction", transaction)
        handles = await client.enqueue_many([take("x" * size) for size in (1000,) * 9 + (5000,)])
        assert sizes == []
        assert len(within) == 4
        assert sorted(within)[2] <= 3500 < sorted(within)[3]
        async with anyio.create_task_group() as group:
            for _ in range(9):
                group.start_soon(client.enqueue, take("x" * 1000))
        assert 3 * 1000 < max(sizes) <= 3500
        assert sum(sizes) > 9000
        jobs = [await handle.snapshot() for handle in handles]
        assert [len(job.arguments["text"]) for job in jobs] == [1000] * 9 + [5000]


async def test_what_a_middleware_makes_of_a_job_is_bounded_too(each_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_codec, "LARGEST_VALUE_BYTES", 1000)

    async def larger(jobs: Sequence[NewJob], call_next: EnqueueNext) -> Sequence[Inserted]:
        return await call_next([dataclasses.replace(job, metadata=b'{"a":"%s"}' % (b"x" * 1000)) for job in jobs])

    async with Client(each_url, middlewares=[larger]) as client:
        call = take("x")
        with pytest.raises(ConfigurationError, match=rf"job {call.id}: metadata: .* MiB of JSON are more than"):
            await client.enqueue(call)
