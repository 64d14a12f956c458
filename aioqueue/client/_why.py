"""Why a job isn't running: put together of what is stored about it, of the workers' leases, and of the line before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.client._reasons import Reason, ReasonCode, Why
from aioqueue.client._why_gates import status_of_gate
from aioqueue.client._why_paused import held_reasons, paused_reasons
from aioqueue.store_rules._unique_keys import TAKEN_OVER_ORDINAL
from aioqueue.vocabulary._abilities import SupportsPauses
from aioqueue.vocabulary._gates import GateKind, kind_of
from aioqueue.vocabulary._job import JobState, was_discarded
from aioqueue.vocabulary._time import duration_text

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.vocabulary._blockers import Blocker
    from aioqueue.vocabulary._gates import GateStatus
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._pauses import Pause
    from aioqueue.vocabulary._workers import LeaseFacts, Standing

__all__ = ["find_reasons", "why"]

_MOST_NAMED = 10
_PAGE_BLOCKERS = 1_000
_TRIES = 5
_COUNTED_JOBS = 10_000


async def why(store: Store, job_id: UUID, *, declared: bool = False) -> Why:
    """Look at a job, the leases, the line before it, what it waits for, and what is paused.

    Arguments:
        store: Open.
        job_id: The job's.
        declared: Whether it's known to be of a type that is only declared where this is asked.
    """
    (job,) = await store.fetch([job_id])
    standing: Standing | None = None
    leases = await store.leases()
    for _ in range(_TRIES):
        standing = None
        if job is None or job.state.finished:
            break
        standing = await store.standing(job_id, _rivals(job.type, leases))
        leases, before = await store.leases(), job
        (job,) = await store.fetch([job_id])
        # These are several looks: one that moved between them is looked at again, so that they fit together.
        if job is not None and (job.state, job.attempt, job.started_at) == (before.state, before.attempt, before.started_at):
            break
    end: Job | None = None
    if job is None or job.state is JobState.CONTINUED:
        (end,) = await store.fetch_ends([job_id])
    if job is None and end is not None and end.id == job_id:  # stored since the look above
        end = None
    blocked = job is not None and job.state is JobState.BLOCKED
    waits_for = await _open_blockers(store, job_id) if blocked else ()
    waiting = job is not None and job.state is not JobState.RUNNING and not job.state.finished
    pauses = await store.list_pauses() if waiting and isinstance(store, SupportsPauses) else ()
    gone = None if end is None else JobState.CONTINUED
    gate = await status_of_gate(store, job)
    reasons = find_reasons(job, standing, leases, end, waits_for=waits_for, declared=declared, pauses=pauses, gate=gate)
    return Why(
        id=job_id,
        state=gone if job is None else job.state,
        reasons=tuple(reasons),
        job=job,
        chain_end=end,
    )


async def _open_blockers(store: Store, job_id: UUID) -> Sequence[Blocker]:
    """The first of the chains that it still waits for, and the one whose unique key it took over: its ordinal is the last."""
    found: list[Blocker] = []
    after = -1
    while len(found) <= _MOST_NAMED:
        page = await store.list_blockers(job_id, _PAGE_BLOCKERS, after=after)
        found += [each for each in page if not each.resolved and each.ordinal < TAKEN_OVER_ORDINAL]
        if len(page) < _PAGE_BLOCKERS:
            break
        after = page[-1].ordinal
    replaced = await store.list_blockers(job_id, 1, after=TAKEN_OVER_ORDINAL - 1)
    return found + [each for each in replaced if not each.resolved]


def _rivals(job_type: str, leases: Sequence[LeaseFacts]) -> Collection[str]:
    """The types that wait for the same slots."""
    return {job_type, *(name for each in _serving(job_type, _alive(leases)) for name in each.types or ())}


def _alive(leases: Sequence[LeaseFacts]) -> list[LeaseFacts]:
    return [each for each in leases if each.ends_in > 0]


def _serving(job_type: str, alive: Sequence[LeaseFacts]) -> list[LeaseFacts]:
    return [each for each in alive if each.types is not None and job_type in each.types]


def find_reasons(
    job: Job | None,
    standing: Standing | None,
    leases: Sequence[LeaseFacts],
    end: Job | None = None,
    *,
    waits_for: Sequence[Blocker] = (),
    declared: bool = False,
    pauses: Sequence[Pause] = (),
    gate: GateStatus | None = None,
) -> list[Reason]:
    """Say why a job isn't running.

    Arguments:
        job: As it is stored.
        standing: Where it stands; None if it isn't live.
        leases: Of all workers.
        end: The live or last step of its chain, where that has gone on from it; None if that is gone.
        waits_for: The first of the chains that it still waits for.
        declared: Whether it's known to be of a type that is only declared.
        pauses: All that there are.
        gate: How the gate is at which it's held, if it is.
    """
    if job is None and end is not None:
        return [_continued(None, end)]
    if job is None:
        return [
            Reason(
                ReasonCode.NOT_FOUND,
                "there is no such job: it was never committed, or has been deleted",
                "Look whether the transaction that enqueued it was committed, and whether it went to this database.",
            )
        ]
    if job.state is JobState.CONTINUED:
        return [_continued(job, end)]
    if job.state.finished:
        return [_finished(job)]
    asked = [] if job.cancel_reason is None else [_cancelling(job, job.cancel_reason)]
    paused = paused_reasons(job, pauses)
    if job.state is JobState.BLOCKED:
        return [*asked, *_blocked(job, waits_for), *paused]
    if job.state is JobState.RUNNING:
        return asked + _running(job, standing, leases)
    return asked + _waiting(job, standing, leases, paused, gate, declared=declared)


def _waiting(
    job: Job,
    standing: Standing | None,
    leases: Sequence[LeaseFacts],
    paused: list[Reason],
    gate: GateStatus | None,
    *,
    declared: bool,
) -> list[Reason]:
    if standing is None:
        return paused or _about_to_start(0.0)
    held = held_reasons(job, paused, gate) if job.state is JobState.HELD else []
    waiting = (standing.now - job.run_at).total_seconds()
    alone = [_unanswered(job)] if declared and not _serving(job.type, _alive(leases)) else _without_worker(job, leases)
    if waiting < 0:
        return [_not_due(job, -waiting), *paused, *held, *alone]
    late = [_expires(job.expires_at)] if _is_late(job, standing.now) else []
    if kept_back := paused + held:
        busy = _in_line(job, standing, leases) if gate is not None and kind_of(gate.gate) is GateKind.FAIR else []
        return late + kept_back + (alone or busy)
    return late + (alone or _in_line(job, standing, leases) or _about_to_start(waiting))


def _cancelling(job: Job, reason: str) -> Reason:
    text = f"it was asked to end{f': {reason}' if reason else ''}"
    if job.state is not JobState.RUNNING:
        return Reason(ReasonCode.CANCELLING, f"{text}; workers see to that within seconds, and it doesn't start any more")
    return Reason(
        ReasonCode.CANCELLING,
        f"{text}; its worker is told, and it ends with its attempt",
        "If that takes long, its handler doesn't let itself be cancelled: the worker's log names it. One that runs in a thread "
        "has to look at `attempt.cancelled`.",
    )


def _blocked(job: Job, waits_for: Sequence[Blocker]) -> list[Reason]:
    if not waits_for and not job.open_blockers:
        return held_reasons(job, ())
    replaced = [each for each in waits_for if each.ordinal >= TAKEN_OVER_ORDINAL]
    others = [each for each in waits_for if each.ordinal < TAKEN_OVER_ORDINAL]
    number = max(job.open_blockers - len(replaced), len(others))
    reasons = [_replaces(each) for each in replaced]
    if not number:
        return reasons
    names = [f"{each.type or 'a job that is gone'} {each.chain_id}{_state_of(each)}" for each in others[:_MOST_NAMED]]
    more = f" and {number - len(names):,} more" if number > len(names) else ""
    which = f": {', '.join(names)}{more}" if names else ", of whose ends it's about to hear"
    advice = f"To see why that is so: `aioqueue jobs why {others[0].chain_id}`." if others else ""
    return [Reason(ReasonCode.BLOCKED, f"it waits for {number:,} chain{'s' if number > 1 else ''}{which}", advice), *reasons]


def _replaces(blocker: Blocker) -> Reason:
    chain = blocker.chain_id
    return Reason(
        ReasonCode.KEY_TAKEN_OVER,
        f"it took its unique key over from {blocker.type or 'a job that is gone'} {chain}{_state_of(blocker)}, and waits until "
        "that chain has ended, however it ends",
        f"To see why it hasn't: `aioqueue jobs why {chain}`. If it isn't wanted any more, end it: "
        f"`aioqueue jobs fail {chain} --reason TEXT`.",
    )


def _state_of(blocker: Blocker) -> str:
    return "" if blocker.state is None else f" ({blocker.state.value})"


def _unanswered(job: Job) -> Reason:
    return Reason(
        ReasonCode.UNANSWERED,
        f"it waits to be completed from outside: {job.type} is only declared, and no worker that is alive runs it",
        f"Complete it: `client.complete(...)`, `aioqueue jobs complete {job.id} OUTPUT`; or fail it: "
        f"`aioqueue jobs fail {job.id} --reason TEXT`.",
    )


def _finished(job: Job) -> Reason:
    error = f": {job.last_error}" if job.last_error is not None else ""
    when = _at(job.finished_at)
    if job.state is JobState.FAILED:
        return Reason(
            ReasonCode.FAILED,
            f"it failed for good at {when}{_attempt(job)}{error}",
            f"When the cause is gone: `aioqueue jobs retry {job.id}`.",
        )
    if job.state is JobState.CANCELLED:
        if was_discarded(job):
            return Reason(
                ReasonCode.EXPIRED,
                f"no worker started it before {_at(job.expires_at)}, as it had to be, so it was discarded at {when}",
                f"See that there are enough workers for its type. If it's still wanted: `aioqueue jobs retry {job.id}`.",
            )
        again = f"If it's still wanted: `aioqueue jobs retry {job.id}`."
        return Reason(ReasonCode.CANCELLED, f"it was cancelled at {when}{error}", again)
    how = "it has run: it completed" if job.attempt else "it was completed from outside"
    return Reason(ReasonCode.COMPLETED, f"{how} at {when}{_attempt(job)}")


def _attempt(job: Job) -> str:
    """At which attempt it ended: at none, if it was ended from outside or since another job had failed."""
    return f", at attempt {job.attempt}" if job.attempt else ""


def _continued(job: Job | None, end: Job | None) -> Reason:
    if job is None:
        text = "it has run, its chain has gone on from it, and it has been removed since"
    else:
        text = f"it has run, and its chain has gone on from it at {_at(job.finished_at)}"
    if end is None or end.state is JobState.CONTINUED:
        return Reason(ReasonCode.CONTINUED, f"{text}; the last steps of the chain have been removed")
    return Reason(
        ReasonCode.CONTINUED,
        f"{text}: the chain {end.chain_id} is at step {end.position} now, {end.type} {end.id}, which is {end.state.value}",
        f"To see why that is so: `aioqueue jobs why {end.id}`. All steps: `aioqueue chains show {end.chain_id}`.",
    )


def _running(job: Job, standing: Standing | None, leases: Sequence[LeaseFacts]) -> list[Reason]:
    lease_id = None if standing is None else standing.lease_id
    lease = next((each for each in leases if each.id == lease_id), None)
    if lease is not None and lease.ends_in > 0:
        return [
            Reason(
                ReasonCode.RUNNING,
                f"it is running: attempt {job.attempt}{_how_far(job)}, on the worker {lease.worker}, "
                f"since {_at(job.started_at)}; that worker's lease is valid for another {duration_text(lease.ends_in)}, "
                "and is renewed as long as it lives",
                "If it takes too long, see that worker's log, and give the job a timeout.",
            )
        ]
    if lease is None:
        gone = f"the worker that began it at {_at(job.started_at)} has no lease any more"
    else:
        ago = duration_text(-lease.ends_in)
        gone = f"the worker {lease.worker}, which began it at {_at(job.started_at)}, lost its lease {ago} ago"
    if _alive(leases):
        text, advice = "a worker that is alive takes it over within seconds, and then its retry policy counts", ""
    else:
        text, advice = "no worker is alive that could take it over", "Start a worker: `aioqueue worker MODULE:REGISTRY`."
    return [Reason(ReasonCode.WORKER_LOST, f"{gone}: {text}", advice)]


def _how_far(job: Job) -> str:
    return "" if job.progress is None else f" ({job.progress.percent:.0f} % done at {_at(job.progress.at)})"


def _not_due(job: Job, seconds: float) -> Reason:
    when = f"at {_at(job.run_at)}, in {duration_text(seconds)}"
    advice = f"To have it now: `aioqueue jobs run-now {job.id}`."
    if job.started_at is None and not job.attempt:
        return Reason(ReasonCode.SCHEDULED, f"it is due {when}", advice)
    if job.last_error is not None and job.last_error.attempt == job.attempt:
        text = f"attempt {job.last_error.attempt} failed at {_at(job.last_error.at)} ({job.last_error}); the next one is {when}"
        return Reason(ReasonCode.RETRY, text, advice)
    return Reason(ReasonCode.RESCHEDULED, f"it was put off, by its handler or by hand: it is due {when}", advice)


def _is_late(job: Job, now: datetime) -> bool:
    return job.expires_at is not None and job.expires_at <= now and job.started_at is None


def _expires(expires_at: datetime | None) -> Reason:
    return Reason(
        ReasonCode.EXPIRES,
        f"it had to be started before {_at(expires_at)}: the next worker that takes it discards it",
        "Enqueue it anew, with a longer `expires`.",
    )


def _without_worker(job: Job, leases: Sequence[LeaseFacts]) -> list[Reason]:
    """Why nobody would take it, even if it stood first; nothing where somebody would."""
    alive = _alive(leases)
    if not alive:
        gone = (
            f"; the last one seen is {leases[0].worker}, whose lease ran out {duration_text(-leases[0].ends_in)} ago"
            if leases
            else ""
        )
        advice = "Start a worker on this database: `aioqueue worker MODULE:REGISTRY`."
        return [Reason(ReasonCode.NO_WORKER, f"no worker is alive{gone}", advice)]
    if _serving(job.type, alive):
        return []
    silent = sorted({each.worker for each in alive if each.types is None})
    if silent:
        text = f"no worker says that it runs {job.type}; these are of a version that doesn't say: {_some(silent)}"
        return [Reason(ReasonCode.TYPES_UNKNOWN, text, "Look at their settings, or upgrade them.")]
    served = sorted({name for each in alive for name in each.types or ()})
    return [
        Reason(
            ReasonCode.NO_WORKER_FOR_TYPE,
            f"no worker that is alive runs {job.type}: they run {_some(served) or 'nothing'}",
            "Start a worker whose registry has that type, and whose --types, if it's given, names it; or, if it was renamed, "
            "give it this name as an alias. If it's meant to be completed from outside, do that: `client.complete(...)`.",
        )
    ]


def _in_line(job: Job, standing: Standing, leases: Sequence[LeaseFacts]) -> list[Reason]:
    """What is before it: busy slots, other jobs."""
    reasons: list[Reason] = []
    serving = {each.worker for each in _serving(job.type, _alive(leases))}
    slots, running = 0, 0
    for each in leases:
        if each.worker in serving and each.ends_in > 0:
            slots += 0 if each.extra else each.slots or 0
            running += each.running
    if slots and running >= slots:
        workers = f"the {len(serving)} workers that run" if len(serving) > 1 else "the one worker that runs"
        reasons.append(
            Reason(
                ReasonCode.SLOTS_BUSY,
                f"all {slots} slots of {workers} {job.type} are busy",
                "Start more workers, or raise --concurrency if the jobs mostly wait for something.",
            )
        )
    if standing.before:
        most = f"{standing.before:,}{' or more' if standing.before >= _COUNTED_JOBS else ''} due jobs come before it, which are"
        text = "1 due job comes before it, which is" if standing.before == 1 else most
        reasons.append(
            Reason(
                ReasonCode.JOBS_BEFORE,
                f"{text} more urgent or due for longer",
                "Start more workers; what is more urgent is enqueued with a lower `priority`.",
            )
        )
    return reasons


def _about_to_start(waiting: float) -> list[Reason]:
    return [
        Reason(
            ReasonCode.ABOUT_TO_START,
            f"it has been due for {duration_text(waiting)}, and is about to be started: a slot is free, and nothing is before "
            "it",
            "If this stays so, some transaction may have locked the job's row, or the workers can't claim: see their logs.",
        )
    ]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


def _at(time: datetime | None) -> str:
    return "an unknown time" if time is None else f"{time:%Y-%m-%d %H:%M:%S} UTC"
