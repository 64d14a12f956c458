"""The cases of `SupportsGates` about what is held: what operators, keys, deadlines and retries make of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._gates_tools import ONE_BY_TENANT, ONE_OF_A, Worker, expect_held, limit_of, tenant, with_gates
from aioqueue.testing.conformance._tools import HOUR, equal, expect_state, insert_one, job, states_of
from aioqueue.testing.conformance._waiting import after, complete, fail, settled_after, start_blocker
from aioqueue.vocabulary._abilities import SupportsPauses
from aioqueue.vocabulary._answers import Cancellation, Changed
from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._listing import JobFilter
from aioqueue.vocabulary._pauses import NewPause, PauseTarget
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import ClaimedJob, NewJob

__all__ = ["subject"]

subject = Subject("held_at_gates")


async def _hold(harness: Harness, *new: NewJob) -> tuple[Worker, ClaimedJob] | None:
    """Jobs that are held at a limit of one, where another one runs; None if the store hasn't got gates."""
    if (gated := with_gates(store := harness.store)) is None:
        return None
    await gated.put_limits([limit_of("a", 1)])
    worker = Worker(store, ONE_OF_A)
    await insert_one(store, job())
    running = await worker.one()
    await store.insert(new)
    equal(await worker.ids(), [], "what is claimed while one runs")
    await expect_held(store, "job:a", *(each.id for each in new))
    return worker, running


async def _order(worker: Worker, running: ClaimedJob, number: int) -> list[UUID]:
    await complete(worker.store, running)
    return await worker.in_turn(number)


@subject()
async def it_expires(harness: Harness) -> None:
    """The time within which a job must have been started goes on while it's held."""
    first, second = job(expires=60.0), job()
    if (held := await _hold(harness, first, second)) is not None:
        await harness.age(120)
        await harness.store.tend(100)
        equal(await states_of(harness.store, first.id, second.id), [JobState.CANCELLED, JobState.HELD], "the states")
        equal(await _order(*held, 1), [second.id], "what runs after that")


@subject()
async def it_is_cancelled_and_deleted(harness: Harness) -> None:
    """At once, and those behind it come all the same."""
    jobs = [job(), job(), job()]
    if (held := await _hold(harness, *jobs)) is not None:
        equal(list(await harness.store.cancel([jobs[0].id], "no")), [Cancellation.CANCELLED], "what became of the cancel")
        equal(list(await harness.store.delete([jobs[1].id])), [Changed.DONE], "what became of the deletion")
        equal(await _order(*held, 1), [jobs[2].id], "what runs after that")


@subject()
async def one_that_is_to_run_now_comes_first(harness: Harness) -> None:
    """Of those of its priority that wait there, and never past the limit."""
    jobs = [job(), job(), job()]
    if (held := await _hold(harness, *jobs)) is not None:
        equal(list(await harness.store.run_now([jobs[2].id])), [Changed.DONE], "what became of it")
        equal(await held[0].ids(), [], "what is claimed while another one runs")
        equal(await _order(*held, 3), [jobs[2].id, jobs[0].id, jobs[1].id], "the order after that")


@subject()
async def one_that_is_put_off_waits_for_its_time(harness: Harness) -> None:
    """It keeps nobody from the place that becomes free, and comes when it's due."""
    first, second = job(priority=1), job()
    if (held := await _hold(harness, first, second)) is not None:
        equal(list(await harness.store.reschedule([first.id], delay=HOUR / 2)), [Changed.DONE], "what became of it")
        equal(await _order(*held, 1), [second.id], "what runs before its time")
        await harness.age(HOUR * 0.75)
        equal(await held[0].ids(), [first.id], "what runs when it's due")


@subject()
async def a_retry_waits_like_others(harness: Harness) -> None:
    """What has failed and is retried by an operator is let through or held."""
    if (held := await _hold(harness, other := job())) is not None:
        worker, running = held
        await fail(harness.store, running)
        claimed = await worker.one()
        equal(claimed.id, other.id, "what runs after the one that has failed")
        await harness.store.retry([running.id])
        equal(await worker.ids(), [], "what is claimed beside that")
        await expect_held(harness.store, "job:a", running.id)
        equal(await _order(worker, claimed, 1), [running.id], "what runs after that")


@subject()
async def another_job_takes_its_place(harness: Harness) -> None:
    """One with the same unique key that replaces it waits at the gates that it has itself."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 1)])
    worker = Worker(store, ONE_BY_TENANT)
    unique = Unique(on_conflict="replace")
    await insert_one(store, job(payload=tenant("x")))
    await worker.one()
    await insert_one(store, held := job(payload=tenant("x"), key="k", unique=unique))
    equal(await worker.ids(), [], "what is claimed while one runs")
    await expect_held(store, 'job:a="x"', held.id)
    (inserted,) = await store.insert([job(payload=tenant("y"), key="k", unique=unique)])
    equal((inserted.id, inserted.replaced), (held.id, True), "what became of the other one")
    claimed = await worker.one()
    equal((claimed.id, claimed.payload), (held.id, tenant("y")), "what runs then")


@subject()
async def one_that_waits_for_others_comes_to_its_gate_later(harness: Harness) -> None:
    """It's blocked until they have ended, and stands at no gate before that."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 1)])
    blocker = await start_blocker(store)
    waiting = after(job(priority=1), blocker.id)
    await store.insert([waiting, first := job()])
    worker = Worker(store, ONE_OF_A)
    claimed = await worker.one()
    equal(claimed.id, first.id, "what runs")
    await expect_state(store, waiting.id, JobState.BLOCKED)
    await complete(store, blocker)
    equal(await worker.ids(), [], "what is claimed while the other one runs")
    await expect_held(store, "job:a", waiting.id)
    equal(await _order(worker, claimed, 1), [waiting.id], "what runs after that")


@subject()
async def those_that_wait_for_it_are_told_of_its_end(harness: Harness) -> None:
    """Also where it ends without having run."""
    if (held := await _hold(harness, first := job())) is not None:
        store = harness.store
        dependent = await insert_one(store, settled_after(job("b"), first.id))
        await store.cancel([first.id], "no")
        await expect_state(store, dependent, JobState.READY)
        equal(await _order(*held, 0), [], "what is left")


@subject()
async def it_is_found_by_its_state(harness: Harness) -> None:
    """Among those that are held, and counted with them."""
    first, second = job(), job()
    if await _hold(harness, first, second) is not None:
        page = await harness.store.list(JobFilter(states=frozenset({JobState.HELD})), 10)
        equal(sorted(each.id for each in page.jobs), sorted([first.id, second.id]), "what is held")


@subject()
async def it_waits_for_no_pause(harness: Harness) -> None:
    """How many wait for a pause to end: not those that wait at a gate before that. One that's parked for its key does."""
    store = harness.store
    if isinstance(store, SupportsPauses) and await _hold(harness, job(), job(key="k")) is not None:
        await store.pause([NewPause(target=PauseTarget.KEY, value="k", by="me")])
        due = await insert_one(store, job("b", key="k"))
        equal(await Worker(store, {}, ["b"]).ids(), [], "what is claimed while its key is paused")
        await expect_held(store, "pause:k", due)
        others = [NewPause(target=PauseTarget.ALL, by="me"), NewPause(target=PauseTarget.TYPE, value="a", by="me")]
        await store.pause(others)
        waiting = {(each.target, each.value): each.waiting for each in await store.list_pauses()}
        equal(waiting, {(PauseTarget.ALL, ""): 1, (PauseTarget.TYPE, "a"): 0, (PauseTarget.KEY, "k"): 1}, "how many wait")
