"""Stores and workers that are known to be bad: each breaks one rule, and the simulation must notice it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from aioqueue._retry import Retry
from aioqueue.worker._attempt import Attempts
from aioqueue.worker._holdings import Slot
from aioqueue.worker._lease import Lease
from aioqueue.worker._lease_thread import LeaseThread
from aioqueue.worker._outcome import INTERRUPTED, CancelReason, Policy
from aioqueue.worker._slots import Slots
from tests.simulation.database import Rules, without

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioqueue._job import ClaimedJob

STORES: dict[str, Rules] = {
    "claims don't fence": without(fence_claims=False, fence_lease=False),
    "claims before the due time": without(due_check=False),
    "claims what runs already": without(claim_checks_state=False),
    "claims for a lease that is over": without(claim_checks_lease=False),
    "doesn't count attempts": without(claim_counts=False),
    "settles for a lease that was taken": without(settle_checks_lease=False),
    "recovers from a valid lease": without(take_respects_expiry=False),
    "renewals don't move the end": without(renewal_moves_expiry=False),
    "renewals don't tell of unknown claims": without(renewal_tells_unheld=False),
    "giving back uses an attempt": without(release_gives_attempt_back=False),
    "gives back what is another's": without(release_checks_fence=False),
    "retries at once": without(retry_waits=False),
    "forgets finished jobs": without(archive_keeps=False),
    "doesn't recognise repeats": without(settle_recognises_repeats=False),
}


def _ignore_lost(slot: Slot, reason: CancelReason, *, real: Callable[..., None] = Slot.cancel) -> None:
    if reason is not CancelReason.LOST:
        real(slot, reason)


def _ignore_timeout(slot: Slot, reason: CancelReason, *, real: Callable[..., None] = Slot.cancel) -> None:
    if reason is not CancelReason.TIMEOUT:
        real(slot, reason)


def _start_expired(slots: Slots, job: ClaimedJob, *, real: Callable[..., None] = Slots.start) -> None:
    object.__setattr__(job, "expired", False)
    real(slots, job)


async def _give_back_failures(attempts: Attempts, slot: Slot, *, real: Callable[..., Any] = Attempts.run) -> Any:
    outcome = await real(attempts, slot)
    return outcome if outcome.error is None else INTERRUPTED


def _no_lease(thread: LeaseThread, *, real: Callable[..., int | None] = LeaseThread._wait) -> int | None:
    return None if real(thread) is None else 0


WORKERS: dict[str, tuple[Any, str, Any]] = {
    "goes on after its lease was lost": (Slot, "cancel", _ignore_lost),
    "ignores timeouts": (Slot, "cancel", _ignore_timeout),
    "runs what has expired": (Slots, "start", _start_expired),
    "runs a job twice at once": (Slots, "runs_body_of", lambda *_: False),
    "gives failed jobs back": (Attempts, "run", _give_back_failures),
    "retries for ever": (Policy, "exhausted", lambda *_: False),
    "retries at once": (Retry, "delay", lambda *_: 0.0),
    "never renews its lease": (LeaseThread, "_wait", _no_lease),
    "leaves claims whose answer was lost": (Lease, "_give_back_unheld", lambda *_: None),
}


@contextmanager
def bad_worker(name: str) -> Iterator[None]:
    """Within the block, workers are bad."""
    owner, attribute, instead = WORKERS[name]

    def method(*arguments: Any) -> Any:
        return instead(*arguments)

    with patch.object(owner, attribute, method):
        yield
