"""Gates in a file that others write too: at each claim, whatever becomes of the jobs, and whatever stands in the rows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.errors import RowRejected
from aioqueue.sqlite._gates_sweep import GateSweep
from aioqueue.vocabulary._gates import By, GateRules, NewLimit, SequenceMember
from aioqueue.vocabulary._job import JobState, Settlement, SettlementKind
from aioqueue.vocabulary._unique import Unique
from tests.sqlite.conftest import execute, new_job, outsider, query

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from uuid import UUID

    from aioqueue.sqlite import SQLiteStore
    from aioqueue.vocabulary._job import ClaimedJob, Job, NewJob
    from aioqueue.vocabulary._notification import Notification

pytestmark = pytest.mark.anyio

BY_TENANT = {"a": GateRules(type="a", limit=True, limit_by=By("tenant"))}
SHARED = {"a": GateRules(type="a", shared="stripe"), "b": GateRules(type="b", shared="stripe")}
RATE = {"a": GateRules(type="a", rate=True)}
FAIR = {"a": GateRules(type="a", fair_by=By("tenant"))}


def of_tenant(tenant: str, job_type: str = "a", **options: object) -> NewJob:
    return new_job(job_type, payload=b'{"tenant":"%s"}' % tenant.encode(), **options)


async def claimed(store: SQLiteStore, rules: dict[str, GateRules], limit: int = 100, *types: str) -> Sequence[ClaimedJob]:
    lease = await store.open_lease("w", 600)
    return await store.claim(lease, types or sorted(rules) or ["a"], limit, gates=rules)


async def settle(store: SQLiteStore, job: ClaimedJob, kind: SettlementKind = SettlementKind.COMPLETED, **more: Any) -> None:
    (result,) = await store.settle([Settlement(id=job.id, claims=job.claims, lease_id=job.lease_id, kind=kind, **more)])
    assert result.lost is None


async def fetched(store: SQLiteStore, job_id: UUID) -> Job:
    (found,) = await store.fetch([job_id])
    assert found is not None
    return found


async def test_no_more_run_at_a_limit_than_it_says_and_the_others_say_what_they_wait_for(store: SQLiteStore) -> None:
    await store.put_limits([NewLimit(name="job:a", places=3)], defined=True)
    jobs = [of_tenant("acme") for _ in range(10)]
    other = of_tenant("other")
    await store.insert([*jobs, other])
    running = await claimed(store, BY_TENANT)
    assert [each.id for each in running] == [*(job.id for job in jobs[:3]), other.id]
    assert await claimed(store, BY_TENANT) == []
    waiting = await fetched(store, jobs[3].id)
    assert (waiting.state, waiting.held_by) == (JobState.HELD, 'job:a="acme"')
    await settle(store, running[0])
    assert [each.id for each in await claimed(store, BY_TENANT)] == [jobs[3].id]
    assert await claimed(store, BY_TENANT) == []
    (status,) = await store.gate_statuses(['job:a="acme"'])
    assert (status.places, status.count, status.waiting) == (3, 3, 6)
    (limit,) = await store.list_limits()
    assert (limit.running, limit.waiting, limit.defined, limit.changed) == (4, 6, True, False)


@pytest.mark.parametrize("how", ["completed", "failed", "retried", "released", "cancelled", "deleted", "erased", "recovered"])
async def test_whatever_becomes_of_a_running_job_the_next_one_comes(store: SQLiteStore, path: Path, how: str) -> None:
    await store.put_limits([NewLimit(name="stripe", places=1)])
    jobs = [new_job("a"), new_job("b")]
    await store.insert(jobs)
    (first,) = await claimed(store, SHARED)
    assert await claimed(store, SHARED) == []
    match how:
        case "completed" | "failed":
            await settle(store, first, SettlementKind(4 if how == "completed" else 6))
        case "retried":
            await settle(store, first, SettlementKind.RETRIED, delay=60.0)
        case "released":
            await store.reschedule([jobs[1].id], delay=0.0)
            await store.release(first.lease_id, [first.claim])
        case "cancelled":
            await store.cancel([first.id], "enough")
            await settle(store, first, SettlementKind.CANCELLED)
        case "deleted":
            await store.delete([first.id])
        case "erased":
            execute(path, f"DELETE FROM job WHERE id = '{first.id}'")
        case _:
            execute(path, "DELETE FROM lease")
            (orphan,) = await store.take_expired(10)
            done = Settlement(
                id=orphan.id, claims=orphan.claims, lease_id=orphan.lease_id, kind=SettlementKind.RETRIED, delay=60.0
            )
            await store.settle([done], orphaned=True)
    came = await claimed(store, SHARED)
    assert len(came) == 1
    if how != "released":
        assert came[0].id == jobs[1].id
    assert query(path, "SELECT count(*) FROM gate_place") == [(1,)]


ODD = ["'text'", "x'00ff5b'", "x'5b5d'", "7", '\'[1, null, ["x"], "stripe"]\'', '\'{"a": "stripe"}\'', "'['", "''"]


@pytest.mark.parametrize("odd", ODD)
async def test_whatever_stands_in_the_column_no_change_of_a_job_is_refused(store: SQLiteStore, path: Path, odd: str) -> None:
    """Neither by what leaves marks, nor by claims: it's as if it weren't there, and the marks that come of it do no harm."""
    jobs = [new_job("a", sequence=SequenceMember(name="s")), new_job("a"), new_job("a")]
    await store.insert(jobs)
    execute(path, f"UPDATE job SET gates = {odd}")
    execute(path, f"UPDATE job SET run_at = run_at + 1, state = 0 WHERE id = '{jobs[0].id}'", "UPDATE job SET state = 1")
    execute(path, f"UPDATE gate_member SET chain_id = '{jobs[0].id}'")
    execute(path, f"DELETE FROM job WHERE id = '{jobs[2].id}'")
    came = await claimed(store, SHARED)
    assert {each.id for each in came} == {jobs[0].id, jobs[1].id}
    for each in came:
        await settle(store, each)
    assert await claimed(store, SHARED) == []
    assert query(path, "SELECT count(*) FROM gate_place") == [(0,)]


async def test_a_job_that_refuses_to_come_keeps_no_other_from_it(store: SQLiteStore, path: Path) -> None:
    await store.put_limits([NewLimit(name="stripe", places=1)])
    jobs = [new_job("a") for _ in range(4)]
    await store.insert(jobs)
    (first,) = await claimed(store, SHARED)
    execute(
        path,
        f"CREATE TRIGGER refuses BEFORE UPDATE OF state ON job WHEN OLD.id = '{jobs[1].id}' AND NEW.state = 1"
        " BEGIN SELECT RAISE(ABORT, 'no'); END",
    )
    await store.put_limits([NewLimit(name="stripe", places=3)])
    await settle(store, first)
    assert [each.id for each in await claimed(store, SHARED)] == [jobs[2].id, jobs[3].id]


async def test_an_odd_row_at_a_gate_fails_alone(store: SQLiteStore, path: Path) -> None:
    await store.put_limits([NewLimit(name="stripe", places=2)])
    jobs = [new_job("a") for _ in range(4)]
    await store.insert(jobs)
    execute(path, f"UPDATE job SET created_at = x'00' WHERE id = '{jobs[0].id}'")
    assert [each.id for each in await claimed(store, SHARED)] == [jobs[1].id, jobs[2].id]
    assert (await fetched(store, jobs[0].id)).state is JobState.FAILED
    assert (await fetched(store, jobs[3].id)).state is JobState.HELD
    assert query(path, "SELECT count(*) FROM gate_place") == [(2,)]


async def test_jobs_enter_a_sequence_in_a_transaction_of_the_callers(store: SQLiteStore, path: Path) -> None:
    """Also those with unique keys, and those whose transaction is rolled back leave nothing."""
    member = SequenceMember(name="s", strict=True, block=True)
    jobs = [new_job("a", sequence=member), new_job("a", sequence=member, key="k", unique=Unique(on_conflict="replace"))]
    with outsider(path) as tx:
        tx.execute("BEGIN IMMEDIATE")
        await store.insert(jobs, tx=tx)
        tx.execute("COMMIT")
        tx.execute("BEGIN IMMEDIATE")
        await store.insert([new_job("a", sequence=member)], tx=tx)
        tx.execute("ROLLBACK")
    rows = query(path, "SELECT chain_id, sequence, strict, block FROM gate_member ORDER BY number")
    assert rows == [(str(job.id), "s", 1, 1) for job in jobs]
    (first,) = await claimed(store, {})
    assert first.id == jobs[0].id
    assert (await fetched(store, jobs[1].id)).held_by == "sequence=s"
    await settle(store, first)
    assert [each.id for each in await claimed(store, {})] == [jobs[1].id]


async def test_what_is_stored_instead_of_another_job_is_in_its_own_sequence(store: SQLiteStore, path: Path) -> None:
    unique = Unique(on_conflict="replace")
    first = new_job("a", key="k", unique=unique, sequence=SequenceMember(name="one"))
    await store.insert([first])
    await store.insert([new_job("a", key="k", unique=unique, sequence=SequenceMember(name="other"))])
    assert query(path, "SELECT chain_id, sequence FROM gate_member") == [(str(first.id), "other")]
    await store.insert([new_job("a", key="k", unique=unique)])
    assert query(path, "SELECT count(*) FROM gate_member") == [(0,)]
    assert [each.id for each in await claimed(store, {})] == [first.id]


async def test_listeners_hear_that_something_has_left_a_gate(store: SQLiteStore, path: Path) -> None:
    told: list[Notification] = []
    await store.put_limits([NewLimit(name="stripe", places=1)])
    await store.insert([new_job("a"), new_job("a"), new_job("plain")])
    (first,) = await claimed(store, SHARED)
    (plain,) = await claimed(store, {}, 100, "plain")
    with store.subscribe(told.append):
        await settle(store, plain)
        assert not any(each.gates for each in told)
        await settle(store, first)
        assert any(each.gates for each in told)
        assert (await store.next_due(["a"], gates=SHARED)).job == 0
        assert len(await claimed(store, SHARED)) == 1
        assert (await store.next_due(["a"], gates=SHARED)).job is None
        await store.put_limits([NewLimit(name="stripe", places=1)])
        told.clear()
        await store.put_limits([NewLimit(name="stripe", places=2)])
        assert any(each.gates for each in told)


async def test_where_nobody_uses_gates_nothing_is_written_of_them(store: SQLiteStore, path: Path) -> None:
    await store.insert([new_job("a") for _ in range(3)])
    lease = await store.open_lease("w", 600)
    first, second, third = await store.claim(lease, ["a"], 10)
    await settle(store, first)
    await settle(store, second, SettlementKind.RETRIED, delay=0.0)
    await store.release(lease, [third.claim])
    assert len(await store.claim(lease, ["a"], 10)) == 2
    assert query(path, "SELECT (SELECT count(*) FROM gate_mark), (SELECT count(*) FROM gate_place)") == [(0, 0)]
    assert query(path, "SELECT DISTINCT gates FROM job") == [(None,)]


async def test_upkeep_forgets_places_and_members_of_which_nothing_is_left(store: SQLiteStore, path: Path) -> None:
    """Such as somebody has written with SQL, or restored."""
    await store.put_limits([NewLimit(name="stripe", places=1)])
    await store.insert([new_job("a"), other := new_job("a", sequence=SequenceMember(name="s"))])
    running = await claimed(store, SHARED)
    execute(
        path,
        "INSERT INTO gate_place (gate, job_id) VALUES ('stripe', 'nobody'), ('sequence=s', 'nobody')",
        "INSERT INTO gate_member (chain_id, sequence, strict) VALUES ('gone', 's', 1), ('gone too', 't', 0)",
        "UPDATE gate_member SET number = -1 WHERE chain_id = 'gone'",
    )
    await store.tend(100)
    assert query(path, "SELECT count(*) FROM gate_place WHERE job_id = 'nobody'") == [(0,)]
    assert query(path, "SELECT chain_id FROM gate_member") == [(str(other.id),)]
    await settle(store, running[0])
    assert [each.id for each in await claimed(store, SHARED)] == [other.id]


async def test_upkeep_finds_who_was_passed_over(store: SQLiteStore, path: Path) -> None:
    await store.put_limits([NewLimit(name="stripe", places=1)])
    await store.insert([new_job("a"), new_job("a")])
    (first,) = await claimed(store, SHARED)
    await settle(store, first)
    execute(path, "DELETE FROM gate_mark")
    assert await claimed(store, SHARED) == []
    await store.tend(100)
    assert len(await claimed(store, SHARED)) == 1


async def test_upkeep_forgets_rates_that_are_full_again(store: SQLiteStore, path: Path) -> None:
    """There's a row for each value: not those that somebody waits for, nor those whose starts may not be forgotten yet."""
    now = time.time_ns() // 1000
    hour, half = 3600 * 10**6, 1800 * 10**6
    execute(
        path,
        "INSERT INTO gate_limit (name, places, per, burst) VALUES ('rate:a', 10, 3600.0, 5), ('rate:none', 0, 3600.0, 5)",
        f"""INSERT INTO gate_rate (gate, arrival, wake_at)
        VALUES ('rate:a=1', {now - half - 10**6}, NULL), ('rate:a=2', {now - half + 60 * 10**6}, NULL),
               ('rate:a=3', {now - hour}, {now + hour}),
               ('rate:none', {now - 24 * hour}, NULL), ('rate:gone', {now - 10**6}, NULL)""",
    )
    await store.tend(100)
    assert query(path, "SELECT gate FROM gate_rate ORDER BY gate") == [("rate:a=2",), ("rate:a=3",), ("rate:none",)]


async def test_a_job_that_refuses_keeps_no_others_at_its_gate(
    store: SQLiteStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Those behind it come instead, at once, from a limit of one and from lanes; it alone is told of, once."""
    await store.put_limits([NewLimit(name="stripe", places=1)])
    await store.insert([new_job(), bad := new_job(key="bad"), new_job(key="bad"), good := new_job(), last := new_job()])
    (first,) = await claimed(store, SHARED, 100, "a")
    assert await claimed(store, SHARED, 100, "a") == []
    execute(
        path,
        """CREATE TRIGGER refuses BEFORE UPDATE ON job WHEN OLD.state = 0 AND NEW.state = 1 AND OLD.key = 'bad'
        BEGIN SELECT RAISE(ABORT, 'not this one'); END""",
    )
    await settle(store, first)
    (second,) = await claimed(store, SHARED, 100, "a")
    assert second.id == good.id
    await settle(store, second)
    assert [each.id for each in await claimed(store, SHARED, 100, "a")] == [last.id]
    told = [record.__dict__["job_id"] for record in caplog.records if record.levelname == "ERROR"]
    assert len(told) == 2
    assert str(bad.id) in told


async def test_a_look_at_gates_that_fails_stops_only_itself(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise RowRejected("an odd one")

    monkeypatch.setattr(GateSweep, "look", failing)
    await store.insert([new_job(expires=0.0)])
    assert (await store.tend(100)).expired == 1


async def test_one_look_passes_thousands_of_gates_without_room(store: SQLiteStore, path: Path) -> None:
    """Where nobody has left a mark, such as where triggers were dropped."""
    await store.put_limits([NewLimit(name="job:a", places=0)])
    await store.insert([*(of_tenant(str(number)) for number in range(3_000)), last := new_job("b")])
    while await claimed(store, {**BY_TENANT, "b": GateRules(type="b", shared="stripe")}, 5_000):
        pass
    execute(path, "UPDATE job SET state = 0, gate = 'open' WHERE type = 'b'")
    execute(path, "DELETE FROM gate_mark")
    await store.tend(100)
    assert (await fetched(store, last.id)).state == JobState.READY
