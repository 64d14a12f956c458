"""A job takes all its columns along into the archive, and back when it's retried: a new column isn't forgotten there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from aioqueue.abc import Changed
from aioqueue.vocabulary._job import Settlement, SettlementKind, SettleResult
from aioqueue.vocabulary._unique import Unique
from tests.sqlite.conftest import execute, new_job, outsider

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio

LIVE_ONLY = {
    "lease_id": "in `settled_lease`",
    "gate": "of held jobs",
    "gates": "where a live job waits or runs",
    "open_blockers": "of held jobs",
    "marked": "how it's settled, and it is settled",
    "cancel_reason": "a request ends with the chain, which gets an entry of its own in the errors",
    "until_started": "the unique key isn't kept where it's set",
    "unique_key_check": "carries a constraint, and is empty",
}
ARCHIVED_ANEW = {
    "state": "how it ended",
    "settled_claims": "the fence of its end",
    "settled_lease": "the fence of its end",
    "settled_kind": "how it ended",
}
RETRIED_ANEW = {
    "state": "pending",
    "run_at": "due now",
    "attempt": "all attempts again",
    "reschedules": "all of them again",
    "started_at": "wasn't started",
    "expires_at": "doesn't expire any more",
    **dict.fromkeys(("settled_claims", "settled_lease", "settled_kind"), "nothing was settled"),
}
ARCHIVED_ONLY = {"finished_at", "outcome", "output", "purge_at"}


def row(path: Path, table: str, job_id: UUID) -> dict[str, Any]:
    with outsider(path) as connection:
        cursor = connection.execute(f"SELECT * FROM {table} WHERE id = ?", (str(job_id),))
        names = [each[0] for each in cursor.description]
        return dict(zip(names, cursor.fetchone(), strict=True))


def filled(path: Path, job_id: UUID) -> dict[str, Any]:
    """Give each column of a live job a value of its own."""
    given = {"tags": '["t"]', "metadata": '{"m":1}', "errors": '[{"attempt":1}]', "retry": "{}", "reschedules": 3, "claims": 7}
    given["chain_id"] = str(UUID(int=7))
    kept = {"id", "type", "priority", "state", "run_at", "created_at", "lease_id", "payload", "until_started"}
    kinds = {"TEXT": lambda place: f"text {place}", "INTEGER": lambda place: 1000 + place, "REAL": lambda place: place + 0.5}
    with outsider(path) as connection:
        columns = connection.execute("SELECT name, type FROM pragma_table_info('job')").fetchall()
        for place, (name, kind) in enumerate(columns):
            if name not in kept and name != "unique_key":
                value = given.get(name, kinds[kind](place))
                connection.execute(f"UPDATE job SET {name} = ? WHERE id = ?", (value, str(job_id)))
    return row(path, "job", job_id)


async def test_every_column_goes_to_the_archive_and_comes_back(store: SQLiteStore, path: Path) -> None:
    new = new_job(payload=b'{"n":1}', priority=3, key="k", unique=Unique())
    await store.insert([new])
    lease_id = await store.open_lease("w", 600)
    await store.claim(lease_id, ["a"], 1)
    before = filled(path, new.id)
    assert [name for name, value in before.items() if value is None] == []

    end = Settlement(id=new.id, claims=before["claims"], lease_id=lease_id, kind=SettlementKind.FAILED)
    assert await store.settle([end]) == [SettleResult()]
    archived = row(path, "archive", new.id)
    assert archived.keys() == (before.keys() - LIVE_ONLY.keys()) | ARCHIVED_ONLY
    expected = {name: value for name, value in before.items() if name not in LIVE_ONLY.keys() | ARCHIVED_ANEW.keys()}
    assert {name: archived[name] for name in expected} == expected

    assert await store.retry([new.id]) == [Changed.DONE]
    retried = row(path, "job", new.id)
    expected = {name: value for name, value in before.items() if name not in LIVE_ONLY.keys() | RETRIED_ANEW.keys()}
    assert {name: retried[name] for name in expected} == expected

    fresh = new_job()
    await store.insert([fresh])
    begun = row(path, "job", fresh.id)
    # Whoever is told of its end is told of the next one too.
    assert (begun["marked"], retried["marked"]) == (0, 1)
    anew = (LIVE_ONLY.keys() | RETRIED_ANEW.keys()) - {"run_at", "marked"}
    assert {name: retried[name] for name in anew} == {name: begun[name] for name in anew}


async def test_every_column_of_an_odd_row_goes_to_the_archive(store: SQLiteStore, path: Path) -> None:
    """They are moved by a statement of their own."""
    new = new_job(payload=b'{"n":1}', priority=3, key="k", unique=Unique())
    await store.insert([new])
    before = filled(path, new.id)
    execute(path, "UPDATE job SET timeout = 9e999")
    assert await store.claim(await store.open_lease("w", 600), ["a"], 1) == []
    archived = row(path, "archive", new.id)
    anew = LIVE_ONLY.keys() | ARCHIVED_ANEW.keys() | {"timeout", "claims", "errors"}
    expected = {name: value for name, value in before.items() if name not in anew}
    assert {name: archived[name] for name in expected} == expected
    assert archived["errors"].startswith(before["errors"][:-1])


async def test_a_forgotten_column_is_found(store: SQLiteStore, path: Path) -> None:
    """One that only the live table has, and that nobody named here."""
    execute(path, "ALTER TABLE job ADD COLUMN colour TEXT")
    with pytest.raises(AssertionError, match="colour"):
        await test_every_column_goes_to_the_archive_and_comes_back(store, path)


@pytest.mark.parametrize(
    "check", [test_every_column_goes_to_the_archive_and_comes_back, test_every_column_of_an_odd_row_goes_to_the_archive]
)
async def test_a_column_that_isnt_copied_is_found(
    store: SQLiteStore, path: Path, check: Callable[[SQLiteStore, Path], Awaitable[None]]
) -> None:
    for table in ("job", "archive"):
        execute(path, f"ALTER TABLE {table} ADD COLUMN colour TEXT")
    with pytest.raises(AssertionError, match="colour"):
        await check(store, path)
