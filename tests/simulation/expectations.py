"""What a worker has to write about an attempt, seen from what its handler did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioqueue.vocabulary._job import SettlementKind
from aioqueue.vocabulary._retry import Retry
from tests.simulation.rude import MAX_ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet
    from uuid import UUID

    from aioqueue.vocabulary._job import ClaimedJob, NewJob, Settlement
    from tests.simulation.account import Fence, Truth
    from tests.simulation.process import Process


TO_STOP = 1.0
"""Seconds that an attempt may go on after its worker was told to stop it."""


GIVING_WAY = frozenset({SettlementKind.FAILED, SettlementKind.CANCELLED, SettlementKind.RETRIED, SettlementKind.RESCHEDULED})
"""What may be written where it's all the same, since the job is cancelled."""


@dataclass(eq=False)
class Run:
    """One run of a handler.

    Attributes:
        held_up: How often its process had been held up when it began.
        listens: Whether it ends when it's cancelled.
        told_at: When its worker heard that the claim is lost.
        held_up_when_told: As `held_up`, then.
        asked_at: When its worker heard that it's asked to end.
        held_up_when_asked: As `held_up`, then.
        swallowed_at: When it took no notice of a cancellation.
        how: See `Checker.finished`.
        goes_on: Whether its job continues when it returns.
        next: The id of what it has returned to continue with.
        children: The ids of what it has enqueued.
        completing: Whether it's within a transaction that completes its job.
        looks: Whether it may have to find out, in the end, whether that was committed.
    """

    process: Process
    job: ClaimedJob
    began_at: float
    held_up: int
    listens: bool = False
    told_at: float | None = None
    held_up_when_told: int = 0
    asked_at: float | None = None
    held_up_when_asked: int = 0
    swallowed_at: float | None = None
    ended_at: float | None = None
    how: str = ""
    delay: float | None = None
    goes_on: bool = False
    next: UUID | None = None
    completing: bool = False
    looks: bool = False
    children: list[UUID] = field(default_factory=list["UUID"])


@dataclass(frozen=True)
class Expectation:
    """Kinds that are right, and what the delay must be, if it's one that waits.

    Attributes:
        delay: Shortest and longest.
    """

    kinds: AbstractSet[SettlementKind]
    delay: tuple[float, float] | None = None

    def __str__(self) -> str:
        kinds = " or ".join(sorted(kind.name for kind in self.kinds))
        return kinds if self.delay is None else f"{kinds} after {self.delay[0]:g} to {self.delay[1]:g} s"


def limit_of(new: NewJob) -> int | None:
    """How often a job may be started."""
    return MAX_ATTEMPTS if new.type == "rude" else new.max_attempts


def expected_of(truth: Truth, fence: Fence, *, orphaned: bool, asked: bool) -> Expectation:
    """What may be written about a claim. Whatever a row refuses ends as a failure.

    Arguments:
        truth: The job.
        fence: The claim.
        orphaned: Whether its worker was lost.
        asked: Whether its chain was asked to end.
    """
    expectation = _expected_of(truth, truth.runs.get(fence), orphaned=orphaned)
    if asked and expectation.kinds and expectation.kinds <= GIVING_WAY:
        return Expectation(GIVING_WAY)  # its worker may have heard of it, or not
    if truth.refuses and expectation.kinds:
        return Expectation({SettlementKind.FAILED, *expectation.kinds}, expectation.delay)
    return expectation


def _expected_of(truth: Truth, run: Run | None, *, orphaned: bool) -> Expectation:
    new, expired, limit = truth.new, truth.expired, limit_of(truth.new)
    last = limit is not None and truth.attempt >= limit
    waits = _backoff(new, truth.attempt)
    again = Expectation({SettlementKind.FAILED}) if last else Expectation({SettlementKind.RETRIED}, waits)
    if orphaned:
        return again
    if run is None:
        return Expectation({SettlementKind.CANCELLED}) if expired else Expectation({SettlementKind.RESCHEDULED})
    if run.completing:
        return Expectation({SettlementKind.COMPLETED})
    if run.ended_at is None:
        return Expectation(frozenset())
    if run.how == "returned":
        return Expectation({SettlementKind.CONTINUED if run.goes_on else SettlementKind.COMPLETED})
    if run.how == "failed":
        return Expectation({SettlementKind.FAILED})
    if run.how == "reschedule":
        assert run.delay is not None
        return Expectation({SettlementKind.RESCHEDULED}, (run.delay, run.delay))
    if run.how == "retry":
        assert run.delay is not None
        return Expectation({SettlementKind.FAILED}) if last else Expectation({SettlementKind.RETRIED}, (run.delay, run.delay))
    return again


def _backoff(new: NewJob, attempt: int) -> tuple[float, float]:
    # A policy that raises is replaced by the default one.
    retry = Retry() if new.retry is None or new.type == "rude" else Retry.decode(new.retry)
    wait = retry.backoff.delay(attempt)
    return wait * (1 - retry.jitter) - 1e-6, wait * (1 + retry.jitter) + 1e-6


def fits(each: Settlement, expectation: Expectation) -> bool:
    """Whether a settlement is as expected."""
    if each.kind not in expectation.kinds:
        return False
    if expectation.delay is None or each.delay is None or each.kind not in {SettlementKind.RETRIED, SettlementKind.RESCHEDULED}:
        return True
    return expectation.delay[0] - 1e-6 <= each.delay <= expectation.delay[1] + 1e-6
