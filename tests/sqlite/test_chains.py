"""Chains on SQLite: statements, foreign transactions, long chains, and files of older code."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any
from uuid import UUID

import aiosqlite
import anyio.to_thread
import pytest

from aioqueue.abc import Changed, JobFilter, Notification
from aioqueue.sqlite import _operate_delete, make_store
from aioqueue.sqlite._connections_access import Writer
from aioqueue.sqlite._migrations import known_migrations
from aioqueue.vocabulary._job import JobState, LostReason, Settlement, SettlementKind, StoredState
from aioqueue.vocabulary._unique import Unique
from tests.sqlite.chains import chain, claim_one, continued, end, listed
from tests.sqlite.conftest import execute, new_job, outsider, query, spoil

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio

# -- settling -----------------------------------------------------------------------------------------------------


async def test_a_batch_without_a_continuation_executes_no_more_than_before(store: SQLiteStore) -> None:
    lease = await store.open_lease("w", 600)
    await store.insert([new_job() for _ in range(4)])
    jobs = await store.claim(lease, ["a"], 4)
    executed: list[str] = []
    assert store._opened is not None

    async def trace(callback: Any) -> None:
        await store._opened.writer.call(lambda connection, _: connection.set_trace_callback(callback))

    async def statements(settlements: list[Settlement]) -> list[str]:
        executed.clear()
        await store.settle(settlements)
        # Of each only its first word; what it calls inside isn't counted: Python tells of that as of the statement again.
        return [each.split()[0] for each, _ in itertools.groupby(executed) if not each.startswith("--")]

    await trace(executed.append)
    try:
        plain = await statements([end(jobs[0]), end(jobs[1], SettlementKind.FAILED)])
        assert plain == ["BEGIN", "SELECT", "INSERT", "DELETE", "COMMIT"]
        more = await statements([continued(jobs[2]), end(jobs[3])])
        assert more == ["BEGIN", "SELECT", "INSERT", "UPDATE", "INSERT", "DELETE", "COMMIT"]
    finally:
        await trace(None)


@pytest.mark.parametrize(
    ("event", "action"),
    [
        ("INSERT ON job", "RAISE(ABORT, 'not this')"),
        ("INSERT ON job", "RAISE(IGNORE)"),
        ("INSERT ON archive", "RAISE(ABORT, 'not this')"),
        ("INSERT ON archive", "RAISE(IGNORE)"),
        ("DELETE ON job", "RAISE(ABORT, 'not this')"),
        ("UPDATE ON job", "RAISE(ABORT, 'not this')"),
    ],
)
async def test_a_trigger_that_refuses_a_step(store: SQLiteStore, path: Path, event: str, action: str) -> None:
    lease = await store.open_lease("w", 600)
    await store.insert([new_job(key=f"k{number}", unique=Unique()) for number in range(20)])
    jobs = await store.claim(lease, ["a"], 20)
    settlements = [continued(job) if place % 2 else end(job) for place, job in enumerate(jobs)]
    refused = settlements[7]
    assert refused.next is not None
    row_id = refused.next.id if event == "INSERT ON job" else refused.id
    when = f"{'NEW' if event.startswith('INSERT') else 'OLD'}.id = '{row_id}'"
    execute(path, f"CREATE TRIGGER refuses BEFORE {event} WHEN {when} BEGIN SELECT {action}; END")
    results = await store.settle(settlements)
    assert [place for place, result in enumerate(results) if result.lost is not None] == [7]
    assert results[7].lost is LostReason.ERROR
    assert results[7].message
    (before,) = await store.fetch([refused.id])
    assert before is not None
    assert before.state is JobState.RUNNING
    assert query(path, f"SELECT count(*) FROM job WHERE id = '{refused.next.id}'") == [(0,)]
    assert query(path, f"SELECT unique_key IS NOT NULL FROM job WHERE id = '{refused.id}'") == [(1,)]
    execute(path, "DROP TRIGGER refuses")
    assert [result.lost for result in await store.settle([refused])] == [None]
    assert [result.lost for result in await store.settle(settlements)] == [None] * 20


async def test_a_continuation_by_nothing_is_refused_alone(store: SQLiteStore) -> None:
    lease = await store.open_lease("w", 600)
    await store.insert([new_job(), new_job()])
    one, two = await store.claim(lease, ["a"], 2)
    results = await store.settle([end(one, SettlementKind.CONTINUED), continued(two)])
    assert [result.lost for result in results] == [LostReason.ERROR, None]


async def test_the_mark_of_dependents_goes_along(store: SQLiteStore, path: Path) -> None:
    lease = await store.open_lease("w", 600)
    (job,) = await chain(store, lease, 1)
    execute(path, "UPDATE job SET marked = 1")
    await store.settle([continued(job)])
    assert query(path, "SELECT marked, state FROM job") == [(1, 1)]


# -- inserting ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["ours", "sqlite3", "aiosqlite"])
async def test_a_conflict_gives_the_chains_id_in_every_transaction(store: SQLiteStore, path: Path, library: str) -> None:
    lease = await store.open_lease("w", 600)
    steps = await chain(store, lease, 3, key="k", unique=Unique())
    first = steps[0].id
    again = [new_job(key="k", unique=Unique()), new_job(), new_job(key="k", unique=Unique())]
    for _ in range(2):  # the second time as after a commit that was unclear
        if library == "ours":
            async with store.transaction() as tx:
                found = await tx.insert(again)
        elif library == "sqlite3":
            with outsider(path) as connection:
                connection.execute("BEGIN IMMEDIATE")
                found = await store.insert(again, tx=connection, repeated=True)
                connection.execute("COMMIT")
        else:
            async with aiosqlite.connect(path) as other:
                await other.execute("BEGIN IMMEDIATE")
                found = await store.insert(again, tx=other, repeated=True)
                await other.commit()
        assert [each.id for each in found] == [first, again[1].id, first]
    assert query(path, "SELECT count(*) FROM job") == [(2,)]


async def test_a_repeated_insert_whose_job_has_been_continued(store: SQLiteStore, path: Path) -> None:
    new = new_job(key="k", unique=Unique())
    await store.insert([new])
    lease = await store.open_lease("w", 600)
    await store.settle([continued(await claim_one(store, lease))])
    (found,) = await store.insert([new], repeated=True)
    assert (found.id, found.created) == (new.id, False)
    assert query(path, "SELECT count(*) FROM job") == [(1,)]


@pytest.mark.parametrize("change", ["chain_id = 'abc'", "chain_id = x'00'"])
async def test_a_conflict_with_a_chain_that_nobody_could_find(store: SQLiteStore, path: Path, change: str) -> None:
    await store.insert([new := new_job(key="k", unique=Unique())])
    spoil(path, new.id, change)
    (found,) = await store.insert([new_job(key="k", unique=Unique())])
    assert found.id == new.id


# -- long chains --------------------------------------------------------------------------------------------------


async def test_a_chain_of_twenty_thousand_steps(store: SQLiteStore, path: Path) -> None:
    lease = await store.open_lease("w", 600)
    first, second, live = await chain(store, lease, 3)
    await store.settle([end(live, SettlementKind.RETRIED, delay=600.0)])
    columns = ", ".join(row[1] for row in query(path, "PRAGMA table_info(archive)") if row[1] not in {"id", "position"})
    execute(
        path,
        f"""INSERT INTO archive (id, position, {columns})
        SELECT substr(id, 1, 24) || printf('%012x', n), n + 1, {columns} FROM archive,
        (WITH RECURSIVE number(n) AS (VALUES(1) UNION ALL SELECT n + 1 FROM number WHERE n < 20000) SELECT n FROM number)
        WHERE id = '{second.id}'""",
        "UPDATE job SET position = 20002",
        "ANALYZE",
    )
    taken = 0

    def count() -> None:
        nonlocal taken
        taken += 1

    assert store._opened is not None
    opened = store._opened

    async def progress(callback: Any) -> None:
        for threads in (opened.readers, opened.readers, opened.writer):
            await threads.call(lambda connection, _: connection.set_progress_handler(callback, 1000))

    await progress(count)
    (last, by_step) = await store.fetch_ends([first.id, second.id])
    assert last == by_step
    assert last is not None
    assert last.id == live.id
    page = await store.list_chain(first.id, 10)
    assert [job.position for job in page.jobs] == list(range(10))
    late = await store.list_chain(first.id, 10, page.cursor)
    assert [job.position for job in late.jobs] == list(range(10, 20))
    tail = await store.list_chain(first.id, 10, "3.19995")
    assert [job.position for job in tail.jobs] == [*range(19996, 20002), 20002]
    assert tail.cursor is None
    assert await store.run_now([second.id]) == [Changed.DONE]
    claimed = await claim_one(store, lease)
    assert [each.lost for each in await store.settle([end(claimed, SettlementKind.FAILED)])] == [None]
    assert await store.retry([second.id]) == [Changed.DONE]
    assert taken <= 30  # thousands of the machine's instructions
    await progress(None)
    assert await store.delete([second.id]) == [Changed.DONE]
    assert query(path, "SELECT (SELECT count(*) FROM job) + (SELECT count(*) FROM archive)") == [(0,)]


# -- pruning ------------------------------------------------------------------------------------------------------


async def test_continued_steps_are_pruned_and_the_result_is_found(store: SQLiteStore, path: Path) -> None:
    lease = await store.open_lease("w", 600)
    steps = await chain(store, lease, 4)
    execute(path, "UPDATE archive SET finished_at = 1")
    heard: list[Notification] = []
    with store.subscribe(heard.append, finished=True):
        pruned = await store.prune(StoredState.CONTINUED, 60.0, None, 100)
        assert set(pruned.ids) == {step.id for step in steps[:3]}
        await store.settle([end(steps[3], output=b"1")])
        (last, gone) = await store.fetch_ends([steps[0].id, steps[1].id])
        assert last is not None
        assert (last.id, last.output, last.chain_id) == (steps[3].id, 1, steps[0].id)
        assert gone is None
        execute(path, "UPDATE archive SET finished_at = 1")
        assert (await store.prune(StoredState.COMPLETED, 60.0, None, 100)).ids == (steps[3].id,)
    assert await store.fetch_ends([steps[0].id]) == [None]
    # Once when it has ended, once when its result has gone; of continued steps nothing is told.
    assert [each.finished for each in heard if each.finished] == [{steps[0].id}] * 2


# -- files of older code --------------------------------------------------------------------------------------------


async def test_a_file_of_older_code_gets_the_indexes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("aioqueue.sqlite._migrations.known_migrations", lambda: known_migrations()[:5])
        await make_store(f"sqlite:///{path}").migrate()
    execute(
        path,
        f"INSERT INTO job (id, type, priority, state, run_at, created_at, payload, chain_id, position) "
        f"VALUES ('{UUID(int=2)}', 'a', 2, 1, 0, 0, '{{}}', '{UUID(int=1)}', 1)",
    )
    store = make_store(f"sqlite:///{path}")
    await store.open()
    try:
        (found,) = await store.fetch_ends([UUID(int=1)])
        assert found is not None
        assert (found.id, found.position) == (UUID(int=2), 1)
    finally:
        await store.close()
    indexes = dict(query(path, "SELECT name, sql FROM sqlite_master WHERE name IN ('job_chain', 'archive_chain')"))
    assert all("(chain_id, position)" in each for each in indexes.values())


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
async def test_a_file_whose_text_is_utf16(path: Path, encoding: str) -> None:
    execute(path, f"PRAGMA encoding = '{encoding}'", "CREATE TABLE of_the_user (x)")
    store = make_store(f"sqlite:///{path}")
    await store.open()
    try:
        lease = await store.open_lease("w", 600)
        steps = await chain(store, lease, 4, key="k", unique=Unique())
        assert [job.id for job in await listed(store, steps[0].id, 1)] == [step.id for step in steps]
        (found,) = await store.insert([new_job(key="k", unique=Unique())])
        assert found.id == steps[0].id
        await store.settle([end(steps[3], SettlementKind.FAILED)])
        assert await store.retry([steps[1].id]) == [Changed.DONE]
        assert (await claim_one(store, lease)).id == steps[3].id
        await store.release(lease, [], end=True)
        assert len((await store.list(JobFilter(), 10)).jobs) == 4
        assert await store.run_now([steps[1].id]) == [Changed.DONE]
        heard: list[Notification] = []
        with store.subscribe(heard.append, finished=True):
            assert await store.delete([steps[1].id]) == [Changed.DONE]
        assert [each.finished for each in heard if each.finished] == [{steps[0].id}]
        assert await store.fetch_ends([step.id for step in steps]) == [None] * 4
        new = [new_job() for _ in range(5)]
        await store.insert(new)
        pages: list[UUID] = []
        cursor: str | None = None
        while len(pages) <= len(new):
            page = await store.list(JobFilter(), 1, cursor)
            pages += [job.id for job in page.jobs]
            if (cursor := page.cursor) is None:
                break
        assert pages == [job.id for job in reversed(new)]
    finally:
        await store.close()


async def interrupted(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, job_id: UUID) -> None:
    """Delete a chain, and go away when its end is gone."""

    async def gone(*_: object) -> bool:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(Writer, "write", gone)
        with pytest.raises(asyncio.CancelledError):
            await store.delete([job_id])


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("ended", [False, True])
async def test_a_delete_that_is_interrupted_is_finished_by_another(
    store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch, place: int, ended: bool
) -> None:
    monkeypatch.setattr(_operate_delete, "_PORTION", 2)
    lease = await store.open_lease("w", 600)
    steps = await chain(store, lease, 6, key="k", unique=Unique())
    await store.settle([end(steps[-1], SettlementKind.COMPLETED if ended else SettlementKind.RETRIED)])
    told: list[Notification] = []
    with store.subscribe(told.append, finished=True):
        await interrupted(store, monkeypatch, steps[3].id)
        assert frozenset({steps[0].id}) in [each.finished for each in told]
    left = query(path, "SELECT position, state FROM archive ORDER BY position")
    assert left == [(number, 5) for number in range(4 if ended else 3)]
    assert [each.created for each in await store.insert([new_job(key="k", unique=Unique())])] == [True]
    assert await store.delete([steps[place].id]) == [Changed.DONE]
    assert query(path, "SELECT id FROM archive") == []
    assert await store.delete([steps[place].id]) == [Changed.NOT_FOUND]


async def test_others_write_while_a_long_chain_is_deleted(
    store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, and in another."""
    monkeypatch.setattr(_operate_delete, "_PORTION", 1)
    lease = await store.open_lease("w", 600)
    steps = await chain(store, lease, 30)
    await store.settle([end(steps[-1])])
    deleting = asyncio.create_task(store.delete([steps[0].id]))
    with anyio.fail_after(60):
        while len(query(path, "SELECT id FROM archive")) == 30:
            await asyncio.sleep(0)
        await store.insert([new_job("b")])
        await anyio.to_thread.run_sync(execute, path, "UPDATE archive SET outcome = 'seen'")
        assert not deleting.done()
        assert await deleting == [Changed.DONE]
    assert query(path, "SELECT id FROM archive") == []
