"""Unique keys and chosen ids as producers see them: handles, errors, and calls that may be enqueued again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from aioqueue import (
    CallAlreadyEnqueued,
    Client,
    DuplicateJob,
    JobHandle,
    Registry,
    RowRejected,
    StoreContended,
    StoreUnavailable,
    Unique,
    WrongJobType,
)
from aioqueue.client._chunks import cut
from aioqueue.definitions._call import Call
from aioqueue.definitions._graph import graph_of, rows_of
from tests.client.jobs import completed, work

if TYPE_CHECKING:
    from tests.client.fake_store import FakeStore

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::aioqueue.CallNeverEnqueued")]

registry = Registry(prefix="unique.")
RAISE = Unique(on_conflict="raise")
REPLACE = Unique(on_conflict="replace")


@registry.job
async def page(url: str) -> str:
    return url


@registry.job
async def other(url: str) -> str:
    return url


def keyed(url: str, unique: Unique | bool = True, key: str = "k") -> Call[str]:
    return page(url).options(key=key, unique=unique)


async def there(client: Client, *calls: Call[Any] | JobHandle[Any]) -> list[bool]:
    """Which of the jobs are stored."""
    return [job is not None for job in await client.store.fetch([each.id for each in calls])]


# -- what a call gives ----------------------------------------------------------------------------------------------------


async def test_handles_say_what_became_of_a_call(each_client: Client) -> None:
    first = await each_client.enqueue(keyed("a"))
    second = await each_client.enqueue(keyed("b"))
    third = await each_client.enqueue(keyed("c", REPLACE))
    assert [(each.id, each.created, each.replaced) for each in (first, second, third)] == [
        (first.id, True, False), (first.id, False, False), (first.id, False, True)
    ]  # fmt: skip
    assert repr(second).endswith("(was there already)>")
    assert repr(third).endswith("(was there already, and was replaced)>")
    assert (await each_client.job(first)).arguments == {"url": "c"}
    many = await each_client.enqueue_many([keyed("d"), keyed("e", REPLACE), keyed("f", key="l"), keyed("g", key="l")])
    assert [(each.id == first.id, each.created, each.replaced) for each in many] == [
        (True, False, False), (True, False, True), (False, True, False), (False, False, False)
    ]  # fmt: skip


@pytest.mark.parametrize("way", ["one", "many", "transaction", "bound"])
async def test_a_refused_call_may_be_enqueued_again(each_client: Client, way: str) -> None:
    holder = await each_client.enqueue(keyed("a"))
    child, plain = page("child"), page("plain")
    call = page(child.output).options(key="k", unique=RAISE)

    async def enqueue() -> None:
        if way == "one":
            await each_client.enqueue(call)
        elif way == "many":
            await each_client.enqueue_many([plain, call])
        else:
            async with each_client.transaction() as tx:
                kept = await tx.enqueue(page("kept"))
                with pytest.raises(DuplicateJob) as raised:
                    await (each_client.enqueue_many([plain, call], tx=tx) if way == "bound" else tx.enqueue(call))
                await tx.enqueue_many([page("goes on")])
            assert await there(each_client, kept) == [True]
            raise raised.value

    with pytest.raises(DuplicateJob) as raised:
        await enqueue()
    error = raised.value
    assert (error.job_id, error.key, error.chain_id) == (call.id, "k", holder.id)
    assert await there(each_client, child, plain, call) == [False] * 3
    await each_client.delete(holder)
    again = await each_client.enqueue_many([call, plain])
    assert all(handle.created for handle in again)
    assert await there(each_client, child, plain, call) == [True] * 3


async def test_of_gathered_calls_only_the_guilty_hear_of_it(each_client: Client) -> None:
    holder = await each_client.enqueue(keyed("a"))
    calls = [keyed(str(number), RAISE if number % 2 else True, "k" if number < 4 else f"own {number}") for number in range(8)]
    chosen = uuid4()
    calls += [page("x").options(id=chosen), page("y").options(id=chosen), page("z").options(id=holder.id)]
    wrong = other("x").options(id=holder.id)
    results = await asyncio.gather(*(each_client.enqueue(call) for call in [*calls, wrong]), return_exceptions=True)
    handles = [each for each in results if isinstance(each, JobHandle)]
    assert not [each for place, each in enumerate(results) if isinstance(each, Exception) and place not in (1, 3, 11)]
    assert [type(results[place]) for place in (1, 3, 11)] == [DuplicateJob, DuplicateJob, WrongJobType]
    assert [(handle.id == holder.id, handle.created) for handle in handles] == [
        (True, False), (True, False), *[(False, True)] * 4, (False, True), (False, False), (True, False)
    ]  # fmt: skip
    assert not calls[1].enqueued
    assert not wrong.enqueued
    assert calls[0].enqueued


# -- chosen ids -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["one", "many", "transaction"])
async def test_a_chosen_id_is_one_job_live_or_finished(each_client: Client, way: str) -> None:
    chosen = uuid4()

    async def enqueue(call: Call[str]) -> JobHandle[str]:
        if way == "one":
            return await each_client.enqueue(call)
        if way == "many":
            return (await each_client.enqueue_many([page("beside"), call]))[1]
        async with each_client.transaction() as tx:
            return await tx.enqueue(call)

    first = await enqueue(page("a").options(id=chosen))
    assert (first.id, first.created) == (chosen, True)
    live = await enqueue(page("b").options(id=str(chosen), key="k", unique=RAISE))
    await work(each_client.store, completed(b'"done"'), page.name)
    finished = await enqueue(page("c").options(id=chosen))
    for each in (live, finished):
        assert (each.id, each.created, each.replaced) == (chosen, False, False)
    assert (await each_client.job(chosen)).arguments == {"url": "a"}
    refused = other("a").options(id=chosen)
    with pytest.raises(WrongJobType):
        await each_client.enqueue(refused)
    assert (await each_client.enqueue(refused.options(id=uuid4()))).created


async def test_two_calls_with_one_chosen_id(each_client: Client) -> None:
    chosen = uuid4()
    one, two = await each_client.enqueue_many([page(each).options(id=chosen) for each in "ab"])
    assert [(each.id, each.created) for each in (one, two)] == [(chosen, True), (chosen, False)]
    chosen = uuid4()
    first, second = (page(each).options(id=chosen) for each in "ab")
    handle = await each_client.enqueue(page("c").options(after=[first, second]))
    assert await there(each_client, first, handle) == [True, True]
    assert (await each_client.job(handle)).open_blockers == 1


async def test_a_chosen_id_after_an_unclear_commit(fake: FakeStore, fake_client: Client) -> None:
    for many in (False, True):
        fake.faults["insert"] = ["after"]
        call = page("a").options(id=uuid4())
        handle = (await fake_client.enqueue_many([call]))[0] if many else await fake_client.enqueue(call)
        assert (handle.id, handle.created) == (call.id, True)
    fake.faults["insert"] = ["after"]
    twins = await fake_client.enqueue_many([page(each).options(id=call.id) for call in [page("t")] for each in "ab"])
    assert [each.created for each in twins] == [True, False]
    call, again = page("a").options(id=uuid4()), page("b").options(id=uuid4())
    fake.faults["commit"] = ["after"]
    with pytest.raises(StoreUnavailable):
        async with fake_client.transaction() as tx:
            await tx.enqueue_many([call, again])
    fake.finish(call.id, again.id)
    async with fake_client.transaction() as tx:
        assert [each.created for each in await tx.enqueue_many([call, again])] == [True, True]
        with pytest.raises(WrongJobType):
            await tx.enqueue(other("x").options(id=call.id))
    assert len(fake.jobs) == 5


async def test_a_neighbour_that_is_refused_takes_nothing_back(fake: FakeStore, fake_client: Client) -> None:
    """A batch that fails may have stored some of its jobs: they're looked for."""
    fake.faults["insert"] = [RowRejected("one of them")]
    calls = [keyed(str(number), key=str(number)) for number in range(4)]
    handles = await asyncio.gather(*(fake_client.enqueue(call) for call in calls))
    assert all(handle.created for handle in handles)
    assert fake.inserts == [(2, True), (2, True)]
    await fake_client.enqueue(keyed("x", key="x"))
    assert fake.inserts[2:] == [(1, False)]


@pytest.mark.parametrize("trouble", [StoreContended("somebody has a key"), RowRejected("one of them")])
async def test_a_chosen_id_from_long_ago_isnt_its_callers_own_for_a_neighbours_trouble(
    fake: FakeStore, fake_client: Client, trouble: Exception
) -> None:
    """Nothing of what failed for a neighbour was stored: so what is found by the next try is somebody else's."""
    chosen = (await fake_client.enqueue(page("a").options(id=uuid4()))).id
    fake.faults["insert"] = [trouble]
    handles = await asyncio.gather(
        *(fake_client.enqueue(call) for call in (keyed("b"), page("b").options(id=chosen), keyed("c", key="c")))
    )
    assert [each.created for each in handles] == [True, False, True]
    if isinstance(trouble, StoreContended):
        fake.faults["insert"] = [trouble]
        many = await fake_client.enqueue_many([keyed("d", key="d"), page("d").options(id=chosen)])
        assert [each.created for each in many] == [True, False]


# -- what a call waits for -------------------------------------------------------------------------------------------------


async def test_what_only_an_unused_call_waits_for_isnt_stored(each_client: Client) -> None:
    holder = await each_client.enqueue(keyed("a"))
    deep = page("deep")
    child = page(deep.output)
    shared, given = page("shared"), page("given")
    call = page("b").options(key="k", unique=True, after=[child, shared, given])
    waits = page(shared.output)
    handles = await each_client.enqueue_many([call, given, waits])
    assert [(handle.id, handle.created) for handle in handles] == [(holder.id, False), (given.id, True), (waits.id, True)]
    assert await there(each_client, deep, child, shared) == [False, False, True]
    assert (deep.enqueued, child.enqueued, shared.enqueued) == (False, False, True)
    # The unused call stands for what is there; what it would have waited for may be enqueued, or waited for, later.
    behind = await each_client.enqueue(page(call.output).options(after=[child]))
    assert await there(each_client, deep, child) == [True, True]
    assert {each.chain_id for each in await each_client.blockers(behind)} == {holder.id, child.id}
    with pytest.raises(CallAlreadyEnqueued):
        await each_client.enqueue(child)


async def test_what_a_replaced_job_waits_for_is_stored(each_client: Client) -> None:
    holder = await each_client.enqueue(keyed("a"))
    child = page("child")
    handle = await each_client.enqueue(page(child.output).options(key="k", unique=REPLACE))
    assert (handle.id, handle.replaced) == (holder.id, True)
    assert child.enqueued
    assert [each.chain_id for each in await each_client.blockers(holder)] == [child.id]


async def test_in_a_transaction_that_is_rolled_back_later(each_client: Client) -> None:
    """What was left out, and enqueued elsewhere since, stays enqueued."""
    await each_client.enqueue(keyed("a"))
    child = page("child")
    with pytest.raises(ZeroDivisionError):
        async with each_client.transaction() as tx:
            await tx.enqueue(page(child.output).options(key="k", unique=True))
            child.mark_enqueueing()
            raise ZeroDivisionError
    assert child.enqueued


async def test_chunks_are_not_cut_between_what_belongs_together(each_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioqueue.client._chunks.CHUNK_ROWS", 2)
    holder = await each_client.enqueue(keyed("a"))
    children = [page(str(number)) for number in range(5)]
    call = page("b").options(key="k", unique=True, after=children)
    late = page(children[0].output)
    handles = await each_client.enqueue_many([page("first"), page("second"), page("third"), call, late])
    assert [handle.created for handle in handles] == [True, True, True, False, True]
    assert handles[3].id == holder.id
    assert await there(each_client, *children) == [True, *[False] * 4]
    refused = [page("x"), page("y"), page("z"), keyed("b", RAISE)]
    async with each_client.transaction() as tx:
        with pytest.raises(DuplicateJob):
            await tx.enqueue_many(refused)
    assert await there(each_client, *refused) == [False] * 4


def sizes(*calls: Call[Any]) -> list[int]:
    return [len(chunk) for chunk in cut(rows_of(graph_of(calls), calls))]


def test_where_chunks_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioqueue.client._chunks.CHUNK_ROWS", 2)
    plain = [page(str(number)) for number in range(5)]
    assert sizes(*plain) == [2, 2, 1]
    assert sizes(*plain[:2], keyed("a", RAISE)) == [3]
    assert sizes(*plain[:2], page("a").options(id=uuid4())) == [3]
    assert sizes(*plain, keyed("a")) == [2, 2, 2]
    waits = page("a").options(after=[page("b"), page("c"), page("d")])
    assert sizes(waits) == [2, 2]
    assert not any(row.implied for chunk in cut(rows_of(graph_of([waits]), [waits])) for row in chunk)
    held = page("a").options(after=[page("b"), page("c"), page("d")], key="k", unique=True)
    assert sizes(*plain, held) == [2, 2, 5]
    assert sizes(held, *plain) == [4, 2, 2, 1]
    assert sizes(page("e").options(after=[page("f")]), held, *plain) == [2, 4, 2, 2, 1]
