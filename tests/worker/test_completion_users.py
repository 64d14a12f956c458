"""A job that is completed in a transaction of the user's, who commits it."""

from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from aioqueue import Call, Client, CompletionNotDone, JobState, OutsideTransaction, Registry, TransactionError, current_attempt
from tests.worker.chains import once
from tests.worker.completing import Notes, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioqueue import Job

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]


class Theirs:
    """A transaction of the user's, with the driver of the store's database."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def execute(self, sql: str) -> None:
        if isinstance(self.connection, sqlite3.Connection):
            self.connection.execute(sql)
        else:
            await self.connection.execute(sql)


@asynccontextmanager
async def theirs(url: str) -> AsyncIterator[Theirs]:
    """Open a connection with a transaction; what isn't committed is rolled back."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=5.0)
        connection.execute("begin immediate")
        try:
            yield Theirs(connection)
        finally:
            connection.close()
    else:
        connection = await asyncpg.connect(url)
        await connection.execute("begin")
        try:
            yield Theirs(connection)
        finally:
            await connection.close()


class Case:
    """A handler that completes its job in such a transaction, and does something else besides.

    Attributes:
        committed: Whether it commits.
        then: Raised afterwards, if anything is.
    """

    def __init__(self, client: Client, url: str) -> None:
        self.registry = registry = Registry()
        self.client = client
        self.committed = True
        self.then: Exception | None = None

        @registry.job
        async def child() -> None: ...

        @registry.job
        async def other() -> None: ...

        @registry.job(retry=once)
        async def parent() -> str:
            attempt = current_attempt()
            attempt.enqueue(child())
            self.other = await client.enqueue(other().options(delay=900))
            async with theirs(url) as tx:
                async with attempt.completion(tx=tx.connection) as completion:
                    assert completion.connection is tx.connection
                    await tx.execute("insert into note values ('kept')")
                    await completion.enqueue(child())
                    await completion.fail(self.other, "no")
                    with pytest.raises(OutsideTransaction):
                        await client.enqueue(child())
                    with pytest.raises(TransactionError, match="itself"):
                        await completion.execute("select 1")
                    result = completion.done("value")
                if self.committed:
                    await tx.execute("commit")
            if self.then is not None:
                raise self.then
            return result

        self.parent = parent

    async def run(self) -> Job:
        return await (await run(self.client, self.registry, self.parent())).snapshot()

    async def children(self) -> int:
        return len((await self.client.list_jobs(types=["child"])).jobs)


@pytest.fixture
def case(client: Client, url: str) -> Case:
    return Case(client, url)


async def test_it_is_completed_once_its_owner_has_committed(case: Case, notes: Notes) -> None:
    job = await case.run()
    assert (job.state, job.output, job.errors, job.attempt) == (JobState.COMPLETED, "value", (), 1)
    assert (await notes.all(), await case.children()) == (["kept"], 2)
    assert (await case.other.snapshot()).state is JobState.FAILED


async def test_once_committed_it_stands(case: Case, notes: Notes) -> None:
    case.then = ValueError("later")
    job = await case.run()
    assert (job.state, job.output, job.errors) == (JobState.COMPLETED, "value", ())
    assert (await notes.all(), await case.children()) == (["kept"], 2)


async def test_without_a_commit_it_fails(case: Case, notes: Notes) -> None:
    case.committed = False
    job = await case.run()
    assert (job.state, [error.type for error in job.errors]) == (JobState.FAILED, [CompletionNotDone.__name__])
    assert (await notes.all(), await case.children()) == ([], 0)


async def test_a_rollback_fails_it_with_its_error(case: Case, notes: Notes) -> None:
    case.committed, case.then = False, ValueError("boom")
    job = await case.run()
    assert (job.state, [error.type for error in job.errors]) == (JobState.FAILED, ["ValueError"])
    assert (await notes.all(), await case.children()) == ([], 0)


async def test_one_that_was_rolled_back_may_be_repeated(client: Client, url: str, notes: Notes) -> None:
    registry = Registry()

    @registry.job(retry=once)
    async def parent() -> str:
        attempt = current_attempt()
        for number in (1, 2):
            async with theirs(url) as tx:
                async with attempt.completion(tx=tx.connection) as completion:
                    await tx.execute(f"insert into note values ('{number}')")
                    result = completion.done("value")
                await tx.execute("commit" if number == 2 else "rollback")
        with pytest.raises(TransactionError, match="was completed in one"):
            async with attempt.completion():
                raise AssertionError
        return result

    job = await (await run(client, registry, parent())).snapshot()
    assert (job.state, job.output, job.errors) == (JobState.COMPLETED, "value", ())
    assert await notes.all() == ["2"]


async def test_a_transaction_of_the_clients_will_do_too_and_none_will_not(client: Client, notes: Notes) -> None:
    registry = Registry()

    @registry.job(retry=once)
    async def ours(*, fails: bool) -> Call[None]:
        async with client.transaction() as tx:
            async with current_attempt().completion(tx=tx) as completion:
                await notes.write(tx, "kept")
                following = completion.done(registry.types["child"]())
            if fails:
                raise ValueError("boom")
        return following

    @registry.job(retry=once)
    async def nothing() -> None:
        async with current_attempt().completion(tx=None):
            raise AssertionError

    @registry.job
    async def child() -> None: ...

    for fails in (True, False):
        handle = await run(client, registry, ours(fails=fails))
        assert (await handle.snapshot()).state is (JobState.FAILED if fails else JobState.COMPLETED)
    assert await notes.all() == ["kept"]
    job = await (await run(client, registry, nothing())).snapshot()
    assert job.errors[0].type == OutsideTransaction.__name__
