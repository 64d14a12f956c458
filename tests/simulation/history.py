"""One history: a plan, carried out in virtual time, with the checker watching."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from aioqueue import Fail, Registry, Reschedule, RetryIn, current_attempt
from aioqueue.client import Client
from aioqueue.errors import JobControl, StoreUnavailable
from tests.simulation.checker import Checker
from tests.simulation.database import Database, Rules
from tests.simulation.plan import Event, PlannedJob, Step, plan_of
from tests.simulation.process import Process
from tests.simulation.scheduler import START, Scheduler
from tests.simulation.store import Network
from tests.simulation.substitutes import substituted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from tests.simulation.expectations import Run

_PROGRESS = 900.0
"""Virtual seconds after the last fault within which every job must have ended."""

_END = 60.0
"""Virtual seconds within which every process must have ended, once it's asked to."""


@dataclass(frozen=True)
class Verdict:
    """What became of a history.

    Attributes:
        violation: What didn't hold; None if all did.
        lines: What happened.
        runs: How many handlers ran.
    """

    seed: int
    violation: str | None
    lines: tuple[str, ...]
    runs: int


class Boom(Exception):
    """What handlers raise."""


class History:
    """See the module."""

    def __init__(self, seed: int, rules: Rules) -> None:
        self.plan = plan_of(seed)
        self.lines: list[str] = []
        self.names: dict[UUID, str] = {}
        self.acknowledged: set[UUID] = set()
        self.scheduler = Scheduler()
        self.checker = Checker(lambda: self.scheduler.now, self.note, self.name)
        self.database = Database(lambda: self.scheduler.now, self.checker, rules)
        self.network = Network(self.scheduler, self.database, random.Random(f"network {seed}"), self.plan.faults)
        self.processes: list[Process] = []
        self.clock_error: dict[str, float] = {}
        self.runs_of: dict[int, int] = {}
        self.runs = 0
        self.to_enqueue = len(self.plan.jobs)
        self._chance = random.Random(f"product {seed}")
        self._started = 0
        self._ending = False

    def note(self, text: str) -> None:
        self.lines.append(f"{self.scheduler.now:9.3f}  {text}")

    def name(self, job_id: UUID) -> str:
        return self.names.get(job_id, "unknown job")

    # -- the course of it ---------------------------------------------------------------------------------------------

    def run(self) -> Verdict:
        """Carry the plan out."""
        with substituted(self.scheduler, self._chance, self.clock_error), _current(self):
            try:
                self._live()
            finally:
                self._wind_up()
        return Verdict(self.plan.seed, self.checker.violation, tuple(self.lines), self.runs)

    def _live(self) -> None:
        plan = self.plan
        for _ in range(plan.processes):
            self._start_process(f"w{self._started}")
        self._producer = Process(self.scheduler, self.network, "producer")
        self.processes.append(self._producer)
        self._producer.start(self._produce)
        for event in plan.events:
            self.scheduler.call_at(event.at, lambda event=event: self._strike(event))  # type: ignore[misc]
        self.scheduler.run(plan.calm_at, self._over)
        if not self._over():
            self.network.calm = True
            self.note("calm: nothing goes wrong from now on")
            for process in self.processes:
                process.frozen_until = process.cut_until = min(self.scheduler.now, process.cut_until)
            if not any(process.answers_for_leases and not process.leaving for process in self._workers()):
                self._start_process(f"w{self._started}")
        self.scheduler.run(plan.calm_at + _PROGRESS, self._over)
        if self.checker.violation is None and not self._all_ended():
            left = [self.name(job_id) for job_id, truth in self.checker.jobs.items() if truth.ended is None]
            self.checker._violated(f"not ended {_PROGRESS:g} s after the last fault: {', '.join(left)}")
        if self.checker.violation is None:
            self._end()

    def _end(self) -> None:
        """Stop what runs, and look at what is left."""
        clean = [process for process in self._workers() if process.answers_for_leases]
        quiet = self.network.calm
        self._ending = True
        for process in self.processes:
            process.stop()
        self.scheduler.run(self.scheduler.now + _END + self.plan.grace, lambda: all(each.done for each in self.processes))
        for process in self.processes:
            if process.alive and not process.done:
                self.checker._violated(f"{process.name} doesn't end")
            if process.errors and process.alive:
                self.checker._violated(f"{process.name} has failed: {process.errors[0]}")
        for lease_id, lease in self.checker.leases.items():
            if quiet and lease.process in clean and lease.process is not None and not lease.process.held_up:
                self.checker._violated(f"{lease.process.name} was stopped, and left its lease {lease_id}")
        rows = {job_id: (row.claims, row.attempt, row.reschedules) for job_id, row in self.database.rows.items()}
        self.checker.at_end(rows, self.acknowledged)

    def _wind_up(self) -> None:
        """Let all virtual threads come to their ends, where nobody sees them."""
        lines = len(self.lines)
        self.network.calm = True
        for process in self.processes:
            process.kill()
        self.scheduler.run(self.scheduler.now + 2_000, lambda: all(thread.greenlet.dead for thread in self.scheduler.threads))
        del self.lines[lines:]

    def _over(self) -> bool:
        return self.checker.violation is not None or self._all_ended()

    def _all_ended(self) -> bool:
        return self.to_enqueue == 0 and self.checker.unfinished == 0

    # -- processes ----------------------------------------------------------------------------------------------------

    def _workers(self) -> list[Process]:
        return [process for process in self.processes if process is not getattr(self, "_producer", None)]

    def _start_process(self, name: str) -> None:
        self._started += 1
        process = Process(self.scheduler, self.network, name)
        self.clock_error.setdefault(name, self._chance.choice([0.0, 0.0, -900.0, 900.0]))
        self.processes.append(process)
        self.note(f"{name} starts")
        process.start(lambda: process.work(registry, self.plan))

    def _strike(self, event: Event) -> None:
        there = [process for process in self._workers() if process.alive and not process.done]
        if self.network.calm or not there:
            return
        victim = there[event.victim % len(there)]
        self.note(f"{event.blow}: {victim.name} for {event.seconds:.3f} s")
        patience = 0.01 if event.victim % 2 else event.seconds
        if event.blow == "freeze":
            victim.freeze(event.seconds)
        elif event.blow == "cut":
            victim.cut(event.seconds, patience)
        elif event.blow == "cut_all":
            for process in self.processes:
                process.cut(event.seconds, patience)
        elif event.blow == "clock":
            self.clock_error[victim.name] += event.seconds * 100
            victim.disturbed()
        else:
            self._take_away(victim, event)

    def _take_away(self, victim: Process, event: Event) -> None:
        now = self.scheduler.now
        if event.blow == "kill":
            victim.kill()
        elif event.blow == "cancel":
            victim.cancel()
        else:
            victim.stop(force=event.blow == "force")
        if event.blow == "stop_twice":
            self.scheduler.call_at(now + event.seconds / 10, lambda: victim.stop(force=True))
        name = victim.name if event.same_name and event.blow == "kill" else f"w{self._started}"
        self.scheduler.call_at(now + event.seconds, lambda: self._replace(name))

    def _replace(self, name: str) -> None:
        if not self.network.calm and not self._ending:
            self._start_process(name)

    # -- producing ----------------------------------------------------------------------------------------------------

    async def _produce(self) -> None:
        async with Client(self._producer.store, retry_for=3) as client, asyncio.TaskGroup() as group:
            for index, job in enumerate(self.plan.jobs):
                group.create_task(self._enqueue(client, index, job))

    async def _enqueue(self, client: Client, index: int, job: PlannedJob) -> None:
        await asyncio.sleep(job.at)
        job_type = in_thread if job.threaded else in_loop
        call = job_type(index).options(retry=job.retry, priority=job.priority)
        for option in ("timeout", "delay", "expires"):
            if (value := getattr(job, option)) is not None:
                call = call.options(**{option: value})
        self.names[call.id] = f"job {index}"
        while True:
            try:
                await client.enqueue(call)
            except StoreUnavailable:
                self.note(f"{self.name(call.id)} couldn't be enqueued, trying again")
                await asyncio.sleep(1)
            else:
                break
        self.acknowledged.add(call.id)
        self.to_enqueue -= 1

    # -- what handlers do ---------------------------------------------------------------------------------------------

    def next_step(self, index: int, run: Run) -> Step:
        """What this run of the job does."""
        if not run.process.alive:
            return Step("at_once", 0.0, 0.0)
        self.runs += 1
        done = self.runs_of.get(index, 0)
        self.runs_of[index] = done + 1
        steps = self.plan.jobs[index].steps
        return steps[done] if done < len(steps) else Step("at_once", 0.0, 0.0)

    @property
    def process(self) -> Process:
        """Whose code is running."""
        host = self.scheduler.host
        assert isinstance(host, Process)
        return host

    def conclude(self, run: Run, step: Step, *, cancellable: bool) -> str:
        """End a run as its step says, after its time."""

        def ends(how: str, delay: float | None = None) -> None:
            self.checker.finished(run, how, delay=delay, cancellable=cancellable)

        if step.deed == "raise":
            ends("raised")
            raise Boom("it went wrong")
        if step.deed == "fail":
            ends("failed")
            raise Fail("it can't be done")
        if step.deed == "retry":
            ends("retry", step.extra)
            raise RetryIn(step.extra)
        if step.deed == "reschedule":
            ends("reschedule", step.extra)
            raise Reschedule(delay=step.extra)
        if step.deed == "reschedule_at":
            ends("reschedule", step.extra)
            raise Reschedule(at=datetime.fromtimestamp(START + self.scheduler.now, UTC) + timedelta(seconds=step.extra))
        if step.deed == "cancel":
            ends("raised")
            raise asyncio.CancelledError("of its own")
        ends("returned")
        return step.deed

    async def run_in_loop(self, index: int) -> str:
        """The handler that is a coroutine function."""
        run = self.checker.began(self.process, current_attempt().job)
        step = self.next_step(index, run)
        willing = step.deed not in {"stubborn", "unwilling"}
        try:
            if step.deed == "block":
                run.process.held_up += 1
                self.scheduler.sleep(step.seconds)
                run.process.held_up += 1
            elif step.deed != "at_once":
                await asyncio.sleep(step.seconds)
            return self.conclude(run, step, cancellable=willing)
        except (Boom, JobControl):
            raise
        except asyncio.CancelledError:
            if run.ended_at is not None:
                raise
            if not willing:
                await self._go_on(step.extra)
            if step.deed == "unwilling":
                self.checker.finished(run, "returned", cancellable=False)
                return "after all"
            self.checker.finished(run, "cancelled", cancellable=willing)
            raise

    async def _go_on(self, seconds: float) -> None:
        until = self.scheduler.now + seconds
        while (left := until - self.scheduler.now) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                continue

    def run_in_thread(self, index: int) -> str:
        """The handler that is a plain function."""
        attempt = current_attempt()
        run = self.checker.began(self.process, attempt.job)
        step = self.next_step(index, run)
        until = self.scheduler.now + (0.0 if step.deed == "at_once" else step.seconds)
        while (left := until - self.scheduler.now) > 0:
            self.scheduler.sleep(min(left, 0.5))
            if attempt.cancelled and (step.deed != "unwilling" or not run.process.alive):
                self.checker.finished(run, "cancelled", cancellable=False)
                raise Boom("stopped")
        return self.conclude(run, step if step.deed != "cancel" else Step("raise", 0.0, 0.0), cancellable=False)


# -- the handlers, of whichever history is going on -------------------------------------------------------------------

registry = Registry()
_going_on: list[History] = []


@registry.job
async def in_loop(index: int) -> str:
    return await _going_on[-1].run_in_loop(index)


@registry.job
def in_thread(index: int) -> str:
    return _going_on[-1].run_in_thread(index)


@contextmanager
def _current(history: History) -> Iterator[None]:
    product = logging.getLogger("aioqueue")
    before = product.level
    product.setLevel(logging.CRITICAL)
    _going_on.append(history)
    try:
        yield
    finally:
        _going_on.pop()
        product.setLevel(before)


def simulate(seed: int, rules: Rules | None = None) -> Verdict:
    """Live through one history."""
    return History(seed, rules or Rules()).run()
