"""The cases of `Store.write_phases` and what is shown of phases."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    claim_one,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    near,
    settlement,
    snapshot,
    start_one,
    take_one,
    written,
)
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import JobState, LostReason, SettlementKind
from aioqueue.vocabulary._listing import JobFilter
from aioqueue.vocabulary._phases import PhaseState, PhaseWrite, ProgressWrite
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import ClaimedJob
    from aioqueue.vocabulary._phases import Phase

__all__ = ["advance", "phase_of", "phases", "progress_of", "states"]

phases = Subject("phases")

RUNNING, COMPLETED, FAILED, CANCELLED = PhaseState.RUNNING, PhaseState.COMPLETED, PhaseState.FAILED, PhaseState.CANCELLED


def phase_of(claimed: ClaimedJob, name: str, state: PhaseState = RUNNING, result: bytes | None = None) -> PhaseWrite:
    """Where a phase of a claimed job stands."""
    if state is COMPLETED and result is None:
        result = b"1"
    return PhaseWrite(id=claimed.id, claims=claimed.claims, lease_id=claimed.lease_id, name=name, state=state, result=result)


def progress_of(claimed: ClaimedJob, percent: float, message: str | None = None, phase: str | None = None) -> ProgressWrite:
    """How far a claimed job has come."""
    names = () if phase is None else ("one", "two")
    return ProgressWrite(
        id=claimed.id,
        claims=claimed.claims,
        lease_id=claimed.lease_id,
        percent=percent,
        message=message,
        phase=phase,
        phases=names,
    )


async def advance(store: Store, claimed: ClaimedJob, **phases: PhaseState) -> None:
    """Store where phases stand, one after the other, which must be accepted."""
    for name, state in phases.items():
        equal(list(await store.write_phases([phase_of(claimed, name, state)])), [None], f"what is said of {name} {state}")


def states(phases: Sequence[Phase]) -> dict[str, PhaseState]:
    """The phases' states by their names, in order."""
    return {each.name: each.state for each in phases}


async def _stored(store: Store, job_id: UUID) -> dict[str, PhaseState]:
    return states(await store.fetch_phases(job_id))


@phases()
async def begin_and_end(harness: Harness) -> None:
    """A phase runs, and is completed with its result, or has failed; phases are in the order in which they began."""
    store = harness.store
    claimed = await start_one(store, await store.open_lease("w", HOUR))
    for job_id in (claimed.id, new_id()):
        equal(list(await store.fetch_phases(job_id)), [], "the phases at first")
    await advance(store, claimed, zebra=RUNNING)
    (begun,) = await store.fetch_phases(claimed.id)
    equal((begun.state, begun.result_json, begun.finished_at), (RUNNING, None, None), "a phase that runs")
    result = rb'{"text":"a\u0000b","n":[1,2.5,null]}'
    for _ in range(2):  # as after an unclear commit
        equal(list(await store.write_phases([phase_of(claimed, "zebra", COMPLETED, result)])), [None], "its result")
    await advance(store, claimed, ant=RUNNING)
    await advance(store, claimed, ant=FAILED)
    zebra, ant = await store.fetch_phases(claimed.id)
    equal((zebra.name, zebra.state, zebra.result_json), ("zebra", COMPLETED, result), "a phase that is completed")
    equal((ant.name, ant.state, ant.result_json), ("ant", FAILED, None), "a phase that has failed")
    for each in (zebra, ant):
        if each.started_at is None or each.finished_at is None:
            raise AssertionError(f"a phase that has ended must have begun and ended: {each!r}")
        near(each.started_at, datetime.now(UTC), f"the start of {each.name}")
        check(each.started_at <= each.finished_at, f"{each.name} must end after its start: {each!r}")
    equal(zebra.started_at, begun.started_at, "the start of what has ended")
    await advance(store, claimed, ant=RUNNING)
    again = (await store.fetch_phases(claimed.id))[1]
    equal((again.state, again.finished_at), (RUNNING, None), "a phase that is begun once more")


@phases()
async def are_shown_with_the_job(harness: Harness) -> None:
    """Snapshots by id have phases and progress, those of a chain's end too; listings have neither."""
    store = harness.store
    claimed = await start_one(store, await store.open_lease("w", HOUR), job(key="k"))
    before = await snapshot(store, claimed.id)
    equal((before.phases, before.progress), ((), None), "phases and progress at first")
    await advance(store, claimed, one=COMPLETED, two=RUNNING)
    await store.write_progress([progress_of(claimed, 62.5, "half of it 😀", "two")])
    found = await snapshot(store, claimed.id)
    equal(found.phases, tuple(await store.fetch_phases(claimed.id)), "the phases of the snapshot")
    progress = found.progress
    if progress is None:
        raise AssertionError("a snapshot must have the progress")
    shown = (progress.percent, progress.message, progress.phase, progress.phases)
    equal(shown, (62.5, "half of it 😀", "two", ("one", "two")), "the progress")
    near(progress.at, datetime.now(UTC), "the time of the progress")
    equal(list(await store.fetch_ends([claimed.id])), [found], "the snapshot of the chain's end")
    (listed,) = (await store.list(JobFilter(), 10)).jobs
    keyed = await store.find(["a"], "k")
    (step,) = (await store.list_chain(claimed.id, 10)).jobs
    for each in (listed, keyed, step):
        equal(each and (each.phases, each.progress), ((), None), "phases and progress in a listing")
    async with store.transaction() as transaction:
        operations = transaction.operations
        equal(list(await operations.fetch([claimed.id])), [found], "the snapshot within a transaction")
        equal(tuple(await operations.fetch_phases(claimed.id)), found.phases, "the phases within a transaction")
        equal(list(await operations.fetch_logs(claimed.id)), [], "the logs within a transaction")


@phases()
async def last_until_the_job_is_gone(harness: Harness) -> None:
    """A retry, a release, a lost worker, the end and an operator's retry leave phases and progress as they are."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    await advance(store, claimed, one=COMPLETED, two=RUNNING)
    await store.write_progress([progress_of(claimed, 75, None, "two")])
    phases, progress = tuple(await store.fetch_phases(claimed.id)), (await snapshot(store, claimed.id)).progress

    async def unchanged(what: str) -> None:
        equal(tuple(await store.fetch_phases(claimed.id)), phases, f"the phases after {what}")
        equal((await snapshot(store, claimed.id)).progress, progress, f"the progress after {what}")

    await written(store, settlement(claimed, SettlementKind.RETRIED, error=failure()))
    await unchanged("a retry")
    await store.release(lease_id, [(await claim_one(store, lease_id)).claim])
    await unchanged("a release")
    dead = await store.open_lease("dead", HOUR)
    await claim_one(store, dead)
    await harness.delete_lease(dead)
    await written(store, settlement(await take_one(store), SettlementKind.RETRIED, error=failure()), orphaned=True)
    await unchanged("a lost worker")
    await written(store, settlement(await claim_one(store, lease_id), SettlementKind.FAILED, error=failure()))
    await unchanged("the end")
    await store.retry([claimed.id])
    await unchanged("an operator's retry")
    again = await claim_one(store, lease_id)
    await unchanged("the next claim")
    await advance(store, again, two=COMPLETED)
    await written(store, settlement(again, SettlementKind.COMPLETED, output=b"1"))
    equal(states((await snapshot(store, claimed.id)).phases), {"one": COMPLETED, "two": COMPLETED}, "the phases at the end")
    await store.delete([claimed.id])
    equal(list(await store.fetch_phases(claimed.id)), [], "what is left of the phases")
    await insert_one(store, job(id=claimed.id))
    found = await snapshot(store, claimed.id)
    equal((found.phases, found.progress), ((), None), "what another job with its id has of them")


@phases()
async def are_fenced(harness: Harness) -> None:
    """Phases count while the claim is the lease's own, though its time is over; each stands for itself, and says why not."""
    store = harness.store
    lease_id, other, gone = [await store.open_lease("w", HOUR) for _ in range(3)]
    claimed, lost = await start_one(store, lease_id), await start_one(store, gone, job("lost"))
    ended = {
        kind: await start_one(store, lease_id, job("ended")) for kind in (SettlementKind.COMPLETED, SettlementKind.CANCELLED)
    }
    for kind, each in ended.items():
        await written(store, settlement(each, kind, output=b"1" if kind is SettlementKind.COMPLETED else None))
    retried = await start_one(store, lease_id, job("retried"))
    await written(store, settlement(retried, SettlementKind.RETRIED, delay=HOUR, error=failure()))
    await harness.delete_lease(gone)
    await harness.age(2 * HOUR)
    fences = {
        (claimed.id, claimed.claims + 1, lease_id): LostReason.TAKEN,
        (claimed.id, 0, lease_id): LostReason.TAKEN,
        (claimed.id, claimed.claims, other): LostReason.TAKEN,
        (claimed.id, claimed.claims, lease_id): None,
        (lost.id, lost.claims, gone): LostReason.TAKEN,
        (ended[SettlementKind.COMPLETED].id, 1, lease_id): LostReason.COMPLETED,
        (ended[SettlementKind.CANCELLED].id, 1, lease_id): LostReason.CANCELLED,
        (retried.id, 1, lease_id): LostReason.TAKEN,
        (new_id(), 1, lease_id): LostReason.NOT_FOUND,
    }
    writes = [
        PhaseWrite(id=job_id, claims=claims, lease_id=lease, name="one", state=RUNNING) for job_id, claims, lease in fences
    ]
    equal(list(await store.write_phases(writes)), list(fences.values()), "what is said of each")
    rows = (claimed, lost, *ended.values(), retried)
    equal([await _stored(store, each.id) for each in rows], [{"one": RUNNING}, {}, {}, {}, {}], "what is stored of each")
    equal(list(await store.write_phases([])), [], "what is said of none")


@phases()
async def a_later_claim_has_the_last_word(harness: Harness) -> None:
    """What an earlier claim has stored is overwritten by a later one, and not the other way round."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    first = await start_one(store, lease_id)
    await advance(store, first, one=COMPLETED)
    await store.release(lease_id, [first.claim])
    second = await claim_one(store, lease_id)
    await advance(store, second, one=RUNNING)
    (running,) = await store.fetch_phases(first.id)
    equal((running.state, running.result_json, running.finished_at), (RUNNING, None, None), "what the second claim has begun")
    late = await store.write_phases([phase_of(first, "one", COMPLETED, b'"late"'), phase_of(first, "two")])
    equal(list(late), [LostReason.TAKEN, LostReason.TAKEN], "what the first claim is told")
    equal(list(await store.fetch_phases(first.id)), [running], "the phases after a late word of the first claim")


@phases()
async def what_is_completed_stays_so(harness: Harness) -> None:
    """What a claim says late of a phase that it has completed, since its request was long under way, changes nothing."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    first = await start_one(store, lease_id)
    await advance(store, first, one=RUNNING)
    await advance(store, first, one=COMPLETED)
    stored = list(await store.fetch_phases(first.id))
    for state in (RUNNING, FAILED):
        await advance(store, first, one=state)
        equal(list(await store.fetch_phases(first.id)), stored, f"the phase after it was said late that it's {state}")
    equal(list(await store.write_phases([phase_of(first, "one", COMPLETED, b"2")])), [None], "another result")
    equal([each.result for each in await store.fetch_phases(first.id)], [2], "the result")


@phases()
async def several_at_once(harness: Harness) -> None:
    """Phases of several jobs, and several of one job, are stored in one call; of one phase the last word counts."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    one, two = await start_one(store, lease_id), await start_one(store, lease_id)
    writes = [
        phase_of(one, "a"),
        phase_of(two, "a", COMPLETED, b"2"),
        phase_of(one, "a", COMPLETED, b"1"),
        phase_of(two, "b", FAILED),
        phase_of(one, "b"),
    ]
    equal(list(await store.write_phases(writes)), [None] * 5, "what is said of each")
    results = {each.name: (each.state, each.result) for each in await store.fetch_phases(one.id)}
    equal(results, {"a": (COMPLETED, 1), "b": (RUNNING, None)}, "the phases of the first job")
    results = {each.name: (each.state, each.result) for each in await store.fetch_phases(two.id)}
    equal(results, {"a": (COMPLETED, 2), "b": (FAILED, None)}, "the phases of the second job")


@phases()
async def states_that_are_derived(harness: Harness) -> None:
    """Of a failed job a phase that runs has failed; of a cancelled one all that aren't completed are cancelled."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    stored = {"one": COMPLETED, "two": FAILED, "three": RUNNING}
    shown = {
        SettlementKind.FAILED: {"one": COMPLETED, "two": FAILED, "three": FAILED},
        SettlementKind.CANCELLED: {"one": COMPLETED, "two": CANCELLED, "three": CANCELLED},
        SettlementKind.COMPLETED: stored,
        SettlementKind.RETRIED: stored,
    }
    for kind, expected in shown.items():
        claimed = await start_one(store, lease_id)
        await store.write_phases([phase_of(claimed, name, state) for name, state in stored.items()])
        output = b"1" if kind is SettlementKind.COMPLETED else None
        await written(store, settlement(claimed, kind, output=output, delay=HOUR if kind is SettlementKind.RETRIED else None))
        for found in (await snapshot(store, claimed.id), *await store.fetch_ends([claimed.id])):
            equal(found and states(found.phases), expected, f"what is shown after {kind.name}")
        equal(await _stored(store, claimed.id), stored, f"what is stored after {kind.name}")


@phases(Capability.LOCKS_ROWS)
async def no_lock_is_waited_for(harness: Harness) -> None:
    """Phases and progress are stored though somebody has the job's row locked, and while its own completion is under way."""
    store, second = harness.store, await harness.second_store()
    claimed = await start_one(store, await store.open_lease("w", HOUR))
    async with harness.locked(claimed.id):
        await advance(store, claimed, one=RUNNING)
        await store.write_progress([progress_of(claimed, 1)])
    async with store.transaction() as transaction:
        equal(await transaction.hold(claimed.claim, claimed.lease_id), None, "what the holder is told")
        await advance(second, claimed, one=COMPLETED)
        await second.write_progress([progress_of(claimed, 2)])
        (result,) = await transaction.settle([settlement(claimed, SettlementKind.COMPLETED, output=b"1")])
        equal((result.lost, result.busy), (None, False), "lost and busy of the completion")
        await second.write_progress([progress_of(claimed, 3)])
    found = await expect_state(store, claimed.id, JobState.COMPLETED)
    equal(states(found.phases), {"one": COMPLETED}, "the phases")
    check(found.progress is not None and found.progress.percent in (2, 3), f"the progress: {found.progress!r}")


@phases()
async def a_job_that_is_replaced_begins_without(harness: Harness) -> None:
    """A job whose place another has taken has other arguments: phases and progress of the one before aren't its own."""
    store = harness.store
    unique = Unique(on_conflict="replace")
    claimed = await start_one(store, await store.open_lease("w", HOUR), job(key="k", unique=unique))
    await advance(store, claimed, one=COMPLETED)
    await store.write_progress([progress_of(claimed, 50)])
    await written(store, settlement(claimed, SettlementKind.RETRIED, delay=HOUR, error=failure()))
    (inserted,) = await store.insert([job(key="k", unique=unique, payload=b'{"n":2}')])
    equal((inserted.id, inserted.replaced), (claimed.id, True), "what the other one is told")
    found = await snapshot(store, claimed.id)
    equal((found.phases, found.progress, len(found.errors)), ((), None, 1), "its phases, progress, number of errors")


@phases()
async def the_next_step_has_its_own(harness: Harness) -> None:
    """Phases are a job's, and not its chain's."""
    store = harness.store
    claimed = await start_one(store, await store.open_lease("w", HOUR))
    await advance(store, claimed, one=COMPLETED)
    await store.write_progress([progress_of(claimed, 100)])
    new = job("next")
    await written(store, settlement(claimed, SettlementKind.CONTINUED, next=new))
    (end,) = await store.fetch_ends([claimed.id])
    equal(end and (end.id, end.phases, end.progress), (new.id, (), None), "the next step, its phases and progress")
    equal(await _stored(store, claimed.id), {"one": COMPLETED}, "the phases of the step before")


@phases()
async def are_forgotten_from_the_start(harness: Harness) -> None:
    """A retry from the start forgets phases and progress of the jobs that it makes pending, and of no other."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    ids: dict[str, UUID] = {}
    for name in ("given", "not given", "retried before"):
        claimed = await start_one(store, lease_id)
        await advance(store, claimed, one=COMPLETED)
        await store.write_progress([progress_of(claimed, 50)])
        await written(store, settlement(claimed, SettlementKind.FAILED, error=failure(), attempt=1, logs=b"[]"))
        ids[name] = claimed.id
    await store.retry([ids["not given"], ids["retried before"]])
    await store.retry([ids["given"], ids["retried before"]], from_start=True)
    kept = {name: bool(found.phases and found.progress) for name in ids for found in [await snapshot(store, ids[name])]}
    equal(kept, {"given": False, "not given": True, "retried before": True}, "whose phases and progress are kept")
    equal(list(await store.fetch_phases(ids["given"])), [], "what is stored of those that were forgotten")
    equal(len(await store.fetch_logs(ids["given"])), 1, "logs that are kept")
    again = {each.id: each for each in await store.claim(lease_id, ["a"], 10)}
    await advance(store, again[ids["given"]], one=RUNNING)


@phases()
async def of_a_job_that_was_never_started(harness: Harness) -> None:
    """A job that is pending, or has ended without a start, has none; nothing is stored of it either."""
    store = harness.store
    job_id = await insert_one(store, job(delay=HOUR))
    lease_id = await store.open_lease("w", HOUR)
    write = PhaseWrite(id=job_id, claims=0, lease_id=lease_id, name="one", state=RUNNING)
    (lost,) = await store.write_phases([write])
    check(lost is not None, "a phase of a job that isn't running must be lost")
    equal(list(await store.fetch_phases(job_id)), [], "its phases")
