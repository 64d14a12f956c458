"""The cases of what `SupportsEvents` logs of jobs at gates: what happens to them, and not what they wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._events import reading
from aioqueue.testing.conformance._gates_tools import BY_TENANT, Worker, limit_of, member, tenant, with_gates
from aioqueue.testing.conformance._tools import HOUR, check, equal, job
from aioqueue.testing.conformance._waiting import complete
from aioqueue.vocabulary._abilities_telling import SupportsEvents
from aioqueue.vocabulary._event_log import EventKind
from aioqueue.vocabulary._gates import GateRules

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("gate_events")

RAN = [EventKind.ENQUEUED, EventKind.STARTED, EventKind.COMPLETED]


@subject()
async def waiting_at_a_gate_is_no_event(harness: Harness) -> None:
    """Who is held at a limit, in a sequence or for its turn, and let come, is enqueued, started and completed like others."""
    store = harness.store
    if (gated := with_gates(store)) is None or not isinstance(store, SupportsEvents):
        return
    await gated.put_limits([limit_of("a", 1)])
    base = harness.store
    jobs = [job("a"), job("a"), job("b", sequence=member("s")), job("b", sequence=member("s"))]
    jobs += [job("c", payload=tenant("x")), job("c", payload=tenant("x"))]
    worker = Worker(
        base, {"a": GateRules(type="a", limit=True), "b": GateRules(type="b"), "c": GateRules(type="c", fair_by=BY_TENANT)}
    )
    async with reading(store) as log:
        await base.insert(jobs)
        for _ in range(2):
            for claimed in await worker.claim():
                await complete(base, claimed)
        for each in jobs:
            equal(await log.of(each.id), RAN, f"what is logged of a job of type {each.type}")


@subject()
async def one_that_is_put_off_is_rescheduled(harness: Harness) -> None:
    """Nothing else is logged of it, nor of one that is to run now, and is held."""
    store = harness.store
    if (gated := with_gates(store)) is None or not isinstance(store, SupportsEvents):
        return
    await gated.put_limits([limit_of("a", 0)])
    base = harness.store
    await base.insert([first := job(), second := job()])
    equal(await Worker(base, {"a": GateRules(type="a", limit=True)}).ids(), [], "what runs")
    async with reading(store) as log:
        await base.reschedule([first.id], delay=HOUR)
        await base.run_now([second.id])
        equal(await log.of(first.id), [EventKind.RESCHEDULED], "what is logged of one that is put off")
        # Of one that was due before it may be said or not, as of one that is ready.
        check(set(await log.of(second.id)) <= {EventKind.RESCHEDULED}, "nothing else is logged of one that is to run now")
