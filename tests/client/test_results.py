"""Results: what is given, what is raised, and how few look-ups serve how many who wait."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from aioqueue.abc import Notification
from aioqueue.client import Client
from aioqueue.definitions._context import Attempt, activate
from aioqueue.errors import (
    ClientClosed,
    ConfigurationError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    ResultError,
    ResultTimeout,
    StoreUnavailable,
)
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import JobState, SettlementKind
from tests.client.fake_store import FakeStore
from tests.client.jobs import Page, add, completed, ended, fetch, nothing, work

pytestmark = pytest.mark.anyio


async def test_a_result_has_its_declared_type(client: Client) -> None:
    handle = await client.enqueue(fetch("https://example.org", depth=2))
    waiting = asyncio.create_task(handle.result(timeout=60))
    await work(client.store, completed(b'{"url":"https://example.org","size":7}'))
    assert await waiting == Page("https://example.org", 7)
    assert await handle.result() == Page("https://example.org", 7)
    assert await client.handle(fetch, handle.id).result(timeout=0) == Page("https://example.org", 7)


async def test_a_job_without_an_output_gives_none(client: Client) -> None:
    handle = await client.enqueue(nothing())
    await work(client.store, completed(b"null"))
    assert await handle.result(timeout=60) is None


async def test_a_failed_job_says_why(client: Client) -> None:
    handle = await client.enqueue(add(1, 2))
    await work(client.store, ended(SettlementKind.FAILED, "no such thing"))
    with pytest.raises(JobFailed, match="no such thing") as caught:
        await handle.result(timeout=60)
    assert (caught.value.job_id, caught.value.job_type) == (handle.id, "test.add")
    assert caught.value.last_error == "ValueError: no such thing"


async def test_a_cancelled_job_says_why(client: Client) -> None:
    handle = await client.enqueue(add(1, 2))
    await work(client.store, ended(SettlementKind.CANCELLED, "too late"))
    with pytest.raises(JobCancelled, match="too late") as caught:
        await handle.result(timeout=60)
    assert caught.value.job_id == handle.id


async def test_a_job_that_isnt_there(client: Client) -> None:
    handle = client.handle(add, new_id())
    for timeout in (None, 0, 60):
        with pytest.raises(JobNotFound) as caught:
            await handle.result(timeout=timeout)
        assert caught.value.job_id == handle.id
    with pytest.raises(JobNotFound):
        await handle.snapshot()


async def test_a_job_that_is_deleted_while_its_result_is_awaited(fake: FakeStore, fake_client: Client) -> None:
    handle = await fake_client.enqueue(add(1, 2))
    waiting = asyncio.create_task(handle.result(timeout=60))
    await _until(lambda: fake.calls["fetch_ends"] > 0)
    del fake.jobs[handle.id]
    fake.tell(Notification(finished=None))
    with pytest.raises(JobNotFound):
        await waiting


async def test_a_timeout_leaves_the_job_alone(client: Client) -> None:
    handle = await client.enqueue(add(1, 2))
    for timeout in (0, 0.01):
        with pytest.raises(ResultTimeout) as caught:
            await handle.result(timeout=timeout)
        assert caught.value.job_id == handle.id
        assert isinstance(caught.value, TimeoutError)
    assert (await handle.snapshot()).state is JobState.READY
    with pytest.raises(ConfigurationError):
        await handle.result(timeout=-1)


async def test_an_output_of_another_type(client: Client) -> None:
    handle = await client.enqueue(add(1, 2))
    await work(client.store, completed(b'"three"'))
    with pytest.raises(ResultError) as caught:
        await handle.result(timeout=60)
    assert caught.value.job_id == handle.id


async def test_a_thousand_who_wait_share_a_few_lookups(fake: FakeStore, fake_client: Client) -> None:
    handles = await fake_client.enqueue_many([add(number, 1) for number in range(1000)])
    tasks = [asyncio.create_task(handle.result(timeout=60)) for handle in handles]
    await _until(lambda: fake.calls["fetch_ends"] >= 2)
    for handle in handles:
        fake.finish(handle.id, output=b"1")
    assert await asyncio.gather(*tasks) == [1] * 1000
    assert fake.calls["subscribe"] == 1
    assert fake.calls["fetch_ends"] <= 6
    await _until(lambda: not fake.subscribed)


async def test_those_who_wait_for_one_job_share_one_lookup(fake: FakeStore, fake_client: Client) -> None:
    handle = await fake_client.enqueue(add(1, 2))
    tasks = [asyncio.create_task(handle.result(timeout=60)) for _ in range(100)]
    await _until(lambda: fake.calls["fetch_ends"] > 0)
    fake.finish(handle.id, output=b"3")
    assert await asyncio.gather(*tasks) == [3] * 100
    assert fake.calls["fetch_ends"] <= 3


async def test_a_lost_notification_costs_a_poll(fake: FakeStore) -> None:
    async with Client(fake, poll_interval=0.01) as client:
        handle = await client.enqueue(add(1, 2))
        waiting = asyncio.create_task(handle.result(timeout=60))
        await _until(lambda: fake.calls["fetch_ends"] > 0)
        fake.finish(handle.id, output=b"3", tell=False)
        assert await waiting == 3


async def test_those_who_wait_outlast_an_outage(fake: FakeStore) -> None:
    async with Client(fake, poll_interval=0.01) as client:
        handle = await client.enqueue(add(1, 2))
        fake.faults["fetch_ends"] = ["before", "before"]
        waiting = asyncio.create_task(handle.result(timeout=60))
        await _until(lambda: fake.calls["fetch_ends"] > 2)
        fake.finish(handle.id, output=b"3")
        assert await waiting == 3


async def test_an_unexpected_error_reaches_those_who_wait_and_later_ones_begin_anew(
    fake: FakeStore, fake_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    handle = await fake_client.enqueue(add(1, 2))
    fake.faults["fetch_ends"] = [RuntimeError("unexpected")]
    with pytest.raises(RuntimeError, match="unexpected"):
        await handle.result(timeout=60)
    fake.finish(handle.id, output=b"3")
    assert await handle.result(timeout=60) == 3
    assert "waiting for results has failed" in caplog.text


async def test_one_who_is_cancelled_leaves_the_others_waiting(fake: FakeStore, fake_client: Client) -> None:
    handle = await fake_client.enqueue(add(1, 2))
    first, second = (asyncio.create_task(handle.result(timeout=60)) for _ in range(2))
    await _until(lambda: fake.calls["fetch_ends"] > 0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    fake.finish(handle.id, output=b"3")
    assert await second == 3


async def test_closing_tells_those_who_wait(fake: FakeStore) -> None:
    client = await Client(fake).open()
    handle = await client.enqueue(add(1, 2))
    waiting = asyncio.create_task(handle.result())
    await _until(lambda: fake.calls["fetch_ends"] > 0)
    await client.close()
    with pytest.raises(ClientClosed, match="the job goes on"):
        await waiting
    assert not fake.subscribed


async def test_a_result_in_a_handler_warns(fake: FakeStore, fake_client: Client) -> None:
    handle = await fake_client.enqueue(add(1, 2))
    fake.finish(handle.id, output=b"3")
    job = _Claimed()
    attempt = Attempt(job, fetch, worker_id="w", client=fake_client, resources=None)
    with activate(attempt), pytest.warns(RuntimeWarning, match="holds its slot"):
        assert await handle.result() == 3


async def test_a_job_of_a_users_transaction_is_waited_for(fake: FakeStore) -> None:
    async with Client(fake, uncommitted_grace=60) as client:
        handle = await client.enqueue(add(1, 2), tx=_Connection())
        job = fake.jobs.pop(handle.id)  # what isn't committed yet can't be seen
        with pytest.raises(ResultTimeout, match="not there yet"):
            await handle.result(timeout=0)
        waiting = asyncio.create_task(handle.result(timeout=60))
        await _until(lambda: fake.calls["fetch_ends"] > 1)
        fake.jobs[handle.id] = job
        fake.finish(handle.id, output=b"3")
        assert await waiting == 3


async def test_a_users_transaction_that_is_never_committed(fake: FakeStore) -> None:
    async with Client(fake, uncommitted_grace=0.02) as client:
        handle = await client.enqueue(add(1, 2), tx=_Connection())
        del fake.jobs[handle.id]
        with pytest.raises(JobNotFound):
            await handle.result(timeout=60)


async def test_a_snapshot_shows_the_job(client: Client) -> None:
    handle = await client.enqueue(add(1, 2).options(key="sum", tags=["a"], metadata={"tenant": 7}))
    job = await handle.snapshot()
    assert (job.id, job.type, job.state, job.arguments) == (handle.id, "test.add", JobState.READY, {"left": 1, "right": 2})
    assert (job.key, job.tags, job.metadata) == ("sum", ("a",), {"tenant": 7})


async def test_a_snapshot_while_the_database_is_away(fake: FakeStore, fake_client: Client) -> None:
    handle = await fake_client.enqueue(add(1, 2))
    fake.faults["fetch_ends"] = ["before"]
    with pytest.raises(StoreUnavailable):
        await handle.snapshot()


class _Connection:
    def execute(self) -> None: ...


@dataclasses.dataclass
class _Claimed:
    type: str = "test.fetch"
    origin: None = None


async def _until(condition: object) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)
