"""Leases, the machine's clock, and long transactions of others."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING

import anyio
import pytest

from aioqueue.errors import LeaseLost, StoreUnavailable
from aioqueue.sqlite import _lease_clock, _recovery, make_store
from aioqueue.vocabulary._job import Claim
from tests.sqlite.conftest import execute, new_job, outsider

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio


async def test_a_clock_that_was_set_ends_no_lease(store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 1_000_000_000
    for module in (_lease_clock,):
        monkeypatch.setattr(module, "clock_and_boot", lambda: (clock, "this boot"))
    await store.insert([new_job()])
    lease = await store.open_lease("w", 60)
    # The wall clock goes ahead by an hour: all that was written looks an hour older.
    clock += 3_600_000_000
    execute(path, "UPDATE lease SET expires_at = expires_at - 3600000000")
    assert await store.take_expired(10) == []
    (job,) = await store.claim(lease, ["a"], 10)
    session = store.lease_session()
    renewal = await anyio.to_thread.run_sync(session.renew, lease, 60.0, [job.claim])
    session.close()
    assert renewal.valid
    assert not renewal.lost
    # The same without a step is an hour of silence.
    execute(path, "UPDATE lease SET expires_at = expires_at - 3600000000")
    with pytest.raises(LeaseLost):
        await store.claim(lease, ["a"], 10)
    (orphan,) = await store.take_expired(10)
    assert orphan.id == job.id


async def test_a_step_before_another_boot_says_nothing(store: SQLiteStore, path: Path) -> None:
    await store.open_lease("w", 60)
    execute(path, "UPDATE lease SET expires_at = 1, clock = 5, boot = 'another'")
    await store.take_expired(10)
    assert (await store.stats()).workers == ()
    async with store.transaction() as tx:
        assert await tx.fetch("SELECT id FROM lease") == []


async def test_waiting_for_the_lock_is_not_taken_for_a_dead_worker(store: SQLiteStore, path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    lease = await store.open_lease("w", 60)
    connection.execute("UPDATE lease SET expires_at = expires_at - 62000000")
    connection.execute("BEGIN IMMEDIATE")
    jobs, _ = _recovery.take_expired(connection, 10, (), 3600.0)
    assert jobs == []
    assert connection.execute("SELECT id FROM lease").fetchall() == [(lease,)]
    _recovery.take_expired(connection, 10, (), 0.0)
    assert connection.execute("SELECT id FROM lease").fetchall() == []
    connection.execute("ROLLBACK")
    connection.close()


async def test_a_session_recovers_from_an_error(path: Path) -> None:
    store = make_store(f"sqlite:///{path}", busy_timeout=0.01)
    await store.open()
    lease = await store.open_lease("w", 60)
    session = store.lease_session()
    with outsider(path) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable):
            session.renew(lease, 60, [])
        other.execute("ROLLBACK")
    (job,) = [new_job()]
    renewal = session.renew(lease, 60, [Claim(job.id, 1)])
    assert renewal.valid
    assert set(renewal.lost.values()) == {"not_found"}
    session.close()
    session.close()
    await store.close()


@pytest.mark.parametrize("connected", [False, True])
async def test_a_session_gives_up_in_time(store: SQLiteStore, path: Path, connected: bool) -> None:
    lease = await store.open_lease("w", 60)
    session = store.lease_session(timeout=0.1)
    if connected:
        session.connect()
    with outsider(path) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await anyio.to_thread.run_sync(session.renew, lease, 60.0, [])
        assert time.monotonic() - began < 15  # a write of the store itself waits for 30 s
        other.execute("ROLLBACK")
    assert (await anyio.to_thread.run_sync(session.renew, lease, 60.0, [])).valid
    session.close()
