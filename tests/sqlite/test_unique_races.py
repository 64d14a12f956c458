"""One job for each unique key, whoever enqueues at the same moment, and whoever takes back what he has enqueued."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from aioqueue.errors import DuplicateJob
from aioqueue.sqlite import make_store
from aioqueue.vocabulary._unique import Unique
from tests.sqlite.chains import end
from tests.sqlite.conftest import new_job, query

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from uuid import UUID

    from aioqueue.sqlite import SQLiteStore
    from aioqueue.vocabulary._job import Inserted

pytestmark = pytest.mark.anyio

POLICIES = {
    "return": Unique(),
    "raise": Unique(on_conflict="raise"),
    "replace": Unique(on_conflict="replace"),
    "until started": Unique(until="started"),
    "with a window": Unique(window=60),
}


class TakenBackError(Exception):
    """On purpose."""


async def enqueue(store: SQLiteStore, number: int, unique: Unique) -> tuple[UUID, bool] | None:
    """Enqueue as the caller of this number does: every third in a transaction, which half of those roll back, the first too.

    Returns:
        Which chain has the key then, and whether it's a new one; None if it was rolled back.
    """
    job = new_job(key="k", unique=unique)
    try:
        if number % 3:
            (inserted,) = await store.insert([job])
        else:
            async with store.transaction() as transaction:
                (inserted,) = await transaction.insert([job])
                if number % 2 == 0:
                    raise TakenBackError
    except TakenBackError:
        return None
    except DuplicateJob as duplicate:
        return duplicate.chain_id, False
    return inserted.id, inserted.created


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_hundred_callers_and_one_job(store: SQLiteStore, path: Path, policy: str) -> None:
    results = await asyncio.gather(*(enqueue(store, number, POLICIES[policy]) for number in range(100)))
    ((job_id, windows),) = query(path, "SELECT id, (SELECT count(*) FROM dedup) FROM job")
    answers = [each for each in results if each is not None]
    assert len(answers) >= 83
    assert {str(chain_id) for chain_id, _ in answers} == {job_id}
    assert [created for _, created in answers].count(True) == 1
    assert windows == (policy == "with a window")


async def test_the_loser_of_one_that_is_rolled_back_gets_its_job(store: SQLiteStore) -> None:
    first, second = (new_job(key="k", unique=Unique(on_conflict="raise")) for _ in range(2))
    waiting: list[asyncio.Task[Sequence[Inserted]]] = []
    with pytest.raises(TakenBackError):
        async with store.transaction() as transaction:
            assert (await transaction.insert([first]))[0].created
            waiting.append(asyncio.create_task(store.insert([second])))
            raise TakenBackError
    ((inserted,),) = [await each for each in waiting]
    assert inserted.created


_SCRIPT = """
import asyncio, sys
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob, Settlement, SettlementKind
from aioqueue.vocabulary._unique import Unique
from aioqueue.sqlite import make_store

async def main():
    store = make_store("sqlite:///" + sys.argv[1], busy_timeout=120)
    await store.open()
    lease = await store.open_lease("w", 600)
    policies = [Unique(), Unique(on_conflict="replace"), Unique(until="started"), Unique(window=60)]
    for number in range(60):
        unique = policies[number % 4]
        await store.insert([NewJob(id=new_id(), type="a", key=str(key), unique=unique) for key in range(3)])
        jobs = await store.claim(lease, ["a"], 2)
        kind = SettlementKind(4 + 2 * (number % 2))
        done = [Settlement(id=job.id, claims=job.claims, lease_id=lease, kind=kind) for job in jobs]
        assert all(result.lost is None for result in await store.settle(done))
    await store.close()

asyncio.run(main())
"""


async def test_two_processes(path: Path) -> None:
    """Each enqueues the keys of the other, and works them off: nobody sees an error, and nobody is left behind."""
    store = make_store(f"sqlite:///{path}", busy_timeout=120)
    await store.open()
    processes = [subprocess.Popen([sys.executable, "-c", _SCRIPT, str(path)], stderr=subprocess.PIPE) for _ in range(2)]
    errors = [await asyncio.to_thread(each.communicate) for each in processes]
    assert [each.returncode for each in processes] == [0, 0], errors
    lease = await store.open_lease("w", 600)
    while jobs := await store.claim(lease, ["a"], 10):
        assert {each.lost for each in await store.settle([end(job) for job in jobs])} == {None}
    assert query(path, "SELECT count(*) FROM job") == [(0,)]
    assert query(path, "SELECT count(*) FROM blocker WHERE resolved = 0") == [(0,)]
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
    await store.close()
