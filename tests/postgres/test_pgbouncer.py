"""Behind PgBouncer in transaction mode, with two connections to the server."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from aioqueue import Client, Fixed, JobState, Registry, Retry, Worker
from aioqueue.postgres import make_store
from aioqueue.postgres._migrations import known_migrations
from aioqueue.testing import CASES, Case
from tests.harnesses import PostgresHarness
from tests.pgbouncer import Bouncer, program, version
from tests.postgres_server import execute
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioqueue.abc import Store

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(program() is None, reason="PgBouncer isn't installed (AIOQUEUE_TEST_PGBOUNCER may name it)"),
]

registry = Registry()


@registry.job(retry=Retry(max_attempts=3, backoff=Fixed(0.01)))
async def double(number: int) -> int:
    return 2 * number


@pytest.fixture(params=[0, 200])
def bouncer(postgres_url: str, request: pytest.FixtureRequest) -> Iterator[Bouncer]:
    if request.param and version() < (1, 21):
        pytest.skip(f"PgBouncer {'.'.join(map(str, version()))} has no max_prepared_statements")
    with Bouncer(postgres_url, prepared_statements=request.param) as bouncer:
        yield bouncer


class BouncedHarness(PostgresHarness):
    """Everything but listening goes through PgBouncer.

    Arguments:
        bouncer: In front of a database of the test's own.
        direct: That database's own address.
    """

    def __init__(self, bouncer: Bouncer, direct: str) -> None:
        self._bouncer = bouncer
        super().__init__(direct)

    def _make(self) -> Store:
        return make_store(self._bouncer.url, pgbouncer=True, listen_url=self.url)


MAIN = ("insert/", "claim/", "lease/", "transaction/", "notifications/")


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case.name.startswith(MAIN) else pytest.mark.soak, id=case.name) for case in CASES],
)
async def test_case(case: Case, bouncer: Bouncer, postgres_url: str) -> None:
    """What every store does."""
    harness = BouncedHarness(bouncer, postgres_url)
    await harness.open()
    try:
        await case.run(harness)
    finally:
        await harness.close()


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
async def test_several_migrate_through_it_at_once(empty_postgres_url: str, isolation: str) -> None:
    """Whatever the database's own isolation is, which the pooler's sessions have."""
    database = empty_postgres_url.rpartition("/")[2]
    execute(empty_postgres_url, f"alter database \"{database}\" set default_transaction_isolation = '{isolation}'")
    with Bouncer(empty_postgres_url) as bouncer:
        stores = [make_store(bouncer.url, pgbouncer=True) for _ in range(10)]
        ran = await asyncio.gather(*[store.migrate() for store in stores])
        assert sorted(name for names in ran for name in names) == [each.name for each in known_migrations()]
        assert await stores[0].pending_migrations() == []


def client_of(bouncer: Bouncer, *, listen_url: str | None = None) -> Client:
    options = {} if listen_url is None else {"listen_url": listen_url}
    return Client(bouncer.url, poll_interval=0.2, pgbouncer=True, **options)


async def test_jobs_are_enqueued_run_and_read(bouncer: Bouncer) -> None:
    async with client_of(bouncer) as client, Worker(client, registry, concurrency=10, poll_interval=0.1):
        handles = await client.enqueue_many([double(number) for number in range(60)])
        handles += await asyncio.gather(*[client.enqueue(double(number)) for number in range(60, 120)])
        async with client.transaction() as tx:
            await tx.execute("create table business (a int)")
            await tx.execute("insert into business values ($1)", 1)
            handles.append(await tx.enqueue(double(120)))
        assert await asyncio.gather(*[handle.result(timeout=120) for handle in handles]) == [2 * n for n in range(121)]
        assert (await client.list_jobs(states=[JobState.COMPLETED], limit=500)).cursor is None
        assert set((await client.stats()).types) == {double.name}


async def test_a_rollback_leaves_nothing(bouncer: Bouncer) -> None:
    async with client_of(bouncer) as client:
        with pytest.raises(ZeroDivisionError):
            async with client.transaction() as tx:
                await tx.enqueue(double(1))
                raise ZeroDivisionError
        assert (await client.list_jobs()).jobs == ()


async def test_it_polls_with_one_warning_where_nothing_can_be_heard(bouncer: Bouncer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with client_of(bouncer) as client, client_of(bouncer) as producer, Worker(client, registry, poll_interval=0.1):
        for number in range(5):
            assert await (await producer.enqueue(double(number))).result(timeout=120) == 2 * number
        await until(lambda: len(warnings(caplog)) == 2, "a warning of each store's")
    assert len(warnings(caplog)) == 2


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "listen" in record.getMessage().lower()]


async def test_a_direct_url_for_listening(bouncer: Bouncer, postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """No poll helps here."""
    caplog.set_level(logging.WARNING)
    async with (
        Client(bouncer.url, poll_interval=3600, pgbouncer=True, listen_url=postgres_url) as client,
        client_of(bouncer, listen_url=postgres_url) as producer,
        Worker(client, registry, poll_interval=3600),
    ):
        for number in range(5):
            assert await (await producer.enqueue(double(number))).result(timeout=120) == 2 * number
    assert "listen" not in caplog.text.lower()
