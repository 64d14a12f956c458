"""What nobody closed or left is told in one line each, and its connections are given back."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import psycopg
import pytest

from tests.postgres_server import execute

BEGINNING = """
import asyncio, gc, logging, sys, time
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob
from aioqueue.postgres import make_store

logging.basicConfig(format="%(message)s", stream=sys.stderr)
url = sys.argv[1]

def job():
    return NewJob(id=new_id(), type="a")

async def until(condition):
    deadline = time.monotonic() + 60
    while not await condition():
        assert time.monotonic() < deadline
        gc.collect()
        await asyncio.sleep(0.01)
"""


def run(url: str, script: str, *options: str) -> list[str]:
    """Run a script; returns the lines that it wrote to stderr, without the code that warnings quote."""
    done = subprocess.run(
        [sys.executable, *options, "-c", BEGINNING + textwrap.dedent(script), url],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if not line.startswith((" ", "ResourceWarning: Enable tracemalloc"))]


@pytest.mark.parametrize("when", ["while the loop runs", "at its end", "after it"])
def test_stores_that_nobody_closed(postgres_url: str, when: str) -> None:
    lines = run(
        postgres_url,
        f"""
        when = {when!r}

        async def use():
            store = make_store(url)
            await store.open()
            await store.insert([job()])
            async with store.transaction() as tx:
                await tx.insert([job()])
            lease_id = await store.open_lease("w", 60)
            await store.claim(lease_id, ["b"], 1)
            await store.settle([])
            store.subscribe(lambda note: store, finished=True).__enter__()
            return store

        async def main():
            if when == "after it":
                kept.append(await use())
                return
            for number in range(5):
                kept.append(await use())
                await asyncio.sleep(0.05)
                if when == "while the loop runs":
                    kept.clear()
            if when == "while the loop runs":
                store = make_store(url)
                await store.open()
                others = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

                async def alone():
                    async with store.transaction() as tx:
                        return len(await tx.fetch(others)) <= 3

                await until(alone)
                await store.close()

        kept = []
        asyncio.run(main())
        kept.clear()
        gc.collect()
        """,
        "-W",
        "always::ResourceWarning",
    )
    count = 1 if when == "after it" else 5
    assert len(lines) == count, "\n".join(lines)
    assert all("ResourceWarning: postgresql://" in line and line.endswith("was never closed") for line in lines)


def test_a_lease_session_that_nobody_closed(postgres_url: str) -> None:
    lines = run(
        postgres_url,
        """
        async def main():
            store = make_store(url)
            await store.open()
            session = store.lease_session()
            await asyncio.to_thread(session.connect)
            del session
            gc.collect()
            await store.close()

        asyncio.run(main())
        gc.collect()
        """,
        "-W",
        "always::ResourceWarning",
    )
    (line,) = lines
    assert "ResourceWarning: a lease session on postgresql://" in line
    assert line.endswith("was never closed")


@pytest.mark.parametrize("call", ["store.insert([job()])", "store.claim(1, ['a'], 1)", "transact(store)", "store.stats()"])
def test_a_loop_that_is_closed_during_a_statement(postgres_url: str, call: str) -> None:
    """Besides, asyncio says that the task which waited for it was destroyed: that's its owner's."""
    with psycopg.connect(postgres_url) as other:
        other.execute("lock table aioqueue.job in access exclusive mode")
        lines = run(
            postgres_url,
            f"""
            async def transact(store):
                async with store.transaction() as tx:
                    await tx.fetch("select 1 from aioqueue.job")

            loop = asyncio.new_event_loop()
            store = make_store(url, notify=False)
            loop.run_until_complete(store.open())
            task = loop.create_task({call})
            loop.run_until_complete(asyncio.sleep(0.3))
            waiting = task.get_coro()
            task._log_destroy_pending = False
            loop.close()
            waiting.close()
            """,
        )
    assert lines == ["the event loop was closed while a statement ran: nobody hears what became of it"]


@pytest.mark.parametrize("how", ["run", "collect", "close"])
def test_a_transaction_that_is_never_left(postgres_url: str, how: str) -> None:
    lines = run(
        postgres_url,
        f"""
        how = {how!r}

        async def main():
            store = make_store(url, pool_size=1, timeout=5)
            await store.open()
            context = store.transaction()
            transaction = await context.__aenter__()
            await transaction.insert([job()])
            if how == "close":
                await store.close()
            if how == "collect":
                del context, transaction
                gc.collect()
                async with store.transaction() as tx:
                    await tx.insert([job()])
                assert len((await store.stats()).types) == 1
                await store.close()

        asyncio.run(main())
        gc.collect()
        """,
    )
    assert lines == ["a transaction was never left, and is rolled back: use `async with`"]
    assert execute(postgres_url, "select count(*) from aioqueue.job") == [(how == "collect",)]


@pytest.mark.parametrize("closed", [True, False])
def test_a_clients_transaction_that_is_never_left(postgres_url: str, closed: bool) -> None:
    lines = run(
        postgres_url,
        f"""
        from aioqueue import Client

        async def main():
            client = await Client(url).open()
            context = client.transaction()
            transaction = await context.__aenter__()
            await transaction.fetch("SELECT 1")
            kept.append((client, context, transaction))
            if {closed}:
                await client.close()

        kept = []
        asyncio.run(main())
        kept.clear()
        gc.collect()
        """,
    )
    assert lines == ["a transaction was never left, and is rolled back: use `async with`"]
