"""Unique keys in transactions of other libraries: what is refused leaves them as they were."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiosqlite
import pytest

from aioqueue.errors import BlockerCycle, DuplicateJob, WrongJobType
from aioqueue.vocabulary._blockers import NewBlocker
from aioqueue.vocabulary._unique import Unique
from tests.sqlite.conftest import new_job, outsider, query
from tests.sqlite.waiting import after

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio

REPLACE = Unique(on_conflict="replace")


@asynccontextmanager
async def begun(path: Path, library: str) -> AsyncIterator[Any]:
    """A connection with an open transaction, which is committed at the end."""
    if library == "sqlite3":
        with outsider(path) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            assert connection.in_transaction
            connection.execute("COMMIT")
    else:
        async with aiosqlite.connect(path, isolation_level=None) as other:
            await other.execute("BEGIN IMMEDIATE")
            yield other
            assert other.in_transaction
            await other.commit()


@pytest.mark.parametrize("library", ["sqlite3", "aiosqlite"])
async def test_every_policy_on_a_connection_of_the_users(store: SQLiteStore, path: Path, library: str) -> None:
    held = new_job(key="k", unique=Unique())
    async with begun(path, library) as tx:
        await store.insert([held], tx=tx)
        (kept,) = await store.insert([new_job(key="k", unique=Unique(window=60))], tx=tx)
        assert (kept.id, kept.created) == (held.id, False)
        (replaced,) = await store.insert([new_job(key="k", unique=REPLACE, payload=b'{"n":2}')], tx=tx)
        assert (replaced.id, replaced.replaced) == (held.id, True)
        with pytest.raises(DuplicateJob) as caught:
            await store.insert([new_job(), new_job(key="k", unique=Unique(on_conflict="raise"))], tx=tx)
        assert caught.value.chain_id == held.id
    assert query(path, "SELECT payload FROM job") == [('{"n":2}',)]


@pytest.mark.parametrize("library", ["sqlite3", "aiosqlite"])
async def test_a_refusal_leaves_the_transaction_as_it_was(store: SQLiteStore, path: Path, library: str) -> None:
    held = new_job(key="k", unique=REPLACE)
    waits = after(held.id)
    await store.insert([held, waits])
    async with begun(path, library) as tx:
        await store.insert([mine := new_job("mine")], tx=tx)
        # What is written before its circle is found is undone.
        closing = replace(new_job(key="k", unique=REPLACE, payload=b'{"n":2}'), blockers=(NewBlocker(waits.id),))
        with pytest.raises(BlockerCycle):
            await store.insert([new_job(), closing], tx=tx)
        with pytest.raises(WrongJobType):
            await store.insert([new_job(), replace(new_job("b"), id=mine.id, chosen_id=True)], tx=tx)
    rows = query(path, "SELECT id, state, payload FROM job ORDER BY id")
    assert rows == [(str(held.id), 1, "{}"), (str(waits.id), 0, "{}"), (str(mine.id), 1, "{}")]
    assert query(path, "SELECT job_id FROM blocker") == [(str(waits.id),)]
