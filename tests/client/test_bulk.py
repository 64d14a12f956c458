"""Changes of all jobs that fit a filter, a portion in each commit."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import BlockerReference, Changed, Changes, Client, ConfigurationError, JobFilter, JobState, Unique
from aioqueue.errors import RowRejected, StoreContended, StoreUnavailable, TransactionError
from aioqueue.vocabulary._job import SettlementKind
from tests.client.chains import count, go_on
from tests.client.jobs import add, completed, ended, fetch, nothing, work

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue import JobHandle
    from tests.client.fake_store import FakeStore

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
FAILED = JobFilter(states=["failed"])


@pytest.fixture(autouse=True)
def _small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioqueue.client._portions.PORTION_JOBS", 2)


async def _failed(client: Client, number: int, **options: Any) -> list[JobHandle[Any]]:
    """So many that have failed, the newest first."""
    handles = await client.enqueue_many([add(each, 1).options(**options) for each in range(number)])
    await work(client.store, ended(SettlementKind.FAILED, "no"))
    return handles[::-1]


async def _states(client: Client, *handles: JobHandle[Any]) -> list[str | None]:
    return [job and job.state.value for job in await client.store.fetch_ends([each.id for each in handles])]


async def test_portions_from_the_newest_with_numbers_so_far(each_client: Client) -> None:
    client = each_client
    failed = await _failed(client, 5)
    told: list[tuple[list[UUID], Counter[Changed]]] = []

    async def tell(portion: Changes, total: Counter[Changed]) -> None:
        # What is enqueued meanwhile isn't met, whatever becomes of it; and the portion's commit has been.
        await _failed(client, 1) if len(told) == 1 else None
        assert await client.store.fetch([min(portion)]) != [None]
        told.append((list(portion), total))

    assert await client.retry(where=FAILED, on_portion=tell) == Counter({Changed.DONE: 5})
    assert [each for portion, _ in told for each in portion] == [each.id for each in failed]
    assert [total[Changed.DONE] for _, total in told] == [2, 4, 5]
    assert len((await client.list_jobs(states=["failed"])).jobs) == 5  # the new one, and four that it ran with
    assert await client.retry(where=JobFilter(states=["failed"], key="none")) == Counter()


async def test_it_changes_what_can_be_changed_unless_told_otherwise(each_client: Client) -> None:
    client = each_client
    (failed,) = await _failed(client, 1)
    later = await client.enqueue(fetch("a").options(delay=HOUR))
    await client.enqueue(nothing())
    lease = await client.store.open_lease("one", 600)
    await client.store.claim(lease, [nothing.name], 1)
    now = JobFilter(created_before=datetime.now(UTC) + HOUR)
    assert await client.run_now(where=now) == {Changed.DONE: 1}
    assert await client.retry(where=now) == {Changed.DONE: 1}
    assert await _states(client, failed, later) == ["ready", "ready"]
    assert await client.delete(where=now) == {Changed.DONE: 2}
    assert [job.type for job in (await client.list_jobs()).jobs] == [nothing.name]
    assert await client.delete(where=JobFilter(states=["running"], worker="one")) == {Changed.DONE: 1}


async def test_a_chain_is_met_as_its_end(each_client: Client) -> None:
    client = each_client
    chain = await client.enqueue(count(1))
    await go_on(client.store, count(0).options(delay=HOUR).to_new_job())
    assert await client.delete(where=JobFilter(states=["failed", "completed"], types=[count])) == {}
    assert await client.run_now(where=JobFilter(types=[count])) == {Changed.DONE: 1}
    assert await client.delete(where=JobFilter(types=[count])) == {Changed.DONE: 1}
    assert await _states(client, chain) == [None]


@pytest.mark.parametrize("verb", ["retry", "run_now", "delete"])
async def test_what_is_refused(fake_client: Client, verb: str) -> None:
    change = getattr(fake_client, verb)
    handle = await fake_client.enqueue(add(1, 2).options(delay=HOUR))
    for where in (JobFilter(), JobFilter(ends=True), JobFilter(key=None, types=[])):
        with pytest.raises(ConfigurationError, match="an empty filter means all jobs"):
            await change(where=where)
    with pytest.raises(ConfigurationError, match="jobs that are continued aren't changed so"):
        await change(where=JobFilter(states=["continued"]))
    with pytest.raises(ConfigurationError, match="either jobs or where="):
        await change(handle, where=FAILED)
    with pytest.raises(ConfigurationError, match="belongs to where="):
        await change(handle, on_portion=print)
    with pytest.raises(ConfigurationError, match="takes a filter"):
        await change(where="failed")
    assert await _states(fake_client, handle) == ["scheduled"]


async def test_what_a_callback_raises_ends_it_after_its_portion(each_client: Client) -> None:
    client = each_client
    failed = await _failed(client, 5)

    def stop(_portion: Changes, total: Counter[Changed]) -> None:
        if total.total() == 4:
            raise LookupError("enough")

    with pytest.raises(LookupError) as caught:
        await client.retry(where=FAILED, on_portion=stop)
    assert caught.value.__notes__ == ["raised by on_portion=, after 4 jobs: 4 done"]
    assert await _states(client, *failed) == ["ready"] * 4 + ["failed"]
    assert await client.retry(where=FAILED) == {Changed.DONE: 1}  # it goes on with the rest


@pytest.mark.parametrize("error", [StoreContended("held"), RowRejected("odd")], ids=lambda each: type(each).__name__)
async def test_a_portion_that_cannot_be_changed_stops_no_other(fake: FakeStore, fake_client: Client, error: Exception) -> None:
    failed = await _failed(fake_client, 5)
    fake.faults["retry"] = [error]
    portions: list[Changes] = []
    with pytest.raises(type(error)) as caught:
        await fake_client.retry(where=FAILED, on_portion=lambda portion, _: portions.append(portion))
    assert caught.value.changed == {Changed.DONE: 3}
    assert [f"from {failed[0].id} to {failed[1].id}" in each for each in caught.value.__notes__] == [True]
    assert await _states(fake_client, *failed) == ["failed"] * 2 + ["ready"] * 3
    assert [len(each) for each in portions] == [2, 1]


@pytest.mark.parametrize("verb", ["retry", "list_ids"])
async def test_a_database_that_goes_away_ends_it_and_what_was_done_is_told(
    fake: FakeStore, fake_client: Client, verb: str
) -> None:
    failed = await _failed(fake_client, 5)

    def cut(_portion: Changes, total: Counter[Changed]) -> None:
        if total.total() == 2:
            fake.faults[verb] = ["before"]

    with pytest.raises(StoreUnavailable) as caught:
        await fake_client.retry(where=FAILED, on_portion=cut)
    assert caught.value.changed == {Changed.DONE: 2}
    assert await _states(fake_client, *failed) == ["ready"] * 2 + ["failed"] * 3
    assert await fake_client.retry(where=FAILED) == {Changed.DONE: 3}


async def test_those_that_others_wait_for_are_counted(each_client: Client) -> None:
    client = each_client
    first = await client.enqueue(add(1, 2).options(delay=HOUR))
    waiting = await client.enqueue(fetch("a").options(after=[first]))
    assert await client.delete(where=JobFilter(types=[add])) == {Changed.BLOCKS: 1}
    with pytest.raises(BlockerReference):
        await client.delete(first)
    assert await client.delete(where=JobFilter(types=[add]), cascade=True) == {Changed.DONE: 1}
    assert await _states(client, first, waiting) == [None, None]


async def test_who_holds_a_key_is_told_and_stops_no_other(each_client: Client) -> None:
    client = each_client
    unique = {"key": "k", "unique": Unique()}
    (failed,) = await _failed(client, 1, **unique)
    (other,) = await _failed(client, 1)
    holder = await client.enqueue(add(7, 7).options(delay=HOUR, **unique))
    changes = await client.retry(failed, other)
    assert changes == {failed.id: Changed.KEY_HELD, other.id: Changed.DONE}
    assert changes.holders == {failed.id: holder.id}
    told: list[Changes] = []
    where = JobFilter(states=["failed"])
    assert await client.retry(where=where, on_portion=lambda portion, _: told.append(portion)) == {Changed.KEY_HELD: 1}
    assert [each.holders for each in told] == [{failed.id: holder.id}]
    await client.delete(holder)
    assert (await client.retry(failed)).holders == {}
    assert await _states(client, failed) == ["ready"]


async def test_the_key_of_a_chain_that_went_on_counts_for_its_first_type(each_client: Client) -> None:
    client = each_client
    options: dict[str, Any] = {"key": "k", "unique": True}
    chain = await client.enqueue(count(1).options(**options))
    await go_on(client.store, add(1, 2).to_new_job())
    await work(client.store, ended(SettlementKind.FAILED, "no"))
    holder = await client.enqueue(count(1).options(delay=HOUR, **options))
    changes = await client.retry(chain)
    assert (changes, changes.holders) == ({chain.id: Changed.KEY_HELD}, {chain.id: holder.id})


async def test_in_a_transaction_it_is_one_portion_or_refused(each_client: Client) -> None:
    client = each_client
    failed = await _failed(client, 3)
    where = JobFilter(types=[add])
    async with client.transaction() as tx:
        with pytest.raises(TransactionError, match="more than 2 jobs fit"):
            await tx.retry(where=where)
        assert await tx.retry(failed[0]) == {failed[0].id: Changed.DONE}
        assert await client.retry(where=where, tx=tx) == {Changed.DONE: 2}
        assert await _states(client, *failed) == ["failed"] * 3
    assert await _states(client, *failed) == ["ready"] * 3


async def test_many_that_complete_meanwhile(each_client: Client) -> None:
    """Rows that come and go between two pages neither repeat nor hide others."""
    client = each_client
    scheduled = await client.enqueue_many([add(each, 1).options(delay=HOUR) for each in range(4)])

    async def run(_portion: Changes, _total: Counter[Changed]) -> None:
        await work(client.store, completed(b"3"))

    assert await client.run_now(where=JobFilter(states=[JobState.SCHEDULED]), on_portion=run) == {Changed.DONE: 4}
    assert await _states(client, *scheduled) == ["completed"] * 4
