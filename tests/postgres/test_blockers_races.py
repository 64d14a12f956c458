"""Those that wait are told once and in time, whoever else is at work, and in bounded statements, however many there are."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from aioqueue.errors import BlockerCycle, StoreContended, StoreUnavailable, TransactionError
from aioqueue.postgres import _resolve, _settle
from aioqueue.vocabulary._attempt_error import AttemptError
from aioqueue.vocabulary._blockers import NewBlocker
from aioqueue.vocabulary._job import Ending, JobState, LostReason, NewJob, SettlementKind
from aioqueue.vocabulary._unique import Unique
from tests.postgres.stores import completed, connected, job, opened
from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from uuid import UUID

    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._job import ClaimedJob, Settlement

pytestmark = pytest.mark.anyio


def after(new: NewJob, *chains: UUID) -> NewJob:
    return replace(new, blockers=tuple(NewBlocker(each) for each in chains))


async def started(store: PostgresStore, jobs: Sequence[NewJob], *, types: Sequence[str] = ("a",)) -> list[ClaimedJob]:
    await store.insert(jobs)
    lease_id = await store.open_lease("w", 600)
    claims: list[ClaimedJob] = []
    while more := await store.claim(lease_id, types, 1_000):
        claims += more
    assert len(claims) == len(jobs)
    return claims


async def tend_all(store: PostgresStore, limit: int = 1_000) -> int:
    """Tend until there is nothing to do at once; returns how often it was needed."""
    for calls in range(1, 1_000):
        if not (await store.tend(limit)).more:
            return calls
    raise AssertionError("tending must come to an end")


def failed(claim: ClaimedJob) -> Settlement:
    error = AttemptError(attempt=1, at=claim.created_at, type="ValueError", message="boom")
    return replace(completed(claim), kind=SettlementKind.FAILED, output=None, error=error)


@asynccontextmanager
async def statements_counted(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Counter[str]]:
    counted: Counter[str] = Counter()
    fetch = asyncpg.Connection.fetch

    async def counting(self: Any, query: str, *arguments: Any, **options: Any) -> Any:
        counted[query] += 1
        return await fetch(self, query, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(asyncpg.Connection, "fetch", counting)
        yield counted


async def test_many_wait_for_many_that_end_on_five_connections(postgres_url: str) -> None:
    """None begins early, none is stuck. A trigger sees to the first: a job that isn't blocked has no open edges."""
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(opened(postgres_url)) for _ in range(5)]
        blockers = [job("a") for _ in range(100)]
        ids = [each.id for each in blockers]
        claims = await started(stores[0], blockers)
        dependents = [after(job("d"), *(ids[(start + step) % 100] for step in range(10))) for start in range(200)]
        await stores[0].insert(dependents)
        execute(
            postgres_url,
            """
            CREATE FUNCTION early() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF NEW.state = 1 AND OLD.state = 0 AND 10 <> (
                    SELECT count(*) FROM aioqueue.blocker b JOIN aioqueue.chain_end e USING (chain_id) WHERE b.job_id = NEW.id)
                THEN RAISE EXCEPTION 'early'; END IF; RETURN NEW; END $$;
            CREATE TRIGGER early AFTER UPDATE ON aioqueue.job FOR EACH ROW EXECUTE FUNCTION early();
            """,
        )

        async def settle(store: PostgresStore, part: Sequence[ClaimedJob]) -> None:
            for start in range(0, len(part), 5):
                assert {each.lost for each in await store.settle([completed(claim) for claim in part[start : start + 5]])} == {
                    None
                }

        await asyncio.gather(*(settle(store, claims[number::5]) for number, store in enumerate(stores)))
        await tend_all(stores[0])
        found = [each for each in await stores[0].fetch([each.id for each in dependents]) if each is not None]
        assert Counter(each.state for each in found) == {JobState.READY: 200}
        assert {each.open_blockers for each in found} == {0}


async def test_one_waits_for_two_thousand(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        claims = await started(store, [job("a") for _ in range(2_000)])
        last = after(job("d"), *(claim.id for claim in claims))
        await store.insert([last])
        for start in range(0, 1_999, 1_000):
            await store.settle([completed(claim) for claim in claims[start : min(start + 1_000, 1_999)]])
        (found,) = await store.fetch([last.id])
        assert found is not None
        assert (found.state, found.open_blockers) == (JobState.BLOCKED, 1)
        await store.settle([completed(claims[-1])])
        (found,) = await store.fetch([last.id])
        assert found is not None
        assert (found.state, found.open_blockers) == (JobState.READY, 0)


async def test_ten_thousand_wait_for_one(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settlement tells as many as it may, and says that there are more; tending tells the others, in portions."""
    async with opened(postgres_url) as store:
        (claim,) = await started(store, [job("a")])
        for _ in range(5):
            await store.insert([after(job("d"), claim.id) for _ in range(2_000)])
        async with statements_counted(monkeypatch) as counted:
            (result,) = await store.settle([completed(claim)])
            assert result.more
            calls = await tend_all(store, limit=2_000)
        assert calls <= 6
        assert sum(counted.values()) <= 10 + 10 * calls
        assert execute(postgres_url, "SELECT state, count(*) FROM aioqueue.job GROUP BY 1") == [(1, 10_000)]


async def test_a_cascade_whose_process_has_died_is_gone_on_with(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a settlement didn't tell is stored with it: whoever comes next tells all levels below, with the first cause."""
    monkeypatch.setattr(_resolve, "MOST_TOLD", 2)
    async with opened(postgres_url) as store:
        (claim,) = await started(store, [job("a")])
        first = [after(job("b"), claim.id) for _ in range(5)]
        second = [after(job("c"), each.id) for each in first]
        third = after(job("d"), *(each.id for each in second))
        await store.insert([*first, *second, third])
        (result,) = await store.settle([failed(claim)])
        assert result.more
        assert execute(postgres_url, f"SELECT untold FROM aioqueue.chain_end WHERE chain_id = '{claim.id}'") == [(True,)]
    async with opened(postgres_url) as other:
        assert await tend_all(other, limit=2) > 5
        found = await other.fetch([each.id for each in (*first, *second, third)])
        assert {each.state for each in found if each} == {JobState.FAILED}
        cause = f"it waited for a {claim.id}: failed: ValueError: boom"
        assert {(each.errors[-1].type, each.errors[-1].message) for each in found if each} == {("BlockerFailed", cause)}
        assert execute(postgres_url, "SELECT count(*) FROM aioqueue.chain_end WHERE untold") == [(0,)]


async def test_a_dependent_that_somebody_holds_is_told_later(postgres_url: str) -> None:
    """It holds up neither the settlement nor its neighbours."""
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        (claim,) = await started(store, [job("a")])
        held, free = after(job("d"), claim.id), after(job("d"), claim.id)
        await store.insert([held, free])
        async with other.transaction():
            await other.execute("SELECT FROM aioqueue.job WHERE id = $1 FOR UPDATE", held.id)
            assert [each.lost for each in await store.settle([completed(claim)])] == [None]
            assert [each.state for each in await store.fetch([held.id, free.id]) if each] == ["blocked", "ready"]
            assert execute(postgres_url, "SELECT untold FROM aioqueue.chain_end") == [(True,)]
            assert (await store.tend(10)).resolved == 0
        assert (await store.tend(10)).resolved == 1
        assert [each.state for each in await store.fetch([held.id, free.id]) if each] == ["ready", "ready"]


async def test_a_chain_ends_while_somebody_begins_to_wait(postgres_url: str) -> None:
    """The one that marks it first is seen by the one that ends it; the other way round the end is found."""
    async with opened(postgres_url) as store, opened(postgres_url) as other:
        claims = await started(store, [job("a") for _ in range(40)])
        dependents = [after(job("d"), claim.id) for claim in claims]

        async def insert(new: NewJob) -> None:
            while True:
                try:
                    await other.insert([new])
                except StoreContended:
                    continue
                return

        async def settle(claim: ClaimedJob) -> None:
            while (await store.settle([completed(claim)]))[0].busy:
                pass

        both = (call for claim, new in zip(claims, dependents, strict=True) for call in (settle(claim), insert(new)))
        await asyncio.gather(*both)
        await tend_all(store)
        assert {each.state for each in await store.fetch([each.id for each in dependents]) if each} == {JobState.READY}


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_a_snapshot_from_before_a_mark_strands_nobody(postgres_url: str, isolation: str) -> None:
    """The mark is written also where it's set, so that whoever doesn't see it meets an error."""
    async with opened(postgres_url) as store, connected(postgres_url) as caller:
        await store.insert([blocker := job("a")])
        await store.insert([after(job("d"), blocker.id)])
        transaction = caller.transaction(isolation=isolation)
        await transaction.start()
        await caller.fetch("SELECT FROM aioqueue.job")
        await store.insert([late := after(job("d"), blocker.id)])
        with pytest.raises(StoreUnavailable):
            await store.end([Ending(id=blocker.id, kind=SettlementKind.COMPLETED, output=b"1")], tx=caller)
        await transaction.rollback()
        assert await store.end([Ending(id=blocker.id, kind=SettlementKind.COMPLETED, output=b"1")]) == [True]
        assert [each.state for each in await store.fetch([late.id]) if each] == [JobState.READY]


async def test_the_owners_late_write_isnt_taken_for_a_repetition(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        (claim,) = await started(store, [job("a")])
        assert await store.end([Ending(id=claim.id, kind=SettlementKind.COMPLETED, output=b"2")]) == [True]
        assert [each.lost for each in await store.settle([completed(claim)])] == [LostReason.COMPLETED]
        assert [each.output for each in await store.fetch([claim.id]) if each] == [2]


async def test_chains_that_begin_to_wait_for_each_other_at_the_same_moment(postgres_url: str) -> None:
    """Of four in a ring all but one go on, at the most: none waits for ever."""
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(opened(postgres_url)) for _ in range(4)]
        claims = await started(stores[0], [job("a") for _ in range(4)])

        async def go_on(number: int) -> object:
            claim, store = claims[number], stores[number]
            following = after(job("n"), claims[(number + 1) % 4].id)
            settlement = replace(completed(claim), kind=SettlementKind.CONTINUED, output=None, next=following)
            while (result := (await store.settle([settlement]))[0]).busy:
                pass
            assert result.lost is None
            return result.refused

        refused = [each for each in await asyncio.gather(*(go_on(number) for number in range(4))) if each is not None]
        assert len(refused) >= 1
        assert {type(each) for each in refused} == {BlockerCycle}
        assert len(await stores[0].fetch([claim.id for claim in claims])) == 4


def going_on(blocker: UUID, *chains: UUID, **fields: Any) -> Ending:
    return Ending(id=blocker, kind=SettlementKind.CONTINUED, next=after(job("n"), *chains), **fields)


async def test_a_ring_of_which_every_second_edge_was_there(postgres_url: str) -> None:
    """No two of the new edges meet, so that none is held up by another's row."""
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(opened(postgres_url)) for _ in range(4)]
        heads = [job("a") for _ in range(4)]
        links = [after(job("d"), head.id) for head in heads]
        await stores[0].insert([*heads, *links])

        async def go_on(number: int) -> object:
            while True:
                try:
                    return await stores[number].end([going_on(heads[number].id, links[(number + 1) % 4].id)])
                except BlockerCycle as error:
                    return type(error)
                except StoreContended:
                    continue

        ended = await asyncio.gather(*(go_on(number) for number in range(4)))
        assert ended.count(BlockerCycle) == 1
        assert ended.count([True]) == 3


async def test_one_that_waits_in_an_open_transaction_stops_nobody_elses(postgres_url: str) -> None:
    """Nor does one whose new children wait for others. The lock is for what may close a circle."""
    async with opened(postgres_url) as store, connected(postgres_url) as caller:
        jobs = [job("a") for _ in range(5)]
        await store.insert(jobs)
        one, two, three, four, five = (each.id for each in jobs)
        async with caller.transaction():
            child = after(job("c"), two)
            assert await store.end([going_on(one, two, child.id, children=(child,))], tx=caller) == [True]
            assert await store.end([going_on(three, four)]) == [True]
            (claim,) = await started(store, [job("z")], types=["z"])
            waiting = replace(completed(claim), kind=SettlementKind.CONTINUED, output=None, next=after(job("n"), five))
            assert [(each.lost, each.busy, each.refused) for each in await store.settle([waiting])] == [(None, False, None)]


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_a_circle_isnt_closed_by_transactions_that_dont_see_each_other(postgres_url: str, isolation: str) -> None:
    """What may close one is refused above READ COMMITTED, and leaves the transaction as it was; what can't is written."""
    async with opened(postgres_url) as store, connected(postgres_url) as caller:
        await store.insert([one := job("a"), two := job("a")])
        await store.insert([last := after(job("d"), two.id)])
        (claim,) = await started(store, [job("z")], types=["z"])
        held = replace(completed(claim), kind=SettlementKind.CONTINUED, output=None, next=after(job("n"), last.id))
        async with caller.transaction(isolation=isolation):
            with pytest.raises(TransactionError, match="READ COMMITTED"):
                await store.end([going_on(one.id, last.id)], tx=caller)
            with pytest.raises(TransactionError, match="READ COMMITTED"):
                await store.settle([held], tx=caller)
            child = job("c", key="k", unique=Unique())
            with pytest.raises(TransactionError, match="READ COMMITTED"):
                await store.end([going_on(one.id, child.id, children=(child,))], tx=caller)
            child = job("c")
            assert await store.end([going_on(one.id, child.id, children=(child,))], tx=caller) == [True]
        states = Counter((each.type, each.state) for each in await store.fetch([two.id, last.id, child.id, claim.id]) if each)
        assert states == {("a", "ready"): 1, ("d", "blocked"): 1, ("c", "ready"): 1, ("z", "running"): 1}


async def test_one_that_brings_what_cant_be_stored_doesnt_hold_up_its_neighbours(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_settle, "_MOST_ROWS", 8)
    async with opened(postgres_url) as store:
        claims = await started(store, [job("a") for _ in range(20)])
        children = [after(job("c"), claims[0].id if number != 7 else job().id) for number in range(20)]
        batch = [replace(completed(claim), children=(child,)) for claim, child in zip(claims, children, strict=True)]
        results = await store.settle(batch)
        assert [number for number, each in enumerate(results) if each.refused is not None] == [7]
        assert {(each.lost, each.busy) for each in results} == {(None, False)}
        states = [each and each.state for each in await store.fetch([claim.id for claim in claims])]
        assert states == [JobState.RUNNING if number == 7 else JobState.COMPLETED for number in range(20)]


async def test_what_is_deleted_by_sql_is_found(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await store.insert([one := job("a"), two := job("a")])
        needs, takes = after(job("d"), one.id), replace(job("e"), blockers=(NewBlocker(two.id, settled=True),))
        await store.insert([needs, takes])
        execute(postgres_url, "DELETE FROM aioqueue.job WHERE type = 'a'")
        assert await tend_all(store) <= 3
        assert [each.state for each in await store.fetch([needs.id, takes.id]) if each] == ["failed", "ready"]
        execute(postgres_url, "DELETE FROM aioqueue.job; DELETE FROM aioqueue.archive")
        await tend_all(store)
        await tend_all(store)
        assert execute(
            postgres_url, "SELECT (SELECT count(*) FROM aioqueue.blocker), (SELECT count(*) FROM aioqueue.chain_end)"
        ) == [(0, 0)]


async def test_an_end_that_cant_be_looked_up_holds_up_nobody_else(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """The job that waited for it is left out of the claim, and named in the log."""
    async with opened(postgres_url) as store:
        claims = await started(store, [job("a") for _ in range(3)])
        waiting = [after(job("d"), claim.id) for claim in claims]
        await store.insert([*waiting, plain := job("d")])
        await store.settle([completed(claim) for claim in claims])
        execute(
            postgres_url,
            f"""
            ALTER TABLE aioqueue.chain_end RENAME TO stored_end;
            CREATE VIEW aioqueue.chain_end AS SELECT chain_id, state, cause,
                CASE WHEN 1 / (CASE chain_id WHEN '{claims[1].id}' THEN 0 ELSE 1 END) = 1 THEN output END AS output
            FROM aioqueue.stored_end
            """,
        )
        lease_id = await store.open_lease("w", 600)
        taken = await store.claim(lease_id, ["d"], 10)
        assert {each.id: len(each.blockers) for each in taken} == {waiting[0].id: 1, waiting[2].id: 1, plain.id: 0}
        (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
        assert str(waiting[1].id) in record.getMessage()
        assert vars(record)["event"] == "store.outputs_not_read"
        session = store.lease_session()
        renewal = await asyncio.to_thread(session.renew, lease_id, 600, [each.claim for each in taken])
        await asyncio.to_thread(session.close)
        assert [each.id for each in renewal.unheld] == [waiting[1].id]
