"""The cases of `Store.write_progress`, and of what is kept of the logs of attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._progress import progress_of
from aioqueue.testing.conformance._tools import (
    HOUR,
    OnPurposeError,
    claim_one,
    equal,
    failure,
    job,
    refused,
    rolled_back,
    settlement,
    snapshot,
    start_one,
    take_one,
    written,
)
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import LostReason, SettlementKind
from aioqueue.vocabulary._phases import ProgressWrite

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness

__all__ = ["logs", "progress"]

progress = Subject("progress")
logs = Subject("logs")


async def _percent(store: Store, job_id: UUID) -> float | None:
    found = (await snapshot(store, job_id)).progress
    return None if found is None else found.percent


@progress()
async def the_last_word_counts(harness: Harness) -> None:
    """What a claim says later stands in place of what it said before, all of it; jobs don't mind each other."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    one, two = await start_one(store, lease_id), await start_one(store, lease_id)
    await store.write_progress([progress_of(one, 12.5, "so far", "one"), progress_of(two, 100)])
    await store.write_progress([progress_of(one, 0)])
    found = (await snapshot(store, one.id)).progress
    equal(found and (found.percent, found.message, found.phase, found.phases), (0, None, None, ()), "of the first job")
    equal(await _percent(store, two.id), 100, "of the second job")
    await store.write_progress([])


@progress()
async def what_does_not_count_is_ignored(harness: Harness) -> None:
    """Progress of a claim that isn't the lease's own any more changes nothing, and stops no other."""
    store = harness.store
    lease_id, other, gone = [await store.open_lease("w", HOUR) for _ in range(3)]
    claimed, lost = await start_one(store, lease_id), await start_one(store, gone, job("lost"))
    first = await start_one(store, lease_id, job("again"))
    await store.write_progress([progress_of(first, 10)])
    await store.release(lease_id, [first.claim])
    ended = await start_one(store, lease_id, job("ended"))
    await store.write_progress([progress_of(ended, 20)])
    await written(store, settlement(ended, SettlementKind.COMPLETED, output=b"1"))
    await harness.delete_lease(gone)
    right = progress_of(claimed, 40)
    writes = [
        progress_of(lost, 1),
        progress_of(first, 2),
        progress_of(ended, 3),
        ProgressWrite(id=new_id(), claims=1, lease_id=lease_id, percent=4),
        right,
    ]
    await store.write_progress(writes)
    percents = [await _percent(store, each.id) for each in (lost, first, ended, claimed)]
    equal(percents, [None, 10, 20, 40], "the progress of each")
    for claims, lease in ((claimed.claims + 1, lease_id), (claimed.claims, other)):
        await store.write_progress([ProgressWrite(id=claimed.id, claims=claims, lease_id=lease, percent=5)])
        equal(await _percent(store, claimed.id), 40, "the progress after another's word")


@progress()
async def a_later_claim_stands_over_an_earlier(harness: Harness) -> None:
    """The next attempt's progress replaces that of the one before, also where it's less; the late word of that is ignored."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    first = await start_one(store, lease_id)
    await store.write_progress([progress_of(first, 90)])
    await store.release(lease_id, [first.claim])
    second = await claim_one(store, lease_id)
    await store.write_progress([progress_of(second, 5)])
    await store.write_progress([progress_of(first, 95)])
    equal(await _percent(store, first.id), 5, "the progress")
    await harness.age(2 * HOUR)
    await store.write_progress([progress_of(second, 6)])
    equal(await _percent(store, first.id), 6, "the progress while the lease has run out, and nobody has taken it")


@logs()
async def are_kept_with_the_outcome(harness: Harness) -> None:
    """What an attempt has logged is stored with its end, whatever that is, by the number of its claim."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    expected: list[tuple[int, int, bytes]] = []
    kinds = (SettlementKind.RETRIED, SettlementKind.RESCHEDULED, SettlementKind.FAILED, SettlementKind.COMPLETED)
    for number, kind in enumerate(kinds, 1):
        lines = b'[{"message":"line %d \\u0000"}]' % number
        output = b"1" if kind is SettlementKind.COMPLETED else None
        what = settlement(claimed, kind, output=output, attempt=claimed.attempt, logs=lines)
        for _ in range(2):  # as after an unclear commit
            await written(store, what)
        expected.append((claimed.attempt, claimed.claims, lines))
        if kind is SettlementKind.FAILED:
            await store.retry([claimed.id])
        if kind is not SettlementKind.COMPLETED:
            claimed = await claim_one(store, lease_id)
    found = await store.fetch_logs(claimed.id)
    equal([(each.attempt, each.claims, each.lines_json) for each in found], expected, "the logs")
    equal([each[0] for each in expected], [1, 2, 2, 1], "the numbers of the attempts")
    await store.delete([claimed.id])
    equal(list(await store.fetch_logs(claimed.id)), [], "what is left of them")


@logs()
async def of_continued_and_cancelled_jobs(harness: Harness) -> None:
    """They're kept with a job that is continued, has children, or gives way to a request to end; the next step has its own."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    continued, parent, asked = [await start_one(store, lease_id) for _ in range(3)]
    await store.cancel([asked.id], "no")
    new, child = job("next"), job("child")
    results = await store.settle(
        [
            settlement(continued, SettlementKind.CONTINUED, next=new, attempt=1, logs=b"[1]"),
            settlement(parent, SettlementKind.COMPLETED, output=b"1", children=(child,), attempt=1, logs=b"[2]"),
            settlement(asked, SettlementKind.RETRIED, error=failure(), attempt=1, logs=b"[3]"),
        ]
    )
    equal([(each.lost, each.cancelled) for each in results], [(None, False), (None, False), (None, True)], "the results")
    ids = (continued.id, parent.id, asked.id, new.id, child.id)
    found = [[each.lines_json for each in await store.fetch_logs(each)] for each in ids]
    equal(found, [[b"[1]"], [b"[2]"], [b"[3]"], [], []], "the logs of each")


@logs()
async def none_of_a_claim_that_was_lost(harness: Harness) -> None:
    """What is refused leaves no log, and neither does what was rolled back; whoever recovers a job may leave one."""
    store = harness.store
    lease_id, dead = await store.open_lease("w", HOUR), await store.open_lease("dead", HOUR)
    claimed, lost = await start_one(store, lease_id), await start_one(store, dead, job("lost"))
    await harness.delete_lease(dead)
    late = settlement(lost, SettlementKind.COMPLETED, output=b"1", attempt=1, logs=b"[1]")
    await refused(store, late, LostReason.TAKEN)
    equal(list(await store.fetch_logs(lost.id)), [], "the logs of a claim that was lost")
    orphan = await take_one(store)
    await written(store, settlement(orphan, SettlementKind.FAILED, error=failure(), attempt=1, logs=b"[2]"), orphaned=True)
    equal([each.lines_json for each in await store.fetch_logs(lost.id)], [b"[2]"], "the logs of what was recovered")
    what = settlement(claimed, SettlementKind.COMPLETED, output=b"1", attempt=1, logs=b"[3]")
    with rolled_back():
        async with store.transaction() as transaction:
            await transaction.hold(claimed.claim, lease_id)
            await transaction.settle([what])
            raise OnPurposeError
    equal(list(await store.fetch_logs(claimed.id)), [], "the logs of what was rolled back")
    async with store.transaction() as transaction:
        await transaction.hold(claimed.claim, lease_id)
        await transaction.settle([what])
    equal([each.lines_json for each in await store.fetch_logs(claimed.id)], [b"[3]"], "the logs after the commit")


@logs()
async def the_newest_few(harness: Harness) -> None:
    """Of a job that is tried again and again the logs of its newest attempts are kept: a bounded number."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id, job(max_attempts=None))
    for number in range(12):
        if number:
            claimed = await claim_one(store, lease_id)
        await written(store, settlement(claimed, SettlementKind.RETRIED, attempt=claimed.attempt, logs=b"[]"))
    equal([each.claims for each in await store.fetch_logs(claimed.id)], list(range(3, 13)), "whose logs are kept")
