"""Deliveries of webhooks in the file: what is looked at, what can't be read, and who else may have written the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob, Settlement, SettlementKind, SettleResult
from aioqueue.vocabulary._unique import Unique
from aioqueue.vocabulary._webhooks import DeliveryState, DeliveryTry
from tests.sqlite.conftest import execute, new_job, outsider, query, spoil

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio

URL = "https://hooks.example/in"


async def ended(store: SQLiteStore, count: int = 1, url: str = URL) -> list[UUID]:
    jobs = [new_job(webhook=url) for _ in range(count)]
    await store.insert(jobs)
    lease = await store.open_lease("w", 600)
    kind = SettlementKind.COMPLETED
    ends = [Settlement(id=each.id, claims=1, lease_id=lease, kind=kind) for each in await store.claim(lease, ["a"], count)]
    assert await store.settle(ends) == [SettleResult()] * count
    return [each.id for each in jobs]


async def _plain(store: SQLiteStore, job: NewJob) -> None:
    await store.insert([job])


async def _within(store: SQLiteStore, job: NewJob) -> None:
    async with store.transaction() as transaction:
        await transaction.insert([job])


async def _on_a_users_connection(store: SQLiteStore, job: NewJob) -> None:
    with outsider(store._options.path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        await store.insert([job], tx=connection)
        connection.execute("COMMIT")


@pytest.mark.parametrize("put", [_plain, _within, _on_a_users_connection])
@pytest.mark.parametrize("unique", [None, Unique(), Unique(on_conflict="raise"), Unique(until="started")])
async def test_wherever_a_job_is_stored_its_end_is_told(
    store: SQLiteStore, path: Path, put: Any, unique: Unique | None
) -> None:
    job = new_job(webhook=URL, keep=5.0, key="k", unique=unique)
    await put(store, job)
    assert query(path, "SELECT keep, webhook, marked FROM job") == [(5.0, URL, 1)]
    assert await store.cancel([job.id], "enough") == ["cancelled"]
    assert query(path, "SELECT event, url, host FROM delivery") == [("job.cancelled", URL, "hooks.example")]


async def test_an_odd_row_that_fails_is_told(store: SQLiteStore, path: Path) -> None:
    job, other = new_job(webhook=URL), new_job(webhook=URL)
    await store.insert([job, other])
    spoil(path, job.id, "timeout = 9e999, tags = x'ff', key = x'ff'")
    spoil(path, other.id, "created_at = x'00'")
    assert await store.claim(await store.open_lease("w", 600), ["a"], 5) == []
    found = (await store.list_deliveries()).deliveries
    assert {each.job_id: each.event for each in found} == {job.id: "job.failed", other.id: "job.failed"}
    for each in found:
        assert orjson.loads(each.body)["data"]["error"]["type"] == "UnreadableRow"


async def test_what_waits_for_a_host_that_hangs_isnt_looked_at(store: SQLiteStore, path: Path) -> None:
    """However much it is: the next host's is found by stepping over it."""
    await ended(store, 2)
    [other] = await ended(store, url="https://other.example/")
    execute(
        path,
        """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
           INSERT INTO delivery (id, job_id, chain_id, job_type, event, url, host, body, created_at, next_at)
           SELECT printf('00000000-0000-7000-8000-%012x', i), job_id, chain_id, job_type, event, url, host, body, created_at, 0
           FROM n, (SELECT * FROM delivery WHERE host = 'hooks.example' LIMIT 1)""",
    )
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    from aioqueue.sqlite import _webhooks

    with outsider(path) as connection:
        connection.set_progress_handler(count, 100)
        assert len(_webhooks._due(connection, 5, ["hooks.example"])) == 1
        assert len(_webhooks._due(connection, 5, [])) == 5
    assert steps < 30
    assert [each.job_id for each in await store.take_deliveries(10, 60, without=["hooks.example"])] == [other]


async def test_a_try_that_cant_be_kept_keeps_no_other(store: SQLiteStore, caplog: pytest.LogCaptureFixture) -> None:
    await ended(store, 3)
    first, second, third = await store.take_deliveries(3, 60)
    done = DeliveryState.DELIVERED
    tries = [
        DeliveryTry(id=first.id, tries=1, state=done),
        DeliveryTry(id=second.id, tries=1, state=done, response="\udc80"),
        DeliveryTry(id=third.id, tries=1, state=DeliveryState.PENDING, delay=float("nan")),
        DeliveryTry(id=new_id(), tries=1, state=done),
    ]
    await store.write_tries(tries)
    found = {each.id: each.state for each in (await store.list_deliveries()).deliveries}
    assert found == {first.id: done, second.id: DeliveryState.PENDING, third.id: DeliveryState.PENDING}
    assert {str(second.id), str(third.id)} <= {record.__dict__.get("delivery_id") for record in caplog.records}


async def test_an_end_whose_delivery_is_refused_isnt_written(store: SQLiteStore, path: Path) -> None:
    """Neither goes without the other; the neighbours are written."""
    guilty, other = new_job(webhook=URL), new_job(webhook="https://other.example")
    await store.insert([guilty, other])
    lease = await store.open_lease("w", 600)
    jobs = await store.claim(lease, ["a"], 2)
    execute(
        path,
        """CREATE TRIGGER guard BEFORE INSERT ON delivery WHEN NEW.host = 'hooks.example'
           BEGIN SELECT raise(ABORT, 'no'); END""",
    )
    kind = SettlementKind.COMPLETED
    results = await store.settle([Settlement(id=each.id, claims=1, lease_id=lease, kind=kind) for each in jobs])
    assert [each.lost for each in results] == ["error", None]
    assert query(path, "SELECT id FROM job") == [(str(guilty.id),)]
    assert query(path, "SELECT host FROM delivery") == [("other.example",)]


async def test_what_is_old_is_removed_though_nobody_else_has_anything_to_do(store: SQLiteStore, path: Path) -> None:
    """Leases and deliveries that are over; a row that refuses it is told in the log, and stops nothing."""
    await ended(store, 2)
    await store.take_deliveries(1, 60)
    lease = await store.open_lease("lives", 600)
    execute(path, "UPDATE delivery SET state = 4, next_at = NULL, finished_at = 0 WHERE tries = 1")
    execute(path, "UPDATE past_lease SET opened_at = 0", f"DELETE FROM lease WHERE id <> {lease}")
    execute(path, "CREATE TRIGGER guard BEFORE DELETE ON past_lease BEGIN SELECT raise(ABORT, 'no'); END")
    late = new_job(expires=0.0)
    await store.insert([late])
    assert (await store.tend(100)).expired == 1
    assert query(path, "SELECT count(*) FROM past_lease") == [(2,)]
    execute(path, "DROP TRIGGER guard")
    store._opened.tending._old._again_at = 0.0
    await store.tend(100)
    assert query(path, "SELECT id FROM past_lease") == [(lease,)]
    assert query(path, "SELECT state FROM delivery") == [(1,)]


async def test_deliveries_that_somebody_has_written_keep_nobody_from_theirs(store: SQLiteStore, path: Path) -> None:
    _, second = await ended(store, 2)
    odd = "id = 'these are thirty-six characters, ok.', chain_id = 'x', job_type = x'ff', status = 'fine', body = x'ff'"
    execute(path, f"UPDATE delivery SET {odd} WHERE job_id <> '{second}'")
    taken = await store.take_deliveries(10, 60)
    assert (len(taken), second in {each.job_id for each in taken}) == (2, True)
    assert len((await store.list_deliveries()).deliveries) == 2
    await store.write_tries([DeliveryTry(id=each.id, tries=1, state=DeliveryState.DELIVERED) for each in taken])
    assert [each.state for each in (await store.list_deliveries(state=DeliveryState.DELIVERED)).deliveries] == ["delivered"]
