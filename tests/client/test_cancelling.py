"""Asking jobs to end: by ids, handles and filters, and in transactions. What becomes of running ones is the workers' tests'."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Cancellation, Client, JobCancelled, JobFilter, JobState, NotCommitted, OutsideTransaction, ReasonCode
from aioqueue.errors import StoreContended, StoreUnavailable
from tests.client.chains import count, go_on
from tests.client.jobs import add, completed, fetch, nothing, work

if TYPE_CHECKING:
    from collections import Counter
    from uuid import UUID

    from aioqueue import JobHandle
    from tests.client.fake_store import FakeStore

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


async def _running(client: Client) -> JobHandle[None]:
    handle = await client.enqueue(nothing())
    await client.store.claim(await client.store.open_lease("one", 600), [nothing.name], 1)
    return handle


async def _state(client: Client, handle: JobHandle[Any]) -> JobState:
    return (await client.chain(handle)).state


async def test_each_answer(each_client: Client) -> None:
    client = each_client
    done = await client.enqueue(add(1, 2))
    await work(client.store, completed(b"3"))
    waits = await client.enqueue(fetch("a").options(delay=HOUR))
    blocked = await client.enqueue(add(1, 2).options(after=[waits]))
    runs = await _running(client)
    gone = "0" * 32
    became = await client.cancel(waits, blocked, runs, done, gone, str(waits.id), reason="not wanted any more")
    assert list(became.items()) == [
        (waits.id, Cancellation.CANCELLED),
        (blocked.id, Cancellation.CANCELLED),
        (runs.id, Cancellation.CANCELLING),
        (done.id, Cancellation.FINISHED),
        (type(done.id)(gone), Cancellation.NOT_FOUND),
    ]
    for handle in (waits, blocked):  # though the one waits for the other
        with pytest.raises(JobCancelled, match="was cancelled: Cancelled: not wanted any more"):
            await handle.result(timeout=0)
    assert (await runs.snapshot()).cancel_reason == "not wanted any more"
    assert await client.cancel(runs, reason="the first one counts") == {runs.id: Cancellation.CANCELLING}
    assert (await client.job(runs)).cancel_reason == "not wanted any more"


async def test_a_handle_and_any_step_stand_for_the_chain(each_client: Client) -> None:
    client = each_client
    chain = await client.enqueue(count(2))
    await go_on(client.store, count(1).options(delay=HOUR).to_new_job())
    assert await chain.cancel(reason="enough") is Cancellation.CANCELLED
    assert await chain.cancel() is Cancellation.FINISHED
    end = await client.chain(chain)
    assert (end.position, end.state, str(end.last_error)) == (1, JobState.CANCELLED, "Cancelled: enough")


async def test_by_filter_all_that_are_unfinished(each_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client = each_client
    monkeypatch.setattr("aioqueue.client._portions.PORTION_JOBS", 2)
    done = await client.enqueue(add(0, 0).options(tags=["t"]))
    await work(client.store, completed(b"3"))
    tagged = await client.enqueue_many([add(each, 1).options(tags=["t"], delay=HOUR) for each in range(3)])
    other = await client.enqueue(fetch("a").options(key="k", delay=HOUR))
    runs = await _running(client)
    told: list[tuple[list[UUID], int]] = []

    def tell(portion: dict[UUID, Cancellation], total: Counter[Cancellation]) -> None:
        told.append((list(portion), total[Cancellation.CANCELLED]))

    assert await client.cancel(where=JobFilter(tag="t"), on_portion=tell) == {Cancellation.CANCELLED: 3}
    assert [total for _, total in told] == [2, 3]
    assert [each for portion, _ in told for each in portion] == [each.id for each in reversed(tagged)]
    assert await client.cancel(where=JobFilter(tag="t")) == {}  # safe to repeat
    assert await client.cancel(where=JobFilter(types=[nothing, add])) == {Cancellation.CANCELLING: 1}
    assert await client.cancel(where=JobFilter(key="k"), reason="by its key") == {Cancellation.CANCELLED: 1}
    assert await _state(client, other) is JobState.CANCELLED
    assert (await client.job(done)).state is JobState.COMPLETED
    assert (await client.job(runs)).cancel_reason == ""


async def test_in_a_transaction(each_client: Client) -> None:
    client = each_client
    first, second = await client.enqueue_many([add(each, 1).options(delay=HOUR) for each in range(2)])
    runs = await _running(client)
    with pytest.raises(ZeroDivisionError):
        async with client.transaction() as tx:
            assert await tx.cancel(first, runs) == {first.id: Cancellation.CANCELLED, runs.id: Cancellation.CANCELLING}
            raise ZeroDivisionError
    assert await _state(client, first) is JobState.SCHEDULED
    assert (await client.job(runs)).cancel_reason is None
    async with client.transaction() as tx:
        new = await tx.enqueue(fetch("a"))
        for change in (new.cancel, client.cancel):
            with pytest.raises((NotCommitted, OutsideTransaction)):
                await change(reason="beside it")
        with pytest.raises(OutsideTransaction):
            await first.cancel()
        assert await client.using(tx).cancel(new, reason="no") == {new.id: Cancellation.CANCELLED}
        assert await client.cancel(where=JobFilter(types=[add]), tx=tx) == {Cancellation.CANCELLED: 2}
        assert await tx.cancel(runs, reason="within") == {runs.id: Cancellation.CANCELLING}
    states = [await _state(client, each) for each in (first, second, new, runs)]
    assert states == [JobState.CANCELLED] * 3 + [JobState.RUNNING]
    assert (await client.job(runs)).cancel_reason == "within"


async def test_why_says_that_it_was_asked_to_end(each_client: Client) -> None:
    handle = await _running(each_client)
    assert ReasonCode.CANCELLING not in [each.code for each in (await each_client.why(handle)).reasons]
    await handle.cancel(reason="no")
    first, second = (await each_client.why(handle)).reasons
    assert (first.code, second.code) == (ReasonCode.CANCELLING, ReasonCode.RUNNING)
    assert first.text.startswith("it was asked to end: no; its worker is told")
    assert first.advice


async def test_a_retried_one_begins_without_the_request(each_client: Client) -> None:
    client = each_client
    handle = await client.enqueue(nothing().options(delay=HOUR))
    await handle.cancel(reason="no")
    await client.retry(handle)
    assert (await client.job(handle)).cancel_reason is None
    assert [job.id for job in await work(client.store, completed(b"null"))] == [handle.id]
    assert await _state(client, handle) is JobState.COMPLETED


async def test_a_reason_is_text(fake_client: Client) -> None:
    handle = await fake_client.enqueue(add(1, 2))
    wrong: Any = 5
    for cancel in (handle.cancel, fake_client.cancel):
        with pytest.raises(TypeError, match="a reason is text"):
            await cancel(reason=wrong)
    assert await _state(fake_client, handle) is JobState.READY


async def test_what_was_asked_for_before_an_error_is_told(
    fake: FakeStore, fake_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioqueue.client._portions.PORTION_JOBS", 1)
    first, second = await fake_client.enqueue_many([add(each, 1) for each in range(2)])

    def lose(*_: object) -> None:
        fake.faults["cancel"] = ["before"]

    with pytest.raises(StoreUnavailable) as caught:
        await fake_client.cancel(where=JobFilter(types=[add]), on_portion=lose)
    assert caught.value.changed == {Cancellation.CANCELLED: 1}
    fake.faults["cancel"] = [StoreContended("held")]
    with pytest.raises(StoreContended) as contended:
        await fake_client.cancel(second, first)
    assert contended.value.changed == {}
    assert await fake_client.cancel(second, first) == {second.id: Cancellation.FINISHED, first.id: Cancellation.CANCELLED}
