"""What a worker's role lacks is said before it claims anything, by name."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from aioqueue import Client, Fixed, JobState, Registry, Retry, Worker
from aioqueue.errors import ConfigurationError, StoreError
from aioqueue.postgres import make_store
from aioqueue.postgres._lease_rights import LEASE_THREAD, WORKER
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob, Settlement, SettlementKind
from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

pytestmark = pytest.mark.anyio

registry = Registry()


@registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0)))
async def fragile(number: int) -> int:
    if number < 0:
        raise ValueError(number)
    return number


@registry.job
async def total(numbers: list[int]) -> int:
    return sum(numbers)


@asynccontextmanager
async def role_with(url: str, rights: Mapping[str, Sequence[str]]) -> AsyncIterator[tuple[str, str]]:
    """A role with exactly these rights: its name, and the URL with which it connects."""
    role = f"app_{new_id().hex}"
    parts = urlsplit(url)
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA aioqueue TO {role}")
        await connection.execute(f"GRANT SELECT ON aioqueue.migration TO {role}")
        for table, privileges in rights.items():
            await connection.execute(f"GRANT {', '.join(privileges)} ON aioqueue.{table} TO {role}")
        yield role, urlunsplit(parts._replace(netloc=f"{role}:x@{parts.hostname}:{parts.port}"))
    finally:
        await connection.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")
        await connection.close()


async def test_a_worker_needs_no_more_than_what_is_checked(postgres_url: str) -> None:
    """Enqueueing, running, retrying, failing, unique keys, transactions, results, and the recovery of a lost worker's job."""
    async with (
        role_with(postgres_url, WORKER) as (_, url),
        Client(url) as client,
        Worker(client, registry, lease=2, renew_every=0.5),
    ):
        store = client.store
        lost = NewJob(id=new_id(), type="lost", payload=b"{}")
        await store.insert([lost])
        lease_id = await store.open_lease("lost", 0.1)
        assert await store.claim(lease_id, ["lost"], 1)
        handles = await client.enqueue_many([fragile(number) for number in range(5)])
        handles.append(await client.enqueue(fragile(5).options(key="k", unique=True)))
        async with client.transaction() as tx:
            handles.append(await tx.enqueue(fragile(6)))
        assert await asyncio.gather(*[handle.result(timeout=120) for handle in handles]) == list(range(7))
        bad = await client.enqueue(fragile(-1))
        with pytest.raises(Exception, match="-1"):
            await bad.result(timeout=120)
        async with asyncio.timeout(120):
            while (await store.fetch([lost.id]))[0].state is JobState.RUNNING:
                await asyncio.sleep(0.05)
        assert await (await client.enqueue(total([fragile(1).output, fragile(2).output]))).result(timeout=120) == 3
        with pytest.raises(Exception, match=r"it waited for .*ValueError: -1"):
            await (await client.enqueue(total([fragile(-1).output]))).result(timeout=120)
        await client.stats()
        await client.list_jobs()


async def test_each_missing_right_is_named(postgres_url: str) -> None:
    async with role_with(postgres_url, WORKER) as (role, url):
        store = make_store(url, notify=False)
        await store.open()
        try:
            for table, privileges in WORKER.items():
                for privilege in privileges:
                    execute(postgres_url, f"revoke {privilege} on aioqueue.{table} from {role}")
                    with pytest.raises(ConfigurationError, match=rf'GRANT {privilege} ON "aioqueue".{table} TO {role};$'):
                        await store.open_lease("w", 60)
                    execute(postgres_url, f"grant {privilege} on aioqueue.{table} to {role}")
            execute(postgres_url, f"revoke delete on aioqueue.job, aioqueue.lease from {role}")
            execute(postgres_url, f"revoke usage on schema aioqueue from {role}")
            with pytest.raises(ConfigurationError) as caught:
                await store.open_lease("w", 60)
            assert all(text in str(caught.value) for text in ("USAGE ON SCHEMA", '"aioqueue".job', '"aioqueue".lease'))
            # What it says is what helps.
            execute(postgres_url, str(caught.value).partition("Grant what is missing: ")[2])
            assert await store.open_lease("w", 60)
        finally:
            await store.close()


async def test_the_lease_threads_own_role_is_checked_too(postgres_url: str) -> None:
    async with role_with(postgres_url, LEASE_THREAD) as (role, url):

        async def lease_connect() -> asyncpg.Connection:
            return await asyncpg.connect(url)

        store = make_store(postgres_url, notify=False, lease_connect=lease_connect)
        await store.open()
        session = store.lease_session()
        try:
            lease_id = await store.open_lease("w", 60)
            await store.insert([NewJob(id=new_id(), type="a")])
            (job,) = await store.claim(lease_id, ["a"], 1)
            await asyncio.to_thread(session.connect)
            assert (await asyncio.to_thread(session.renew, lease_id, 60, [job.claim])).lost == {}
            done = Settlement(id=job.id, claims=job.claims, lease_id=lease_id, kind=SettlementKind.COMPLETED)
            await store.settle([done])
            assert (await asyncio.to_thread(session.renew, lease_id, 60, [job.claim])).lost
            execute(postgres_url, f"revoke update on aioqueue.lease from {role}")
            with pytest.raises(ConfigurationError, match=r'GRANT UPDATE ON "aioqueue".lease'):
                await asyncio.to_thread(session.connect)
        finally:
            await asyncio.to_thread(session.close)
            await store.close()


async def test_a_right_that_waiting_for_results_lacks_is_told_once(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    rights = {**WORKER, "subscriber": ("SELECT",)}
    async with role_with(postgres_url, rights) as (_, url), Client(url, poll_interval=0.05) as client:
        async with Client(postgres_url) as other, Worker(other, registry):
            assert await (await client.enqueue(fragile(1))).result(timeout=120) == 1
        with client.store.subscribe(lambda _: None, finished=True):
            async with asyncio.timeout(60):
                while "results are found by polling" not in caplog.text:
                    await asyncio.sleep(0.01)
    assert caplog.text.count("results are found by polling") == 1


async def test_what_a_role_may_not_do_says_so(postgres_url: str) -> None:
    async with role_with(postgres_url, {}) as (_, url):
        store = make_store(url, notify=False)
        await store.open()
        try:
            with pytest.raises(StoreError, match="rights"):
                await store.stats()
        finally:
            await store.close()
