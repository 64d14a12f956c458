"""Who hears of what: this process at once, others through the file."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from aioqueue.abc import Notification
from aioqueue.sqlite import make_store
from aioqueue.vocabulary._job import Settlement, SettlementKind
from tests.sqlite.conftest import new_job

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio

ANYTHING = Notification(types=None, finished=None)


class Heard:
    """Notifications, to be waited for."""

    def __init__(self) -> None:
        self.all: list[Notification] = []
        self._event = anyio.Event()

    def __call__(self, notification: Notification) -> None:
        self.all.append(notification)
        self._event.set()
        self._event = anyio.Event()

    async def wait_for(self, wanted: Notification) -> None:
        with anyio.fail_after(60):
            while wanted not in self.all:
                await self._event.wait()


async def test_this_process_hears_before_the_caller_goes_on(store: SQLiteStore) -> None:
    heard = Heard()
    lease = await store.open_lease("w", 60)
    with store.subscribe(heard, finished=True):
        await store.insert([new_job("a", delay=5.0), new_job("b", delay=2.0)])
        assert Notification(types=frozenset({"a", "b"}), delay=2.0) in heard.all
        await store.insert([new_job("c")])
        (job,) = await store.claim(lease, ["c"], 5)
        await store.settle([Settlement(id=job.id, claims=1, lease_id=lease, kind=SettlementKind.COMPLETED)])
        assert Notification(finished=frozenset({job.id})) in heard.all
    number = len(heard.all)
    await store.insert([new_job()])
    assert len(heard.all) == number


async def test_another_process_is_noticed(store: SQLiteStore, path: Path) -> None:
    heard = Heard()
    with store.subscribe(heard):
        await heard.wait_for(ANYTHING)  # the first look, which finds the file as it is
        heard.all.clear()
        script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=60); c.execute('DELETE FROM job'); "
        script += "c.execute('INSERT INTO lease (worker, expires_at) VALUES (1, 0)'); c.commit(); c.close()"
        await anyio.to_thread.run_sync(lambda: subprocess.run([sys.executable, "-c", script, str(path)], check=True))
        await heard.wait_for(ANYTHING)


async def test_another_store_of_this_process_is_noticed(store: SQLiteStore, path: Path) -> None:
    other = make_store(f"sqlite:///{path}")
    await other.open()
    heard = Heard()
    with store.subscribe(heard):
        await heard.wait_for(ANYTHING)
        heard.all.clear()
        await other.insert([new_job()])
        await heard.wait_for(ANYTHING)
    await other.close()


async def test_the_own_commits_are_not_taken_for_anothers(store: SQLiteStore, path: Path) -> None:
    heard = Heard()
    with store.subscribe(heard):
        await heard.wait_for(ANYTHING)
        heard.all.clear()
        for _ in range(50):
            await store.insert([new_job()])
        assert ANYTHING not in heard.all


async def test_a_listener_that_fails_harms_nobody(store: SQLiteStore, caplog: pytest.LogCaptureFixture) -> None:
    def fails(notification: Notification) -> None:
        raise ZeroDivisionError

    heard = Heard()
    with store.subscribe(fails), store.subscribe(heard):
        await store.insert([new_job()])
    assert Notification(types=frozenset({"a"})) in heard.all
    assert "a listener of notifications has failed" in caplog.text


async def test_the_file_failing_under_the_look_is_survived(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: object, connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    assert store._opened is not None
    monkeypatch.setattr(store._opened.writer, "_tick", lambda connection: fails(None, connection))
    await store.insert([new_job()])
    await store.insert([new_job()])
    assert (await store.stats()).types["a"].counts == {"ready": 2}
