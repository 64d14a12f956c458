"""The file is deleted or replaced while it's open: noticed, and an error on each call until it's opened again."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioqueue.abc import JobFilter
from aioqueue.errors import StoreUnavailable
from aioqueue.sqlite import make_store
from aioqueue.vocabulary._job import Claim, Settlement, SettlementKind
from tests.sqlite.conftest import new_job, outsider

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def looks_always(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_connections_file._LOOK_SECONDS", "_notifications._FILE_SECONDS"):
        monkeypatch.setattr(f"aioqueue.sqlite.{name}", 0.0)


def delete(path: Path) -> None:
    path.unlink()


def move(path: Path) -> None:
    path.rename(path.with_suffix(".old"))


def replace(path: Path) -> None:
    other = path.with_suffix(".new")
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE other (id)")
    os.replace(other, path)


def delete_all(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink()


WAYS = [delete, move, replace, delete_all]


@pytest.mark.usefixtures("looks_always")
@pytest.mark.parametrize("way", WAYS)
async def test_each_call_says_that_the_file_is_gone(
    store: SQLiteStore, path: Path, way: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    lease = await store.open_lease("w", 600)
    job = new_job()
    await store.insert([job])
    assert store.troubles == {}
    session = store.lease_session()
    session.connect()
    way(path)
    done = Settlement(id=job.id, claims=1, lease_id=lease, kind=SettlementKind.COMPLETED)
    calls: list[Callable[[], Any]] = [
        lambda: store.insert([new_job()]),
        lambda: store.open_lease("w", 600),
        lambda: store.claim(lease, ["a"], 1),
        lambda: store.settle([done]),
        lambda: store.release(lease, [Claim(job.id, 1)]),
        lambda: store.take_expired(1),
        lambda: store.next_due(["a"]),
        lambda: store.fetch([job.id]),
        lambda: store.list(JobFilter(), 1),
        store.stats,
        lambda: store.retry([job.id]),
        lambda: store.run_now([job.id]),
        lambda: store.delete([job.id]),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable, match=r"deleted|replaced"):
            await call()
    with pytest.raises(StoreUnavailable, match=r"deleted|replaced"):
        async with store.transaction():
            raise AssertionError("never entered")
    with pytest.raises(StoreUnavailable, match=r"deleted|replaced"):
        session.renew(lease, 600, [])
    session.close()
    assert str(path) in store.troubles["file"]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    await store.close()
    await store.open()
    assert store.troubles == {}
    if way is not replace:
        assert (await store.stats()).types == {}
    await store.insert([new_job()])


@pytest.mark.usefixtures("looks_always")
async def test_it_is_final(store: SQLiteStore, path: Path) -> None:
    move(path)
    with pytest.raises(StoreUnavailable):
        await store.stats()
    path.with_suffix(".old").rename(path)
    with pytest.raises(StoreUnavailable):
        await store.stats()
    await store.close()
    await store.open()
    await store.stats()


@pytest.mark.usefixtures("looks_always")
async def test_a_transaction_whose_file_goes_meanwhile_isnt_committed(store: SQLiteStore, path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="deleted"):
        async with store.transaction() as tx:
            await tx.insert([new_job()])
            delete(path)


@pytest.mark.usefixtures("looks_always")
async def test_a_foreign_transaction_on_the_deleted_file(store: SQLiteStore, path: Path) -> None:
    with outsider(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        delete(path)
        with pytest.raises(StoreUnavailable, match="deleted"):
            await store.insert([new_job()], tx=connection)


@pytest.mark.usefixtures("looks_always")
@pytest.mark.parametrize("suffix", ["", "-wal"])
async def test_an_idle_store_notices(store: SQLiteStore, path: Path, suffix: str) -> None:
    await store.insert([new_job()])
    with store.subscribe(lambda _: None):
        path.with_name(path.name + suffix).unlink()
        with anyio.fail_after(60):
            assert store._opened is not None
            while not store._opened.watch.trouble:
                await anyio.sleep(0.001)
    with pytest.raises(StoreUnavailable):
        await store.insert([new_job()])


async def insert_for_ever(store: SQLiteStore) -> None:
    while True:
        await store.insert([new_job()])


async def test_it_is_noticed_within_seconds(store: SQLiteStore, path: Path) -> None:
    await store.insert([new_job()])
    delete(path)
    with anyio.fail_after(30), pytest.raises(StoreUnavailable):
        await insert_for_ever(store)


@pytest.mark.usefixtures("looks_always")
async def test_what_is_no_trouble(path: Path) -> None:
    """The log is cut, the file vacuumed and saved, others come and go, connections are made anew."""
    store = make_store(f"sqlite:///{path}")
    await store.open()
    with store.subscribe(lambda _: None):
        for round_ in range(20):
            await store.insert([new_job()])
            with closing(sqlite3.connect(path, timeout=60)) as other:
                other.execute(["VACUUM", "PRAGMA wal_checkpoint(truncate)", "SELECT * FROM job"][round_ % 3]).fetchall()
            with closing(sqlite3.connect(path)) as other, closing(sqlite3.connect(path.with_suffix(".copy"))) as copy:
                other.backup(copy)
            await store.stats()
            second = make_store(f"sqlite:///{path}")
            await second.open()
            await second.insert([new_job()])
            await second.close()
            if round_ % 5 == 0:
                assert store._opened is not None
                with pytest.raises(sqlite3.OperationalError):
                    await store._opened.writer.call(fail_like_a_disk)
            assert store.troubles == {}
    await store.close()


def fail_like_a_disk(*_: object) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = 10
    raise error


@pytest.mark.usefixtures("looks_always")
async def test_inodes_count_on_local_disks_only(path: Path) -> None:
    store = make_store(f"sqlite:///{path}", allow_network=True)
    await store.open()
    replace(path)
    await store.stats()
    delete(path)
    with pytest.raises(StoreUnavailable, match="deleted"):
        await store.stats()
    await store.close()
