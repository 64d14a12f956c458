"""The cases of `Store.insert`."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import anyio

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    claim_one,
    end_as,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    near,
    settlement,
    snapshot,
    start_one,
    written,
)
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Inserted, JobState, NewJob, SettlementKind
from aioqueue.vocabulary._origin import Origin
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import ClaimedJob, Job

__all__ = ["subject"]

subject = Subject("insert")


@subject()
async def nothing_is_nothing(harness: Harness) -> None:
    """An empty batch is allowed everywhere."""
    store = harness.store
    equal(list(await store.insert([])), [], "results of an empty insert")
    equal(list(await store.settle([])), [], "results of an empty settle")
    equal(list(await store.fetch([])), [], "results of an empty fetch")
    for verb in (store.retry, store.run_now, store.delete):
        equal(list(await verb([])), [], "results of an empty change")
    equal((await store.next_due([])).job, None, "the next due of no types")


@subject()
async def results_come_in_order(harness: Harness) -> None:
    """One result each, in the order given, whatever the order of ids and keys."""
    store = harness.store
    jobs = [job(key=key, unique=Unique()) for key in ("c", "a", "b")] + [job(), job()]
    jobs.reverse()
    equal(list(await store.insert(jobs)), [Inserted(each.id, created=True) for each in jobs], "the results")


@subject()
async def large_batches(harness: Harness) -> None:
    """Thousands of jobs in one call are all stored."""
    store = harness.store
    jobs = [job(key=f"k{number}", unique=Unique() if number % 2 == 0 else None) for number in range(3000)]
    results = await store.insert(jobs)
    equal(list(results), [Inserted(each.id, created=True) for each in jobs], "the results")
    found = await store.fetch([each.id for each in jobs])
    equal([each and each.id for each in found], [each.id for each in jobs], "what is stored")


@subject()
async def keeps_what_it_was_given(harness: Harness) -> None:
    """A snapshot shows the job as it was inserted."""
    store = harness.store
    new = job(
        "überweisung",
        payload='{"a": [1, 2.50, null], "ключ": "значение"}'.encode(),
        priority=4,
        delay=HOUR,
        expires=2 * HOUR,
        max_attempts=3,
        timeout=1.5,
        key="k'ey\"; --",
        tags=("x", "ÿ😀", "with,comma", "{brace}", 'quo"te', "back\\slash"),
        metadata='{"trace": {"id": "ü"}}'.encode(),
    )
    found = await snapshot(store, await insert_one(store, new))
    for name in ("id", "type", "payload", "priority", "max_attempts", "timeout", "key", "tags"):
        equal(getattr(found, name), getattr(new, name), f"`{name}` of the stored job")
    equal(found.metadata, {"trace": {"id": "ü"}}, "the metadata")
    equal(found.arguments, {"a": [1, 2.5, None], "ключ": "значение"}, "the arguments")
    equal(found.state, JobState.SCHEDULED, "the state")
    near(found.run_at, found.created_at + timedelta(hours=1), "run_at", within=5)
    if found.expires_at is None:
        raise AssertionError("expires_at must be set")
    near(found.expires_at, found.run_at + timedelta(hours=2), "expires_at", within=5)
    new_ones = (found.started_at, found.finished_at, found.attempt, found.worker, found.output_json, found.errors)
    equal(new_ones, (None, None, 0, None, None, ()), "what a new job hasn't got")


@subject()
async def each_field_lasts(harness: Harness) -> None:
    """Whatever a job was given is there at each claim, in the archive, and after a retry: no statement leaves a column out."""
    store = harness.store
    new = NewJob(
        id=new_id(),
        type="new name",
        payload=b'{"a": 1}',
        priority=3,
        run_at=datetime.now(UTC) - timedelta(hours=1),
        expires=HOUR,
        max_attempts=7,
        retry=b'{"backoff": {"kind": "fixed", "delay": 2}}',
        timeout=1.5,
        key="k",
        unique=Unique(),
        aliases=("old name",),
        tags=("t",),
        metadata=b'{"m": 1}',
        trace='{"traceparent": "00-1"}',
        keep=HOUR,
        webhook="https://example.org/ended",
        origin=Origin(schedule="s", nominal_time=datetime(2024, 2, 29, 12, tzinfo=UTC), dry_run=True),
    )
    given = {each.name: getattr(new, each.name) for each in fields(NewJob)}
    # `run_at` excludes the first, the last four say how to insert, or what beside; cases of their own look at all of them.
    elsewhere = {"delay", "blockers", "max_delay", "chosen_id", "implied", "sequence"}
    left_out = {each.name for each in fields(NewJob) if given[each.name] == each.default} - elsewhere
    equal(left_out, set[str](), "fields of `NewJob` that this case doesn't give a value")
    lease_id = await store.open_lease("w", HOUR)
    await insert_one(store, new)
    inserted = await snapshot(store, new.id)
    _same(new, inserted, "the stored job")
    claimed = await claim_one(store, lease_id, new.type)
    _same(new, claimed, "the claimed job")
    await written(store, settlement(claimed, SettlementKind.FAILED, error=failure()))
    _same(inserted, await expect_state(store, new.id, JobState.FAILED), "the archived job")
    await store.retry([new.id])
    _same(inserted, await expect_state(store, new.id, JobState.READY), "the job that is retried")
    _same(claimed, await claim_one(store, lease_id, new.type), "the job that is claimed after its retry")


_LIVED = frozenset({"run_at", "started_at", "finished_at", "expires_at", "purge_at", "state", "worker", "errors", "claims"})
"""What changes with a job's life."""


def _same(before: NewJob | Job | ClaimedJob, after: Job | ClaimedJob, what: str) -> None:
    """Compare what both have, but for what a job's life changes; JSON as values, since stores may write it otherwise."""
    for name in ({each.name for each in fields(before)} & {each.name for each in fields(after)}) - _LIVED:
        was, is_now = getattr(before, name), getattr(after, name)
        if isinstance(was, bytes) and isinstance(is_now, bytes):
            was, is_now = json.loads(was), json.loads(is_now)
        if name != "attempt":
            equal(is_now, was, f"`{name}` of {what}")


@subject()
async def escaped_nul_in_payload_and_metadata(harness: Harness) -> None:
    r"""The escape \u0000, which some databases refuse in some types, comes back as it was."""
    store = harness.store
    payload, metadata = rb'{"text":"a\u0000b"}', rb'{"m":"\u0000"}'
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id, job(payload=payload, metadata=metadata))
    equal((claimed.payload, claimed.metadata), (payload, metadata), "the claimed payload and metadata")
    await written(store, settlement(claimed, SettlementKind.COMPLETED, output=rb'"\u0000"'))
    found = await expect_state(store, claimed.id, JobState.COMPLETED)
    equal((found.payload, found.output), (payload, "\0"), "the archived payload and output")


@subject()
async def a_big_payload(harness: Harness) -> None:
    """A megabyte of arguments and of output goes in and out."""
    store = harness.store
    payload = b'{"text":"' + "äöü😀-abcde".encode() * 70_000 + b'"}'
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id, job(payload=payload))
    check(claimed.payload == payload, "a payload of a megabyte must come back as it was")
    await written(store, settlement(claimed, SettlementKind.COMPLETED, output=b'"' + b"x" * 1_000_000 + b'"'))
    found = await snapshot(store, claimed.id)
    check(found.payload == payload, "a payload of a megabyte must be archived as it was")
    check(found.output == "x" * 1_000_000, "an output of a megabyte must come back as it was")


@subject()
async def due_times_are_exact_and_in_utc(harness: Harness) -> None:
    """A given time comes back the same, to the store's resolution, and aware."""
    store = harness.store
    moments = [
        datetime(2100, 2, 28, 23, 59, 59, 123456, tzinfo=UTC),
        datetime(2100, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    ]
    jobs = [job(run_at=moment) for moment in moments]
    await store.insert(jobs)
    for new, moment in zip(jobs, moments, strict=True):
        found = await expect_state(store, new.id, JobState.SCHEDULED)
        check(abs(found.run_at - moment) < max(harness.resolution, timedelta(microseconds=1)), f"{found.run_at} != {moment}")
        for each in (found.run_at, found.created_at):
            equal(each.utcoffset(), timedelta(0), "the offset from UTC")


@subject()
async def a_due_time_in_the_past_is_now(harness: Harness) -> None:
    """A past `run_at` doesn't let a job jump the queue."""
    store = harness.store
    first = await insert_one(store, job())
    await harness.age(60)
    past = await insert_one(store, job(run_at=datetime(1999, 12, 31, tzinfo=UTC)))
    found = await expect_state(store, past, JobState.READY)
    check(found.run_at >= found.created_at, f"due {found.run_at}, created {found.created_at}")
    lease_id = await store.open_lease("w", HOUR)
    equal([each.id for each in await store.claim(lease_id, ["a"], 5)], [first, past], "the order of claims")


@subject()
async def repeating_changes_nothing(harness: Harness) -> None:
    """An id that exists already stays as it is: the answer to the first insert may have been lost."""
    store = harness.store
    new = job(payload=b'{"n":1}', key="k", unique=Unique())
    equal(list(await store.insert([new])), [Inserted(new.id, created=True)], "the first insert")
    for repeated in (False, True):
        again = await store.insert([job(id=new.id, payload=b'{"n":2}', key="k", unique=Unique())], repeated=repeated)
        equal(list(again), [Inserted(new.id, created=False)], f"a repetition with repeated={repeated}")
    equal((await snapshot(store, new.id)).payload, b'{"n":1}', "the payload")
    lease_id = await store.open_lease("w", HOUR)
    await store.claim(lease_id, ["a"], 1)
    equal(list(await store.insert([new], repeated=True)), [Inserted(new.id, created=False)], "while it's running")
    equal((await expect_state(store, new.id, JobState.RUNNING)).attempt, 1, "attempts")


@subject()
async def repeating_after_the_end_stores_no_second_one(harness: Harness) -> None:
    """With `repeated`, finished jobs count too, with and without a unique key, among new ones."""
    store = harness.store
    plain, unique, fresh = job(), job(key="k", unique=Unique()), job()
    for new in (plain, unique):
        await end_as(store, new, SettlementKind.COMPLETED)
    results = await store.insert([plain, fresh, unique], repeated=True)
    expected = [Inserted(plain.id, created=False), Inserted(fresh.id, created=True), Inserted(unique.id, created=False)]
    equal(list(results), expected, "the repetition")
    for new in (plain, unique):
        await expect_state(store, new.id, JobState.COMPLETED)
    lease_id = await store.open_lease("w", HOUR)
    equal([each.id for each in await store.claim(lease_id, ["a"], 10)], [fresh.id], "what is pending")


@subject()
async def an_odd_trace_is_none(harness: Harness) -> None:
    """A trace context that is too long, or has letters that none has, isn't stored, and costs the job nothing."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    for odd in ("x" * 1025, "", "\0", "ü", "\ud800", "a\nb"):
        new = NewJob(id=new_id(), type="a", trace=odd)
        equal((await snapshot(store, await insert_one(store, new))).trace, None, f"the stored trace {odd!r:.20}")
        claimed = await claim_one(store, lease_id)
        equal((claimed.id, claimed.trace), (new.id, None), f"the claimed trace {odd!r:.20}")


@subject()
async def the_same_id_twice_in_one_batch_is_one_job(harness: Harness) -> None:
    """A batch of callers may hold a repetition."""
    store = harness.store
    new = job()
    results = await store.insert([new, new])
    equal([each.id for each in results], [new.id, new.id], "the ids")
    equal(sum(each.created for each in results), 1, "jobs created")


@subject()
async def unique_while_unfinished(harness: Harness) -> None:
    """A unique key gives the id of the unfinished job of the type, pending or running; after its end the key is free."""
    store = harness.store
    lease_id = await store.open_lease("w", 100 * HOUR)
    first = job(key="k", unique=Unique())
    await store.insert([first])
    held = [Inserted(first.id, created=False)]
    equal(list(await store.insert([job(key="k", unique=Unique())])), held, "while it's pending")
    claimed = await claim_one(store, lease_id)
    equal(list(await store.insert([job(key="k", unique=Unique())])), held, "while it's running")
    await written(store, settlement(claimed, SettlementKind.RETRIED, delay=HOUR))
    equal(list(await store.insert([job(key="k", unique=Unique())])), held, "while it waits to be tried again")
    await harness.age(2 * HOUR)
    for kind in (SettlementKind.COMPLETED, SettlementKind.FAILED, SettlementKind.CANCELLED):
        claimed = await claim_one(store, lease_id)
        await written(store, settlement(claimed, kind))
        after = job(key="k", unique=Unique())
        equal(list(await store.insert([after])), [Inserted(after.id, created=True)], f"after {kind.name}")


@subject()
async def unique_under_older_names(harness: Harness) -> None:
    """A type that was renamed is one type: keys count under its older names, and those of older code under the new one."""
    store = harness.store
    before, later = job("old", key="k", unique=Unique()), job("newer", key="l", unique=Unique(), aliases=("old",))
    equal([each.created for each in await store.insert([before, later])], [True, True], "two keys")
    renamed = job("newest", key="k", unique=Unique(), aliases=("old", "newer"))
    equal(list(await store.insert([renamed])), [Inserted(before.id, created=False)], "held under the oldest name")
    many = [job("newest", key=key, unique=Unique(), aliases=("old", "newer")) for key in ("k", "l", "m")]
    found = [each.id for each in await store.insert(many)]
    equal(found, [before.id, later.id, many[2].id], "several at once")
    older = await store.insert([job("old", key=key, unique=Unique()) for key in ("l", "m")])
    equal([each.id for each in older], [later.id, many[2].id], "what code from before the renaming finds")
    own = job("newest", key="n", unique=Unique())
    await store.insert([own])
    late = job("newest", key="n", unique=Unique(), aliases=("old",))
    equal(list(await store.insert([late])), [Inserted(own.id, created=False)], "held from before there was an alias")


@subject()
async def unique_by_type_and_key_only(harness: Harness) -> None:
    """Other types, other keys, jobs with the key that aren't unique, and deleted ones don't matter."""
    store = harness.store
    jobs = [
        job("a", key="k", unique=Unique()),
        job("b", key="k", unique=Unique()),
        job("a", key="K", unique=Unique()),
        job("a", key="k"),
        job("a", key="k"),
        job("ak", key="", unique=Unique()),
        job("a", key="", unique=Unique()),
    ]
    equal(list(await store.insert(jobs)), [Inserted(each.id, created=True) for each in jobs], "the results")
    await store.delete([jobs[0].id])
    again = job("a", key="k", unique=Unique())
    equal(list(await store.insert([again])), [Inserted(again.id, created=True)], "after the holder was deleted")


@subject()
async def unique_twice_in_one_batch(harness: Harness) -> None:
    """The first of a batch takes the key, the others get its id."""
    store = harness.store
    one, other, two = job(key="k", unique=Unique()), job(), job(key="k", unique=Unique())
    results = await store.insert([one, other, two])
    expected = [Inserted(one.id, created=True), Inserted(other.id, created=True), Inserted(one.id, created=False)]
    equal(list(results), expected, "the results")


@subject()
async def long_unique_keys(harness: Harness) -> None:
    """Keys of some kilobytes work, and are compared whole."""
    store = harness.store
    key = "k" * 5000
    one, two, three = (job(key=text, unique=Unique()) for text in (key, key + "x", key))
    results = await store.insert([one, two, three])
    equal([each.id for each in results], [one.id, two.id, one.id], "the ids")


@subject()
async def concurrent_unique_inserts_make_one_job(harness: Harness) -> None:
    """Producers on several connections, with the same keys in different orders, agree on one job a key."""
    stores = [harness.store, await harness.second_store()]
    keys = [f"k{number}" for number in range(20)]
    results: list[dict[str, Inserted]] = []

    async def produce(number: int) -> None:
        store: Store = stores[number % 2]
        names = keys if number % 3 else keys[::-1]
        inserted = await store.insert([job(key=key, unique=Unique()) for key in names])
        results.append(dict(zip(names, inserted, strict=True)))

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(produce, number)
    for key in keys:
        equal(len({result[key].id for result in results}), 1, f"different ids for {key!r}")
        equal(sum(result[key].created for result in results), 1, f"jobs created for {key!r}")
    lease_id = await stores[0].open_lease("w", HOUR)
    equal(len(await stores[0].claim(lease_id, ["a"], 1000)), len(keys), "jobs that exist")


@subject()
async def finished_jobs_free_their_id_for_nobody(harness: Harness) -> None:
    """A second job with the key of a finished unique one leaves the finished one as it is."""
    store = harness.store
    first = await end_as(store, job(key="k", unique=Unique()), SettlementKind.FAILED)
    second = await insert_one(store, job(key="k", unique=Unique()))
    await expect_state(store, first, JobState.FAILED)
    await expect_state(store, second, JobState.READY)
