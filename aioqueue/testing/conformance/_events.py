"""The cases of what `SupportsEvents` logs of producers and workers; a store that hasn't got it passes them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson

from aioqueue.store_rules._events import MESSAGE_CHARACTERS
from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    OnPurposeError,
    about,
    check,
    equal,
    failure,
    insert_one,
    job,
    near,
    next_step,
    rolled_back,
    settle_one,
    settlement,
    start,
    start_one,
    take_one,
    written,
)
from aioqueue.vocabulary._abilities_telling import SupportsEvents
from aioqueue.vocabulary._blockers import NewBlocker
from aioqueue.vocabulary._event_log import EventKind
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import AttemptError, NewJob, SettlementKind
from aioqueue.vocabulary._phases import PhaseState, PhaseWrite, ProgressWrite

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from uuid import UUID

    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._event_log import LoggedEvent

__all__ = ["Log", "body", "reading", "subject"]

subject = Subject("events")


class Log:
    """What one reader has seen so far."""

    def __init__(self, store: SupportsEvents, reader: UUID, cursor: str) -> None:
        self._store = store
        self.reader = reader
        self.cursor = cursor
        self.seen: list[LoggedEvent] = []

    async def read(self, limit: int = 1000) -> list[LoggedEvent]:
        """Whatever is new, to the end."""
        new: list[LoggedEvent] = []
        while True:
            page = await self._store.read_events(self.reader, self.cursor, limit)
            check(not page.reset, "a reader that is valid, and not late, misses nothing")
            self.cursor = page.cursor
            new += page.events
            if not page.events:
                self.seen += new
                return new

    async def of(self, job_id: UUID) -> list[EventKind]:
        """What has happened to a job, as far as it's seen."""
        await self.read()
        return [each.kind for each in self.seen if each.job_id == job_id]

    async def last(self, job_id: UUID) -> LoggedEvent:
        """The newest that has happened to a job."""
        await self.read()
        found = [each for each in self.seen if each.job_id == job_id]
        check(found, f"something must have been logged of {job_id}")
        return found[-1]


@asynccontextmanager
async def reading(store: SupportsEvents) -> AsyncGenerator[Log]:
    """A reader for the length of a block."""
    reader = await store.open_reader(HOUR)
    page = await store.begin_events(reader)
    equal((page.events, page.reset), ((), False), "the page with which a reader begins")
    yield Log(store, reader, page.cursor)
    check(await store.keep_reader(reader, 0.0), "a reader that is valid until it's ended")


def body(event: LoggedEvent) -> dict[str, Any]:
    """What an event says beside its fields."""
    found: dict[str, Any] = orjson.loads(event.body)
    return found


@subject()
async def what_a_job_that_completes_goes_through(harness: Harness) -> None:
    """It's stored, started and completed: each with its ids, numbers and time, in this order."""
    store = harness.store
    if not isinstance(store, SupportsEvents):
        return
    lease_id = await store.open_lease("w", HOUR)
    async with reading(store) as log:
        claimed = await start_one(store, lease_id, job("site.a"))
        await written(store, settlement(claimed, SettlementKind.COMPLETED, output=b"1", outcome="good"))
        events = await log.read()
    equal([each.kind for each in events], [EventKind.ENQUEUED, EventKind.STARTED, EventKind.COMPLETED], "what was logged")
    for each in events:
        equal((each.job_id, each.chain_id, each.job_type), (claimed.id, claimed.id, "site.a"), "whose it is")
        near(each.at, claimed.started_at, "the time of an event")
    equal([(each.attempt, each.claims) for each in events], [(0, 0), (1, 1), (1, 1)], "attempts and claims")
    equal([body(each) for each in events], [{}, {}, {"outcome": "good"}], "what they say")
    sequences = [each.sequence for each in events]
    equal(sequences, sorted(set(sequences)), "their sequences")


@subject()
async def nothing_while_nobody_reads(harness: Harness) -> None:
    """What happens without a reader isn't logged, nor what happens after its end."""
    store = harness.store
    if not isinstance(store, SupportsEvents):
        return
    lease_id = await store.open_lease("w", HOUR)
    await insert_one(store, job())
    async with reading(store) as log:
        second = await insert_one(store, job("b"))
        equal([each.job_id for each in await log.read()], [second], "what is seen of what happened before and after")
    await store.claim(lease_id, ["a"], 1)
    async with reading(store) as log:
        equal(await log.read(), [], "what a new reader sees of what happened between")


@subject()
async def each_kind_of_outcome(harness: Harness) -> None:
    """What settlements make of jobs, and what their events say; of an error its type and the beginning of its message."""
    store = harness.store
    if not isinstance(store, SupportsEvents):
        return
    lease_id = await store.open_lease("w", HOUR)
    error = AttemptError(attempt=1, at=failure().at, type="ValueError", message="x" * (MESSAGE_CHARACTERS + 1))
    told = {"type": "ValueError", "message": "x" * MESSAGE_CHARACTERS}
    async with reading(store) as log:
        for kind, as_kind, expected in (
            (SettlementKind.COMPLETED, EventKind.COMPLETED, {"outcome": None}),
            (SettlementKind.FAILED, EventKind.FAILED, {"error": told}),
            (SettlementKind.CANCELLED, EventKind.CANCELLED, {"error": told}),
            (SettlementKind.RETRIED, EventKind.RETRYING, {"delay": HOUR, "error": told}),
            (SettlementKind.RESCHEDULED, EventKind.RESCHEDULED, {"delay": HOUR}),
        ):
            claimed = await start_one(store, lease_id)
            fields: dict[str, Any] = {} if kind.finishes else {"delay": HOUR}
            if kind not in (SettlementKind.COMPLETED, SettlementKind.RESCHEDULED):
                fields["error"] = error
            await written(store, settlement(claimed, kind, **fields))
            event = await log.last(claimed.id)
            said = body(event)
            if "delay" in expected:
                about(said.pop("delay"), HOUR, "the delay of an event")
                expected.pop("delay")
            equal((event.kind, said), (as_kind, expected), f"what is logged of {kind.name}")
            equal(await log.of(claimed.id), [EventKind.ENQUEUED, EventKind.STARTED, as_kind], f"all of {kind.name}")


@subject()
async def what_is_not_written_is_not_logged(harness: Harness) -> None:
    """A settlement that is lost, or repeated, gives no event."""
    store = harness.store
    if not isinstance(store, SupportsEvents):
        return
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    done = settlement(claimed, SettlementKind.COMPLETED, output=b"1")
    async with reading(store) as log:
        await written(store, done)
        await settle_one(store, done)
        await settle_one(store, settlement(claimed, SettlementKind.FAILED, error=failure()))
        equal(await log.of(claimed.id), [EventKind.COMPLETED], "what is logged of a job that is settled again and again")


@subject()
async def a_chain_that_goes_on(harness: Harness) -> None:
    """A continuation names the next job, whose own events follow, with the chain's id."""
    store = harness.store
    if not isinstance(store, SupportsEvents):
        return
    lease_id = await store.open_lease("w", HOUR)
    async with reading(store) as log:
        first = await start_one(store, lease_id)
        second = await next_step(store, first)
        children = (job("child"),)
        await written(store, settlement(second, SettlementKind.COMPLETED, output=b"1", children=children))
        found = [each for each in await log.read() if each.kind is EventKind.CONTINUED]
        equal([body(each) for each in found], [{"next_id": str(second.id), "outcome": None}], "what a continuation says")
        equal(await log.of(first.id), [EventKind.ENQUEUED, EventKind.STARTED, EventKind.CONTINUED], "the first step's")
        equal(await log.of(second.id), [EventKind.ENQUEUED, EventKind.STARTED, EventKind.COMPLETED], "the second step's")
        equal(await log.of(children[0].id), [EventKind.ENQUEUED], "the child's")
        equal({each.chain_id for each in log.seen if each.job_id != children[0].id}, {first.id}, "the chain's id")
        order = [(each.job_id, each.kind) for each in log.seen]
        continued, following = (first.id, EventKind.CONTINUED), (second.id, EventKind.ENQUEUED)
        check(order.index(continued) < order.index(following), "the next job comes after what it takes the place of")


@subject()
async def those_that_wait(harness: Harness) -> None:
    """They're blocked, and unblocked or failed by the end of what they wait for."""
    store = harness.store
    if not isinstance(store, SupportsEvents):
        return
    lease_id = await store.open_lease("w", HOUR)
    good, bad = await start(store, lease_id, job("good"), job("bad"))
    waiting = {each.id: NewJob(id=new_id(), type="b", blockers=(NewBlocker(each.id),)) for each in (good, bad)}
    async with reading(store) as log:
        await store.insert(list(waiting.values()))
        await written(store, settlement(good, SettlementKind.COMPLETED, output=b"1"))
        await written(store, settlement(bad, SettlementKind.FAILED, error=failure()))
        equal(await log.of(waiting[good.id].id), [EventKind.BLOCKED, EventKind.UNBLOCKED], "of one that can run")
        equal(await log.of(waiting[bad.id].id), [EventKind.BLOCKED, EventKind.FAILED], "of one that can't")
        check("error" in body(await log.last(waiting[bad.id].id)), "it says why")


@subject()
async def what_lost_workers_leave(harness: Harness) -> None:
    """A job of a lost worker is reaped, and then what it's settled as; taking it over alone logs nothing."""
    store = harness.store
    if not isinstance(store, SupportsEvents):
        return
    lease_id = await store.open_lease("w", HOUR)
    await start_one(store, lease_id)
    await harness.age(2 * HOUR)
    async with reading(store) as log:
        taken = await take_one(store)
        equal(await log.read(), [], "what is logged when it's taken over")
        await written(store, settlement(taken, SettlementKind.RETRIED, delay=0.0, error=failure()), orphaned=True)
        equal(await log.of(taken.id), [EventKind.REAPED, EventKind.RETRYING], "when it's settled")


@subject()
async def phases_and_progress(harness: Harness) -> None:
    """What a running job says of itself, if its claim counts; a phase that has failed is told by the attempt's end."""
    store = harness.store
    if not isinstance(store, SupportsEvents):
        return
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    fence: dict[str, Any] = {"id": claimed.id, "claims": claimed.claims, "lease_id": claimed.lease_id}
    async with reading(store) as log:
        for state in (PhaseState.RUNNING, PhaseState.FAILED, PhaseState.RUNNING, PhaseState.COMPLETED):
            result = b"1" if state is PhaseState.COMPLETED else None
            await store.write_phases([PhaseWrite(**fence, name="one", state=state, result=result)])
        await store.write_progress([ProgressWrite(**fence, percent=50.0, message="half", phase="one", phases=("one", "two"))])
        lost: dict[str, Any] = {**fence, "claims": claimed.claims + 1}
        await store.write_phases([PhaseWrite(**lost, name="two", state=PhaseState.RUNNING)])
        await store.write_progress([ProgressWrite(**lost, percent=75.0)])
        events = [(each.kind, each.claims, body(each)) for each in await log.read()]
    began, progress = EventKind.PHASE_STARTED, {"percent": 50.0, "message": "half", "phase": "one"}
    expected = [(began, {"phase": "one"})] * 2 + [(EventKind.PHASE_COMPLETED, {"phase": "one"}), (EventKind.PROGRESS, progress)]
    equal(events, [(kind, claimed.claims, said) for kind, said in expected], "what was logged")


@subject()
async def what_is_given_back(harness: Harness) -> None:
    """A claim that is given back reschedules its job, due now, with the attempt taken back."""
    store = harness.store
    if not isinstance(store, SupportsEvents):
        return
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    async with reading(store) as log:
        await store.release(lease_id, [claimed.claim])
        event = await log.last(claimed.id)
        equal((event.kind, event.attempt, event.claims), (EventKind.RESCHEDULED, 0, 1), "what is logged of it")
        about(body(event)["delay"], 0.0, "when it's due")


@subject()
async def transactions(harness: Harness) -> None:
    """What a transaction does is logged with its commit, and not at all if it's rolled back."""
    store = harness.store
    if not isinstance(store, SupportsEvents):
        return
    kept, undone = job(), job()
    async with reading(store) as log:
        with rolled_back():
            async with store.transaction() as transaction:
                await transaction.insert([undone])
                raise OnPurposeError
        async with store.transaction() as transaction:
            await transaction.insert([kept])
            with rolled_back():
                async with transaction.savepoint():
                    await transaction.insert([undone])
                    raise OnPurposeError
            equal(await log.read(), [], "what is seen before the commit")
        equal([each.job_id for each in await log.read()], [kept.id], "what is seen after it")
