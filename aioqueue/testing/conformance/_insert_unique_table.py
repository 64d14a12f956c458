"""The cases of `Store.insert` that walk the table of unique keys: each state of a holder, and each thing that may be asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.errors import DuplicateJob
from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._keys import FINISHED, STARTED, WINDOW
from aioqueue.testing.conformance._tools import HOUR, claim_one, equal, insert_one, job, settlement, written
from aioqueue.testing.conformance._waiting import after, waits_for
from aioqueue.vocabulary._job import SettlementKind

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import NewJob
    from aioqueue.vocabulary._unique import OnConflict, Unique

__all__ = ["OUTCOMES", "subject"]

subject = Subject("unique_table")

OUTCOMES: dict[tuple[str, str], tuple[str, str, str]] = {
    ("finished", "scheduled"): ("returned", "replaced", "raised"),
    ("finished", "ready"): ("returned", "replaced", "raised"),
    ("finished", "blocked"): ("returned", "replaced", "raised"),
    ("finished", "between attempts"): ("returned", "replaced", "raised"),
    ("finished", "running"): ("returned", "taken over", "raised"),
    ("finished", "continued"): ("returned", "taken over", "raised"),
    ("finished", "completed"): ("stored", "stored", "stored"),
    ("finished", "failed"): ("stored", "stored", "stored"),
    ("finished", "cancelled"): ("stored", "stored", "stored"),
    ("finished", "deleted"): ("stored", "stored", "stored"),
    ("window", "ready"): ("returned", "replaced", "raised"),
    ("window", "running"): ("returned", "taken over", "raised"),
    ("window", "completed"): ("returned", "returned", "raised"),
    ("window", "failed"): ("stored", "stored", "stored"),
    ("window", "cancelled"): ("stored", "stored", "stored"),
    ("window", "deleted"): ("stored", "stored", "stored"),
    ("started", "scheduled"): ("returned", "replaced", "raised"),
    ("started", "blocked"): ("returned", "replaced", "raised"),
    ("started", "running"): ("stored", "stored", "stored"),
    ("started", "between attempts"): ("stored", "stored", "stored"),
    ("started", "continued"): ("stored", "stored", "stored"),
    ("started", "completed"): ("stored", "stored", "stored"),
}
"""What becomes of a call with `on_conflict="return"`, `"replace"` and `"raise"`, by the holder's kind and state."""

_KINDS: dict[str, Unique] = {"finished": FINISHED, "window": WINDOW, "started": STARTED}
_CONFLICTS: tuple[OnConflict, ...] = ("return", "replace", "raise")
_ENDS = {
    "completed": SettlementKind.COMPLETED,
    "failed": SettlementKind.FAILED,
    "cancelled": SettlementKind.CANCELLED,
    "deleted": SettlementKind.COMPLETED,
    "between attempts": SettlementKind.RETRIED,
    "continued": SettlementKind.CONTINUED,
}


@subject()
async def each_state_and_option(harness: Harness) -> None:
    """What becomes of a call, for each state in which the holder of its key can be."""
    store = harness.store
    lease_id, blocker = await store.open_lease("w", HOUR), await insert_one(store, job("blocker"))
    for (kind, state), outcomes in OUTCOMES.items():
        for conflict, expected in zip(_CONFLICTS, outcomes, strict=True):
            key, unique = f"{kind} {state} {conflict}", _KINDS[kind]
            holder = await _holder(store, job(key, key="k", unique=unique), state, lease_id, blocker)
            new = job(key, key="k", unique=replace(unique, on_conflict=conflict))
            equal(
                await _outcome(store, new, holder), expected, f'a call with "{conflict}", where the holder is {state} ({kind})'
            )


async def _holder(store: Store, new: NewJob, state: str, lease_id: int, blocker: UUID) -> UUID:
    new = after(new, blocker) if state == "blocked" else replace(new, delay=HOUR if state == "scheduled" else None)
    await insert_one(store, new)
    if state == "running" or state in _ENDS:
        claimed = await claim_one(store, lease_id, new.type)
        if state in _ENDS:
            await written(store, settlement(claimed, _ENDS[state], delay=HOUR if state == "between attempts" else None))
    if state == "deleted":
        await store.delete([new.id])
    return new.id


async def _outcome(store: Store, new: NewJob, holder: UUID) -> str:
    try:
        (result,) = await store.insert([new])
    except DuplicateJob as error:
        equal(error.chain_id, holder, "the chain that has the key")
        return "raised"
    if result.created:
        waits = await waits_for(store, result.id)
        equal((result.id, waits), (new.id, [(holder, False)] if waits else []), "the new job, and what it waits for")
        return "taken over" if waits else "stored"
    equal(result.id, holder, "the id that is told")
    return "replaced" if result.replaced else "returned"
