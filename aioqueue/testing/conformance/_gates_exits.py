"""The cases of `SupportsGates` about leaving: whatever has a job leave a gate, by whomever, the next one comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._gates_tools import ONE_OF_A, Worker, expect_held, limit_of, with_gates
from aioqueue.testing.conformance._tools import (
    HOUR,
    OnPurposeError,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    rolled_back,
    settlement,
    take_one,
    written,
)
from aioqueue.testing.conformance._waiting import ending, ends_well
from aioqueue.vocabulary._abilities import SupportsPauses
from aioqueue.vocabulary._gates import GateRules, NewLimit
from aioqueue.vocabulary._job import JobState, SettlementKind
from aioqueue.vocabulary._pauses import NewPause, PauseTarget

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["subject"]

subject = Subject("exits")

A_AND_B = {"a": GateRules(type="a", shared="s"), "b": GateRules(type="b", shared="s")}


class _Pair:
    """A job that runs at a limit of one, and one that is held there."""

    def __init__(self, harness: Harness, running: ClaimedJob, waiting: UUID) -> None:
        self.store, self.running, self.waiting = harness.store, running, waiting
        self.worker = Worker(harness.store, ONE_OF_A)

    async def next_comes(self) -> None:
        """Raise AssertionError unless the one that was held is what is claimed now."""
        equal(await self.worker.ids(), [self.waiting], "what is claimed after the other has left")


async def _pair(harness: Harness, **fields: float) -> _Pair | None:
    if (gated := with_gates(store := harness.store)) is None:
        return None
    await gated.put_limits([limit_of("a", 1)])
    await store.insert([first := job(expires=fields.get("expires")), second := job()])
    worker = Worker(store, ONE_OF_A)
    running = await worker.one()
    equal(running.id, first.id, "what runs")
    await expect_held(store, "job:a", second.id)
    pair = _Pair(harness, running, second.id)
    pair.worker = worker
    return pair


@subject()
async def a_good_end(harness: Harness) -> None:
    """A job that has completed makes room."""
    if (pair := await _pair(harness)) is not None:
        await written(pair.store, ends_well(pair.running))
        await pair.next_comes()


@subject()
async def a_bad_end(harness: Harness) -> None:
    """So does one that has failed for good."""
    if (pair := await _pair(harness)) is not None:
        await written(pair.store, settlement(pair.running, SettlementKind.FAILED, error=failure()))
        await pair.next_comes()


@subject()
async def a_retry(harness: Harness) -> None:
    """One that waits for its next attempt has no place, and stands behind the others when it's due."""
    if (pair := await _pair(harness)) is not None:
        await written(pair.store, settlement(pair.running, SettlementKind.RETRIED, delay=HOUR / 2, error=failure()))
        await pair.next_comes()
        await harness.age(HOUR * 0.75)
        equal(await pair.worker.ids(), [], "what is claimed when its next attempt is due, while another one runs")
        await expect_held(pair.store, "job:a", pair.running.id)


@subject()
async def a_retry_at_once(harness: Harness) -> None:
    """It's due later than those that were held, and so these come first."""
    if (pair := await _pair(harness)) is not None:
        await written(pair.store, settlement(pair.running, SettlementKind.RETRIED, delay=0.0, error=failure()))
        await pair.next_comes()


@subject()
async def a_reschedule(harness: Harness) -> None:
    """One that has put itself off has no place."""
    if (pair := await _pair(harness)) is not None:
        await written(pair.store, settlement(pair.running, SettlementKind.RESCHEDULED, delay=HOUR))
        await pair.next_comes()


@subject()
async def a_chain_that_goes_on(harness: Harness) -> None:
    """A chain's next job waits at the gates of its own type: those of the one before are free."""
    if (pair := await _pair(harness)) is not None:
        await written(pair.store, settlement(pair.running, SettlementKind.CONTINUED, next=(following := job("free"))))
        await pair.next_comes()
        equal(await Worker(pair.store, {}, ["free"]).ids(), [following.id], "the chain's next job")


@subject()
async def a_chain_that_goes_on_alike(harness: Harness) -> None:
    """A chain's next job of the same type stands behind those that were held."""
    if (pair := await _pair(harness)) is not None:
        await written(pair.store, settlement(pair.running, SettlementKind.CONTINUED, next=(following := job())))
        await pair.next_comes()
        await expect_held(pair.store, "job:a", following.id)


@subject()
async def a_release(harness: Harness) -> None:
    """A claim that was given back unstarted has no place, and stands behind those that were held."""
    if (pair := await _pair(harness)) is not None:
        await pair.store.release(pair.running.lease_id, [pair.running.claim])
        await pair.next_comes()
        await expect_held(pair.store, "job:a", pair.running.id)


@subject()
async def the_end_of_a_lease(harness: Harness) -> None:
    """Nor have those that a worker had when it stopped."""
    if (pair := await _pair(harness)) is not None:
        await pair.store.release(pair.running.lease_id, [], end=True)
        pair.worker = Worker(pair.store, ONE_OF_A)
        await pair.next_comes()


@subject()
async def a_cancel_while_it_runs(harness: Harness) -> None:
    """It has its place until its body has ended."""
    if (pair := await _pair(harness)) is not None:
        await pair.store.cancel([pair.running.id], "no")
        equal(await pair.worker.ids(), [], "what is claimed before it has ended")
        await written(pair.store, settlement(pair.running, SettlementKind.CANCELLED, error=failure()))
        await pair.next_comes()


@subject()
async def a_deletion(harness: Harness) -> None:
    """A running job that is deleted has no place any more."""
    if (pair := await _pair(harness)) is not None:
        await pair.store.delete([pair.running.id])
        await pair.next_comes()


@subject()
async def a_row_that_is_gone(harness: Harness) -> None:
    """Nor has one whose row somebody has deleted with SQL."""
    if (pair := await _pair(harness)) is not None:
        await harness.erase(pair.running.id)
        await pair.next_comes()


@subject()
async def an_end_from_outside(harness: Harness) -> None:
    """Whoever ends it, whoever holds it."""
    if (pair := await _pair(harness)) is not None:
        await pair.store.end([ending(pair.running.id)])
        await pair.next_comes()


@subject()
async def an_end_in_a_transaction(harness: Harness) -> None:
    """Its place is free with the commit, and not after a rollback."""
    if (pair := await _pair(harness)) is not None:
        with rolled_back():
            async with pair.store.transaction() as tx:
                await tx.hold(pair.running.claim, pair.running.lease_id)
                await tx.settle([ends_well(pair.running)])
                raise OnPurposeError
        equal(await pair.worker.ids(), [], "what is claimed after a rollback")
        async with pair.store.transaction() as tx:
            await tx.hold(pair.running.claim, pair.running.lease_id)
            await tx.settle([ends_well(pair.running)])
        await pair.next_comes()


@subject()
async def a_recovery(harness: Harness) -> None:
    """A job whose worker is dead counts until it's recovered, and not any more then, whatever becomes of it."""
    if (pair := await _pair(harness)) is not None:
        await harness.age(2 * HOUR)
        pair.worker = Worker(pair.store, ONE_OF_A)
        await insert_one(pair.store, job())
        equal(await pair.worker.ids(), [], "what is claimed while the lease is over and nobody has recovered its job")
        await take_one(pair.store)
        equal(await pair.worker.ids(), [], "what is claimed before that is written")
        again = settlement(pair.running, SettlementKind.RETRIED, delay=HOUR, error=failure())
        await written(pair.store, again, orphaned=True)
        await pair.next_comes()


async def _come(harness: Harness, *, expires: float | None = None) -> tuple[UUID, UUID] | None:
    """A job that was let come when a place was left, and hasn't been claimed; and one that is held behind it."""
    if (gated := with_gates(store := harness.store)) is None:
        return None
    await gated.put_limits([limit_of("a", 1)])
    worker = Worker(store, ONE_OF_A)
    running = (await _inserted_and_claimed(worker)).id
    await store.insert([first := job(expires=expires), second := job()])
    equal(await worker.ids(), [], "what is claimed while one runs")
    await expect_held(store, "job:a", first.id, second.id)
    await store.delete([running])
    # Any worker lets them come, whatever types it has.
    equal(await Worker(store, {}, ["other"]).ids(), [], "what another worker claims")
    return first.id, second.id


async def _inserted_and_claimed(worker: Worker) -> ClaimedJob:
    await insert_one(worker.store, job())
    return await worker.one()


@subject()
async def one_that_has_come_and_is_cancelled(harness: Harness) -> None:
    """What was let come and won't run makes room for the next."""
    if (come := await _come(harness)) is not None:
        await harness.store.cancel([come[0]], "no")
        equal(await Worker(harness.store, ONE_OF_A).ids(), [come[1]], "what is claimed")


@subject()
async def one_that_has_come_and_is_deleted(harness: Harness) -> None:
    """So does one that is deleted."""
    if (come := await _come(harness)) is not None:
        await harness.store.delete([come[0]])
        equal(await Worker(harness.store, ONE_OF_A).ids(), [come[1]], "what is claimed")


@subject()
async def one_that_has_come_and_is_gone(harness: Harness) -> None:
    """So does one whose row somebody has deleted with SQL."""
    if (come := await _come(harness)) is not None:
        await harness.erase(come[0])
        equal(await Worker(harness.store, ONE_OF_A).ids(), [come[1]], "what is claimed")


@subject()
async def one_that_has_come_and_is_put_off(harness: Harness) -> None:
    """So does one that is due later by an operator's word."""
    if (come := await _come(harness)) is not None:
        await harness.store.reschedule([come[0]], delay=HOUR)
        equal(await Worker(harness.store, ONE_OF_A).ids(), [come[1]], "what is claimed")


@subject()
async def one_that_has_come_and_is_late(harness: Harness) -> None:
    """So does one that hasn't been started in time."""
    if (come := await _come(harness, expires=60.0)) is not None:
        await harness.age(120)
        await harness.store.tend(100)
        await expect_state(harness.store, come[0], JobState.CANCELLED)
        equal(await Worker(harness.store, ONE_OF_A).ids(), [come[1]], "what is claimed")


@subject()
async def types_that_share_a_limit_come_together(harness: Harness) -> None:
    """For one place one of each type is let come, since the other may be paused, or served by nobody."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([NewLimit(name="s", places=1)])
    both = Worker(store, A_AND_B)
    running = await insert_one(store, job("a"))
    equal(await both.ids(), [running], "what runs")
    await store.insert([job("a"), other := job("b")])
    equal(await both.ids(), [], "what is claimed while one runs")
    await store.delete([running])
    equal(await Worker(store, {"b": A_AND_B["b"]}).ids(), [other.id], "what a worker without the first type claims")


@subject()
async def a_place_is_not_lost_on_a_paused_type(harness: Harness) -> None:
    """Those of the other type run meanwhile, and the paused one afterwards."""
    store = harness.store
    if (gated := with_gates(store)) is None or not isinstance(store, SupportsPauses):
        return
    await gated.put_limits([NewLimit(name="s", places=1)])
    both = Worker(harness.store, A_AND_B)
    running = await insert_one(harness.store, job("a"))
    equal(await both.ids(), [running], "what runs")
    await harness.store.insert([paused := job("a", priority=1), other := job("b")])
    equal(await both.ids(), [], "what is claimed while one runs")
    await store.pause([NewPause(target=PauseTarget.TYPE, value="a")])
    await harness.store.delete([running])
    claimed = await both.one()
    equal(claimed.id, other.id, "what is claimed while the first type is paused")
    await store.resume(PauseTarget.TYPE, ["a"])
    equal(await both.ids(), [], "what is claimed while the other one runs")
    await written(harness.store, ends_well(claimed))
    equal(await both.ids(), [paused.id], "what is claimed after that")
