"""Options of each connection, the log's size, forks, and stores that nobody closes."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import anyio
import pytest

from aioqueue.abc import JobFilter
from aioqueue.errors import ClientClosed, ConfigurationError, RowRejected, StoreIncompatible, StoreUnavailable
from aioqueue.sqlite import SQLiteStore, make_store
from aioqueue.sqlite._connections import Connection, begin, connect
from aioqueue.sqlite._options import read_options
from tests.sqlite.conftest import new_job

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("name", "number"), [("normal", 1), ("full", 2)])
def test_each_connection_has_its_settings(path: Path, name: str, number: int) -> None:
    settings = read_options(f"sqlite:///{path}?synchronous={name}&wal_limit=1000000", {})
    for _ in range(2):
        connection = connect(settings)
        pragmas = {each: connection.execute(f"PRAGMA {each}").fetchone()[0] for each in ("journal_mode", "synchronous")}
        assert pragmas == {"journal_mode": "wal", "synchronous": number}
        assert connection.execute("PRAGMA journal_size_limit").fetchone()[0] == 1_000_000
        assert connection.execute("PRAGMA busy_timeout").fetchone()[0] > 0
        connection.close()


async def test_the_log_comes_back_to_its_bound_after_a_long_reader(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioqueue.sqlite._notifications._CHECKPOINT_SECONDS", 0.0)
    store = make_store(f"sqlite:///{path}?wal_limit=200000")
    await store.open()
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM job").fetchall()
    for _ in range(10):
        await store.insert([new_job(payload=b'"' + b"x" * 100_000 + b'"')])
    log = path.with_name(path.name + "-wal")
    assert log.stat().st_size > 400_000
    reader.execute("COMMIT")
    await store.insert([new_job()])
    await store.insert([new_job()])
    assert log.stat().st_size <= 400_000
    reader.close()
    await store.close()


async def test_no_read_transaction_is_kept(store: SQLiteStore, path: Path) -> None:
    await store.insert([new_job()])
    await store.list(JobFilter(), 10)
    await store.stats()
    await store.next_due(["a"])
    with sqlite3.connect(path, isolation_level=None) as other:
        busy, _, _ = other.execute("PRAGMA wal_checkpoint(truncate)").fetchone()
    other.close()
    assert busy == 0


def run_script(script: str, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_is_refused_and_harms_nothing(path: Path) -> None:
    done = run_script(
        """
        import asyncio, gc, os, sqlite3, sys
        from aioqueue.vocabulary._identifiers import new_id
        from aioqueue.vocabulary._job import NewJob
        from aioqueue.errors import ClientClosed
        from aioqueue.sqlite import make_store

        async def main():
            store = make_store("sqlite:///" + sys.argv[1])
            await store.open()
            await store.insert([NewJob(id=new_id(), type="a")])
            for _ in range(5):
                pid = os.fork()
                if pid == 0:
                    code = 1
                    operations = [store.insert([NewJob(id=new_id(), type="child")]), store.fetch([]), store.stats()]
                    refused = 0
                    for operation in operations:
                        try:
                            operation.send(None)
                        except ClientClosed:
                            refused += 1
                    try:
                        store.close().send(None)
                    except StopIteration:
                        refused += 1
                    del store
                    gc.collect()
                    os._exit(0 if refused == 4 else 1)
                assert os.waitpid(pid, 0)[1] == 0
                await store.insert([NewJob(id=new_id(), type="a")])
            await store.close()

        asyncio.run(main())
        with sqlite3.connect(sys.argv[1]) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
            assert connection.execute("SELECT count(*) FROM job").fetchone()[0] == 6
        """,
        str(path),
    )
    assert done.returncode == 0, done.stderr


def test_a_store_that_nobody_closed_lets_the_interpreter_exit(path: Path) -> None:
    done = run_script(
        """
        import asyncio, sys
        from aioqueue.sqlite import make_store

        async def main():
            store = make_store("sqlite:///" + sys.argv[1])
            await store.open()
            context = store.subscribe(lambda notification: None)
            context.__enter__()
            await store.stats()

        asyncio.run(main())
        """,
        str(path),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


async def test_using_a_store_that_is_not_open(path: Path) -> None:
    store = make_store(f"sqlite:///{path}")
    with pytest.raises(ClientClosed, match="isn't open"):
        await store.stats()
    await store.open()
    with pytest.raises(ConfigurationError, match="open already"):
        await store.open()
    await store.close()
    await store.close()
    with pytest.raises(ClientClosed):
        await store.insert([new_job()])
    await store.open()
    await store.insert([new_job()])
    await store.close()


async def test_what_the_errors_are(tmp_path: Path, store: SQLiteStore, path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        await make_store(f"sqlite:///{tmp_path}/missing/jobs.db").open()
    text = tmp_path / "text.db"
    text.write_text("this is no database, but it is long enough to be looked at " * 20)
    with pytest.raises(StoreIncompatible):
        await make_store(f"sqlite:///{text}").open()
    with pytest.raises(RowRejected):
        await store.insert([new_job(), new_job(priority=9)])
    with pytest.raises(RowRejected):
        await store.insert([new_job(), new_job(key="a\0b")])
    with pytest.raises(RowRejected):
        await store.insert([new_job(), new_job(key="\ud800")])
    assert (await store.stats()).types == {}


def test_only_an_error_after_a_wait_says_how_long_it_was(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("this is no database, but it is long enough to be looked at " * 20)
    with (
        closing(sqlite3.connect(text, factory=Connection)) as connection,
        pytest.raises(StoreIncompatible, match="no write lock: file is not"),
    ):
        begin(connection, 30)


async def test_a_folder_that_isnt_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=f"there is no folder {tmp_path}/gone"):
        await make_store(f"sqlite:///{tmp_path}/gone/jobs.db").open()


async def test_a_lock_that_somebody_keeps(path: Path) -> None:
    store = make_store(f"sqlite:///{path}", busy_timeout=0.01)
    await store.open()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match=r"no write lock within 0\.01 s"):
        await store.insert([new_job()])
    with pytest.raises(StoreUnavailable, match="write lock"):
        async with store.transaction():
            raise AssertionError("never entered")
    assert (await store.stats()).types == {}
    other.execute("ROLLBACK")
    other.close()
    await store.insert([new_job()])
    await store.close()


async def test_a_full_disk_is_unavailable_and_then_usable(path: Path) -> None:
    store = make_store(f"sqlite:///{path}")
    await store.open()
    await store._opened.writer.call(lambda connection, _: connection.execute("PRAGMA max_page_count = 60").fetchone())
    with pytest.raises(StoreUnavailable, match="full"):
        await store.insert([new_job(payload=b'"' + b"x" * 1_000_000 + b'"')])
    assert (await store.stats()).types == {}
    await store.insert([new_job()])
    await store.close()


async def test_workers_look_though_users_keep_all_readers_busy(store: SQLiteStore) -> None:
    go_on, busy = threading.Event(), threading.Semaphore(0)
    assert store._opened is not None

    def long(*_: object) -> bool:
        busy.release()
        return go_on.wait(60)

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(store._opened.readers.call, long)
        for _ in range(2):
            await anyio.to_thread.run_sync(busy.acquire)
        with anyio.fail_after(30):
            assert (await store.next_due(["a"])).job is None
            lease = await store.open_lease("w", 60)
            assert await store.claim(lease, ["a"], 1) == []
            assert await store.take_expired(1) == []
        go_on.set()


async def test_an_idle_worker_asks_in_one_statement(store: SQLiteStore) -> None:
    statements: list[str] = []

    def trace(connection: sqlite3.Connection, _: object) -> None:
        connection.set_trace_callback(statements.append)

    assert store._opened is not None
    lease = await store.open_lease("w", 60)
    await store.insert([new_job(delay=60.0)])
    await store._opened.looks.call(trace)
    await store._opened.writer.call(trace)
    await store.claim(lease, ["a"], 1)
    due = await store.next_due(["a"], own=[lease])
    assert due.job is not None
    assert due.lease is None
    words = [statement.split()[0] for statement in statements if not statement.startswith(("--", "PRAGMA"))]
    assert words == ["BEGIN", "SELECT", "ROLLBACK", "BEGIN", "WITH", "ROLLBACK"]


async def test_a_thread_outlives_whatever_goes_wrong_in_it(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("unexpected")

    assert store._opened is not None
    monkeypatch.setattr(store._opened.writer, "_tick", fails)
    for error in (RuntimeError("no"), SystemExit(3), KeyboardInterrupt()):

        def body(*_: object, error: BaseException = error) -> None:
            raise error

        with pytest.raises(type(error)):
            await store._opened.writer.call(body)
    await store.insert([new_job()])
    assert "unexpected" in caplog.text


async def test_a_listener_that_ends_the_program_doesnt_keep_the_caller_waiting(path: Path) -> None:
    store = make_store(f"sqlite:///{path}")
    await store.open()
    handled: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: handled.append(context.get("exception")))

    def fails(_: object) -> None:
        raise asyncio.CancelledError

    with store.subscribe(fails), anyio.fail_after(60):
        await store.insert([new_job()])
    assert {type(error) for error in handled} == {asyncio.CancelledError}
    await store.close()
