"""Retention: in portions, past what stays, and past what somebody has written with SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob, Settlement, SettlementKind, SettleResult, StoredState
from tests.sqlite.conftest import execute, query

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio

AGES = {StoredState.COMPLETED: 0.0, StoredState.CONTINUED: 0.0, StoredState.FAILED: 3600.0}


async def finished(store: SQLiteStore, count: int = 1, keep: float | None = None) -> list[UUID]:
    jobs = [NewJob(id=new_id(), type="a", keep=keep) for _ in range(count)]
    await store.insert(jobs)
    lease = await store.open_lease("w", 600)
    kind = SettlementKind.COMPLETED
    ends = [Settlement(id=each.id, claims=1, lease_id=lease, kind=kind) for each in await store.claim(lease, ["a"], count)]
    assert await store.settle(ends) == [SettleResult()] * count
    return [each.id for each in jobs]


async def all_old(store: SQLiteStore, limit: int) -> tuple[list[UUID], int]:
    """All that is found, page by page, and how many pages that takes."""
    found: list[UUID] = []
    cursor, pages = None, 0
    while cursor is not None or not pages:
        page = await store.find_old(AGES, limit, cursor)
        found += page.ids
        cursor, pages = page.cursor, pages + 1
    return found, pages


async def test_pages_go_past_those_that_stay(store: SQLiteStore) -> None:
    """However few of those that are looked at are old, each look is at as many rows as it may be, and goes on behind them."""
    before = await finished(store, 3)
    await finished(store, 5, keep=3600.0)
    old = await finished(store, 2)
    said = await finished(store, 2, keep=0.0)
    found, pages = await all_old(store, 2)
    assert sorted(found) == sorted([*before, *old, *said])
    # Those with `keep=0` are looked at twice, in its index and in that of their state.
    assert pages == (3 + 5 + 2 + 2 * 2) // 2 + 1


async def test_a_long_chain_without_its_end_goes_in_portions(
    store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aioqueue.sqlite import _retention

    monkeypatch.setattr(_retention, "_MOST_STEPS", 4)
    [first] = await finished(store)
    columns = ", ".join(
        row[1] for row in query(path, "PRAGMA table_info(archive)") if row[1] not in ("id", "chain_id", "position")
    )
    execute(
        path,
        "UPDATE archive SET state = 5, chain_id = id",
        f"""WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9)
            INSERT INTO archive (id, chain_id, position, {columns})
            SELECT printf('00000000-0000-7000-8000-%012x', i), chain_id, i, {columns} FROM archive JOIN n""",
        "UPDATE archive SET state = 4 WHERE position = 9",
    )
    left: list[int] = []
    for _ in range(3):
        [chain], _ = await all_old(store, 20)
        assert (chain, await store.purge([chain], AGES)) == (first, [first])
        left += query(path, "SELECT count(*) FROM archive")[0]
    assert left == [6, 2, 0]


async def test_a_row_that_refuses_to_go_stays_alone(store: SQLiteStore, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    jobs = await finished(store, 8)
    guilty = jobs[3]
    execute(
        path,
        f"""CREATE TRIGGER guard BEFORE DELETE ON archive WHEN OLD.id = '{guilty}'
            BEGIN SELECT raise(ABORT, 'this one is for the auditors'); END""",
    )
    assert sorted(await store.purge(jobs, AGES)) == sorted(each for each in jobs if each != guilty)
    assert query(path, "SELECT id FROM archive") == [(str(guilty),)]
    assert "this one is for the auditors" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        "finished_at = 'soon'",
        "finished_at = x'00'",
        "purge_at = 'soon'",
        "purge_at = 9e999",
        "id = x'ff00'",
        "id = CAST(x'ff' AS TEXT)",
        "id = 'not an id'",
        "state = 77",
        "state = 'over'",
        "chain_id = x'ff'",
    ],
)
async def test_odd_rows_stay_and_keep_nobody(store: SQLiteStore, path: Path, change: str) -> None:
    """Whatever somebody has written there: what can't be told to be old isn't, and the others are found and removed."""
    odd, *others = await finished(store, 4)
    execute(path, f"UPDATE archive SET {change} WHERE id = '{odd}'")
    found, pages = await all_old(store, 1)
    assert set(others) <= set(found) <= {*others, odd}
    assert pages <= 6
    assert set(others) <= set(await store.purge([*others, odd], AGES))
    assert await store.purge(others, AGES) == []
    assert query(path, "SELECT count(*) FROM archive") == [(1,)]


async def test_a_duty_has_one_holder_until_it_lets_go_or_is_late(store: SQLiteStore, path: Path) -> None:
    assert await store.take_duty("retention", "one", 60)
    assert not await store.take_duty("retention", "other", 60)
    assert await store.take_duty("retention", "one", 60)
    assert await store.take_duty("another duty", "other", 60)
    await store.take_duty("retention", "other", 0)
    assert not await store.take_duty("retention", "other", 60)
    await store.take_duty("retention", "one", 0)
    assert await store.take_duty("retention", "other", 60)
    execute(path, "UPDATE duty SET expires_at = 0")
    assert await store.take_duty("retention", "one", 60)
