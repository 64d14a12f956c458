"""The log of events in the file: triggers that are there only while somebody reads, and that let every row be written."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from aioqueue.sqlite import make_store
from aioqueue.testing.memory import MemoryStore
from aioqueue.vocabulary._attempt_error import AttemptError
from aioqueue.vocabulary._blockers import NewBlocker
from aioqueue.vocabulary._job import Ending, Settlement, SettlementKind, StoredState
from aioqueue.vocabulary._unique import Unique
from tests.sqlite.conftest import execute, new_job, outsider, query, spoil

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from aioqueue.abc import ClaimedJob
    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio

TRIGGERS = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name GLOB 'aioqueue_event_*'"


async def log(store: SQLiteStore | MemoryStore, reader: UUID, cursor: str = "0") -> list[Any]:
    page = await store.read_events(reader, cursor, 10_000)
    assert not page.reset
    return list(page.events)


async def test_what_logs_is_there_only_while_somebody_reads(store: SQLiteStore, path: Path) -> None:
    """Nothing at all is paid otherwise: not even a look whether somebody reads."""
    assert query(path, TRIGGERS) == []
    one, other = await store.open_reader(600), await store.open_reader(600)
    there = query(path, TRIGGERS)
    assert len(there) > 5
    assert await store.keep_reader(one, 0)
    assert query(path, TRIGGERS) == there
    assert await store.keep_reader(other, 0)
    assert query(path, TRIGGERS) == []
    await store.insert([new_job()])
    assert query(path, "SELECT count(*) FROM event") == [(0,)]


async def test_a_reader_that_died_is_tidied_up(store: SQLiteStore, path: Path) -> None:
    """Whoever tends does so, though there's nothing else to do; what was logged goes once it's old."""
    await store.open_reader(600)
    await store.insert([new_job()])
    execute(path, "UPDATE reader SET expires_at = 0")
    await store.insert([new_job()])
    assert query(path, "SELECT count(*) FROM event") == [(1,)]
    await store.tend(100)
    assert query(path, TRIGGERS) == []
    assert query(path, "SELECT (SELECT count(*) FROM reader), (SELECT count(*) FROM event)") == [(0, 1)]
    execute(path, "UPDATE event SET at = 0")
    await store.tend(100)
    assert query(path, "SELECT count(*) FROM event") == [(0,)]


async def test_whoever_writes_is_seen(store: SQLiteStore, path: Path) -> None:
    """Other processes whose connections are open already, and users on their own."""
    other = make_store(f"sqlite:///{path}")
    await other.open()
    first, second, third = new_job(), new_job(), new_job()
    await other.insert([first])
    reader = await store.open_reader(600)
    await other.insert([second])
    with outsider(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        await store.insert([third], tx=connection)
        assert [each.job_id for each in await log(store, reader)] == [second.id]
        connection.execute("COMMIT")
    await other.close()
    assert [each.job_id for each in await log(store, reader)] == [second.id, third.id]


async def test_old_events_go_in_portions_and_whoever_lags_is_told(
    store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = await store.open_reader(600)
    await store.insert([new_job() for _ in range(10)])
    [first, *_] = await log(store, reader)
    execute(path, "UPDATE event SET at = 0 WHERE sequence <= 7")
    assert await store.keep_reader(reader, 600)
    assert [each.sequence for each in (await store.read_events(reader, "7", 100)).events] == [8, 9, 10]
    for page in (await store.read_events(reader, "6", 100), await store.resume_events(reader, first.sequence, 100)):
        assert (page.events, page.cursor, page.reset) == ((), "10", True)
    assert not (await store.resume_events(reader, 8, 100)).reset


ODD = (
    "id = zeroblob(36)",
    "id = 'these are thirty-six characters, ok.'",
    "type = CAST(x'ff41' AS TEXT)",
    "chain_id = x'ff'",
    "errors = '{'",
    "errors = x'00'",
    "errors = '[\"text\", 5]'",
    "errors = '{\"a\": 1}'",
    "attempt = 'many'",
    "claims = 9223372036854775807",
    "run_at = 9e999",
    "state = 77",
    "position = 'x'",
)


@pytest.mark.parametrize("change", ODD)
async def test_no_row_is_kept_from_being_written(store: SQLiteStore, path: Path, change: str) -> None:
    """Whatever stands in a row, with the log it goes where it goes without, and the log can be read."""
    ends: list[list[Any]] = []
    for watched in (False, True):
        reader = await store.open_reader(600) if watched else None
        job, other = new_job(), new_job()
        await store.insert([job, other])
        spoil(path, job.id, change)
        lease = await store.open_lease("w", 600)
        claimed = await store.claim(lease, ["a"], 5)
        failed = SettlementKind.FAILED
        await store.settle([Settlement(id=each.id, claims=each.claims, lease_id=lease, kind=failed) for each in claimed])
        retried = await store.retry([job.id, other.id])
        cancelled = await store.cancel([job.id, other.id], "enough")
        ends.append([len(claimed), retried, cancelled, query(path, "SELECT count(*) FROM job")])
        deleted = await store.delete([job.id, other.id])
        execute(path, "DELETE FROM job", "DELETE FROM archive")
        ends[-1].append(deleted)
        if reader is not None:
            kinds = [each.kind for each in await log(store, reader) if each.job_id == other.id]
            assert kinds[:3] == ["enqueued", "started", "failed"]
            assert kinds[-1] == "deleted"
    assert ends[0] == ends[1]


# -- the same as the store in memory -------------------------------------------------------------------------------------------


def settled(job: ClaimedJob, kind: SettlementKind, **options: Any) -> Settlement:
    return Settlement(id=job.id, claims=job.claims, lease_id=job.lease_id, kind=kind, **options)


async def one(store: SQLiteStore | MemoryStore, lease: int, job_type: str, **options: Any) -> ClaimedJob:
    await store.insert([new_job(job_type, **options)])
    [claimed] = await store.claim(lease, [job_type], 1)
    return claimed


async def _many_lives(store: SQLiteStore | MemoryStore) -> dict[str, UUID]:
    """What can become of jobs. Gives their ids by names."""
    lease = await store.open_lease("w", 600)
    error = AttemptError(attempt=1, at=datetime.now(UTC), type="E", message="m")
    unique = Unique(on_conflict="replace")
    replaced = new_job("replaced", key="k", unique=unique, delay=600)
    await store.insert([replaced])
    await store.insert([new_job("replaced", key="k", unique=unique)])
    again = await one(store, lease, "again", key="k2", unique=unique)
    await store.settle([settled(again, SettlementKind.RETRIED, delay=600, error=error)])
    await store.insert([new_job("again", key="k2", unique=unique)])

    blocker = await one(store, lease, "blocker")
    waits = new_job("waits", blockers=(NewBlocker(blocker.id),))
    along = new_job("along", blockers=(NewBlocker(waits.id),))
    await store.insert([waits, along])
    first = await one(store, lease, "first")
    following = new_job("following", blockers=(NewBlocker(blocker.id),))
    child = new_job("child")
    await store.settle([settled(first, SettlementKind.CONTINUED, next=following, children=(child,))])
    await store.settle([settled(blocker, SettlementKind.FAILED, error=error)])
    while (await store.tend(100)).more:
        pass
    await store.retry([blocker.id], cascade=True)
    [blocker] = await store.claim(lease, ["blocker"], 1)
    await store.settle([settled(blocker, SettlementKind.COMPLETED, output=b"1", outcome="fine")])

    asked = await one(store, lease, "asked")
    await store.cancel([asked.id], "enough")
    unstarted = new_job("unstarted")
    await store.settle([settled(asked, SettlementKind.CONTINUED, next=unstarted)])
    given = await one(store, lease, "given")
    await store.release(lease, [given.claim])
    [given] = await store.claim(lease, ["given"], 1)
    await store.settle([settled(given, SettlementKind.RESCHEDULED, delay=600)])
    await store.reschedule([given.id], delay=900)
    await store.run_now([given.id])
    await store.end([Ending(id=given.id, kind=SettlementKind.CONTINUED, next=(after := new_job("after")))])
    held = new_job("held", blockers=(NewBlocker(after.id),))
    await store.insert([held])
    await store.delete([after.id], cascade=True)
    while (await store.tend(100)).more:
        pass
    await store.prune(StoredState.CONTINUED, 0, ["first"], 10)
    await store.purge([blocker.id], {StoredState.COMPLETED: 0.0})
    jobs = (replaced, again, blocker, waits, along, first, following, child, asked, unstarted, given, after, held)
    return {each.type: each.id for each in jobs}


async def test_what_is_logged_is_the_same_as_in_memory(store: SQLiteStore) -> None:
    """Every verb, job by job: kinds in their order, numbers of attempts and claims, chains, and what they say."""
    told: list[dict[str, list[Any]]] = []
    memory = MemoryStore()
    await memory.open()
    for each in (store, memory):
        reader = await each.open_reader(600)
        names = await _many_lives(each)
        of = {job_id: name for name, job_id in names.items()}
        lives: dict[str, list[Any]] = {name: [] for name in names}
        for event in await log(each, reader):
            text = event.body.decode()
            for job_id, name in of.items():
                text = text.replace(str(job_id), name)
            body = {key: round(value) if key == "delay" else value for key, value in orjson.loads(text).items()}
            entry = (event.kind, of[event.chain_id], event.job_type, event.attempt, event.claims, body)
            lives.setdefault(of.get(event.job_id, "?"), []).append(entry)
        told.append(lives)
    await memory.close()
    for name, life in told[1].items():
        assert told[0][name] == life, name


async def test_what_is_logged_costs_the_same_whatever_is_stored(store: SQLiteStore, path: Path) -> None:
    """The triggers look other rows up, and never walk over a table."""
    await store.open_reader(600)
    lease = await store.open_lease("w", 600)
    costs: list[int] = []
    for others in (10, 3000):
        await store.insert([new_job("other", delay=600) for _ in range(others)])
        execute(
            path,
            "INSERT INTO archive SELECT "
            + _copied(path)
            + " FROM job WHERE type = 'other' AND id NOT IN (SELECT id FROM archive)",
        )
        first = await one(store, lease, f"first{others}")
        with outsider(path) as connection:
            cost = 0

            def count() -> None:
                nonlocal cost
                cost += 1

            connection.set_progress_handler(count, 10)
            connection.execute("BEGIN IMMEDIATE")
            await store.settle([settled(first, SettlementKind.CONTINUED, next=new_job())], tx=connection)
            connection.execute("COMMIT")
            costs.append(cost)
    assert costs[1] <= costs[0] * 1.5 + 5


def _copied(path: Path) -> str:
    """The columns of the archive, from those of live jobs."""
    live = {row[1] for row in query(path, "PRAGMA table_info(job)")}
    values = {"finished_at": "0", "state": "4"}
    names = [row[1] for row in query(path, "PRAGMA table_info(archive)")]
    return ", ".join(values.get(name, name if name in live else "NULL") for name in names)


async def test_tables_can_change_while_somebody_reads(store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration drops what logs, as that could be in its way; the reader is told that something is missing."""
    from aioqueue.sqlite import _migrations

    known = _migrations.known_migrations()
    change = "ALTER TABLE job DROP COLUMN webhook; ALTER TABLE job ADD COLUMN webhook TEXT;".replace("; ", ";\n")
    later = replace(known[-1], number=known[-1].number + 1, name="9999_later", sql=change)
    reader = await store.open_reader(600)
    with pytest.raises(sqlite3.OperationalError):
        execute(path, "ALTER TABLE archive DROP COLUMN outcome")
    monkeypatch.setattr(_migrations, "known_migrations", lambda: (*known, later))
    assert await store.migrate() == ["9999_later"]
    assert query(path, TRIGGERS) == []
    assert (await store.read_events(reader, "0", 10)).reset
    reader = await store.open_reader(600)
    await store.insert([new_job()])
    assert [each.kind for each in await log(store, reader)] == ["enqueued"]
