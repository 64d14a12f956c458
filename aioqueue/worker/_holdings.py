"""What one worker holds: the claims that it has to answer for, and the slots in which attempts run."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from typing import TYPE_CHECKING

from aioqueue.definitions._observers import Observers
from aioqueue.telemetry._counters import AttemptOutcome, Counters
from aioqueue.worker._health import LateAttempt
from aioqueue.worker._observed import tell_given_back, tell_lost, tell_outcome
from aioqueue.worker._stop_reason import StopReason, judged_by, told_as
from aioqueue.worker._text import job_event, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aioqueue.definitions._context import Attempt
    from aioqueue.telemetry._counters import TypeCounters
    from aioqueue.telemetry._tracing import ProcessSpan
    from aioqueue.vocabulary._job import Claim, ClaimedJob, LostReason
    from aioqueue.worker._captured import CapturedLogs
    from aioqueue.worker._completing import Completing
    from aioqueue.worker._outbox import Outbox
    from aioqueue.worker._outcome import Interrupted, Outcome
    from aioqueue.worker._reports import Reports

__all__ = ["Holdings", "Slot"]

logger = logging.getLogger("aioqueue.worker")


_LATE_SECONDS = 1.0
"""That an attempt may take to stop, until it's called late."""
_IGNORES_SECONDS = 10.0
"""After which the log names an attempt that was asked to end, and still runs."""


class Slot:
    """One claimed job, from its claim until its outcome is written.

    Attributes:
        worker: The worker's name, for the log.
        began: When its attempt took its first step, by the monotonic clock; 0 before that.
        reasons: Why its attempt was cancelled by us, in order; each once.
        asked: Why its chain was asked to end, if it was: what people gave as the reason.
        cancelled_at: When it was first, by the monotonic clock; 0 before that.
        over_at: When its timeout is over; 0 without one.
        exit: The `SystemExit` of one of its tasks or callbacks.
        lost: Why the claim is no longer ours.
        in_thread: Whether a thread runs its body.
        abandoned: Whether nobody waits for its body any more.
        counted: Where its attempt is counted; None before its first step.
        span: Its attempt's, if somebody takes spans, until that has ended.
        on_end: What its task calls when it's done, unless it has seen to that itself.
        completing: How far it is with completing its job in a transaction of its own, if it has begun one.
        captured: What its handler logs, if that is kept.
        reports: What it says of its progress, if it does.
        outbox: What it has enqueued, if it has: stored with its outcome, or dropped.
        told_late: Whether the log and the span are told how it ended only once that is written, since it may be refused.
        ended_at: When its attempt ended, by the monotonic clock, if that's told later; else 0.
    """

    __slots__ = (
        "abandoned",
        "asked",
        "attempt",
        "began",
        "cancelled_at",
        "captured",
        "claim",
        "completing",
        "counted",
        "ended_at",
        "exit",
        "in_thread",
        "job",
        "lost",
        "on_end",
        "outbox",
        "over_at",
        "reasons",
        "reports",
        "span",
        "task",
        "told_late",
        "worker",
    )

    def __init__(self, job: ClaimedJob, worker: str = "") -> None:
        self.job = job
        self.worker = worker
        self.claim = job.claim
        self.attempt: Attempt | None = None
        self.task: asyncio.Task[Outcome | Interrupted] | None = None
        self.began = self.cancelled_at = self.over_at = self.ended_at = 0.0
        self.reasons: tuple[StopReason, ...] = ()
        self.asked: str | None = None
        self.exit: BaseException | None = None
        self.lost: LostReason | None = None
        self.in_thread = self.abandoned = self.told_late = False
        self.outbox: Outbox | None = None
        self.captured: CapturedLogs | None = None
        self.reports: Reports | None = None
        self.completing: Completing | None = None
        self.counted: TypeCounters | None = None
        self.span: ProcessSpan | None = None
        self.on_end: Callable[[asyncio.Task[Outcome | Interrupted]], None] | None = None

    @property
    def reason(self) -> StopReason | None:
        """What its attempt's end is judged by."""
        return judged_by(self.reasons) if self.reasons else None

    def cancel(self, reason: StopReason) -> None:
        """Ask the attempt to stop. Each reason does so once: a body that swallowed one is cancelled again by the next."""
        if reason in self.reasons or (self.task is not None and self.task.done()):
            return
        self.cancelled_at = self.cancelled_at or time.monotonic()
        self.reasons += (reason,)
        if self.attempt is not None:
            self.attempt.mark_cancelled(told_as(self.reasons, self.lost))
        if self.task is not None:
            self.task.cancel(reason.value)

    def late(self, now: float) -> tuple[str, ...]:
        """Why its attempt should have ended a while ago; empty if it needn't have. For any thread."""
        reasons = self.reasons if self.cancelled_at and now - self.cancelled_at > _LATE_SECONDS else ()
        over = self.over_at and now - self.over_at > _LATE_SECONDS
        if over and StopReason.TIMEOUT not in reasons:  # the event loop is blocked: its timer hasn't come yet
            reasons = (*reasons, StopReason.TIMEOUT)
        return tuple(reason.value for reason in reasons)

    def exited(self, error: BaseException) -> None:
        """Note that a task or callback of the handler's has raised an exit: it means this attempt, which is cancelled."""
        if self.exit is None:
            self.exit = error
        self.cancel(StopReason.EXIT)

    def drop_enqueued(self) -> None:
        """What its attempt has enqueued isn't stored, unless it is already."""
        if self.outbox is not None:
            self.outbox.drop()

    def event(self, name: str, /, **fields: object) -> dict[str, object]:
        """What log records about it carry beside their text: the event's name, which job it is, and more fields."""
        return job_event(name, self.job, self.worker, **fields)


class Holdings:
    """The claims and slots of one worker. Its parts share it; what happens to a slot is decided here and in `Slots`.

    Arguments:
        counters: What the run counts; by default its own.
        worker: The worker's name, for the log.
        observers: Who observes it; by default nobody.

    Attributes:
        counters, observers: As given.
        held: Claims that the database knows as ours, until their outcome is written or they're lost. The lease's thread
            reads it.
        running: Attempts that run, by claim: also those whose claim was lost, until they have ended.
        unwritten: How many outcomes, and claims to be given back, wait to be written.
        returning: Claims that are being given back: until that's written, renewals go on to call them ours.
        asked: Claims whose chains were asked to end, with the reasons, by lease: those of which the store's answer to our claim
            is still on its way. Almost always empty.
        stuck: Claims whose outcomes can't be written for a reason of their own, such as a row that somebody has locked. They're
            held, and don't keep others from being claimed.
    """

    def __init__(self, worker: str = "", counters: Counters | None = None, observers: Observers | None = None) -> None:
        self._worker = worker
        self.counters = Counters() if counters is None else counters
        self.observers = Observers() if observers is None else observers
        self.held: dict[Claim, Slot] = {}
        self.running: dict[Claim, Slot] = {}
        self.unwritten = 0
        self.returning: set[Claim] = set()
        self.asked: dict[int, dict[Claim, str]] = {}
        self.stuck: set[Claim] = set()
        self._reminders: dict[Claim, asyncio.TimerHandle] = {}
        self._ended = asyncio.Event()
        self._idle_listener: Callable[[], None] | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing runs, and nothing waits to be written."""
        return not self.running and not self.unwritten

    def late_attempts(self) -> tuple[LateAttempt, ...]:
        """Attempts that should have ended a while ago. For any thread."""
        now = time.monotonic()
        return tuple(
            LateAttempt(
                id=slot.job.id,
                type=slot.job.type,
                attempt=slot.job.attempt,
                running=now - began if (began := slot.began) else 0.0,
                reasons=reasons,
            )
            for slot in list(self.running.values())
            if (reasons := slot.late(now))
        )

    def tell_when_idle(self, listener: Callable[[], None]) -> None:
        """Call somebody each time that nothing runs any more, and nothing waits to be written."""
        self._idle_listener = listener

    def tell_if_idle(self) -> None:
        """Called whenever the last of what runs, or the last of what waits to be written, may have ended."""
        if self._idle_listener is not None and self.idle:
            self._idle_listener()

    def hold(self, job: ClaimedJob) -> Slot:
        """Answer for a job that has just been claimed."""
        slot = Slot(job, self._worker)
        self.held[slot.claim] = slot
        return slot

    def let_go(self, claim: Claim) -> None:
        """Answer for a claim no longer: its outcome is written, or it was given back."""
        self.held.pop(claim, None)
        if self.returning:
            self.returning.discard(claim)

    def wrote(self, slot: Slot, outcome: Outcome) -> None:
        """Answer for a claim no longer: its outcome is written."""
        self.held.pop(slot.claim, None)  # as in `let_go`: this is called for each job
        if self.returning:
            self.returning.discard(slot.claim)
        if self.observers.active:
            tell_outcome(self.observers, slot.job, outcome)

    def given_back(self, claim: Claim) -> None:
        """Answer for a claim no longer, since the job is pending again."""
        if self.observers.active and (slot := self.held.get(claim)) is not None:
            tell_given_back(self.observers, slot.job)
        self.let_go(claim)

    def ended(self, slot: Slot) -> None:
        """An attempt has ended, or never took its first step."""
        self.running.pop(slot.claim, None)
        slot.task = slot.attempt = slot.on_end = None
        if self._reminders and (reminder := self._reminders.pop(slot.claim, None)) is not None:
            reminder.cancel()
        if not self.running:
            self._ended.set()
            self.tell_if_idle()

    def lose(self, slots: Iterable[Slot], reason: LostReason) -> None:
        """Stop attempts whose claims are no longer ours."""
        for slot in list(slots):
            if slot.completing is not None and slot.completing.hear_lost(reason):
                continue
            if slot.lost is not None or self.held.pop(slot.claim, None) is None:
                continue
            slot.lost = reason
            if slot.began and slot.claim not in self.returning:  # otherwise it's no attempt, or one that counts as interrupted
                self.counters.of(slot.job.type).outcomes[AttemptOutcome.LOST] += 1
            self.stuck.discard(slot.claim)
            job = slot.job
            logger.warning(
                "%s %s: attempt %d is lost: %s",
                one_line(job.type),
                job.id,
                job.attempt,
                reason.value,
                extra=slot.event("attempt.lost", outcome="lost", reason=reason.value),
            )
            slot.cancel(StopReason.LOST)
            if self.observers.active:
                tell_lost(self.observers, job, reason.value)

    def ask_to_end(self, lease_id: int, asked: Mapping[Claim, str]) -> None:
        """Stop attempts whose chains were asked to end; with the others the next claim's answer is compared.

        Arguments:
            lease_id: Whose they are.
            asked: All of this lease that are known by now, with the reasons.
        """
        coming: dict[Claim, str] = {}
        for claim, why in asked.items():
            slot = self.running.get(claim)
            if slot is not None:
                self._ask_to_end(slot, why)
            elif claim not in self.held:  # otherwise it has ended, and the store looks at the request
                coming[claim] = why
        if coming:
            self.asked[lease_id] = coming
        else:
            self.asked.pop(lease_id, None)

    def _ask_to_end(self, slot: Slot, why: str) -> None:
        completing = slot.completing
        if slot.asked is not None or slot.lost is not None or (completing is not None and completing.sealed is not None):
            return
        slot.asked = why
        slot.cancel(StopReason.CANCELLED)
        job = slot.job
        logger.info(
            "%s %s: attempt %d is asked to end: %s",
            one_line(job.type),
            job.id,
            job.attempt,
            one_line(why) or "no reason was given",
            extra=slot.event("attempt.cancelling", reason=one_line(why)),
        )
        loop = asyncio.get_running_loop()
        self._reminders[slot.claim] = loop.call_later(_IGNORES_SECONDS, self._still_runs, slot, context=contextvars.Context())

    def _still_runs(self, slot: Slot) -> None:
        job = slot.job
        logger.warning(
            "%s %s: attempt %d was asked to end %.0f s ago, and still runs: it keeps its slot until it ends%s",
            one_line(job.type),
            job.id,
            job.attempt,
            _IGNORES_SECONDS,
            " (a plain function can't be interrupted: it looks at current_attempt().cancelled)" if slot.in_thread else "",
            extra=slot.event("attempt.ignores_cancel"),
        )

    def cancel_all(self, reason: StopReason) -> None:
        """Ask every attempt to stop."""
        for slot in list(self.running.values()):
            slot.cancel(reason)

    def abandon(self) -> list[Slot]:
        """Interrupt what still runs a last time. What runs in a thread is waited for no longer: its claim stays.

        Returns:
            The slots that still ran.
        """
        last = list(self.running.values())
        for slot in last:
            slot.abandoned = slot.in_thread
            if slot.task is not None:
                slot.task.cancel()
        return last

    async def all_ended(self) -> None:
        """Wait until no attempt runs."""
        while self.running:
            self._ended.clear()
            await self._ended.wait()
