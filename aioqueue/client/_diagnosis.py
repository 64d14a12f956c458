"""What is wrong with the database, the workers and the queue: the store's own checks, and those that are alike for all."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from aioqueue.store_rules._diagnosis import run_checks
from aioqueue.vocabulary._abilities import SupportsDiagnosis
from aioqueue.vocabulary._finding import Finding, Verdict
from aioqueue.vocabulary._job import JobState

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from aioqueue.abc import Store
    from aioqueue.client._session import Session
    from aioqueue.definitions._registry import Registry
    from aioqueue.vocabulary._stats import TypeStats
    from aioqueue.vocabulary._workers import LeaseFacts

__all__ = ["diagnose", "judge_leases", "judge_registry", "judge_types"]

_ANOTHERS_TURN_SECONDS = 60.0
"""For how long jobs may wait for a worker, and dead workers' jobs for another, before that is a fault."""
_MOST_NAMED = 10
_QUEUE_SECONDS = 60.0
# Without these there's no queue to be looked at, or opening it would make or change something.
_NEEDED = frozenset({"connection", "file", "schema"})
_START_A_WORKER = "Start a worker on this database: `aioqueue worker MODULE:REGISTRY`."


async def diagnose(session: Session, registry: Registry | None) -> list[Finding]:
    """Make the store's checks, and then look at the queue.

    Arguments:
        session: The client's. If it isn't open, it's opened for a while, where that changes nothing.
        registry: Has the job types of the workers; None leaves that check out.
    """
    findings: list[Finding] = []
    if isinstance(store := session.store, SupportsDiagnosis):
        findings += await store.diagnose()
    lacking = [each.check for each in findings if each.check in _NEEDED and each.verdict is not Verdict.OK]
    if lacking:
        findings.append(Finding("queue", Verdict.UNKNOWN, f"not looked at, because of {', '.join(sorted(set(lacking)))}"))
        return findings
    return findings + await run_checks({"queue": partial(_look_at_queue, session, registry)}, longest=_QUEUE_SECONDS)


async def _look_at_queue(session: Session, registry: Registry | None) -> list[Finding]:
    async with _opened(session) as store:
        checks = {"workers": partial(_workers, store), "types": partial(_types, store)}
        if registry is not None:
            checks["registry"] = partial(_registry, store, registry)
        return await run_checks(checks)


@asynccontextmanager
async def _opened(session: Session) -> AsyncGenerator[Store, None]:
    if session.is_open:
        yield session.opened().store
        return
    await session.open()
    try:
        yield session.store
    finally:
        await session.close()


async def _workers(store: Store) -> list[Finding]:
    return judge_leases(await store.leases())


async def _types(store: Store) -> list[Finding]:
    leases = await store.leases()
    return judge_types((await store.stats()).types, leases)


async def _registry(store: Store, registry: Registry) -> list[Finding]:
    return judge_registry((await store.stats()).types, registry)


def judge_leases(leases: Sequence[LeaseFacts]) -> list[Finding]:
    """Who works, and whose jobs nobody has taken over."""
    names = sorted({each.worker for each in leases if each.ends_in > 0})
    if names:
        findings = [Finding("workers", Verdict.OK, f"{_count(len(names), 'worker')} alive: {_some(names)}")]
    else:
        findings = [Finding("workers", Verdict.WARNING, "no worker is alive", _START_A_WORKER)]
    lost = [each for each in leases if each.ends_in < -_ANOTHERS_TURN_SECONDS]
    findings += [
        Finding(
            "lost_workers",
            Verdict.PROBLEM if each.running else Verdict.WARNING,
            f"the lease of the worker {each.worker} ran out {-each.ends_in:.0f} s ago, and nobody has taken over its "
            f"{_count(each.running, 'job')}",
            "Every worker does that within seconds: see in their logs why not." if names else _START_A_WORKER,
        )
        for each in lost[:_MOST_NAMED]
    ]
    if len(lost) > _MOST_NAMED:
        findings.append(Finding("lost_workers", Verdict.WARNING, f"and {len(lost) - _MOST_NAMED} more leases that ran out"))
    return findings


def judge_types(types: Mapping[str, TypeStats], leases: Sequence[LeaseFacts]) -> list[Finding]:
    """Which types have jobs that are due, and no worker that runs them."""
    alive = [each for each in leases if each.ends_in > 0]
    served = {name for each in alive for name in each.types or ()}
    silent = sorted({each.worker for each in alive if each.types is None})
    waiting = {name: each for name, each in types.items() if each.counts.get(JobState.READY)}
    unserved = sorted(set(waiting) - served, key=lambda name: -(waiting[name].oldest_ready or 0.0))
    findings: list[Finding] = []
    for name in unserved[:_MOST_NAMED]:
        number, oldest = waiting[name].counts[JobState.READY], waiting[name].oldest_ready or 0.0
        more = " or more" if JobState.READY in waiting[name].capped else ""
        due = f"{number:,}{more} due {'job' if number == 1 else 'jobs'} of {name}, the oldest for {oldest:.0f} s"
        if silent:
            seen = f"{due}: it can't be told whether a worker runs them, as these are too old to say: {_some(silent)}"
            findings.append(Finding("types", Verdict.UNKNOWN, seen, "Look at their settings, or upgrade them."))
        else:
            findings.append(
                Finding(
                    "types",
                    Verdict.PROBLEM if oldest > _ANOTHERS_TURN_SECONDS else Verdict.WARNING,
                    f"{due}: no worker that is alive runs that type",
                    "Start a worker whose registry has that type, and whose --types, if it's given, names it; or, if it was "
                    "renamed, give it this name as an alias."
                    if alive
                    else _START_A_WORKER,
                )
            )
    if len(unserved) > _MOST_NAMED:
        findings.append(Finding("types", Verdict.WARNING, f"and {len(unserved) - _MOST_NAMED} more types that nobody runs"))
    if findings:
        return findings
    seen = "no jobs are due" if not waiting else "each type with due jobs is run by a worker that is alive"
    return [Finding("types", Verdict.OK, seen)]


def judge_registry(types: Mapping[str, TypeStats], registry: Registry) -> list[Finding]:
    """Which types have unfinished jobs, and no handler in the registry."""
    unfinished = [name for name, each in types.items() if any(not state.finished for state in each.counts)]
    unknown = sorted(set(unfinished) - set(registry.runnable))
    if not unknown:
        return [
            Finding("registry", Verdict.OK, f"it has a handler for each of the {len(unfinished)} types with unfinished jobs")
        ]
    seen = f"it has no handler for {_some(unknown)}, of which there are unfinished jobs"
    advice = "If another registry has them, all is well; if a type was renamed, give it the older name as an alias."
    return [Finding("registry", Verdict.WARNING, seen, advice)]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"
