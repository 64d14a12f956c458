"""Pruning on SQLite: in portions, whatever somebody has written with SQL; and in a file of older code."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from aioqueue.errors import StoreError
from aioqueue.sqlite import make_store
from aioqueue.sqlite._migrations import known_migrations
from aioqueue.sqlite._rows_times import NOW
from aioqueue.vocabulary._job import StoredState
from tests.sqlite.conftest import execute, query

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio

DAY = 86_400.0
COLUMNS = (
    "id, type, state, finished_at, priority, run_at, created_at, attempt, claims, reschedules, position, "
    "tags, metadata, errors, payload"
)


def archive(path: Path, job_id: str, finished_at: str, job_type: str = "'a'") -> None:
    """Write a failed job; all but its tags are SQL."""
    values = f"{job_id}, {job_type}, 6, {finished_at}, 2, 0, 0, 1, 1, 0, 0, '[]', '{{}}', '[]', '{{}}'"
    execute(path, f"INSERT INTO archive ({COLUMNS}) VALUES ({values})")


async def prune(store: SQLiteStore, older_than: float = DAY, limit: int = 2) -> list[UUID]:
    removed: list[UUID] = []
    cursor: str | None = None
    for _ in range(100):
        pruned = await store.prune(StoredState.FAILED, older_than, ["a"], limit, cursor)
        removed += pruned.ids
        if (cursor := pruned.cursor) is None:
            return removed
    raise AssertionError("it doesn't end")


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_odd_rows(store: SQLiteStore, path: Path, limit: int) -> None:
    same = f"{NOW} - 2 * 86400000000"
    old = ["'x'", "x'00ff'", "CAST(x'ff' AS TEXT)", f"'{UUID(int=7)}'"]
    for job_id in old:
        archive(path, job_id, "1700000000000000")
    archive(path, "'real'", "1.5")
    archive(path, "'below'", "-9e999")
    archive(path, f"'{UUID(int=8)}'", same)
    kept = [("'young'", f"{NOW} - 3600000000", "'a'"), ("'text'", "'long ago'", "'a'"), ("'blob'", "x'00'", "'a'")]
    kept += [("'never'", "9e999", "'a'"), ("'other'", "1700000000000000", "'b'"), ("'odd type'", "1", "x'61'")]
    for each in kept:
        archive(path, *each)
    removed = await prune(store, limit=limit)
    assert len(removed) == len(set(removed)) == len(old) + 3
    assert {UUID(int=7), UUID(int=8)} < set(removed)
    assert sorted(row[0] for row in query(path, "SELECT id FROM archive")) == sorted(each[0].strip("'") for each in kept)


async def test_a_trigger_that_keeps_a_row(store: SQLiteStore, path: Path) -> None:
    for number in range(4):
        archive(path, f"'{UUID(int=number)}'", "1")
    trigger = f"CREATE TRIGGER t BEFORE DELETE ON archive WHEN old.id = '{UUID(int=1)}' BEGIN SELECT RAISE"
    execute(path, f"{trigger}(IGNORE); END")
    assert await prune(store) == [UUID(int=0), UUID(int=2), UUID(int=3)]
    execute(path, "DROP TRIGGER t", f"{trigger}(ABORT, 'not this'); END")
    with pytest.raises(StoreError, match="not this"):
        await prune(store)


async def test_a_file_of_older_code_gets_the_index(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("aioqueue.sqlite._migrations.known_migrations", lambda: known_migrations()[:4])
        older = make_store(f"sqlite:///{path}")
        await older.migrate()
        archive(path, f"'{UUID(int=1)}'", "1")
        store = make_store(f"sqlite:///{path}")
        patched.undo()
        await store.open()
    try:
        assert await prune(store) == [UUID(int=1)]
    finally:
        await store.close()
