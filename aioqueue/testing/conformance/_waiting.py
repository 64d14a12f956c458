"""What the cases about jobs that wait for others share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict, Unpack

from aioqueue.testing.conformance._tools import HOUR, check, equal, failure, job, settlement, start_one, written
from aioqueue.vocabulary._blockers import NewBlocker
from aioqueue.vocabulary._job import Ending, SettlementKind

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.vocabulary._blockers import ChainEnd, Tended
    from aioqueue.vocabulary._job import AttemptError, ClaimedJob, Job, NewJob, Settlement

__all__ = [
    "EndingFields",
    "after",
    "caused",
    "complete",
    "completed",
    "ending",
    "ends_well",
    "fail",
    "failed",
    "settled_after",
    "start_blocker",
    "tend_all",
    "told",
    "waiting_for",
    "waits_for",
]


def after(new: NewJob, *chains: UUID) -> NewJob:
    """The job, which also waits for these chains, and fails if one of them doesn't complete."""
    return replace(new, blockers=(*new.blockers, *(NewBlocker(chain_id) for chain_id in chains)))


def settled_after(new: NewJob, *chains: UUID) -> NewJob:
    """The job, which also waits for these chains, however they end."""
    return replace(new, blockers=(*new.blockers, *(NewBlocker(chain_id, settled=True) for chain_id in chains)))


async def start_blocker(store: Store, job_type: str = "blocker", **fields: int) -> ClaimedJob:
    """Start a job of a type of its own, for others to wait for."""
    return await start_one(store, await store.open_lease("w", HOUR), job(job_type, max_attempts=fields.get("max_attempts")))


class EndingFields(TypedDict, total=False):
    """Fields of `Ending` beside its id and kind."""

    output: bytes | None
    outcome: str | None
    error: AttemptError | None
    next: NewJob | None
    children: tuple[NewJob, ...]


def ending(job_id: UUID, kind: SettlementKind = SettlementKind.COMPLETED, **fields: Unpack[EndingFields]) -> Ending:
    """How somebody other than a worker ends a job."""
    if kind is SettlementKind.COMPLETED:
        fields.setdefault("output", b"1")
    if kind is SettlementKind.FAILED:
        fields.setdefault("error", failure(attempt=0, message="refused by the boss"))
    return Ending(id=job_id, kind=kind, **fields)


def ends_well(claimed: ClaimedJob, output: bytes = b"1") -> Settlement:
    """The good end of a claimed job."""
    return settlement(claimed, SettlementKind.COMPLETED, output=output)


async def complete(store: Store, claimed: ClaimedJob, output: bytes = b"1") -> None:
    """End a claimed job well."""
    await written(store, ends_well(claimed, output))


async def fail(store: Store, claimed: ClaimedJob, message: str = "boom") -> None:
    """End a claimed job badly."""
    await written(store, settlement(claimed, SettlementKind.FAILED, error=failure(message=message)))


async def completed(store: Store, output: bytes = b"1") -> UUID:
    """The chain of a job that has completed."""
    claimed = await start_blocker(store)
    await complete(store, claimed, output)
    return claimed.id


async def failed(store: Store, message: str = "boom") -> UUID:
    """The chain of a job that has failed."""
    claimed = await start_blocker(store)
    await fail(store, claimed, message)
    return claimed.id


async def tend_all(store: Store, limit: int = 100) -> Tended:
    """Tend until there is nothing to do at once; the sum of what was done."""
    done = await store.tend(limit)
    for _ in range(1000):
        if not done.more:
            return done
        more = await store.tend(limit)
        done = replace(
            more,
            resolved=done.resolved + more.resolved,
            failed=done.failed + more.failed,
            expired=done.expired + more.expired,
            resumed=done.resumed + more.resumed,
        )
    raise AssertionError(f"tending must come to an end: {done!r}")


async def waits_for(store: Store, job_id: UUID) -> list[tuple[UUID, bool]]:
    """The chains that a job waits for, or has waited for, in order, and whether each was counted."""
    found = await store.list_blockers(job_id, 1000)
    equal([each.job_id for each in found], [job_id] * len(found), "whose blockers are listed")
    return [(each.chain_id, each.resolved) for each in found]


async def waiting_for(store: Store, chain_id: UUID) -> list[UUID]:
    """The jobs that wait for a chain, in order."""
    found = await store.list_dependents(chain_id, 1000)
    equal([each.chain_id for each in found], [chain_id] * len(found), "the chain whose dependents are listed")
    return [each.job_id for each in found]


def told(claimed: ClaimedJob) -> list[tuple[UUID, ChainEnd, bytes | None]]:
    """How the chains ended that a claimed job has waited for, as it's told."""
    return [(each.chain_id, each.end, each.output) for each in claimed.blockers]


def caused(found: Job, *texts: object) -> None:
    """Raise AssertionError unless a job failed since another did, and says which one."""
    error = found.last_error
    if error is None:
        raise AssertionError(f"a job that fails since a blocker did must say so: {found!r}")
    equal(error.type, "BlockerFailed", "the type of the newest entry in the history")
    missing = [text for text in texts if str(text) not in error.message]
    check(not missing, f"the message must name the first cause: {missing!r} are not in {error.message!r}")
