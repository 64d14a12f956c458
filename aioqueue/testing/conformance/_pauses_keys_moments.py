"""The cases of `SupportsPauses` about keys at certain moments: dry runs, and what somebody has locked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._pauses import of_key
from aioqueue.testing.conformance._tools import (
    HOUR,
    equal,
    expect_state,
    insert_one,
    job,
    states_of,
)
from aioqueue.testing.conformance._waiting import tend_all
from aioqueue.vocabulary._abilities import SupportsPauses
from aioqueue.vocabulary._job import JobState

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

from aioqueue.testing.conformance._pauses_keys import claim_all, park, resume

__all__ = ["subject"]

subject = Subject("paused_keys")


@subject()
async def a_dry_run_parks_too(harness: Harness) -> None:
    """What a claim of dry runs only parks isn't one."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    await store.pause([of_key("k")])
    job_id = await insert_one(base, job(key="k"))
    equal(await claim_all(base, await base.open_lease("w", HOUR), "a", dry_run=True), [], "what is claimed")
    found = await expect_state(base, job_id, JobState.HELD)
    equal(found.origin, None, "where it comes from")


@subject(Capability.LOCKS_ROWS)
async def what_somebody_has_locked(harness: Harness) -> None:
    """A parked job whose row is locked stays as it is for the time being, and stops none of the others; it comes back later."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    await store.pause([of_key("k")])
    locked, other = await park(base, job(key="k"), job(key="k"))
    async with harness.locked(locked):
        await resume(base, "k")
        equal(await states_of(base, locked, other), [JobState.HELD, JobState.READY], "the states")
    await tend_all(base)
    await expect_state(base, locked, JobState.READY)


@subject(Capability.LOCKS_ROWS)
async def a_locked_one_is_not_waited_for(harness: Harness) -> None:
    """Claims pass by a job with a paused key whose row is locked, and park it later."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    locked, other = job(key="k", priority=1), job()
    await base.insert([locked, other])
    await store.pause([of_key("k")])
    lease_id = await base.open_lease("w", HOUR)
    async with harness.locked(locked.id):
        equal([each.id for each in await base.claim(lease_id, ["a"], 10)], [other.id], "what is claimed beside a locked one")
    equal(await claim_all(base, lease_id, "a"), [], "what is claimed once it isn't locked")
    await expect_state(base, locked.id, JobState.HELD)
