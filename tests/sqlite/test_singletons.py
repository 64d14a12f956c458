"""Names that only one lease may have: by the rules of the clock that all leases have, and whatever stands in the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from aioqueue.errors import SingletonHeld
from aioqueue.sqlite import _lease_clock, _lease_singleton, make_store
from tests.sqlite.conftest import execute, new_job, outsider, query

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore
    from aioqueue.vocabulary._notification import Notification

pytestmark = pytest.mark.anyio


async def test_a_clock_that_was_set_frees_no_name(store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 1_000_000_000
    monkeypatch.setattr(_lease_clock, "clock_and_boot", lambda: (clock, "this boot"))
    await store.open_lease("w", 60, singleton="cleaner")
    clock += 3_600_000_000
    execute(path, "UPDATE lease SET expires_at = expires_at - 3600000000")
    with pytest.raises(SingletonHeld) as held:
        await store.open_lease("next", 60, singleton="cleaner")
    assert 50 < held.value.ends_in <= 60
    # The same without a step is an hour of silence.
    execute(path, "UPDATE lease SET expires_at = expires_at - 3600000000")
    await store.open_lease("next", 60, singleton="cleaner")
    assert query(path, "SELECT worker FROM lease") == [("next",)]


async def test_waiting_for_the_lock_is_not_taken_for_a_dead_holder(store: SQLiteStore, path: Path) -> None:
    """Its renewals may have waited for the same transaction."""
    await store.open_lease("w", 60, singleton="cleaner")
    with outsider(path) as connection:
        connection.execute("UPDATE lease SET expires_at = expires_at - 62000000")
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(SingletonHeld) as held:
            _lease_singleton.make_way(connection, "cleaner", 3600.0)
        assert held.value.ends_in == 0
        assert len(_lease_singleton.make_way(connection, "cleaner", 0.0)) == 1
        connection.execute("ROLLBACK")


async def test_a_renewal_that_waits_for_this_processs_transaction_keeps_the_name(path: Path) -> None:
    store = make_store(f"sqlite:///{path}?busy_timeout=0.2")  # for which it waits
    await store.open()
    lease = await store.open_lease("w", 60, singleton="cleaner")
    session = store.lease_session()
    session.connect()
    async with store.transaction() as tx:
        await tx.execute("UPDATE lease SET expires_at = 1")
        assert (await anyio.to_thread.run_sync(session.renew, lease, 60.0, [])).valid
    session.close()
    await store.close()
    other = make_store(f"sqlite:///{path}")
    await other.open()
    with pytest.raises(SingletonHeld):
        await other.open_lease("next", 60, singleton="cleaner")
    await other.close()


async def test_whoever_loses_its_name_is_told(store: SQLiteStore, path: Path) -> None:
    lease = await store.open_lease("w", 60, singleton="cleaner")
    execute(path, "UPDATE lease SET expires_at = 1")
    heard: list[Notification] = []
    with store.subscribe(heard.append):
        await store.open_lease("next", 60, singleton="cleaner")
    assert frozenset({lease}) in [each.leases for each in heard]


@pytest.mark.parametrize(
    ("change", "free"),
    [
        ("worker = x'ff'", False),
        ("worker = cast(x'ff' as text)", False),
        ("clock = 'abc'", False),
        ("boot = x'00'", False),
        ("expires_at = 9e999", False),
        ("expires_at = 'abc'", True),
        ("expires_at = x'00'", True),
        ("expires_at = -9e999", True),
        ("singleton = x'00'", True),
        ("singleton = cast(x'ff' as text)", True),
    ],
)
async def test_an_odd_lease_is_taken_for_what_it_says(store: SQLiteStore, path: Path, change: str, free: bool) -> None:
    await store.open_lease("w", 60, singleton="cleaner")
    execute(path, f"UPDATE lease SET {change}")
    if free:
        await store.open_lease("next", 60, singleton="cleaner")
    else:
        with pytest.raises(SingletonHeld):
            await store.open_lease("next", 60, singleton="cleaner")
    assert len(await store.leases()) == len(query(path, "SELECT 1 FROM lease"))
    await store.insert([new_job()])
    assert len(await store.claim(await store.open_lease("plain", 60), ["a"], 1)) == 1
