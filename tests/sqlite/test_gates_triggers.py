"""The triggers that see jobs leave gates: not there before a job is at one, and there in time, whoever brings it there."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from aioqueue.sqlite import _migrations
from aioqueue.sqlite._connections import connect, in_transaction
from aioqueue.sqlite._gates_triggers import CREATE_GATE_TRIGGERS, create_gate_triggers
from aioqueue.sqlite._migrations import known_migrations, migrate
from aioqueue.sqlite._options import Options
from aioqueue.store_rules._migrations import Migration
from aioqueue.vocabulary._gates import GateRules, NewLimit, SequenceMember
from aioqueue.vocabulary._job import Settlement, SettlementKind
from tests.sqlite.conftest import execute, new_job, outsider, query
from tests.sqlite.libraries import libraries
from tests.sqlite.test_plans import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore
    from tests.sqlite.libraries import Begun

pytestmark = pytest.mark.anyio

SHARED = {"a": GateRules(type="a", shared="stripe")}
OCCASIONS = ("deleted", "left_archive", "moved", "pause_changed", "paused", "resumed")
NAMES = [(f"aioqueue_gate_{occasion}",) for occasion in OCCASIONS]


def triggers(path: Path) -> list[tuple[str]]:
    return query(path, "SELECT name FROM sqlite_master WHERE type = 'trigger' ORDER BY name")


async def work_off(store: SQLiteStore, rules: dict[str, GateRules] | None = None) -> int:
    """Claim and settle what may run, once."""
    lease = await store.open_lease("w", 600)
    jobs = await store.claim(lease, ["a"], 100, gates=rules)
    done = SettlementKind.COMPLETED
    await store.settle([Settlement(id=job.id, claims=job.claims, lease_id=lease, kind=done) for job in jobs])
    return len(jobs)


async def test_jobs_without_gates_have_none(store: SQLiteStore, path: Path) -> None:
    await store.put_limits([NewLimit(name="stripe", places=1)])
    await store.insert([new_job() for _ in range(3)])
    assert await work_off(store) == 3
    assert triggers(path) == []


async def test_the_first_claim_at_a_gate_makes_them(store: SQLiteStore, path: Path) -> None:
    await store.put_limits([NewLimit(name="stripe", places=1)])
    await store.insert([new_job(), new_job()])
    assert await work_off(store, SHARED) == 1
    assert triggers(path) == NAMES
    assert await work_off(store, SHARED) == 1


@libraries
async def test_a_sequence_of_a_callers_transaction_makes_them(store: SQLiteStore, path: Path, begun: Begun) -> None:
    async with begun(path) as tx:
        for _ in range(2):
            await store.insert([new_job(sequence=SequenceMember(name="s"))], tx=tx)
    assert triggers(path) == NAMES


async def test_a_callers_transaction_that_is_rolled_back_leaves_none(store: SQLiteStore, path: Path) -> None:
    with closing(sqlite3.connect(path)) as tx:  # which begins and commits by itself
        tx.execute("UPDATE job SET state = state")
        await store.insert([new_job(sequence=SequenceMember(name="s"))], tx=tx)
        assert tx.in_transaction
        tx.rollback()
    assert triggers(path) == []
    assert query(path, "SELECT (SELECT count(*) FROM job), (SELECT count(*) FROM gate_member)") == [(0, 0)]


async def test_connections_that_wrote_before_leave_marks_from_then_on(store: SQLiteStore, path: Path) -> None:
    """Their statements were prepared without triggers."""
    with outsider(path) as other:
        await store.insert([new_job() for _ in range(2)])
        assert await work_off(store) == 2
        erase = "DELETE FROM job WHERE state = ?"
        other.execute(erase, (2,))
        jobs = [new_job(sequence=SequenceMember(name="s")) for _ in range(3)]
        await store.insert(jobs)
        lease = await store.open_lease("w", 600)
        assert [job.id for job in await store.claim(lease, ["a"], 10)] == [jobs[0].id]
        other.execute(erase, (2,))
        assert [job.id for job in await store.claim(lease, ["a"], 10)] == [jobs[1].id]
        assert query(path, "SELECT count(*) FROM gate_place") == [(1,)]


async def test_they_come_again_where_somebody_has_lost_them(store: SQLiteStore, path: Path) -> None:
    await store.put_limits([NewLimit(name="stripe", places=1)])
    await store.insert([new_job() for _ in range(3)])
    assert await work_off(store, SHARED) == 1
    execute(path, *(f"DROP TRIGGER {name}" for (name,) in NAMES))
    await store.tend(100)
    assert await work_off(store, SHARED) == 1
    assert triggers(path) == NAMES


@pytest.mark.parametrize("used", [True, False])
def test_migrations_make_them_anew_where_they_were(path: Path, monkeypatch: pytest.MonkeyPatch, used: bool) -> None:
    connection = connect(Options(path=path))
    migrate(connection, 5.0)
    if used:
        in_transaction(connection, 5.0, create_gate_triggers)
        connection.execute("DROP TRIGGER aioqueue_gate_moved")
        connection.execute("CREATE TRIGGER aioqueue_gate_moved AFTER UPDATE ON job BEGIN SELECT column FROM nowhere; END")
    packaged = known_migrations()
    number = len(packaged) + 1
    later = Migration(number, f"{number:04}_later", 1, "ALTER TABLE job RENAME COLUMN metadata TO other;")
    monkeypatch.setattr(_migrations, "known_migrations", lambda: (*packaged, later))
    assert migrate(connection, 5.0) == [later.name]
    connection.close()
    assert triggers(path) == (NAMES if used else [])
    assert "nowhere" not in str(query(path, "SELECT sql FROM sqlite_master"))


def test_none_of_their_statements_scans_a_table(path: Path) -> None:
    connection = connect(Options(path=path))
    migrate(connection, 5.0)
    looked_at = 0
    for trigger in CREATE_GATE_TRIGGERS:
        body = trigger.partition(" BEGIN ")[2].rpartition(" END")[0]
        for statement in body.split(";")[:-1]:
            standalone = re.sub(r"\b(OLD|NEW)\.(\w+)", r":\2", statement)
            parameters = dict.fromkeys(re.findall(r":(\w+)", standalone), "1")
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {standalone}", parameters)]
            assert not [step for step in plan if re.match(rf"SCAN ({TABLES})\b", step) and "VIRTUAL" not in step], plan
            looked_at += 1
    assert looked_at == 13
    connection.close()
