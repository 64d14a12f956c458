"""Stores and workers that are known to be bad: each breaks one promise, and the simulation must notice that very one."""

from __future__ import annotations

import asyncio
import contextvars
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from aioqueue.vocabulary._job import LostReason, SettleResult
from aioqueue.vocabulary._retry import Retry
from aioqueue.worker import _lease, _outcome, _refusal, _shutdown, _slots, _worker
from aioqueue.worker._attempt import Attempts
from aioqueue.worker._holdings import Slot
from aioqueue.worker._lease import Leases
from aioqueue.worker._lease_thread import KeptLease, LeaseThread
from aioqueue.worker._outcome import INTERRUPTED, CancelReason, Interrupted
from aioqueue.worker._policy import Policy
from aioqueue.worker._recovery import Recovery
from aioqueue.worker._shutdown import Shutdown
from aioqueue.worker._slots import Slots
from aioqueue.worker._unheld import Unheld
from aioqueue.worker._writer import Writer
from tests.simulation.history import Verdict, simulate
from tests.simulation.plan import Theme
from tests.simulation.promises import Promise
from tests.simulation.rows import Rules, without
from tests.simulation.themes import seeds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioqueue.vocabulary._job import ClaimedJob, Settlement
    from aioqueue.worker._refusal import Refusal

Patch = tuple[Any, str, Any]
"""An owner, the name of its attribute, and what is there instead. A function gets the method's own arguments."""


@dataclass(frozen=True)
class Variant:
    """Something that is known to be bad.

    Attributes:
        breaks: The promise that it breaks; whatever else goes wrong counts for nothing.
        rules: Of the database.
        patches: Of the worker.
        theme: Of the histories in which it shows; None for all of them.
    """

    breaks: Promise
    rules: Rules = field(default_factory=Rules)
    patches: tuple[Patch, ...] = ()
    theme: Theme | None = None

    def found(self, count: int) -> tuple[int | None, list[Verdict]]:
        """Look for it in so many histories.

        Returns:
            In how many it was found, None if it wasn't; and the histories in which something else was.
        """
        others: list[Verdict] = []
        with self._applied():
            for number, seed in enumerate(seeds_of(self.theme, count), 1):
                verdict = simulate(seed, self.rules)
                if verdict.violation is None:
                    continue
                if verdict.violation.promise is self.breaks:
                    return number, others
                others.append(verdict)
        return None, others

    @contextmanager
    def _applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, attribute, instead in self.patches:
                stack.enter_context(patch.object(owner, attribute, instead))
            yield


# -- workers ----------------------------------------------------------------------------------------------------------


def _instead_of(owner: Any, attribute: str, function: Callable[..., Any]) -> Patch:
    """A patch whose function gets what it replaces as its first argument."""
    real = getattr(owner, attribute)

    def method(*arguments: Any, **named: Any) -> Any:
        return function(real, *arguments, **named)

    return owner, attribute, method


def _ignoring(ignored: CancelReason) -> Patch:
    def cancel(real: Callable[..., None], slot: Slot, reason: CancelReason) -> None:
        if reason is not ignored:
            real(slot, reason)

    return _instead_of(Slot, "cancel", cancel)


def _start_expired(real: Callable[..., None], slots: Slots, job: ClaimedJob) -> None:
    object.__setattr__(job, "expired", False)
    real(slots, job)


async def _give_back_failures(real: Callable[..., Any], attempts: Attempts, slot: Slot) -> Any:
    outcome = await real(attempts, slot)
    return outcome if isinstance(outcome, Interrupted) or outcome.error is None else INTERRUPTED


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
        slots._ended(slot, done)  # type: ignore[arg-type]

    slot.task = slots._loop.create_task(run(), context=slots._context.copy())  # type: ignore[assignment]


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


def _first_reason_only(real: Callable[..., None], slot: Slot, reason: CancelReason) -> None:
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


VARIANTS: dict[str, Variant] = {
    # -- stores: claims
    "a store that claims before the due time": Variant(Promise.DUE_FIRST, without(due_check=False)),
    "a store that claims what runs already": Variant(Promise.ONE_HOLDER, without(claim_checks_state=False)),
    "a store that claims for a lease that is over": Variant(Promise.VALID_LEASE, without(claim_checks_lease=False)),
    "a store that doesn't count attempts": Variant(Promise.ATTEMPTS_COUNT, without(claim_counts=False)),
    # -- stores: outcomes
    "a store whose claims don't fence": Variant(
        Promise.BY_THE_HOLDER, without(fence_claims=False, fence_lease=False), theme=Theme.LATE
    ),
    "a store that settles for a lease that was taken": Variant(
        Promise.BY_THE_HOLDER, without(settle_checks_lease=False), theme=Theme.RETURNING
    ),
    "a store that retries at once": Variant(Promise.DUE_FIRST, without(retry_waits=False)),
    "a store that forgets finished jobs": Variant(Promise.NOTHING_LOST, without(archive_keeps=False)),
    "a store that doesn't recognise repeats": Variant(Promise.REPEATS_AGREE, without(settle_recognises_repeats=False)),
    "a store that takes a recovery for a repeat": Variant(Promise.REPEATS_AGREE, without(repeats_have_a_writer=False)),
    "a store whose giving back uses an attempt": Variant(Promise.ATTEMPTS_COUNT, without(release_gives_attempt_back=False)),
    "a store that gives back what is another's": Variant(
        Promise.ITS_OWN_BACK, without(release_checks_fence=False), theme=Theme.LATE
    ),
    # -- stores: leases
    "a store that recovers from a valid lease": Variant(Promise.NOT_TAKEN_EARLY, without(take_respects_expiry=False)),
    "a store whose renewals don't move the end": Variant(Promise.NOT_TAKEN_EARLY, without(renewal_moves_expiry=False)),
    "a store whose renewals don't tell what is lost": Variant(
        Promise.STOPS_WHEN_LOST, without(renewal_tells_lost=False), theme=Theme.FAILOVER
    ),
    "a store whose renewals don't tell of unknown claims": Variant(
        Promise.UNKNOWN_BACK, without(renewal_tells_unheld=False), theme=Theme.BACKLOG
    ),
    "a store that settles orphans of a valid lease": Variant(
        Promise.NOT_TAKEN_EARLY, without(orphans_need_no_lease=False), theme=Theme.RETURNING
    ),
    "a store that settles orphans without their lease's lock": Variant(
        Promise.NOT_TAKEN_EARLY, without(orphans_hold_lease=False), theme=Theme.RETURNING
    ),
    "a store that leaves the lease of orphans it settled": Variant(
        Promise.NOT_AFTER_TAKING, without(orphans_end_lease=False), theme=Theme.RETURNING
    ),
    "a store that lets what has started expire": Variant(Promise.EXPIRY, without(recovered_never_expire=False)),
    "a store whose lease ids come again": Variant(Promise.ITS_OWN_BACK, without(lease_ids_are_new=False), theme=Theme.FAILOVER),
    # -- workers: attempts
    "a worker that goes on after its lease was lost": Variant(Promise.STOPS_WHEN_LOST, patches=(_ignoring(CancelReason.LOST),)),
    "a worker that ignores timeouts": Variant(Promise.STOPS_IN_TIME, patches=(_ignoring(CancelReason.TIMEOUT),)),
    "a worker that runs what has expired": Variant(Promise.NOT_EXPIRED, patches=(_instead_of(Slots, "start", _start_expired),)),
    "a worker that runs a job twice at once": Variant(
        Promise.ONCE_A_PROCESS, patches=((Slots, "runs_body_of", lambda *_: False),), theme=Theme.ROUGH
    ),
    "a worker that gives failed jobs back": Variant(
        Promise.UNUSED_BACK, patches=(_instead_of(Attempts, "run", _give_back_failures),)
    ),
    "a worker that retries for ever": Variant(Promise.AS_IT_WENT, patches=((Policy, "exhausted", lambda *_: False),)),
    "a worker that retries at once": Variant(Promise.AS_IT_WENT, patches=((Retry, "delay", lambda *_: 0.0),)),
    "a worker that lets errors of policies out": Variant(
        Promise.IN_TIME,
        patches=(
            (_outcome, "_delay", lambda job, policy: policy.retry.delay(job.attempt)),
            (Slots, "_run", _let_out),
            (Slots, "_outcome", lambda _, __, task: task.result()),
        ),
        theme=Theme.RUDE,
    ),
    "a worker whose jobs see the context of its start": Variant(
        Promise.OWN_CONTEXT, patches=((_slots, "contextvars", _COPIED), (_worker, "contextvars", _COPIED))
    ),
    "a worker that forgets what was refused twice": Variant(
        Promise.UNUSED_BACK, patches=(_instead_of(Writer, "_refuse", _refused_is_lost),), theme=Theme.RUDE
    ),
    "a worker that writes what was refused again as it was": Variant(
        Promise.IN_TIME, patches=((_refusal, "_INSTEAD", _refusal._INSTEAD[:1]),), theme=Theme.RUDE
    ),
    "a worker that repeats a batch while a row of it is locked": Variant(
        Promise.IN_TIME,
        patches=(_instead_of(Writer, "_settle", _insist),),
        theme=Theme.LOCKED,
    ),
    "a worker that takes a locked row for a written one": Variant(
        Promise.UNUSED_BACK, patches=(_instead_of(Writer, "_settle", _never_busy),), theme=Theme.LOCKED
    ),
    "a worker that cancels for the first reason only": Variant(
        Promise.STOPS_WHEN_LOST, patches=(_instead_of(Slot, "cancel", _first_reason_only),), theme=Theme.DEAF
    ),
    "a worker that waits for jobs that don't stop": Variant(
        Promise.WORKERS_END, patches=((_shutdown, "_INTERRUPTED_SECONDS", 1e9),), theme=Theme.DEAF
    ),
    "a stopping worker that drops outcomes after ten seconds": Variant(
        Promise.NOT_DROPPED, patches=(_instead_of(Shutdown, "_flush", _flush_for_ten_seconds),), theme=Theme.LEAVING
    ),
    "a worker whose tasks free their slots": Variant(
        Promise.SLOTS_FREE, patches=(_instead_of(Slots, "start", _free_in_the_task),), theme=Theme.FROZEN
    ),
    # -- workers: leases
    "a worker that never renews its lease": Variant(
        Promise.WELL_KEEPS_LEASE, patches=((LeaseThread, "_renew", lambda *_: None),)
    ),
    "a worker that gives a silent line ten seconds": Variant(
        Promise.WELL_KEEPS_LEASE, patches=((_lease, "longest_try", lambda _: 10.0),), theme=Theme.SILENT
    ),
    "a worker that goes on when its lease is over": Variant(
        Promise.STOPS_WHEN_OVER, patches=((Leases, "_cancel_under", lambda *_: None),), theme=Theme.SILENT
    ),
    "a worker that renews first what ends first, or is over": Variant(
        Promise.STOPS_WHEN_OVER,
        patches=((KeptLease, "urgency", lambda lease, now: (lease.due > now, lease.ends)),),
        theme=Theme.SILENT,
    ),
    "a worker that renews the leases of what it left behind": Variant(
        Promise.ALL_END,
        patches=((Leases, "let_go", lambda *_: None), (Leases, "_forget_all", lambda *_: None)),
        theme=Theme.DEAF,
    ),
    "a worker that takes its own lease": Variant(
        Promise.NOT_ITS_OWN, patches=(*_HASTY, (Leases, "own", ())), theme=Theme.SILENT
    ),
    "a worker that takes leases as soon as it's back": Variant(Promise.NOT_HASTY, patches=_HASTY, theme=Theme.ROUGH),
    "a worker that looks for lost jobs now and then": Variant(
        Promise.SOON_RECOVERED, patches=((Recovery, "expect", lambda *_: None),), theme=Theme.RECOVERY
    ),
    "a worker in which trouble of one verb puts recovery off": Variant(
        Promise.SOON_RECOVERED,
        patches=((Recovery, "verb_failed", lambda recovery, _: recovery.disturbed()),),
        theme=Theme.RECOVERY,
    ),
    "a worker that forgets suspects while a claim is under way": Variant(
        Promise.UNKNOWN_BACK, patches=(_instead_of(Unheld, "seen", _forget_suspects),), theme=Theme.BACKLOG
    ),
    "a worker that leaves claims whose answer was lost": Variant(
        Promise.UNKNOWN_BACK, patches=((Unheld, "seen", lambda *_: None),), theme=Theme.BACKLOG
    ),
}
