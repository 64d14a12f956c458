"""Pauses on PostgreSQL: large backlogs, and whoever comes between a pause, a claim and its end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._pauses import NewPause, Pause, PauseTarget
from tests.postgres.stores import completed, connected, job, opened
from tests.postgres.test_blockers_races import statements_counted
from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._job import ClaimedJob, NewJob
    from aioqueue.vocabulary._notification import Notification

pytestmark = pytest.mark.anyio

KEY = NewPause(target=PauseTarget.KEY, value="k", by="ann", reason="why")
TYPE = NewPause(target=PauseTarget.TYPE, value="a", by="ann")
ALL = NewPause(target=PauseTarget.ALL, by="ann")
BAD = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$"
REFUSE = """CREATE TRIGGER refuse BEFORE UPDATE ON aioqueue.job FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION refuse()"""


async def claim(store: PostgresStore, limit: int = 10, types: Sequence[str] = ("a",)) -> list[ClaimedJob]:
    return list(await store.claim(await store.open_lease("w", 600), types, limit))


async def states(store: PostgresStore, *jobs: NewJob) -> list[JobState | None]:
    return [None if each is None else each.state for each in await store.fetch([new.id for new in jobs])]


async def parked(store: PostgresStore, *jobs: NewJob) -> None:
    """Store them, with their key paused, and have a claim park them."""
    await store.insert(jobs)
    await store.pause([KEY])
    assert await claim(store, len(jobs), sorted({each.type for each in jobs})) == []
    assert set(await states(store, *jobs)) == {JobState.HELD}


async def waiting(store: PostgresStore) -> dict[tuple[PauseTarget, str], int]:
    return {(each.target, each.value): each.waiting for each in await store.list_pauses()}


async def resumed(store: PostgresStore, limit: int = 500) -> list[int]:
    """Tend until there's nothing to do at once; returns how many came back with each portion."""
    portions: list[int] = []
    for _ in range(100):
        tended = await store.tend(limit)
        portions.append(tended.resumed)
        if not tended.more:
            return portions
    raise AssertionError("tending must come to an end")


# -- what is paused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pause", [TYPE, ALL], ids=["type", "all"])
async def test_a_paused_type_is_left_alone_until_the_last_of_its_pauses_is_lifted(postgres_url: str, pause: NewPause) -> None:
    async with opened(postgres_url) as store:
        await store.insert([held := job("a"), other := job("b")])
        await store.pause([pause, NewPause(target=pause.target, value=pause.value, by="bob")])
        taken = await claim(store, 10, ["a", "b"])
        assert [each.id for each in taken] == ([] if pause is ALL else [other.id])
        assert (await store.next_due(["a"])).job is None
        assert await states(store, held) == [JobState.READY]
        assert await store.resume(pause.target, [pause.value], by="ann") == 1
        assert await claim(store) == []
        assert await store.resume(pause.target, [pause.value]) == 1
        assert (await store.next_due(["a"])).job == 0
        assert [each.id for each in await claim(store)] == [held.id]


async def test_what_runs_goes_on_and_is_not_started_again(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await store.insert([job("a"), lost := job("a")])
        one, other = await claim(store)
        await store.pause([ALL])
        again = completed(one)
        assert [each.lost for each in await store.settle([again])] == [None]
        await store.release(other.lease_id, [other.claim])
        assert await claim(store) == []
        assert await states(store, lost) == [JobState.READY]


async def test_claims_pay_for_pauses_while_there_are_any(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One statement more where the first one has come, and none before and after."""
    async with opened(postgres_url) as store:
        lease_id = await store.open_lease("w", 600)
        await store.insert([job() for _ in range(6)])

        async def statements() -> int:
            async with statements_counted(monkeypatch) as counted:
                assert len(await store.claim(lease_id, ["a"], 1)) == 1
            return counted.total()

        assert await statements() == 1
        await store.pause([NewPause(target=PauseTarget.TYPE, value="another")])
        assert [await statements(), await statements()] == [2, 1]
        await store.resume(PauseTarget.TYPE, ["another"])
        assert [await statements(), await statements()] == [1, 1]
        assert execute(postgres_url, "SELECT count(*) FROM aioqueue.job WHERE state = 2") == [(5,)]


async def test_it_is_due_when_the_last_pause_ends(postgres_url: str) -> None:
    def until(seconds: float) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=seconds)

    async with opened(postgres_url) as store:
        await store.insert([job("a"), job("b", delay=3000.0)])
        await store.pause([NewPause(target=PauseTarget.TYPE, value="a", by="ann", until=until(1000))])
        due = (await store.next_due(["a", "b"])).job
        assert due is not None
        assert 900 < due < 1000
        await store.pause([NewPause(target=PauseTarget.ALL, by="bob", until=until(2000))])
        due = (await store.next_due(["a", "b"])).job
        assert due is not None
        assert 1900 < due < 2000
        await store.pause([NewPause(target=PauseTarget.TYPE, value="a", by="bob")])
        due = (await store.next_due(["a", "b"])).job
        assert due is not None
        assert 2900 < due < 3000
        assert (await store.next_due(["a"])).job is None


async def test_a_parked_job_may_be_due_when_its_pause_ends(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await parked(store, job(key="k"))
        assert (await store.next_due(["a"])).job is None
        end = datetime.now(UTC) + timedelta(seconds=1000)
        others = [NewPause(target=PauseTarget.KEY, value=f"other {each}", until=end) for each in range(150)]
        await store.pause([NewPause(target=PauseTarget.KEY, value="k", by="ann", until=end - timedelta(seconds=100)), *others])
        due = (await store.next_due(["a"])).job
        assert due is not None
        assert 800 < due < 900


async def test_a_pause_that_is_over_is_none_and_is_removed(postgres_url: str) -> None:
    over = datetime.now(UTC) - timedelta(seconds=1)
    async with opened(postgres_url) as store:
        await store.insert([new := job("a", key="k")])
        await store.pause([NewPause(target=each.target, value=each.value, until=over) for each in (KEY, TYPE, ALL)])
        assert await store.list_pauses() == []
        assert (await store.next_due(["a"])).job == 0
        assert [each.id for each in await claim(store)] == [new.id]
        await store.tend(100)
        assert execute(postgres_url, "SELECT count(*) FROM aioqueue.pause") == [(0,)]


async def test_of_the_same_person_the_later_counts(postgres_url: str) -> None:
    later = NewPause(target=PauseTarget.KEY, value="k", by="ann", reason="another")
    async with opened(postgres_url) as store:
        await store.pause([KEY, later])
        (one,) = await store.list_pauses()
        assert one == Pause(target=PauseTarget.KEY, value="k", by="ann", reason="another", until=None, at=one.at)
        await store.pause([KEY])
        (again,) = await store.list_pauses()
        assert again.reason == "why"
        assert again.at > one.at


# -- parked -----------------------------------------------------------------------------------------------------------


async def test_a_claim_parks_what_has_a_paused_key_and_takes_what_is_behind(postgres_url: str) -> None:
    held = [job(key="k"), job(key="k", priority=1)]
    async with opened(postgres_url) as store:
        await store.insert([*held, plain := job(), keyed := job(key="other")])
        await store.pause([KEY])
        assert {each.id for each in await claim(store, 2)} == {plain.id, keyed.id}
        assert [each and (each.state, each.held_by) for each in await store.fetch([new.id for new in held])] == [
            (JobState.HELD, "pause:k")
        ] * 2
        assert (await store.next_due(["a"])).job is None
        assert await store.resume(PauseTarget.KEY, ["k"]) == 1
        back = await store.fetch([new.id for new in held])
        assert [each and (each.state, each.held_by) for each in back] == [(JobState.READY, None)] * 2
        assert [each.id for each in await claim(store)] == [held[1].id, held[0].id]


async def test_a_key_that_others_pause_still_stays_paused(postgres_url: str) -> None:
    held = job(key="k")
    async with opened(postgres_url) as store:
        await parked(store, held)
        await store.pause([NewPause(target=PauseTarget.KEY, value="k", by="bob")])
        assert await store.resume(PauseTarget.KEY, ["k"], by="ann") == 1
        assert await resumed(store) == [0]
        assert await states(store, held) == [JobState.HELD]
        assert await store.resume(PauseTarget.KEY, ["k"], by="bob") == 1
        assert await states(store, held) == [JobState.READY]


@pytest.mark.parametrize("how", ["DELETE FROM aioqueue.pause", "UPDATE aioqueue.pause SET until = now()"], ids=["gone", "over"])
async def test_what_is_parked_comes_back_however_its_pause_has_ended(postgres_url: str, how: str) -> None:
    held = job(key="k")
    async with opened(postgres_url) as store:
        await parked(store, held)
        told: list[Notification] = []
        execute(postgres_url, how)
        with store.subscribe(told.append):
            assert sum(await resumed(store)) == 1
        assert await states(store, held) == [JobState.READY]
        assert any("a" in (each.types or ()) for each in told)
        assert execute(postgres_url, "SELECT count(*) FROM aioqueue.pause") == [(0,)]


async def test_more_keys_than_one_look_goes_through(postgres_url: str) -> None:
    """Those that are paused still don't stand before the others."""
    async with opened(postgres_url) as store:
        execute(
            postgres_url,
            "INSERT INTO aioqueue.job (id, type, key, state, gate) SELECT gen_random_uuid(), 'a', n::text, 0, 'pause:' || n "
            "FROM generate_series(1, 1200) AS n",
        )
        keys = [str(each) for each in range(1, 1201)]
        await store.pause([NewPause(target=PauseTarget.KEY, value=each) for each in keys if each != "999"])
        assert sum([sum(await resumed(store)) for _ in range(4)]) == 1
        await store.resume(PauseTarget.KEY, keys)
        assert sum([sum(await resumed(store)) for _ in range(4)]) == 1199 - 500


async def test_gates_of_another_kind_are_left_alone(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await store.insert([new := job(key="k")])
        execute(postgres_url, "UPDATE aioqueue.job SET state = 0, gate = 'limit:k'")
        await store.resume(PauseTarget.KEY, ["k"])
        (held,) = await store.fetch([new.id])
        assert held is not None
        assert (held.state, held.held_by) == (JobState.HELD, "limit:k")


async def test_who_parks_late_is_found_by_tending(postgres_url: str) -> None:
    """A claim has seen the pause, and parks after it was lifted."""
    async with opened(postgres_url) as store, connected(postgres_url) as slow:
        await store.insert([new := job(key="k")])
        await store.pause([KEY])
        transaction = slow.transaction(isolation="repeatable_read")
        await transaction.start()
        await slow.execute("SELECT count(*) FROM aioqueue.pause")
        await slow.execute("UPDATE aioqueue.job SET state = 0, gate = 'pause:k'")
        await store.resume(PauseTarget.KEY, ["k"])
        await transaction.commit()
        assert await states(store, new) == [JobState.HELD]
        assert sum(await resumed(store)) == 1
        assert await states(store, new) == [JobState.READY]


async def test_what_somebody_has_locked_comes_back_later(postgres_url: str) -> None:
    held = [job(key="k") for _ in range(3)]
    async with opened(postgres_url) as store, connected(postgres_url) as somebody:
        await parked(store, *held)
        transaction = somebody.transaction()
        await transaction.start()
        await somebody.execute("SELECT FROM aioqueue.job WHERE id = $1 FOR UPDATE", held[1].id)
        await store.resume(PauseTarget.KEY, ["k"])
        assert await states(store, *held) == [JobState.READY, JobState.HELD, JobState.READY]
        assert await resumed(store) == [0]
        await transaction.rollback()
        assert sum(await resumed(store)) == 1


async def test_a_row_that_refuses_to_come_back_holds_up_no_other(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    held = [job(key="k") for _ in range(5)]
    bad = held[2]
    async with opened(postgres_url) as store:
        await parked(store, *held)
        execute(postgres_url, BAD)
        execute(postgres_url, REFUSE.format(when=f"OLD.id = '{bad.id}'"))
        assert await store.resume(PauseTarget.KEY, ["k"]) == 1
        expected = [JobState.HELD if each is bad else JobState.READY for each in held]
        assert await states(store, *held) == expected
        assert await resumed(store) == [0]
        assert await resumed(store) == [0]
        said = [record for record in caplog.records if getattr(record, "event", "") == "store.row_passed_over"]
        assert [record.__dict__["job_id"] for record in said] == [str(bad.id)]


# -- what becomes of parked ones --------------------------------------------------------------------------------------
