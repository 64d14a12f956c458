"""The cases of `Store.settle` about what each kind of settlement writes. The fences have a file of their own."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from aioqueue.store_rules._history import KEPT_ERRORS
from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    claim_one,
    equal,
    expect_state,
    failure,
    job,
    near,
    settle_halving,
    settlement,
    snapshot,
    start,
    start_one,
    written,
)
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import JobState, LostReason, Settlement, SettlementKind
from aioqueue.vocabulary._listing import JobFilter

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("settle")


@subject()
async def completed(harness: Harness) -> None:
    """A completed job is in the archive with its output, outcome and end."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id, job(key="k", tags=("t",), metadata=b'{"m":1}', timeout=3.0))
    await written(store, settlement(claimed, SettlementKind.COMPLETED, output=b'{"ok": true}', outcome="changed"))
    found = await expect_state(store, claimed.id, JobState.COMPLETED)
    equal((found.output, found.outcome), ({"ok": True}, "changed"), "output, outcome")
    equal((found.attempt, found.key, found.tags, found.metadata), (1, "k", ("t",), {"m": 1}), "what was inserted")
    equal((found.created_at, found.run_at, found.started_at), (claimed.created_at, claimed.run_at, claimed.started_at), "times")
    equal((found.timeout, found.max_attempts, found.payload), (3.0, 10, b"{}"), "options")
    if found.finished_at is None:
        raise AssertionError("finished_at must be set")
    check(found.finished_at >= claimed.started_at, f"finished {found.finished_at}, started {claimed.started_at}")
    equal(found.finished_at.utcoffset(), timedelta(0), "the offset from UTC")


@subject()
async def a_null_output_isnt_none(harness: Harness) -> None:
    """A handler's None is stored as JSON null, which differs from no output."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    one, two = await start(store, lease_id, job(), job())
    await written(store, settlement(one, SettlementKind.COMPLETED, output=b"null"))
    await written(store, settlement(two, SettlementKind.COMPLETED))
    equal((await snapshot(store, one.id)).output_json, b"null", "the output null")
    equal((await snapshot(store, two.id)).output_json, None, "no output")


@subject()
async def failed(harness: Harness) -> None:
    """A failed job is kept in the archive with its history."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    error = replace(failure(message="naïve\n\ttext 😀 'quoted'"), traceback="Traceback\n  line")
    await written(store, settlement(claimed, SettlementKind.FAILED, error=error, outcome="declined"))
    found = await expect_state(store, claimed.id, JobState.FAILED)
    equal((found.errors, found.outcome), ((error,), "declined"), "errors and outcome")
    check(found.finished_at is not None, "finished_at must be set")
    equal(found.output_json, None, "the output of a failed job")


@subject()
async def cancelled(harness: Harness) -> None:
    """A cancelled job is in the archive."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    await written(store, settlement(claimed, SettlementKind.CANCELLED, error=replace(failure(), type="Expired")))
    found = await expect_state(store, claimed.id, JobState.CANCELLED)
    equal([each.type for each in found.errors], ["Expired"], "the history")


@subject()
async def retried(harness: Harness) -> None:
    """A retried job is pending after the delay; the attempt counts, its error is kept, the worker is gone."""
    store = harness.store
    lease_id = await store.open_lease("w", 10 * HOUR)
    claimed = await start_one(store, lease_id)
    await written(store, settlement(claimed, SettlementKind.RETRIED, delay=HOUR, error=failure()))
    found = await expect_state(store, claimed.id, JobState.SCHEDULED)
    equal((found.attempt, found.errors, found.worker), (1, (failure(),), None), "attempt, errors, worker")
    near(found.run_at, claimed.started_at + timedelta(hours=1), "run_at")
    equal(list(await store.claim(lease_id, ["a"], 1)), [], "what is due before the delay is over")
    await harness.age(HOUR + 600)
    again = await claim_one(store, lease_id)
    equal((again.attempt, again.claims, again.reschedules), (2, 2, 0), "attempt, claims, reschedules")


@subject()
async def who_ran_it_and_when(harness: Harness) -> None:
    """The history keeps each attempt's worker and start; a finished job says who ran it last, and isn't found as running."""
    store = harness.store
    for kind in (SettlementKind.COMPLETED, SettlementKind.FAILED, SettlementKind.CANCELLED, SettlementKind.CONTINUED):
        first = await start_one(store, await store.open_lease("first", HOUR))
        error = replace(failure(), worker="first", started_at=first.started_at)
        await written(store, settlement(first, SettlementKind.RETRIED, error=error))
        lease_id = await store.open_lease("last", HOUR)
        last = await claim_one(store, lease_id)
        output = b"1" if kind is SettlementKind.COMPLETED else None
        await written(store, settlement(last, kind, output=output))
        await store.release(lease_id, [], end=True)
        found = await snapshot(store, first.id)
        told = [(each.worker, each.started_at) for each in found.errors]
        equal((found.worker, told), ("last", [("first", first.started_at)]), f"who ran it, and its history, after {kind.name}")
    for name in ("first", "last"):
        equal((await store.list(JobFilter(worker=name), 10)).jobs, (), f"what {name} is running")


@subject()
async def retried_at_a_time(harness: Harness) -> None:
    """A time may be given in place of a delay; one in the past is now."""
    store = harness.store
    lease_id = await store.open_lease("w", 10 * HOUR)
    future, past = await start(store, lease_id, job(), job())
    moment = datetime(2100, 5, 6, 7, 8, 9, tzinfo=UTC)
    await written(store, settlement(future, SettlementKind.RESCHEDULED, run_at=moment))
    await written(store, settlement(past, SettlementKind.RETRIED, run_at=datetime(2000, 1, 1, tzinfo=UTC)))
    equal((await expect_state(store, future.id, JobState.SCHEDULED)).run_at, moment, "run_at")
    found = await expect_state(store, past.id, JobState.READY)
    check(found.run_at >= past.started_at, f"due again at {found.run_at}, which is before its start {past.started_at}")


@subject()
async def due_again_without_delay_is_now(harness: Harness) -> None:
    """What becomes pending is due at the earliest now."""
    store = harness.store
    lease_id = await store.open_lease("w", 100 * HOUR)
    claimed = await start(store, lease_id, job(), job(), job())
    await harness.age(10 * HOUR)
    marker = await start_one(store, lease_id)
    await store.settle(
        [
            settlement(claimed[0], SettlementKind.RETRIED, delay=0),
            settlement(claimed[1], SettlementKind.RESCHEDULED, delay=0),
            settlement(claimed[2], SettlementKind.RETRIED),
        ]
    )
    for each in claimed:
        found = await expect_state(store, each.id, JobState.READY)
        check(found.run_at >= marker.started_at, f"{found.run_at} is before now ({marker.started_at})")


@subject()
async def rescheduled_uses_no_attempt(harness: Harness) -> None:
    """A rescheduled job gets its attempt back, and its reschedules are counted."""
    store = harness.store
    lease_id = await store.open_lease("w", 10 * HOUR)
    claimed = await start_one(store, lease_id)
    for number in (1, 2, 3):
        await written(store, settlement(claimed, SettlementKind.RESCHEDULED, delay=0))
        found = await snapshot(store, claimed.id)
        equal((found.attempt, found.reschedules), (0, number), "stored attempt and reschedules")
        claimed = await claim_one(store, lease_id)
        equal((claimed.attempt, claimed.reschedules), (1, number), "attempt and reschedules")
        equal(claimed.claims, number + 1, "claims, which never go back")


@subject()
async def every_kind_in_one_batch(harness: Harness) -> None:
    """One call writes all kinds, with one result each, in order, and the lost ones don't stop their neighbours."""
    store = harness.store
    lease_id = await store.open_lease("w", 10 * HOUR)
    claimed = await start(store, lease_id, *(job() for _ in range(6)))
    stale = replace(settlement(claimed[5], SettlementKind.COMPLETED, output=b"9"), claims=99)
    missing = Settlement(id=new_id(), claims=1, lease_id=lease_id, kind=SettlementKind.FAILED)
    batch = [
        settlement(claimed[4], SettlementKind.RESCHEDULED, delay=HOUR),
        stale,
        settlement(claimed[0], SettlementKind.COMPLETED, output=b"1"),
        missing,
        settlement(claimed[1], SettlementKind.FAILED, error=failure()),
        settlement(claimed[3], SettlementKind.RETRIED, delay=HOUR, error=failure()),
        settlement(claimed[2], SettlementKind.CANCELLED),
    ]
    results = await store.settle(batch)
    lost = [each.lost for each in results]
    equal(len(lost), len(batch), "the number of results")
    equal([lost[place] for place in (0, 2, 4, 5, 6)], [None] * 5, "results of the valid ones")
    check(lost[1] in (LostReason.TAKEN, LostReason.NOT_FOUND), f"a stale claim must be lost as taken, not {results[1]!r}")
    equal(lost[3], LostReason.NOT_FOUND, "the result of a job that doesn't exist")
    expected = [
        JobState.COMPLETED,
        JobState.FAILED,
        JobState.CANCELLED,
        JobState.SCHEDULED,
        JobState.SCHEDULED,
        JobState.RUNNING,
    ]
    found = await store.fetch([each.id for each in claimed])
    equal([each and each.state for each in found], expected, "the states")


@subject()
async def large_batches(harness: Harness) -> None:
    """A thousand outcomes in one call."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start(store, lease_id, *(job() for _ in range(1000)))
    results = await store.settle([settlement(each, SettlementKind.COMPLETED, output=b"1") for each in claimed])
    equal([each.lost for each in results], [None] * 1000, "the results")
    equal((await store.stats()).types["a"].counts, {JobState.COMPLETED: 1000}, "the counts")


@subject()
async def keeps_the_newest_errors(harness: Harness) -> None:
    """The history is bounded: the newest errors stay, oldest first; an end without an error adds none."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id, job(max_attempts=None))
    total = KEPT_ERRORS + 5
    for number in range(1, total + 1):
        await written(store, settlement(claimed, SettlementKind.RETRIED, delay=0, error=failure(number, f"e{number}")))
        claimed = await claim_one(store, lease_id)
    expected = [f"e{number}" for number in range(total - KEPT_ERRORS + 1, total + 1)]
    equal([each.message for each in (await snapshot(store, claimed.id)).errors], expected, "the history while it's live")
    await written(store, settlement(claimed, SettlementKind.FAILED, error=failure(total + 1, "last")))
    found = await snapshot(store, claimed.id)
    equal([each.message for each in found.errors], [*expected[1:], "last"], "the history in the archive")
    equal(found.attempt, total + 1, "attempts")


@subject(Capability.LOCKS_ROWS)
async def a_locked_row_is_busy_and_its_neighbours_are_written(harness: Harness) -> None:
    """A row that somebody else has locked isn't waited for: its result says busy, and it can be written later."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start(store, lease_id, *(job() for _ in range(4)))
    kinds = (SettlementKind.COMPLETED, SettlementKind.RETRIED, SettlementKind.FAILED, SettlementKind.RESCHEDULED)
    batch = [settlement(each, kind, delay=HOUR) for each, kind in zip(claimed, kinds, strict=True)]
    async with harness.locked(claimed[0].id), harness.locked(claimed[1].id):
        results = await store.settle(batch)
        equal([each.busy for each in results], [True, True, False, False], "what is busy")
        equal([each.lost for each in results], [None] * 4, "what is lost")
        for each in claimed[:2]:
            await expect_state(store, each.id, JobState.RUNNING)
        await expect_state(store, claimed[2].id, JobState.FAILED)
        await expect_state(store, claimed[3].id, JobState.SCHEDULED)
    for what in batch:
        await written(store, what)
    await expect_state(store, claimed[0].id, JobState.COMPLETED)


@subject()
async def one_bad_row_in_a_batch(harness: Harness) -> None:
    """A row that the database refuses fails alone, or the batch as a whole so that it can be halved."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start(store, lease_id, job(), job(), job())
    batch = [settlement(each, SettlementKind.COMPLETED, output=b"1") for each in claimed]
    batch[1] = replace(batch[1], output=b'{"broken"')
    await settle_halving(harness.store, batch)
    for place in (0, 2):
        await expect_state(store, claimed[place].id, JobState.COMPLETED)
