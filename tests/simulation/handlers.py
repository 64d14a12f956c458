"""What handlers do: each run of a job does the next step of its plan."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from aioqueue import Call, Fail, Reschedule, RetryIn, current_attempt, done
from aioqueue.errors import AioqueueError
from aioqueue.vocabulary._job_control import JobControl
from tests.simulation.phases import PHASES
from tests.simulation.plan import Step
from tests.simulation.process import Process
from tests.simulation.rude import HostileError, HostileReason
from tests.simulation.scheduler import START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from uuid import UUID

    from tests.simulation.bodies import Bodies
    from tests.simulation.expectations import Run
    from tests.simulation.phases import PhaseChecker
    from tests.simulation.plan import Kind, PlannedJob
    from tests.simulation.scheduler import Scheduler

_AT_ONCE = Step("at_once", 0.0, 0.0)
_BREATH = 0.5


class Boom(Exception):
    """What handlers raise."""


class Handlers:
    """See the module.

    Arguments:
        jobs: Of the plan.
        job_types: By their kinds.
        scheduler: The clock.
        bodies: Told when they begin and end.
        phases: Told what their phases give.
        calm: Whether nothing goes wrong any more: nobody is deaf then.
        call_it: Gives a job its name.
    """

    def __init__(
        self,
        jobs: tuple[PlannedJob, ...],
        job_types: Mapping[Kind, Any],
        scheduler: Scheduler,
        bodies: Bodies,
        phases: PhaseChecker,
        calm: Callable[[], bool],
        call_it: Callable[[UUID, str], None],
    ) -> None:
        self._jobs = jobs
        self._job_types = job_types
        self._scheduler = scheduler
        self._bodies = bodies
        self._phases = phases
        self._calm = calm
        self._call_it = call_it
        self._runs_of: dict[tuple[int, int], int] = {}
        self.runs = 0
        self.deaf: set[Run] = set()

    def _began(self, index: int, place: int) -> tuple[Run, Step]:
        host, job = self._scheduler.host, self._jobs[index]
        assert isinstance(host, Process)
        run = self._bodies.began(host, current_attempt().job, place, goes_on=place < len(job.links))
        if not run.process.alive:
            return run, _AT_ONCE
        self.runs += 1
        before = self._runs_of.get((index, place), 0)
        self._runs_of[index, place] = before + 1
        self._enqueue_children(run, index)
        steps = job.links[place - 1].steps if place else job.steps
        step = steps[before] if before < len(steps) else _AT_ONCE
        if step.deed == "deaf":
            if self._calm():
                return run, _AT_ONCE
            self.deaf.add(run)
        return run, step

    def _enqueue_children(self, run: Run, index: int) -> None:
        for number in range(self._jobs[index].children):
            call = self._job_types["child"](index)
            self._call_it(call.id, f"child {number} of job {index}, claim {run.job.claims}")
            run.children.append(call.id)
            current_attempt().enqueue(call)

    def _conclude(self, run: Run, step: Step, *, cancellable: bool) -> str:
        """End a run as its step says, after its time."""

        def ends(how: str, error: BaseException, delay: float | None = None) -> NoReturn:
            self._bodies.finished(run, how, delay=delay, cancellable=cancellable)
            raise error

        if step.deed == "raise":
            ends("raised", Boom("it went wrong"))
        if step.deed == "raise_hostile":
            ends("raised", HostileError() if step.extra < 1 else HostileReason())
        if step.deed == "fail":
            ends("failed", Fail("it can't be done"))
        if step.deed == "fail_hostile":
            reason: Any = HostileError() if step.extra < 1 else HostileReason()
            ends("failed", Fail(reason))
        if step.deed == "retry":
            ends("retry", RetryIn(step.extra), step.extra)
        if step.deed == "reschedule":
            ends("reschedule", Reschedule(delay=step.extra), step.extra)
        if step.deed == "reschedule_at":
            now = datetime.fromtimestamp(START + self._scheduler.now, UTC)
            ends("reschedule", Reschedule(at=now + timedelta(seconds=step.extra)), step.extra)
        if step.deed == "cancel":
            ends("raised", asyncio.CancelledError("of its own"))
        self._bodies.finished(run, "returned", cancellable=cancellable)
        return step.deed

    def followed(self, index: int, place: int, said: str) -> Call[str]:
        """What a job of a chain returns after what it has said: the next step, or the end."""
        host, job = self._scheduler.host, self._jobs[index]
        assert isinstance(host, Process)
        if place == len(job.links) or not host.alive:
            return done(said)
        link = job.links[place]
        call: Call[str] = self._job_types[link.kind](index, place + 1).options(retry=job.retry)
        if link.delay is not None:
            call = call.options(delay=link.delay)
        self._call_it(call.id, f"job {index}.{place + 1}")
        self._bodies.goes_on_with(current_attempt().job, call.id)
        return call

    # -- coroutine functions ------------------------------------------------------------------------------------------

    async def run_in_loop(self, index: int, place: int = 0) -> str:
        """The handler that is a coroutine function."""
        run, step = self._began(index, place)
        if step.deed == "deaf":
            return await self._deaf(run)
        if step.deed == "hard_of_hearing":
            return await self._hard_of_hearing(run, step)
        willing = run.listens = step.deed not in {"stubborn", "unwilling"}
        try:
            if step.deed == "complete":
                return await self._complete(run, step)
            if step.deed == "block":
                self._block(run.process, step.seconds)
            elif step.deed != "at_once":
                await asyncio.sleep(step.seconds)
            return self._conclude(run, step, cancellable=willing)
        except (Boom, HostileError, HostileReason, JobControl):
            raise
        except asyncio.CancelledError:
            if run.ended_at is not None:
                raise
            if not willing:
                await self._go_on(step.extra)
            if step.deed == "gives_up":
                self._bodies.finished(run, "failed")
                raise Fail("stopped") from None
            if step.deed == "unwilling":
                self._bodies.finished(run, "returned", cancellable=False)
                return "after all"
            self._bodies.finished(run, "cancelled", cancellable=willing)
            raise

    async def _complete(self, run: Run, step: Step) -> str:
        """Do what there is to do in a transaction that completes the job."""
        try:
            async with current_attempt().completion() as transaction:
                run.completing = run.looks = True
                await asyncio.sleep(step.extra)
                said: str = transaction.done("in a transaction")
        except AioqueueError as error:
            run.completing = False
            self._bodies.finished(run, "raised", cancellable=True)
            raise Boom(str(error)) from error
        except asyncio.CancelledError:
            run.completing = False
            raise
        self._bodies.finished(run, "returned", cancellable=True)
        return said

    def _block(self, process: Process, seconds: float) -> None:
        process.held_up += 1
        process.held_up_until = max(process.held_up_until, self._scheduler.now + seconds)
        self._scheduler.sleep(seconds)
        process.held_up += 1

    async def _go_on(self, seconds: float) -> None:
        until = self._scheduler.now + seconds
        while (left := until - self._scheduler.now) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                continue

    async def _deaf(self, run: Run) -> str:
        """Go on whatever comes, for as long as the process lives."""
        while run.process.alive:
            try:
                await asyncio.sleep(_BREATH)
            except asyncio.CancelledError:
                continue
        self._bodies.finished(run, "returned", cancellable=False)
        return "in the end"

    async def _hard_of_hearing(self, run: Run, step: Step) -> str:
        """Take no notice of the first cancellation, and go on as if nothing was; the second one counts."""
        try:
            try:
                await asyncio.sleep(step.seconds)
            except asyncio.CancelledError:
                run.swallowed_at = self._scheduler.now
                await asyncio.sleep(step.extra if run.process.alive else 0)
        except asyncio.CancelledError:
            self._bodies.finished(run, "cancelled", cancellable=False)
            raise
        self._bodies.finished(run, "returned", cancellable=False)
        return "in the end"

    async def run_phased(self, index: int) -> str:
        """The handler that has phases: what interrupts it comes in the middle of the second, or between them."""
        attempt = current_attempt()
        run, step = self._began(index, 0)
        try:
            for name in PHASES:
                given = await attempt.phase(name, self._phase, run, step, name)
                if run.process.alive:
                    self._phases.gave(run.job, name, given)
            return self._conclude(run, replace(step, deed="return"), cancellable=False)
        except (Boom, JobControl):
            raise
        except asyncio.CancelledError:
            if run.ended_at is None:
                self._bodies.finished(run, "cancelled", cancellable=False)
            raise
        except AioqueueError as error:  # the claim was lost, or the store away for too long
            self._bodies.finished(run, "raised", cancellable=False)
            raise Boom(str(error)) from error

    async def _phase(self, run: Run, step: Step, name: str) -> str:
        if run.process.alive:
            self._phases.began(run.job, name)
        for percent in (20, 90):
            current_attempt().progress(percent)
            await asyncio.sleep(step.seconds / 6)
        if name == PHASES[1] and step.deed not in {"return", "at_once"}:
            self._conclude(run, step, cancellable=False)
        return f"{name} by claim {run.job.claims}"

    def run_child(self, index: int) -> str:
        """The handler of what others enqueue."""
        host = self._scheduler.host
        assert isinstance(host, Process)
        run = self._bodies.began(host, current_attempt().job, 0, goes_on=False)
        self._bodies.finished(run, "returned")
        return f"child of {index}"

    async def run_ticked(self, seconds: float) -> str:
        """The handler of what schedules enqueue."""
        host = self._scheduler.host
        assert isinstance(host, Process)
        run = self._bodies.began(host, current_attempt().job, 0, goes_on=False)
        run.listens = True
        try:
            await asyncio.sleep(seconds if host.alive else 0.0)
        except asyncio.CancelledError:
            self._bodies.finished(run, "cancelled")
            raise
        self._bodies.finished(run, "returned")
        return "ticked"

    # -- plain functions ----------------------------------------------------------------------------------------------

    def run_in_thread(self, index: int, place: int = 0) -> str:
        """The handler that is a plain function."""
        attempt = current_attempt()
        run, step = self._began(index, place)
        until = self._scheduler.now + (0.0 if step.deed == "at_once" else step.seconds)
        while (left := until - self._scheduler.now) > 0:
            self._scheduler.sleep(min(left, _BREATH))
            if attempt.cancelled and (step.deed != "unwilling" or not run.process.alive):
                self._bodies.finished(run, "cancelled", cancellable=False)
                raise Boom("stopped")
        self.deaf.discard(run)
        return self._conclude(run, step if step.deed != "cancel" else Step("raise", 0.0, 0.0), cancellable=False)


going_on: list[Handlers] = []
"""Those of the history that is going on."""


@contextmanager
def made_current(handlers: Handlers) -> Iterator[None]:
    """Within the block, these are the handlers of all jobs, and what the product logs is left out."""
    product = logging.getLogger("aioqueue")
    before = product.level
    product.setLevel(logging.CRITICAL)
    going_on.append(handlers)
    try:
        yield
    finally:
        going_on.pop()
        product.setLevel(before)
