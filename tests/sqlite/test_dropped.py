"""What nobody closed or left is told in one line each, and its threads and descriptors are given back."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

BEGINNING = """
import asyncio, gc, logging, os, sqlite3, sys, threading, time
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob
from aioqueue.sqlite import make_store

logging.basicConfig(format="%(message)s", stream=sys.stderr)
path = sys.argv[1]
url = "sqlite:///" + path

def job():
    return NewJob(id=new_id(), type="a")

def descriptors():
    return len(os.listdir("/proc/self/fd"))

def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        gc.collect()
        time.sleep(0.01)
"""


def run(path: Path, script: str, *options: str) -> list[str]:
    """Run a script; returns the lines that it wrote to stderr, without the code that warnings quote."""
    done = subprocess.run(
        [sys.executable, *options, "-c", BEGINNING + textwrap.dedent(script), str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if not line.startswith((" ", "ResourceWarning: Enable tracemalloc"))]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="descriptors are counted in /proc")
def test_stores_that_nobody_closed(path: Path) -> None:
    lines = run(
        path,
        """
        async def use():
            store = make_store(url)
            await store.open()
            await store.insert([job()])
            await store.stats()
            await store.next_due(["a"])
            async with store.transaction() as tx:
                await tx.insert([job()])
            session = store.lease_session()
            session.connect()

        async def main():
            threads, open_files = threading.active_count(), descriptors()
            for _ in range(30):
                await use()
            until(lambda: threading.active_count() == threads and descriptors() == open_files)

        asyncio.run(main())
        connection = sqlite3.connect(path)
        assert connection.execute("SELECT count(*) FROM job").fetchone() == (60,)
        connection.close()
        """,
        "-W",
        "always",
    )
    assert len(lines) == 60
    assert len([line for line in lines if "ResourceWarning: sqlite:///" in line and line.endswith("was never closed")]) == 30
    assert len([line for line in lines if "ResourceWarning: a lease session on" in line]) == 30


def test_a_loop_that_is_closed_during_a_statement(path: Path) -> None:
    lines = run(
        path,
        """
        loop = asyncio.new_event_loop()
        store = make_store(url)
        loop.run_until_complete(store.open())
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        task = loop.create_task(store.insert([job()]))
        loop.run_until_complete(asyncio.sleep(0.05))
        loop.close()
        other.execute("ROLLBACK")
        until(lambda: other.execute("SELECT count(*) FROM job").fetchone() == (1,))
        del task, loop, store
        until(lambda: threading.active_count() == 1)
        gc.collect()
        """,
    )
    assert lines == ["the event loop was closed while a statement ran: nobody hears what became of it"]


@pytest.mark.parametrize("how", ["run", "collect", "close"])
def test_a_transaction_that_is_never_left(path: Path, how: str) -> None:
    lines = run(
        path,
        f"""
        how = {how!r}

        async def main():
            store = make_store(url)
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
        until(lambda: threading.active_count() == 1)
        with sqlite3.connect(path) as connection:
            assert connection.execute("SELECT count(*) FROM job").fetchone() == (how == "collect",)
        """,
    )
    assert lines == ["a transaction was never left, and is rolled back: use `async with`"]


def test_a_clients_transaction_that_is_never_left(path: Path) -> None:
    lines = run(
        path,
        """
        from aioqueue import Client

        async def main():
            client = await Client(url).open()
            context = client.transaction()
            transaction = await context.__aenter__()
            await transaction.fetch("SELECT 1")
            kept.append((client, context, transaction))

        kept = []
        asyncio.run(main())
        kept.clear()
        gc.collect()
        """,
    )
    assert lines == ["a transaction was never left, and is rolled back: use `async with`"]
