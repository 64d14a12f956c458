"""Finding the job with a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioqueue.vocabulary._job import SettlementKind
from aioqueue.vocabulary._unique import Unique
from tests.sqlite.chains import claim_one, continued, end
from tests.sqlite.conftest import execute, new_job, spoil

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio


async def found(store: SQLiteStore, *types: str) -> UUID | None:
    job = await store.find(types, "k")
    return None if job is None else job.id


async def test_the_holder_then_the_newest_unfinished_then_the_newest_finished(store: SQLiteStore) -> None:
    lease = await store.open_lease("w", 600)
    assert await found(store, "a") is None
    jobs = [new_job(key="k", unique=Unique()), new_job(key="k"), new_job(key="k"), new_job("b", key="k"), new_job(key="other")]
    await store.insert(jobs)
    assert await found(store, "a") == jobs[0].id
    await store.settle([end(await claim_one(store, lease))])
    assert await found(store, "a") == jobs[2].id
    await store.settle([end(await claim_one(store, lease), SettlementKind.FAILED)])
    assert await found(store, "a") == jobs[2].id
    await store.settle([end(await claim_one(store, lease), SettlementKind.CANCELLED)])
    assert await found(store, "a") == jobs[2].id
    assert await found(store, "a", "b") == jobs[3].id
    assert await found(store, "c") is None
    await store.delete([jobs[2].id])
    assert await found(store, "a") == jobs[1].id


async def test_a_chain_is_found_by_the_type_of_its_first_step(store: SQLiteStore, path: Path) -> None:
    lease = await store.open_lease("w", 600)
    first = new_job(key="k", unique=Unique(until="started"))
    await store.insert([first])
    last = new_job("b")
    await store.settle([continued(await claim_one(store, lease), last)])
    assert (await found(store, "a"), await found(store, "b")) == (last.id, None)
    (job,) = await store.claim(lease, ["b"], 1)
    await store.settle([end(job)])
    assert (await found(store, "a"), await found(store, "b")) == (last.id, None)
    execute(path, f"DELETE FROM archive WHERE id = '{first.id}'")
    assert (await found(store, "a"), await found(store, "b")) == (None, last.id)


async def test_odd_rows_are_passed_or_shown(store: SQLiteStore, path: Path) -> None:
    jobs = [new_job(key="k") for _ in range(3)]
    await store.insert(jobs)
    spoil(path, jobs[2].id, "type = x'ff', chain_id = x'00', id = 'no uuid, but as long as one of those'")
    assert await found(store, "a") == jobs[1].id
    spoil(path, jobs[1].id, "state = 'odd', errors = x'00', run_at = 'soon'")
    assert await found(store, "a") == jobs[1].id
