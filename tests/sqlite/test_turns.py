"""Who of one process gets the file's write lock next: whoever has waited longest."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

import anyio
import pytest

from aioqueue import Client, Registry, Worker
from aioqueue.abc import Notification
from aioqueue.errors import StoreUnavailable
from aioqueue.sqlite import make_store
from aioqueue.sqlite._connections import begin, connect, rollback
from aioqueue.sqlite._connections_turns import NotOurTurn, Turns, turns_of
from aioqueue.sqlite._lease_session import renew_owed
from aioqueue.sqlite._options import Options
from tests.sqlite.conftest import execute, new_job, outsider, query

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore
    from aioqueue.sqlite._connections import Connection

pytestmark = pytest.mark.anyio


def never() -> bool:
    return False


async def test_ten_slots_with_blocks_let_others_write(path: Path) -> None:
    """As often as the blocks themselves do: in the time of thirty blocks others wrote once or not at all."""
    registry = Registry()
    blocks = 0

    @registry.job
    async def block() -> None:
        nonlocal blocks
        async with client.transaction() as tx:
            await tx.execute("UPDATE lease SET worker = worker")
            await asyncio.sleep(0.05)  # what the lock is kept for
        blocks += 1

    @registry.job
    async def other() -> None: ...

    async with Client(f"sqlite:///{path}") as client:
        await client.enqueue_many([block() for _ in range(30)])
        async with Worker(client, registry, concurrency=10):
            written, longest = 0, 0.0
            with anyio.fail_after(60):
                while blocks < 30:
                    began = time.monotonic()
                    await client.enqueue(other())
                    longest = max(longest, time.monotonic() - began)
                    written += 1
    assert written >= 8
    assert longest < 1.0  # it was seconds


async def test_turns_go_by_who_came_first(path: Path) -> None:
    options = Options(path=path)
    first, *others = (connect(options) for _ in range(5))
    order: list[int] = []
    begin(first, 30)

    def wait(number: int, connection: Connection) -> None:
        begin(connection, 30)
        order.append(number)
        rollback(connection)

    threads: list[threading.Thread] = []
    for number, connection in enumerate(others):
        threads.append(threading.Thread(target=wait, args=(number, connection)))
        threads[-1].start()
        with anyio.fail_after(30):
            while len(turns_of(path)._waiting) <= number:
                await asyncio.sleep(0)
    rollback(first)
    begin(first, 30)  # it has come last
    assert order == [0, 1, 2, 3]
    rollback(first)
    for thread in threads:
        thread.join()
    for connection in (first, *others):
        connection.close()


def test_all_stores_of_a_process_wait_in_one_line(path: Path, tmp_path: Path) -> None:
    path.touch()
    (tmp_path / "link.db").symlink_to(path)
    assert turns_of(path) is turns_of(tmp_path / "link.db")
    assert turns_of(path) is not turns_of(tmp_path / "other.db")


def test_a_turn_that_does_not_come(path: Path) -> None:
    with closing(connect(Options(path=path))) as one, closing(connect(Options(path=path))) as other:
        begin(one, 1)
        with pytest.raises(NotOurTurn, match=r"no write lock within 0\.01 s: other transactions of this process") as refused:
            begin(other, 0.01)
        assert isinstance(refused.value, StoreUnavailable)
        rollback(one)
        begin(other, 0.01)


def test_who_goes_away_leaves_the_line(path: Path) -> None:
    turns = Turns()
    with closing(connect(Options(path=path))) as one, closing(connect(Options(path=path))) as other:
        assert turns.take(one, 1, never)
        assert not turns.take(other, 30, lambda: True)
        turns.give_back(other)  # that has no turn
        with pytest.raises(NotOurTurn):
            turns.take(other, 0, never)
        turns.give_back(one)
        assert turns.take(other, 0, never)


@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")
@pytest.mark.parametrize("how", ["closed", "forgotten"])
def test_a_connection_that_is_gone_has_no_turn(path: Path, how: str) -> None:
    gone = connect(Options(path=path))
    begin(gone, 1)
    if how == "closed":
        gone.close()
    del gone
    gc.collect()
    with closing(connect(Options(path=path))) as other:
        begin(other, 0.5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_child_does_not_wait_for_its_parents_turn(path: Path) -> None:
    with closing(connect(Options(path=path))) as one:
        turns = turns_of(path)
        begin(one, 1)
        child = os.fork()
        if child == 0:
            os._exit(0 if turns_of(path) is not turns else 1)
        assert os.waitpid(child, 0)[1] == 0


async def test_a_lease_is_not_judged_while_a_block_of_its_process_has_the_lock(store: SQLiteStore, path: Path) -> None:
    """A renewal that has to wait for longer than it may says that the lease is valid; the block renews it with its commit."""
    lease = await store.open_lease("w", 60)
    execute(path, "UPDATE lease SET expires_at = expires_at - 3600000000")
    await store.insert([new_job()])
    session = store.lease_session(timeout=0.02)
    heard: list[Notification] = []
    with store.subscribe(heard.append):
        async with store.transaction() as tx:
            await tx.execute("UPDATE job SET priority = priority")
            renewal = await anyio.to_thread.run_sync(session.renew, lease, 60.0, [])
            assert (renewal.valid, renewal.lost, renewal.unheld) == (True, {}, ())
        assert [each.leases for each in heard if each.leases] == [{lease}]
    (seconds,) = query(path, "SELECT (expires_at - opened_at) / 1000000 FROM lease")[0]
    assert seconds >= 60
    assert await store.take_expired(10) == []
    session.close()


async def test_after_a_rollback_the_lease_is_renewed_at_once(store: SQLiteStore, path: Path) -> None:
    lease = await store.open_lease("w", 60)
    session = store.lease_session(timeout=0.02)
    heard: list[Notification] = []
    with store.subscribe(heard.append), pytest.raises(ZeroDivisionError):
        async with store.transaction() as tx:
            await tx.execute("UPDATE lease SET worker = 'x'")
            assert (await anyio.to_thread.run_sync(session.renew, lease, 60.0, [])).valid
            raise ZeroDivisionError
    assert [each.leases for each in heard if each.leases] == [{lease}]
    assert query(path, "SELECT worker FROM lease") == [("w",)]
    session.close()


@pytest.mark.parametrize("how", ["never left", "a writer", "after its last statements", "another client's"])
async def test_however_the_transaction_ends_its_holder_hears_of_it(store: SQLiteStore, path: Path, how: str) -> None:
    """A renewal that was put off isn't forgotten, nor left for a transaction much later."""
    lease = await store.open_lease("w", 60)
    session = store.lease_session(timeout=0.0)
    other = make_store(f"sqlite:///{path}")
    await other.open()
    heard = asyncio.Event()

    def hear(notification: Notification) -> None:
        if notification.leases == {lease}:
            heard.set()

    with store.subscribe(hear):
        if how in {"never left", "another client's"}:
            block = (store if how == "never left" else other).transaction()
            await block.__aenter__()
            assert (await anyio.to_thread.run_sync(session.renew, lease, 60.0, [])).valid
            assert not heard.is_set()
            if how == "another client's":
                await block.__aexit__(ValueError, ValueError(), None)
            del block
            gc.collect()
        else:
            with closing(connect(Options(path=path))) as writer:
                begin(writer, 5)
                if how == "after its last statements":
                    renew_owed(writer)
                assert (await anyio.to_thread.run_sync(session.renew, lease, 60.0, [])).valid
                rollback(writer)
        with anyio.fail_after(10):
            await heard.wait()
    assert turns_of(path).owed == {}
    await other.close()
    session.close()


async def test_who_has_ended_its_transaction_is_left_nothing(store: SQLiteStore, path: Path) -> None:
    """It still has the turn, but no lock: another process may have taken the lease."""
    lease = await store.open_lease("w", 60)
    session = store.lease_session(timeout=0.0)
    with closing(connect(Options(path=path))) as writer:
        begin(writer, 5)
        writer.execute("COMMIT")
        with pytest.raises(NotOurTurn):
            await anyio.to_thread.run_sync(session.renew, lease, 60.0, [])
        assert not writer.turns.put_off(lease, 1, lambda: None)
        assert writer.turns.owed == {}
        writer.turns.give_back(writer)
    session.close()


async def test_another_processs_lock_is_a_failed_renewal(store: SQLiteStore, path: Path) -> None:
    """Others may take the lease when they give the lock back."""
    lease = await store.open_lease("w", 60)
    session = store.lease_session(timeout=0.05)
    with outsider(path) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="no write lock"):
            await anyio.to_thread.run_sync(session.renew, lease, 60.0, [])
    session.close()


async def test_a_store_that_waits_for_a_block_of_another_one(path: Path) -> None:
    one, other = make_store(f"sqlite:///{path}"), make_store(f"sqlite:///{path}", busy_timeout=0.05)
    await one.open()
    await other.open()
    async with one.transaction() as tx:
        await tx.insert([new_job()])
        with pytest.raises(StoreUnavailable, match="of this process"):
            await other.insert([new_job()])
        waiting = asyncio.create_task(other.insert([new_job()]))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    await other.insert([new_job()])
    assert query(path, "SELECT count(*) FROM job") == [(2,)]
    await one.close()
    await other.close()
