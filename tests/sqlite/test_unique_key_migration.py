"""Migration 0003: what older code has hashed is found by today's hash, and older code that still runs stores nothing twice."""

from __future__ import annotations

import hashlib
import sqlite3
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from aioqueue.abc import Changed
from aioqueue.errors import StoreError
from aioqueue.sqlite import make_store
from aioqueue.sqlite._migrations import known_migrations
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._unique import Unique
from tests.sqlite.conftest import execute, new_job, outsider, query

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio


def old_hash(job_type: str, key: str) -> str:
    return hashlib.blake2b(f"{len(job_type)}:{job_type}{key}".encode(), digest_size=16).hexdigest()


OLD_INSERT = """INSERT INTO job (id, type, priority, state, run_at, created_at, key, unique_key, payload)
VALUES (?, ?, 2, 1, 0, 0, ?, ?, '{}')"""
OLD_ARCHIVE = """
INSERT INTO archive (id, type, priority, state, run_at, created_at, finished_at, attempt, claims, reschedules, position, key,
                     unique_key, tags, metadata, errors, payload)
VALUES (?, ?, 2, ?, 0, 0, 0, 1, 1, 0, 0, ?, ?, '[]', '{}', '[]', '{}')"""


@pytest.fixture(params=["UTF-8"])
async def older(
    request: pytest.FixtureRequest, path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[sqlite3.Connection]:
    """A connection to a file as the code before left it; `indirect` gives its text another encoding."""
    execute(path, f"PRAGMA encoding = '{request.param}'", "CREATE TABLE of_the_user (x)")
    with monkeypatch.context() as patched:
        patched.setattr("aioqueue.sqlite._migrations.known_migrations", lambda: known_migrations()[:2])
        assert len(await make_store(f"sqlite:///{path}").migrate()) == 2
    with outsider(path) as connection:
        yield connection


def old_job(connection: sqlite3.Connection, job_type: str, key: object, unique_key: object) -> UUID:
    job_id = new_id()
    connection.execute(OLD_INSERT, [str(job_id), job_type, key, unique_key])
    return job_id


async def opened(path: Path) -> SQLiteStore:
    store = make_store(f"sqlite:///{path}")
    await store.open()
    return store


@pytest.mark.parametrize("older", ["UTF-8", "UTF-16le", "UTF-16be"], indirect=True)
async def test_a_key_that_was_held_before_still_is(older: sqlite3.Connection, path: Path) -> None:
    held = old_job(older, "räume", "k 😀", old_hash("räume", "k 😀"))
    store = await opened(path)
    (again,) = await store.insert([new_job("räume", key="k 😀", unique=Unique())])
    assert (again.id, again.created) == (held, False)
    (other,) = await store.insert([new_job("räume", key="another", unique=Unique())])
    assert other.created
    await store.close()


@pytest.mark.parametrize("older", ["UTF-8", "UTF-16"], indirect=True)
@pytest.mark.parametrize("remembered", [True, False], ids=["jobs of its old name are left", "none are"])
async def test_a_key_of_a_renamed_type(older: sqlite3.Connection, path: Path, remembered: bool) -> None:
    if remembered:
        older.execute(OLD_ARCHIVE, [str(new_id()), "old", 4, None, None])
    held = old_job(older, "new", "k", old_hash("old", "k"))
    store = await opened(path)
    (again,) = await store.insert([new_job("new", key="k", unique=Unique(), aliases=("old",))])
    assert (again.id, again.created) == (held, False)
    # An application from before the renaming knows the old name only.
    (older_name,) = await store.insert([new_job("old", key="k", unique=Unique())])
    assert older_name.created is not remembered
    await store.close()


@pytest.mark.parametrize("older", ["UTF-8", "UTF-16"], indirect=True)
async def test_a_failed_job_that_is_retried_holds_its_key_again(older: sqlite3.Connection, path: Path) -> None:
    failed = new_id()
    older.execute(OLD_ARCHIVE, [str(failed), "t", 6, "k", old_hash("t", "k")])
    store = await opened(path)
    assert await store.retry([failed]) == [Changed.DONE]
    (again,) = await store.insert([new_job("t", key="k", unique=Unique())])
    assert (again.id, again.created) == (failed, False)
    await store.close()


@pytest.mark.parametrize("key", ["k", None, 5, b"\xff", "\udcff"])
async def test_odd_rows_do_not_stop_the_migration(older: sqlite3.Connection, path: Path, key: object) -> None:
    job_id, twin = old_job(older, "t", "k", old_hash("t", "k")), old_job(older, "t", "k", old_hash("earlier name", "k"))
    odd = old_job(older, "t", None, "odd")
    if key == "\udcff":
        execute(path, f"UPDATE job SET key = CAST(x'ff' AS TEXT) WHERE id = '{odd}'")
    else:
        older.execute("UPDATE job SET key = ? WHERE id = ?", [key, str(odd)])
    execute(path, f"UPDATE job SET type = x'ff' WHERE id = '{odd}'")
    store = await opened(path)
    (again,) = await store.insert([new_job("t", key="k", unique=Unique())])
    assert not again.created
    assert again.id in {job_id, twin}
    assert [job and job.state for job in await store.fetch([job_id, twin, odd])] == [JobState.READY] * 3
    await store.close()


@pytest.mark.parametrize("older", ["UTF-8", "UTF-16le"], indirect=True)
@pytest.mark.parametrize("text", ["ff", "00d8", "d800", "610062"])
async def test_text_that_is_in_no_encoding(older: sqlite3.Connection, path: Path, text: str) -> None:
    held = old_job(older, "t", "k", old_hash("t", "k"))
    odd = old_job(older, "t", "k", "odd")
    execute(path, f"UPDATE job SET type = CAST(x'{text}' AS TEXT), key = CAST(x'{text}' AS TEXT) WHERE id = '{odd}'")
    store = await opened(path)
    (again,) = await store.insert([new_job("t", key="k", unique=Unique())])
    assert (again.id, again.created) == (held, False)
    await store.close()


async def test_a_failure_of_its_own_is_not_laid_on_the_file(
    older: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    old_job(older, "t", "k", old_hash("t", "k"))
    monkeypatch.setattr("aioqueue.sqlite._migrations_unique_keys._rehashed", fails)
    with pytest.raises(StoreError, match="0003_unique_keys can't be applied: user-defined function") as caught:
        await opened(path)
    assert "another file" not in str(caught.value)


async def test_older_code_that_still_runs_is_told_instead_of_storing_a_key_twice(older: sqlite3.Connection, path: Path) -> None:
    held = old_job(older, "t", "k", old_hash("t", "k"))
    store = await opened(path)
    with pytest.raises(sqlite3.IntegrityError, match="upgrade aioqueue"):
        old_job(older, "t", "k", old_hash("t", "k"))
    without = old_job(older, "t", "k", None)
    lease = await store.open_lease("w", 60)
    assert [job.id for job in await store.claim(lease, ["t"], 5)] == [held, without]
    await store.close()


async def test_older_code_does_not_start_on_the_file_any_more(store: SQLiteStore, path: Path) -> None:
    ((oldest,),) = query(path, "SELECT max(oldest_code) FROM migration")
    assert oldest > 1, "the code before called itself version 1"
