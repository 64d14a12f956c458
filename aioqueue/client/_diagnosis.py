"""What is wrong with the database, the workers and the queue: the store's own checks, and those that are alike for all."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from aioqueue.client._diagnosis_gates import gates_of_fields, judge_fields, judge_limits, judge_sequences
from aioqueue.client._diagnosis_planned import MOST_SCHEDULES, all_schedules, judge_pauses, judge_schedules
from aioqueue.store_rules._diagnosis import run_checks
from aioqueue.vocabulary._abilities import SupportsDiagnosis, SupportsGates, SupportsPauses, SupportsSchedules
from aioqueue.vocabulary._abilities_telling import SupportsWebhooks
from aioqueue.vocabulary._finding import Finding, Verdict
from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._webhooks import DeliveryState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from aioqueue.abc import Store
    from aioqueue.client._session import Session
    from aioqueue.definitions._registry import Registry
    from aioqueue.vocabulary._stats import TypeStats
    from aioqueue.vocabulary._webhooks import DeliveryPage
    from aioqueue.vocabulary._workers import LeaseFacts

__all__ = ["diagnose", "judge_deliveries", "judge_leases", "judge_registry", "judge_types"]

_ANOTHERS_TURN_SECONDS = 60.0
"""For how long jobs may wait for a worker, and dead workers' jobs for another, before that is a fault."""
_UNSENT_SECONDS = 300.0
"""For how long webhooks may be due: this machine's clock may be another one than the database's."""
_MOST_DELIVERIES = 100
_MOST_NAMED = 10
# Without these there's no queue to be looked at, or opening it would make or change something.
_NEEDED = frozenset({"connection", "file", "schema", "journal_mode"})
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
    return findings + await _look_at_queue(session, registry)


async def _look_at_queue(session: Session, registry: Registry | None) -> list[Finding]:
    opened_here = False

    async def opened() -> list[Finding]:
        nonlocal opened_here
        if not session.is_open:
            await session.open()
            opened_here = True
        session.opened()
        return []

    try:
        if cant := await run_checks({"queue": opened}):
            return cant
        asked = _Asked(session.opened().store)
        checks: dict[str, Callable[[], Awaitable[list[Finding]]]]
        checks = {"workers": partial(_workers, asked), "types": partial(_types, asked, registry)}
        store = session.opened().store
        if isinstance(store, SupportsPauses):
            checks["pauses"] = partial(_pauses, store)
        if isinstance(store, SupportsGates):
            checks["limits"] = partial(_limits, store, registry)
            checks["sequences"] = partial(_sequences, store)
        if isinstance(store, SupportsSchedules):
            checks["schedules"] = partial(_schedules, store, asked, registry)
        if isinstance(store, SupportsWebhooks):
            checks["webhooks"] = partial(_webhooks, store)
        if registry is not None:
            checks["registry"] = partial(_registry, asked, registry)
        return await run_checks(checks)
    finally:
        if opened_here:
            await session.close()


class _Asked:
    """What the store answers, asked once for all checks; what it didn't answer, the next check asks again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._leases: Sequence[LeaseFacts] | None = None
        self._types: Mapping[str, TypeStats] | None = None

    async def leases(self) -> Sequence[LeaseFacts]:
        if self._leases is None:
            self._leases = await self._store.leases()
        return self._leases

    async def types(self) -> Mapping[str, TypeStats]:
        if self._types is None:
            self._types = (await self._store.stats()).types
        return self._types


async def _workers(asked: _Asked) -> list[Finding]:
    return judge_leases(await asked.leases())


async def _types(asked: _Asked, registry: Registry | None) -> list[Finding]:
    leases = await asked.leases()
    return judge_types(await asked.types(), leases, () if registry is None else registry.declared)


async def _pauses(store: SupportsPauses) -> list[Finding]:
    return judge_pauses(await store.list_pauses())


async def _limits(store: SupportsGates, registry: Registry | None) -> list[Finding]:
    findings = judge_limits(await store.list_limits(), registry)
    if registry is not None and (gates := gates_of_fields(registry)):
        findings += judge_fields(gates, await store.gate_statuses([each.gate for each in gates]))
    return findings


async def _sequences(store: SupportsGates) -> list[Finding]:
    return judge_sequences(await store.kept_sequences())


async def _schedules(store: SupportsSchedules, asked: _Asked, registry: Registry | None) -> list[Finding]:
    schedules = await all_schedules(store)
    due = await store.due_schedules(MOST_SCHEDULES)
    return judge_schedules(schedules, due, await asked.leases(), () if registry is None else registry.declared)


async def _webhooks(store: SupportsWebhooks) -> list[Finding]:
    newest = await store.list_deliveries(state=DeliveryState.PENDING, limit=_MOST_DELIVERIES)
    return judge_deliveries(newest, datetime.now(UTC))


async def _registry(asked: _Asked, registry: Registry) -> list[Finding]:
    return judge_registry(await asked.types(), registry)


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


def judge_deliveries(pending: DeliveryPage, now: datetime) -> list[Finding]:
    """Whether webhooks wait that nobody sends. Nothing is said of a queue that has none."""
    waited = [(now - each.next_at).total_seconds() for each in pending.deliveries if each.next_at is not None]
    late = [each for each in waited if each > _UNSENT_SECONDS]
    if not late:
        return []
    more = " or more" if pending.cursor is not None else ""
    seen = f"{_count(len(late), 'webhook')}{more} due, one for {max(late):.0f} s: no worker sends them"
    advice = "Give a worker AIOQUEUE_WEBHOOK_SECRET, and install the extra `webhooks` with it."
    return [Finding("webhooks", Verdict.WARNING, seen, advice)]


def judge_types(types: Mapping[str, TypeStats], leases: Sequence[LeaseFacts], declared: Collection[str] = ()) -> list[Finding]:
    """Which types have jobs that are due, and no worker that runs them. Jobs of declared types wait for an answer."""
    alive = [each for each in leases if each.ends_in > 0]
    served = {name for each in alive for name in each.types or ()}
    silent = sorted({each.worker for each in alive if each.types is None})
    waiting = {name: each for name, each in types.items() if each.counts.get(JobState.READY)}
    unserved = sorted(set(waiting) - served - set(declared), key=lambda name: -(waiting[name].oldest_ready or 0.0))
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
    if answers := sorted(set(waiting) & set(declared) - served):
        seen = f"{seen}, or only declared, so that its jobs wait for an answer: {_some(answers)}"
    return [Finding("types", Verdict.OK, seen)]


def judge_registry(types: Mapping[str, TypeStats], registry: Registry) -> list[Finding]:
    """Which types have unfinished jobs, and no handler in the registry."""
    unfinished = [name for name, each in types.items() if any(not state.finished for state in each.counts)]
    unknown = sorted(set(unfinished) - set(registry.types))
    if not unknown:
        seen = f"it has a handler for each of the {len(unfinished)} types with unfinished jobs"
        if answers := sorted(set(unfinished) & registry.declared):
            seen = f"{seen}, but for what it only declares: {_some(answers)}"
        return [Finding("registry", Verdict.OK, seen)]
    seen = f"it has no handler for {_some(unknown)}, of which there are unfinished jobs"
    advice = "If another registry has them, all is well; if a type was renamed, give it the older name as an alias."
    return [Finding("registry", Verdict.WARNING, seen, advice)]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"
