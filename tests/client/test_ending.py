"""Jobs that are completed or failed from outside, without a worker."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import asyncpg
import pytest

from aioqueue import (
    AlreadyFinished,
    ArgumentsError,
    BlockerNotFound,
    Call,
    CallAlreadyEnqueued,
    CallError,
    Client,
    ConflictingOptions,
    JobFailed,
    JobHandle,
    JobNotFound,
    JobState,
    OutsideTransaction,
    Registry,
    StoreContended,
    StoreUnavailable,
    TransactionError,
    Unique,
    WrongJobType,
    done,
)
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Ending, SettlementKind, StoredState
from tests.client.chains import go_on
from tests.client.fake_store import FakeStore

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::aioqueue.CallNeverEnqueued")]

registry = Registry(prefix="ends.")


@registry.declare
def approve(order: int) -> bool:
    raise NotImplementedError


@registry.declare
def step(number: int) -> Call[str]:
    raise NotImplementedError


@registry.job(aliases=("ends.older",), tags=["t"])
async def charge(order: int) -> int:
    return order


@registry.job
async def note(approved: bool) -> None: ...


async def test_a_job_is_completed_whatever_its_state_is(each_client: Client) -> None:
    ready = await each_client.enqueue(approve(1))
    later = await each_client.enqueue(approve(2).options(delay=timedelta(hours=1)))
    blocked = await each_client.enqueue(approve(3).options(after=[later]))
    running = await each_client.enqueue(charge(4))
    lease = await each_client.store.open_lease("w", 60)
    (claimed,) = await each_client.store.claim(lease, ["ends.charge"], 1)
    for handle in (ready, blocked, later):
        await each_client.complete(approve, handle, True)
        assert await handle.result(timeout=5) is True
    await each_client.complete(charge, str(running.id), 5)
    assert await running.result(timeout=5) == 5
    session = each_client.store.lease_session()
    renewal = await asyncio.to_thread(session.renew, lease, 60, [claimed.claim])
    await asyncio.to_thread(session.close)
    assert [reason.value for reason in renewal.lost.values()] == ["already_completed"]


async def test_those_that_wait_go_on(each_client: Client) -> None:
    call = approve(1)
    waiting = await each_client.enqueue(note(call.output))
    await each_client.complete(approve, call.id, True)
    assert (await each_client.job(waiting)).state is JobState.READY
    (claimed,) = await each_client.store.claim(await each_client.store.open_lease("w", 60), ["ends.note"], 1)
    (ended,) = claimed.blockers
    assert (ended.chain_id, ended.output) == (call.id, b"true")


async def test_what_fails_from_outside_fails_those_that_wait_and_says_why(each_client: Client) -> None:
    call = approve(1)
    waiting = await each_client.enqueue(note(call.output))
    await each_client.fail(call.id, "no\0body\nanswered")
    with pytest.raises(JobFailed, match=r"has failed: Fail: no\\x00body\nanswered"):
        await each_client.handle(approve, call.id).result(timeout=5)
    with pytest.raises(JobFailed) as caught:
        await waiting.result(timeout=5)
    assert f"it waited for ends.approve {call.id}: failed: Fail: no" in str(caught.value)
    with pytest.raises(AlreadyFinished, match=r"can't be ended any more: it has failed") as again:
        await each_client.complete(approve, call.id, True)
    assert (again.value.state, again.value.job_id) == ("failed", call.id)
    assert "no" in str(again.value.last_error)


async def test_any_step_stands_for_the_live_one(each_client: Client) -> None:
    handle = await each_client.enqueue(step(1).options(tags=["a"], metadata={"tenant": 1, "x": 1}))
    following = step(2).options(tags=["b"], metadata={"x": 2})
    await each_client.complete(step, handle, following)
    job = await each_client.chain(handle)
    assert (job.id, job.position, job.tags, job.metadata) == (following.id, 1, ("a", "b"), {"tenant": 1, "x": 2})
    with pytest.raises(CallAlreadyEnqueued):
        await each_client.enqueue(following)
    await each_client.complete(step, following.id, done("over"))
    assert await handle.result(timeout=5) == "over"
    with pytest.raises(AlreadyFinished) as caught:
        await each_client.complete(step, handle.id, "again")
    assert caught.value.chain_id == handle.id


async def test_a_chain_continues_with_what_waits(each_client: Client) -> None:
    handle = await each_client.enqueue(step(1))
    before = approve(1)
    following = step(2).options(after=[before])
    await each_client.complete(step, handle, following)
    job = await each_client.chain(handle)
    assert (job.state, job.open_blockers) == (JobState.BLOCKED, 1)
    assert (await each_client.job(before.id)).state is JobState.READY
    await each_client.complete(approve, before.id, True)
    assert (await each_client.chain(handle)).state is JobState.READY
    gone = each_client.handle(approve, approve(1).to_new_job().id)
    last = step(3).options(after=[gone])
    with pytest.raises(BlockerNotFound):
        await each_client.complete(step, handle, last)
    assert (await each_client.chain(handle)).id == following.id
    await each_client.complete(step, handle, last.options(after=None))


async def test_the_wrong_type_and_the_wrong_result_are_refused(each_client: Client) -> None:
    handle = await each_client.enqueue(approve(1))
    with pytest.raises(WrongJobType, match=r"is of ends\.approve, and was to be completed as ends\.charge") as caught:
        await each_client.complete(charge, handle, 1)
    assert caught.value.job_type == "ends.approve"
    with pytest.raises(ArgumentsError) as wrong:
        await each_client.complete(approve, handle, cast("Any", "yes"))
    assert wrong.value.path == "output"
    with pytest.raises(CallError, match="isn't annotated to continue"):
        await each_client.complete(approve, handle, cast("Any", approve(2)))
    with pytest.raises(ArgumentsError, match="can only be passed on"):
        await each_client.complete(approve, handle, handle.output)
    with pytest.raises(TypeError):
        await each_client.complete(cast("Any", "ends.approve"), handle, True)
    with pytest.raises(TypeError):
        await each_client.fail(handle, "")
    for options in ({"key": "k"}, {"key": "k", "unique": Unique(on_conflict="raise")}, {"id": new_id()}):
        with pytest.raises(ConflictingOptions, match="leave"):
            await each_client.complete(step, await each_client.enqueue(step(1)), step(2).options(**cast("Any", options)))
    with pytest.raises(JobNotFound):
        await each_client.fail(approve(1).to_new_job().id, "nobody")
    with pytest.raises(ValueError, match="id"):
        await each_client.fail("x", "nobody")
    assert (await each_client.job(handle)).state is JobState.READY


async def test_older_names_and_handlers_of_declared_types_are_the_same_type(each_client: Client) -> None:
    other = Registry()

    @other.implement(approve)
    async def approve_here(order: int) -> bool:
        return bool(order)

    handle = await each_client.enqueue(approve(1))
    await each_client.complete(approve_here, handle, False)
    old = await each_client.enqueue_by_name("ends.older", {"order": 1})
    await each_client.complete(charge, old, 3)
    assert (await old.result(timeout=5), await handle.result(timeout=5)) == (3, False)


async def test_in_a_transaction_it_has_happened_with_the_commit(each_client: Client) -> None:
    handle = await each_client.enqueue(approve(1))
    other = await each_client.enqueue(step(1))
    following = step(2)
    with pytest.raises(ZeroDivisionError):
        async with each_client.transaction() as tx:
            await tx.complete(approve, handle, True)
            await tx.complete(step, other, following)
            raise ZeroDivisionError
    assert [(await each_client.chain(each)).state for each in (handle, other)] == [JobState.READY, JobState.READY]
    async with each_client.transaction() as tx:
        await each_client.complete(step, other, following, tx=tx)
        await each_client.using(tx).fail(handle, "no")
        with pytest.raises(AlreadyFinished) as caught:
            await tx.complete(approve, handle, True)
        assert caught.value.state == "failed"
        enqueued = await tx.enqueue(approve(2))
        await tx.complete(approve, enqueued, True)
        with pytest.raises(OutsideTransaction):
            await each_client.fail(handle, "no")
    assert (await each_client.chain(other)).id == following.id
    assert (await each_client.job(handle)).state is JobState.FAILED
    with pytest.raises(TransactionError):
        await tx.fail(handle, "no")


async def test_on_a_users_own_connection_it_has_happened_with_their_commit(each_url: str) -> None:
    async with Client(each_url) as client:
        handle, other = await client.enqueue_many([approve(1), approve(2)])
        waiting = await client.enqueue(note(handle.output))
        if each_url.startswith("sqlite"):
            with closing(sqlite3.connect(each_url.removeprefix("sqlite:///"), isolation_level=None)) as file:
                file.execute("begin immediate")
                await end_on(client, file, handle, other)
                assert (await client.job(handle)).state is JobState.READY
                file.execute("commit")
        else:
            connection = await asyncpg.connect(each_url)
            async with connection.transaction():
                await end_on(client, connection, handle, other)
                assert (await client.job(handle)).state is JobState.READY
            await connection.close()
        states = [(await client.job(each)).state for each in (handle, other, waiting)]
        assert states == [JobState.COMPLETED, JobState.FAILED, JobState.READY]


async def end_on(client: Client, connection: Any, handle: JobHandle[bool], other: JobHandle[bool]) -> None:
    await client.complete(approve, handle, True, tx=connection)
    await client.using(connection).fail(other, "no")
    with pytest.raises(AlreadyFinished):
        await client.fail(handle, "no", tx=connection)


# -- races, and answers that are lost -----------------------------------------------------------------------------------


class Racing(FakeStore):
    """Before jobs are ended, something else happens to them."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[Any] = []

    async def end(self, endings: Sequence[Ending], *, tx: object | None = None) -> Sequence[bool]:
        if self.before:
            await self.before.pop(0)
        return await super().end(endings, tx=tx)


async def test_a_step_that_moved_on_meanwhile_is_found_again() -> None:
    store = Racing()
    async with Client(store) as client:
        handle = await client.enqueue_by_name("chains.count", {"left": 1})
        rows = [Call(cast("Any", handle.job_type), b"{}").to_new_job() for _ in range(2)]
        store.before = [go_on(store, row) for row in rows]
        await client.fail(handle, "stop")
        assert (await client.chain(handle)).id == rows[-1].id
        assert (await client.chain(handle)).state is JobState.FAILED


async def test_losing_the_race_says_with_what() -> None:
    store = Racing()
    async with Client(store) as client:
        handle = await client.enqueue(approve(1))
        ending = Ending(id=handle.id, kind=SettlementKind.COMPLETED, output=b"false")
        store.before = [FakeStore.end(store, [ending])]
        with pytest.raises(AlreadyFinished, match="has completed"):
            await client.complete(approve, handle, True)
        assert await handle.result() is False


@pytest.mark.parametrize("how", ["value", "call", "failure"])
async def test_an_answer_that_was_lost_is_told_after_all(how: str, fake: FakeStore, fake_client: Client) -> None:
    handle = await fake_client.enqueue(step(1))
    fake.faults["end"] = ["after"]
    if how == "value":
        await fake_client.complete(step, handle, "over")
    elif how == "call":
        await fake_client.complete(step, handle, step(2))
    else:
        await fake_client.fail(handle, "no")
    assert fake.calls["end"] == 1
    expected = {"value": StoredState.COMPLETED, "call": StoredState.CONTINUED, "failure": StoredState.FAILED}
    assert fake.jobs[handle.id].state is expected[how]


async def test_what_stays_unclear_may_be_repeated(fake: FakeStore) -> None:
    async with Client(fake, retry_for=0) as client:
        handle = await client.enqueue(step(1))
        following = step(2)
        fake.faults["end"] = ["after"]
        with pytest.raises(StoreUnavailable):
            await client.complete(step, handle, following)
        await client.complete(step, handle, following)
        assert (await client.chain(handle)).id == following.id
        fake.faults["end"] = ["before"]
        with pytest.raises(StoreUnavailable):
            await client.fail(handle, "no")
        await client.fail(handle, "no")


async def test_somebody_elses_lock_is_waited_for(fake: FakeStore, fake_client: Client) -> None:
    handle = await fake_client.enqueue(approve(1))
    fake.faults["end"] = [StoreContended("locked")]
    await fake_client.complete(approve, handle, True)
    assert fake.calls["end"] == 2


async def test_many_may_end_one_job_and_one_of_them_does(each_client: Client) -> None:
    handle = await each_client.enqueue(approve(1))

    async def end(number: int) -> int | None:
        try:
            await each_client.fail(handle, f"number {number}")
        except AlreadyFinished:
            return None
        return number

    (won,) = [each for each in await asyncio.gather(*map(end, range(8))) if each is not None]
    assert (await each_client.job(handle)).errors[-1].message == f"number {won}"


async def test_handles_are_taken_too(fake_client: Client) -> None:
    handle: JobHandle[bool] = await fake_client.enqueue(approve(1))
    await fake_client.complete(approve, handle, True)
    assert await handle.result() is True


async def test_why_says_that_it_was_ended_from_outside(each_client: Client) -> None:
    done, failed = await each_client.enqueue_many([approve(1), approve(2)])
    waiting = await each_client.enqueue(note(failed.output))
    await each_client.complete(approve, done, True)
    await each_client.fail(failed, "no")
    texts = [(await each_client.why(each)).reasons[0].text for each in (done, failed, waiting)]
    assert texts[0].startswith("it was completed from outside at ")
    assert all(text.startswith("it failed for good at ") for text in texts[1:])
    assert not any("attempt" in text for text in texts)
    with pytest.raises(BlockerNotFound, match="it was never committed, or was deleted"):
        await each_client.enqueue(approve(3).options(after=[each_client.handle(approve, new_id())]))
