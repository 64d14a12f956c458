"""Calls that wait for others are enqueued with them: once, in one transaction, and before those that wait."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import (
    BlockerCycle,
    BlockerNotFound,
    Call,
    CallAlreadyEnqueued,
    CallNeverEnqueued,
    Client,
    ConflictingOptions,
    JobHandle,
    JobState,
    OutsideTransaction,
    Registry,
    RowRejected,
)
from aioqueue.definitions._graph import graph_of
from tests.client.fake_store import FakeStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioqueue.definitions._middleware import EnqueueNext
    from aioqueue.vocabulary._job import Inserted, NewJob

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::aioqueue.CallNeverEnqueued")]


@pytest.fixture(autouse=True, scope="module")
def collected() -> Iterator[None]:
    """Calls that wait for each other are garbage in a circle: it's collected where their warning is ignored."""
    yield
    gc.collect()


registry = Registry(prefix="graphs.")


@registry.job
async def page(url: str) -> int:
    return len(url)


@registry.job
async def total(pages: list[int]) -> int:
    return sum(pages)


@registry.job
async def double(number: int) -> int:
    return 2 * number


def open_blockers(fake: FakeStore, job: Call[Any] | JobHandle[Any]) -> int:
    return fake.jobs[job.id].open_blockers


# -- which, and in which order ------------------------------------------------------------------------------------------


def test_blockers_come_before_those_that_wait_and_each_comes_once() -> None:
    first, second = page("a"), page("b")
    middle = double(first.output)
    last = total([middle.output, second.output, first.output]).options(after=[page("c")])
    assert graph_of([last])[-1] is last
    assert [each.id for each in graph_of([last])][:2] == [first.id, middle.id]
    assert len(graph_of([last])) == 5
    assert graph_of([last, first, second]) == graph_of([last])
    plain = [first, second]
    assert graph_of(plain) is plain


def test_a_line_of_ten_thousand_calls_is_put_in_order() -> None:
    line = [double(1)]
    for _ in range(9_999):
        line.append(double(line[-1].output))
    assert [each.id for each in graph_of([line[-1]])] == [each.id for each in line]
    ring = [line[0].options(after=[line[-1]])]
    with pytest.raises(BlockerCycle, match=r"more\) -> graphs\.double") as caught:
        graph_of(ring)
    assert len(str(caught.value)) < 1000


def test_ten_thousand_blockers_of_one_call_are_put_in_order() -> None:
    pages = [page(str(number)) for number in range(10_000)]
    assert len(graph_of([total([each.output for each in pages])])) == 10_001


def test_calls_that_would_wait_for_each_other_are_refused() -> None:
    first = double(1)
    with pytest.raises(BlockerCycle, match=r"wait for each other for ever: graphs\.double"):
        graph_of([first.options(after=[double(first.output)])])
    with pytest.raises(BlockerCycle):
        graph_of([first.options(after=[first])])
    second = double(2)
    one, two = first.options(after=[second]), second.options(after=[first])
    with pytest.raises(BlockerCycle):
        graph_of([one, two])
    ring = first.options(after=[double(first.output)])
    with pytest.raises(BlockerCycle):
        graph_of([double(ring.output)])


async def test_a_handle_made_of_a_calls_id_stands_for_that_call(fake_client: Client) -> None:
    def handle(call: Call[int]) -> JobHandle[int]:
        return fake_client.handle(double, call.id)

    first, second = double(1), double(2)
    waits = first.options(after=[handle(second)])
    assert graph_of([waits, second]) == [second, waits]
    third = double(handle(second).output)  # met before what it stands for
    last = total([third.output, double(second.output).output])
    assert [each.id for each in graph_of([last])][:2] == [second.id, third.id]
    between = double(handle(first).output)
    for circle in (
        [first.options(after=[handle(first)])],
        [first.options(after=[between])],
        [first.options(after=[handle(second)]), second.options(after=[handle(first)])],
        [total([between.output, first.options(after=[between]).output])],
    ):
        with pytest.raises(BlockerCycle):
            graph_of(circle)


def test_of_two_copies_of_a_call_the_one_that_is_given_counts() -> None:
    call = page("a")
    urgent, waiting = call.options(priority=1), double(call.output)
    assert graph_of([waiting, urgent])[0] is urgent
    with pytest.raises(ConflictingOptions, match="two copies of one call"):
        graph_of([total([call.output, urgent.output])])
    with pytest.raises(CallAlreadyEnqueued):
        graph_of([waiting, urgent, call])


# -- enqueueing ---------------------------------------------------------------------------------------------------------


async def test_a_call_is_enqueued_with_all_that_it_waits_for(fake: FakeStore, fake_client: Client) -> None:
    pages = [page("a"), page("b")]
    call = total([each.output for each in pages])
    handle = await fake_client.enqueue(call)
    assert handle.id == call.id
    assert fake.inserts == [(3, False)]
    assert open_blockers(fake, handle) == 2
    assert (await fake_client.job(handle)).state is JobState.BLOCKED
    assert (await fake_client.job(pages[0].id)).state is JobState.READY
    for each in (*pages, call):
        with pytest.raises(CallAlreadyEnqueued):
            await fake_client.enqueue(each)


async def test_what_was_enqueued_before_is_waited_for_by_its_id(fake: FakeStore, fake_client: Client) -> None:
    call = page("a")
    handle = await fake_client.enqueue(call)
    for output in (call.output, handle.output):
        assert open_blockers(fake, await fake_client.enqueue(double(output))) == 1
    waiting = await fake_client.enqueue(page("b").options(after=[handle, call]))
    assert open_blockers(fake, waiting) == 1
    assert [size for size, _ in fake.inserts] == [1, 1, 1, 1]
    kept = fake_client.handle(page, str(handle.id))
    assert open_blockers(fake, await fake_client.enqueue(double(kept.output))) == 1


async def test_those_with_blockers_arent_gathered_with_others(fake: FakeStore, fake_client: Client) -> None:
    handle = await fake_client.enqueue(page("a"))
    fake.faults["insert"] = [RowRejected("no")]
    with pytest.raises(RowRejected):
        await fake_client.enqueue(double(handle.output))
    assert fake.calls["insert"] == 2


async def test_many_share_what_they_wait_for(fake: FakeStore, fake_client: Client) -> None:
    shared = page("a")
    calls = [double(shared.output) for _ in range(3)]
    handles = await fake_client.enqueue_many([calls[0], shared, *calls[1:]])
    assert [each.id for each in handles] == [calls[0].id, shared.id, calls[1].id, calls[2].id]
    assert fake.inserts == [(4, False)]
    assert await fake_client.enqueue_many([]) == []


async def test_tasks_may_enqueue_what_waits_for_the_same_call_at_once(each_client: Client) -> None:
    shared, plain = page("a"), page("b")
    calls = [total([shared.output, plain.output]) for _ in range(5)]
    await asyncio.gather(*(each_client.enqueue(each) for each in (calls[0], plain, *calls[1:])), return_exceptions=True)
    states = await stored(each_client, shared, plain, *calls)
    assert states == [(READY, 0), (READY, 0)] + [(BLOCKED, 2)] * 5


async def test_what_another_task_couldnt_enqueue_is_enqueued(fake: FakeStore, fake_client: Client) -> None:
    shared = page("a")
    fake.gates["insert"] = gate = asyncio.Event()
    fake.faults["insert"] = [RowRejected("no")]
    tasks = [asyncio.create_task(fake_client.enqueue(double(shared.output))) for _ in range(2)]
    await fake.arrived.setdefault("insert", asyncio.Event()).wait()
    with pytest.raises(CallAlreadyEnqueued):
        await fake_client.enqueue(shared)  # which doesn't let go of it for the others
    gate.set()
    with pytest.raises(RowRejected):
        await tasks[0]
    assert open_blockers(fake, await tasks[1]) == 1


async def test_a_cycle_is_refused_before_anything_is_stored(fake: FakeStore, fake_client: Client) -> None:
    call = page("a")
    with pytest.raises(BlockerCycle):
        await fake_client.enqueue(call.options(after=[double(call.output)]))
    assert not fake.calls["insert"]
    await fake_client.enqueue(call)


async def test_what_failed_may_be_enqueued_again_all_of_it(fake: FakeStore, fake_client: Client) -> None:
    first = page("a")
    call = double(first.output)
    fake.faults["insert"] = [RowRejected("no")]
    with pytest.raises(RowRejected):
        await fake_client.enqueue(call)
    await fake_client.enqueue(first)
    assert open_blockers(fake, await fake_client.enqueue(call)) == 1


async def test_after_an_unclear_commit_the_graph_is_stored_once(fake: FakeStore, fake_client: Client) -> None:
    fake.faults["insert"] = ["after", "before"]
    handle = await fake_client.enqueue(double(page("a").output))
    assert handle.created
    assert len(fake.jobs) == 2
    assert open_blockers(fake, handle) == 1


async def test_a_blocker_that_isnt_there_is_said_by_its_id(fake: FakeStore, fake_client: Client) -> None:
    missing = fake_client.handle(page, page("a").to_new_job().id)
    call = double(missing.output)
    with pytest.raises(BlockerNotFound) as caught:
        await fake_client.enqueue(call)
    assert caught.value.blocker_id == missing.id
    fake.calls.clear()
    with pytest.raises(BlockerNotFound):
        await fake_client.enqueue(call)
    assert fake.inserts[-1] == (1, False)  # that nothing was stored is certain


async def test_in_place_of_one_with_a_unique_key_its_holder_is_waited_for(fake: FakeStore, fake_client: Client) -> None:
    holder = await fake_client.enqueue(page("a").options(key="k", unique=True))
    call = page("b").options(key="k", unique=True)
    waiting = await fake_client.enqueue(double(call.output))
    assert call.id not in fake.jobs
    assert [each.chain_id for each in await fake.list_blockers(waiting.id, 10)] == [holder.id]
    later = await fake_client.enqueue(double(call.output))
    assert [each.chain_id for each in await fake.list_blockers(later.id, 10)] == [holder.id]


async def test_a_holder_is_waited_for_in_a_later_chunk_too(
    fake: FakeStore, fake_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioqueue.client._chunks.CHUNK_ROWS", 2)
    holder = await fake_client.enqueue(page("a").options(key="k", unique=True))
    call = page("b").options(key="k", unique=True)
    others = [page(str(number)) for number in range(4)]
    waiting = await fake_client.enqueue(total([call.output, *(each.output for each in others)]))
    blockers = await fake.list_blockers(waiting.id, 10)
    assert [each.chain_id for each in blockers] == [holder.id, *(each.id for each in others)]


async def test_enqueue_middlewares_get_all_rows() -> None:
    seen: list[list[str]] = []

    async def middleware(jobs: Sequence[NewJob], call_next: EnqueueNext) -> Sequence[Inserted]:
        seen.append([job.type for job in jobs])
        return await call_next(jobs)

    async with Client(FakeStore(), middlewares=[middleware]) as client:
        handle = await client.enqueue(double(page("a").output))
        assert seen == [["graphs.page", "graphs.double"]]
        assert (await client.job(handle)).open_blockers == 1


async def test_calls_that_are_waited_for_dont_warn(fake_client: Client) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", CallNeverEnqueued)
        await fake_client.enqueue(total([page("a").output, double(page("b").output).output]))
        await fake_client.enqueue(double(1).options(after=[page("c")]))


# -- in transactions, on real databases ---------------------------------------------------------------------------------


async def stored(each_client: Client, *jobs: Call[Any] | JobHandle[Any]) -> list[tuple[JobState, int] | None]:
    found = await each_client.store.fetch([each.id for each in jobs])
    return [None if job is None else (job.state, job.open_blockers) for job in found]


BLOCKED, READY = JobState.BLOCKED, JobState.READY


async def test_each_door_takes_graphs(each_client: Client) -> None:
    def diamond() -> tuple[Call[int], Call[int], Call[int]]:
        top = page("a")
        return top, (middle := double(top.output)), total([top.output, middle.output])

    for door in ("alone", "many", "transaction", "tx", "using", "by name"):
        calls = diamond()
        if door == "alone":
            await each_client.enqueue(calls[-1])
        elif door == "many":
            await each_client.enqueue_many(calls[::-1])
        elif door == "by name":
            handle = await each_client.enqueue_by_name("graphs.total", {"pages": [calls[0].output, calls[1].output]})
            assert await stored(each_client, handle) == [(BLOCKED, 2)]
            calls = calls[:2]
        else:
            async with each_client.transaction() as tx:
                if door == "transaction":
                    await tx.enqueue(calls[-1])
                elif door == "tx":
                    await each_client.enqueue(calls[-1], tx=tx)
                else:
                    postgres = each_client.store.description.startswith("post")
                    await each_client.using(tx.connection if postgres else tx).enqueue(calls[-1])
        assert (await stored(each_client, *calls))[:3] == [(READY, 0), (BLOCKED, 1), (BLOCKED, 2)][: len(calls)], door


async def test_after_a_rollback_all_may_be_enqueued_again(each_client: Client) -> None:
    first = page("a")
    call = double(first.output)
    with pytest.raises(ZeroDivisionError):
        async with each_client.transaction() as tx:
            await tx.enqueue(call)
            raise ZeroDivisionError
    assert await stored(each_client, first, call) == [None, None]
    with pytest.raises(OutsideTransaction):
        async with each_client.transaction():
            await each_client.enqueue(call)
    await each_client.enqueue(call)
    assert await stored(each_client, first, call) == [(READY, 0), (BLOCKED, 1)]


async def test_a_missing_blocker_leaves_the_transaction_as_it_was(each_client: Client) -> None:
    missing = each_client.handle(page, page("a").to_new_job().id)
    async with each_client.transaction() as tx:
        kept = await tx.enqueue(page("kept"))
        with pytest.raises(BlockerNotFound):
            await tx.enqueue(double(missing.output))
        waiting = await tx.enqueue(double(kept.output))
    assert await stored(each_client, kept, waiting) == [(READY, 0), (BLOCKED, 1)]


async def test_chunks_of_one_graph_find_each_other(each_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioqueue.client._chunks.CHUNK_ROWS", 3)
    holder = await each_client.enqueue(page("held").options(key="k", unique=True))
    pages = [page(str(number)) for number in range(7)]
    keyed = page("keyed").options(key="k", unique=True)
    call = total([keyed.output, *(each.output for each in pages)])
    handle = await each_client.enqueue(double(call.output))
    assert await stored(each_client, call, handle, pages[0]) == [(BLOCKED, 8), (BLOCKED, 1), (READY, 0)]
    assert (await each_client.store.list_blockers(call.id, 1))[0].chain_id == holder.id


async def test_a_statement_stores_a_graph_too(postgres_url: str) -> None:
    async with Client(postgres_url) as client:
        first = page("a")
        call = double(first.output)
        async with client.transaction() as tx:
            sql, arguments = client.statement(call, placeholder="$1")
            await tx.fetch(sql, *arguments)
        assert await stored(client, first, call) == [(READY, 0), (BLOCKED, 1)]
        with pytest.raises(CallAlreadyEnqueued):
            await client.enqueue(first)
