"""Workers that make mistakes. Only the simulation runs them."""

from __future__ import annotations

import asyncio
import contextvars
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from aioqueue.vocabulary._job import LostReason, SettleResult
from aioqueue.vocabulary._retry import Retry
from aioqueue.worker import _lease, _outcome, _refusal, _shutdown, _slots, _worker
from aioqueue.worker._attempt import Attempts
from aioqueue.worker._holdings import Slot
from aioqueue.worker._lease import Leases
from aioqueue.worker._lease_thread import KeptLease, LeaseThread
from aioqueue.worker._outcome import INTERRUPTED, Interrupted
from aioqueue.worker._policy import Policy
from aioqueue.worker._recovery import Recovery
from aioqueue.worker._shutdown import Shutdown
from aioqueue.worker._slots import Slots
from aioqueue.worker._stop_reason import StopReason
from aioqueue.worker._unheld import Unheld
from aioqueue.worker._writer import Writer
from tests.known_mistakes.cancelling import WORKERS_CANCELLING
from tests.known_mistakes.mistake import Mistake, Patch, instead_of
from tests.known_mistakes.planning import WORKERS_PLANS
from tests.known_mistakes.progress import WORKERS_PHASES
from tests.simulation.plan import Theme
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioqueue.vocabulary._job import ClaimedJob, Settlement
    from aioqueue.worker._refusal import Refusal

__all__ = ["WORKER_MISTAKES"]


def _ignoring(ignored: StopReason) -> Patch:
    def cancel(real: Callable[..., None], slot: Slot, reason: StopReason) -> None:
        if reason is not ignored:
            real(slot, reason)

    return instead_of(Slot, "cancel", cancel)


def _start_expired(real: Callable[..., None], slots: Slots, job: ClaimedJob) -> None:
    object.__setattr__(job, "expired", False)
    real(slots, job)


async def _give_back_failures(real: Callable[..., Any], attempts: Attempts, slot: Slot) -> Any:
    outcome = await real(attempts, slot)
    return outcome if isinstance(outcome, Interrupted) or outcome.error is None else INTERRUPTED


def _start_twice(real: Callable[..., None], slots: Slots, job: ClaimedJob) -> None:
    real(slots, job)
    real(slots, job)


def _free_in_the_task(_: Any, slots: Slots, job: ClaimedJob) -> None:
    """What frees the slot is the task itself: not if it's cancelled before its first step."""
    slot = slots._holdings.hold(job)
    slots._holdings.running[slot.claim] = slot
    slots._bodies.add(job.id)

    async def run() -> None:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            done.set_result(await slots._run(slot))
        except asyncio.CancelledError:
            done.cancel()
        slots._ended(slot, done)

    slot.task = slots._loop.create_task(run(), context=slots._context.copy())


async def _let_out(slots: Slots, slot: Slot) -> Any:
    return await slots._attempts.run(slot)


async def _insist(real: Callable[..., Any], writer: Writer, settlements: Sequence[Settlement]) -> Any:
    """The whole batch is repeated until nothing of it is busy."""
    while True:
        results = await real(writer, settlements)
        if not any(result.busy for result in results):
            return results
        await asyncio.sleep(1)


async def _never_busy(real: Callable[..., Any], writer: Writer, settlements: Sequence[Settlement]) -> Any:
    return [SettleResult(result.lost, result.message) for result in await real(writer, settlements)]


def _refused_is_lost(real: Callable[..., None], writer: Writer, slot: Slot, reason: str, refusal: Refusal | None) -> None:
    """What is refused for the second time isn't held any more, so that the next renewals find it."""
    if refusal is None:
        real(writer, slot, reason, refusal)
        return
    writer._holdings.lose([slot], LostReason.ERROR)
    writer._done_with(slot, refusal)


def _first_reason_only(real: Callable[..., None], slot: Slot, reason: StopReason) -> None:
    if not slot.reasons:
        real(slot, reason)


async def _flush_for_ten_seconds(real: Callable[..., Any], shutdown: Shutdown, deadline: float) -> None:
    await real(shutdown, min(deadline, shutdown._loop.time() + 10))


def _forget_suspects(real: Callable[..., None], unheld: Unheld, lease_id: int, claims: Any) -> None:
    if unheld._under_way:
        unheld._suspects.pop(lease_id, None)
    else:
        real(unheld, lease_id, claims)


_HASTY: tuple[Patch, ...] = (
    (Recovery, "disturbed", lambda _: None),
    (Recovery, "_may_look", lambda recovery: recovery.due_in() <= 0),
)

_COPIED = SimpleNamespace(Context=contextvars.copy_context)


WORKER_MISTAKES: dict[str, Mistake] = {
    # -- workers: attempts
    "a worker that goes on after its lease was lost": Mistake(
        breaks=Promise.STOPS_WHEN_LOST, patches=(_ignoring(StopReason.LOST),)
    ),
    "a worker that ignores timeouts": Mistake(breaks=Promise.STOPS_IN_TIME, patches=(_ignoring(StopReason.TIMEOUT),)),
    "a worker that runs what has expired": Mistake(
        breaks=Promise.NOT_EXPIRED, patches=(instead_of(Slots, "start", _start_expired),)
    ),
    "a worker that runs a job twice at once": Mistake(
        breaks=Promise.ONCE_A_PROCESS, patches=((Slots, "runs_body_of", lambda *_: False),), theme=Theme.ROUGH
    ),
    "a worker that starts a claim twice": Mistake(
        breaks=Promise.ONCE_A_CLAIM, patches=(instead_of(Slots, "start", _start_twice),)
    ),
    "a worker that begins what it's given after it was stopped": Mistake(
        breaks=Promise.NOT_WHEN_STOPPED, patches=((Slots, "stop", lambda _: None),), theme=Theme.LATE
    ),
    "a worker that gives failed jobs back": Mistake(
        breaks=Promise.UNUSED_BACK, patches=(instead_of(Attempts, "run", _give_back_failures),)
    ),
    "a worker that retries for ever": Mistake(breaks=Promise.AS_IT_WENT, patches=((Policy, "exhausted", lambda *_: False),)),
    "a worker that retries at once": Mistake(breaks=Promise.AS_IT_WENT, patches=((Retry, "delay", lambda *_: 0.0),)),
    "a worker that lets errors of policies out": Mistake(
        breaks=Promise.IN_TIME,
        patches=(
            (_outcome, "delay_of", lambda job, policy: policy.retry.delay(job.attempt)),
            (Slots, "_run", _let_out),
            (Slots, "_outcome", lambda _, __, task: task.result()),
        ),
        theme=Theme.RUDE,
    ),
    "a worker whose jobs see the context of its start": Mistake(
        breaks=Promise.OWN_CONTEXT, patches=((_slots, "contextvars", _COPIED), (_worker, "contextvars", _COPIED))
    ),
    "a worker that forgets what was refused twice": Mistake(
        breaks=Promise.UNUSED_BACK, patches=(instead_of(Writer, "_refuse", _refused_is_lost),), theme=Theme.RUDE
    ),
    "a worker that writes what was refused again as it was": Mistake(
        breaks=Promise.IN_TIME, patches=((_refusal, "_INSTEAD", _refusal._INSTEAD[:1]),), theme=Theme.RUDE
    ),
    "a worker that repeats a batch while a row of it is locked": Mistake(
        breaks=Promise.IN_TIME,
        patches=(instead_of(Writer, "_settle", _insist),),
        theme=Theme.LOCKED,
    ),
    "a worker that takes a locked row for a written one": Mistake(
        breaks=Promise.UNUSED_BACK, patches=(instead_of(Writer, "_settle", _never_busy),), theme=Theme.LOCKED
    ),
    "a worker that cancels for the first reason only": Mistake(
        breaks=Promise.STOPS_WHEN_LOST, patches=(instead_of(Slot, "cancel", _first_reason_only),), theme=Theme.DEAF
    ),
    "a worker that waits for jobs that don't stop": Mistake(
        breaks=Promise.WORKERS_END, patches=((_shutdown, "_INTERRUPTED_SECONDS", 1e9),), theme=Theme.DEAF
    ),
    "a stopping worker that drops outcomes after ten seconds": Mistake(
        breaks=Promise.NOT_DROPPED, patches=(instead_of(Shutdown, "_flush", _flush_for_ten_seconds),), theme=Theme.LEAVING
    ),
    "a worker whose tasks free their slots": Mistake(
        breaks=Promise.SLOTS_FREE, patches=(instead_of(Slots, "start", _free_in_the_task),), theme=Theme.FROZEN
    ),
    # -- workers: leases
    "a worker that never renews its lease": Mistake(
        breaks=Promise.WELL_KEEPS_LEASE, patches=((LeaseThread, "_renew", lambda *_: None),)
    ),
    "a worker that gives a silent line ten seconds": Mistake(
        breaks=Promise.WELL_KEEPS_LEASE, patches=((_lease, "longest_try", lambda _: 10.0),), theme=Theme.SILENT
    ),
    "a worker that goes on when its lease is over": Mistake(
        breaks=Promise.STOPS_WHEN_OVER, patches=((Leases, "_cancel_under", lambda *_: None),), theme=Theme.SILENT
    ),
    "a worker that renews first what ends first, or is over": Mistake(
        breaks=Promise.STOPS_WHEN_OVER,
        patches=((KeptLease, "urgency", lambda lease, now: (lease.due > now, lease.ends)),),
        theme=Theme.SILENT,
    ),
    "a worker that renews the leases of what it left behind": Mistake(
        breaks=Promise.ALL_END,
        patches=((Leases, "let_go", lambda *_: None), (Leases, "_forget_all", lambda *_: None)),
        theme=Theme.DEAF,
    ),
    "a worker that takes its own lease": Mistake(
        breaks=Promise.NOT_ITS_OWN, patches=(*_HASTY, (Leases, "own", ())), theme=Theme.SILENT
    ),
    "a worker that takes leases as soon as it's back": Mistake(breaks=Promise.NOT_HASTY, patches=_HASTY, theme=Theme.ROUGH),
    "a worker that looks for lost jobs now and then": Mistake(
        breaks=Promise.SOON_RECOVERED, patches=((Recovery, "expect", lambda *_: None),), theme=Theme.RECOVERY
    ),
    "a worker in which trouble of one verb puts recovery off": Mistake(
        breaks=Promise.SOON_RECOVERED,
        patches=((Recovery, "verb_failed", lambda recovery, _: recovery.disturbed()),),
        theme=Theme.RECOVERY,
    ),
    "a worker that forgets suspects while a claim is under way": Mistake(
        breaks=Promise.UNKNOWN_BACK, patches=(instead_of(Unheld, "seen", _forget_suspects),), theme=Theme.BACKLOG
    ),
    "a worker that leaves claims whose answer was lost": Mistake(
        breaks=Promise.UNKNOWN_BACK, patches=((Unheld, "seen", lambda *_: None),), theme=Theme.BACKLOG
    ),
    # -- workers: requests to end
    **WORKERS_CANCELLING,
    # -- workers: phases
    **WORKERS_PHASES,
    # -- workers: schedules
    **WORKERS_PLANS,
}
