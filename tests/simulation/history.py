"""One history: a plan, carried out in virtual time, with the checker watching."""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioqueue.client import Client
from aioqueue.errors import StoreUnavailable
from tests.simulation.account import Book
from tests.simulation.bodies import Bodies
from tests.simulation.calls import planned_call
from tests.simulation.checker import Checker
from tests.simulation.database import WatchedDatabase
from tests.simulation.deadlines import Deadlines
from tests.simulation.deploys import deployed
from tests.simulation.gate_operators import GateOperators
from tests.simulation.handlers import Handlers, made_current
from tests.simulation.jobs import JOB_TYPES
from tests.simulation.network import CALM_LATENCY, Network
from tests.simulation.operators import Operators
from tests.simulation.outside import Outside
from tests.simulation.plan import SICK_VERBS, Theme
from tests.simulation.process import Process
from tests.simulation.promises import Promise
from tests.simulation.scheduler import Scheduler
from tests.simulation.substitutes import substituted
from tests.simulation.themes import plan_of

if TYPE_CHECKING:
    from uuid import UUID

    from tests.simulation.plan import Event, PlannedJob
    from tests.simulation.promises import Violation

_PROGRESS = 900.0
"""Virtual seconds after the last fault within which every job must have ended."""

_ECHO = 10.0
"""Virtual seconds after the last fault for which its consequences are borne."""

_SETTLED = 4.0
"""Virtual seconds after the end of all jobs within which workers have noticed."""

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
    violation: Violation | None
    lines: tuple[str, ...]
    runs: int


class History:
    """See the module."""

    def __init__(self, seed: int) -> None:
        self.plan = plan_of(seed)
        self.lines: list[str] = []
        self.names: dict[UUID, str] = {}
        self.enqueued: set[UUID] = set()
        self.acknowledged: set[UUID] = set()
        self.scheduler = Scheduler()
        self.book = Book(lambda: self.scheduler.now, self.note, self.name)
        self.deadlines = Deadlines(
            self.book,
            self.scheduler,
            self.plan,
            self._round_trip,
            lambda: max(self.network.sick_until.values(), default=0.0),
            self._workers,
        )
        self.bodies = Bodies(self.book, self.deadlines, self.plan.grace)
        self.checker = Checker(self.book, self.deadlines)
        self.network = Network(self.scheduler, self.checker, random.Random(f"network {seed}"), self.plan.faults)
        self.database = WatchedDatabase(
            self.network, names_refused=self.plan.names_refused, retention=self.plan.retention, quiet=self.plan.quiet
        )
        self.network.changed = self.database.changed
        self.checker.phases.in_order = not self.plan.faults.late
        self.handlers = Handlers(
            self.plan.jobs,
            JOB_TYPES,
            self.scheduler,
            self.bodies,
            self.checker.phases,
            lambda: self.network.calm,
            self.names.__setitem__,
        )
        self.processes: list[Process] = []
        self.clock_error: dict[str, float] = {}
        self.checker.schedules.call_it = self._ticked
        for checker in (self.checker.schedules, self.checker.pauses, self.checker.gates):
            checker.calm_since = self._calm_since
        self.checker.gates.idle = self._has_free_slot
        self.operated = bool(self.plan.deploys or self.plan.acts)
        self.to_enqueue = len(self.plan.jobs) + self.operated
        self._chance = random.Random(f"product {seed}")
        self._handles: list[asyncio.Future[Any]] = []
        self._started = 0
        self._ending = False

    def note(self, text: str) -> None:
        self.lines.append(f"{self.scheduler.now:9.3f}  {text}")

    def _ticked(self, job_id: UUID, name: str) -> None:
        self.names[job_id] = name
        self.enqueued.add(job_id)

    def _calm_since(self) -> float:
        if self.plan.quiet:
            return 0.0
        return self.plan.calm_at + _ECHO if self.network.calm else math.inf

    def _has_free_slot(self) -> bool:
        """Whether some worker that is well could begin with something."""
        slots = self.plan.workers * self.plan.concurrency
        return any(each.is_well and len(self.book.busy_in(each)) < slots for each in self._workers())

    def name(self, job_id: UUID) -> str:
        return self.names.get(job_id, "unknown job")

    # -- the course of it ---------------------------------------------------------------------------------------------

    def run(self) -> Verdict:
        """Carry the plan out."""
        with substituted(self.scheduler, self._chance, self.clock_error), made_current(self.handlers):
            try:
                self._live()
            finally:
                self._wind_up()
        return Verdict(self.plan.seed, self.book.violation, tuple(self.lines), self.handlers.runs)

    def _live(self) -> None:
        plan = self.plan
        for _ in range(plan.processes):
            self._start_process(f"w{self._started}")
        self._producer = Process(self.scheduler, self.database, "producer")
        self.processes.append(self._producer)
        self._producer.start(self._produce)
        for event in plan.events:
            if event.blow == "failover":
                self.scheduler.call_at(event.at - event.seconds, lambda event=event: self._lag(event))
            else:
                self.scheduler.call_at(event.at, lambda event=event: self._strike(event))
        self.scheduler.run(plan.calm_at, self._over)
        if not self._over():
            self._calm_down()
        self.scheduler.run(plan.calm_at + _PROGRESS, self._over)
        if self.book.violation is None and not self._all_ended():
            left = [job_id for job_id, truth in self.book.jobs.items() if truth.ended is None]
            self.checker.waiting.look_at_those_left(left)
            names = ", ".join(self.name(job_id) for job_id in left)
            self.book.violated(Promise.ALL_END, f"not ended {_PROGRESS:g} s after the last fault: {names}")
        if self.book.violation is None:
            self._look_at_slots()
        if self.book.violation is None:
            self._end()

    def _calm_down(self) -> None:
        """Let nothing go wrong from now on, and make sure that there is a worker."""
        now = self.scheduler.now
        self.network.calm = True
        self.note("calm: nothing goes wrong from now on")
        for process in self.processes:
            process.frozen_until = process.cut_until = min(now, process.cut_until)
            process.silent_until = 0.0
            if process.away_until > now:  # it's back earlier than planned
                process.away_until = 0.0
        self.database.unlock_rows()
        for truth in self.book.jobs.values():
            truth.locked_until = min(truth.locked_until, now)
        for run in self.handlers.deaf:  # as long as its process lives and isn't stopped, its job doesn't end
            if run.process.alive and not run.process.done:
                run.process.stop()
        if not any(process.answers_for_leases and not process.leaving for process in self._workers()):
            self._start_process(f"w{self._started}")

    def _look_at_slots(self) -> None:
        """Every slot is free, except those in which a handler still runs."""
        self.scheduler.run(self.scheduler.now + _SETTLED, lambda: self.book.violation is not None)
        for process in self._workers():
            held_up = max(process.held_up_until, process.frozen_until) + 1.0 > self.scheduler.now
            if not process.answers_for_leases or process.leaving or held_up:
                continue
            busy, running = sum(worker.health().busy for worker in process.workers), len(self.book.running_in(process))
            if busy > running:
                self.book.violated(Promise.SLOTS_FREE, f"{process.name} has {busy} slots in use, and runs {running} jobs")

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
                self.book.violated(Promise.WORKERS_END, f"{process.name} doesn't end")
            if process.errors and process.alive:
                self.book.violated(Promise.NO_ERRORS, f"{process.name} has failed: {process.errors[0]}")
        for lease_id, lease in self.book.leases.items():
            if quiet and lease.process in clean and lease.process is not None and not lease.process.held_up:
                self.book.violated(Promise.NOTHING_LEFT, f"{lease.process.name} was stopped, and left its lease {lease_id}")
        rows = {job_id: (row.claims, row.attempt, row.reschedules) for job_id, row in self.database.rows.items()}
        self.checker.at_end(rows, self.acknowledged)
        self.checker.waiting.at_end(self.enqueued)
        self.checker.chains.at_end(self.database, self.enqueued | self.checker.waiting.children)

    def _wind_up(self) -> None:
        """Let all virtual threads come to their ends, where nobody sees them."""
        lines = len(self.lines)
        self.network.calm = True
        for process in self.processes:
            process.kill()
        self.scheduler.run(self.scheduler.now + 2_000, lambda: all(thread.greenlet.dead for thread in self.scheduler.threads))
        del self.lines[lines:]

    def _over(self) -> bool:
        return self.book.violation is not None or self._all_ended()

    def _all_ended(self) -> bool:
        return self.to_enqueue == 0 and self.book.unfinished == 0

    # -- processes ----------------------------------------------------------------------------------------------------

    def _round_trip(self) -> float:
        """Seconds that a request and its answer take at most, and what is done about it; also of those before the calm."""
        if self.scheduler.now > self.plan.calm_at + _ECHO:
            return 2 * CALM_LATENCY
        return 2 * max(self.plan.faults.slowest, CALM_LATENCY) + 6 * self.plan.starved

    def _workers(self) -> list[Process]:
        return [process for process in self.processes if process is not getattr(self, "_producer", None)]

    def _start_process(self, name: str) -> None:
        self._started += 1
        process = Process(self.scheduler, self.database, name, starved=self.plan.starved, bodies=self.bodies)
        self.clock_error.setdefault(name, self._chance.choice([0.0, 0.0, -900.0, 900.0]))
        self.processes.append(process)
        self.note(f"{name} starts")
        process.start(lambda: process.work(*deployed(self.plan, self.scheduler.now), self.plan))

    def _strike(self, event: Event) -> None:
        if self.network.calm or event.blow in {"lock", "sick", "forget"}:
            self._strike_database(event)
            return
        there = [process for process in self._workers() if process.alive and not process.done]
        if not there:
            return
        victim = there[event.victim % len(there)]
        self.note(f"{event.blow}: {victim.name} for {event.seconds:.3f} s")
        patience = 0.01 if event.victim % 2 else event.seconds
        if event.blow == "freeze":
            victim.freeze(event.seconds)
        elif event.blow == "freeze_all":
            for process in there:
                process.freeze(event.seconds)
        elif event.blow == "cut":
            victim.cut(event.seconds, patience)
        elif event.blow == "cut_all":
            for process in self.processes:
                process.cut(event.seconds, patience)
        elif event.blow in {"silence", "silence_all"}:
            victim.silence(event.seconds, new=event.blow == "silence_all")
        elif event.blow == "clock":
            self.clock_error[victim.name] += event.seconds * 100
            victim.disturbed()
        else:
            self._take_away(victim, event)

    def _strike_database(self, event: Event) -> None:
        until = self.scheduler.now + event.seconds
        if self.network.calm:
            return
        if event.blow == "sick":
            verb = SICK_VERBS[event.victim % len(SICK_VERBS)]
            self.note(f"sick: {verb} for {event.seconds:.3f} s")
            self.network.sick_until[verb] = max(until, self.network.sick_until.get(verb, 0.0))
        elif event.blow == "forget":
            self.note("forget: somebody deletes all leases")
            self.database.forget_leases()
        elif jobs := list(self.database.rows):
            job_id = jobs[event.victim % len(jobs)]
            self.note(f"lock: {self.name(job_id)} for {event.seconds:.3f} s")
            truth = self.book.jobs[job_id]
            truth.locked_until = max(until, truth.locked_until)
            self.database.lock_row(job_id, event.seconds)

    def _lag(self, event: Event) -> None:
        """From now on, until it takes over, the standby gets nothing any more."""
        database, book = self.database.saved(), self.book.saved()

        def take_over() -> None:
            if self.network.calm or self._over():
                return
            self.note(f"failover: the database is what it was {event.seconds:.3f} s ago")
            self.network.failed_over()
            self.database.restore(database)
            self.book.restore(book)
            for lease_id in self.book.leases:
                self.deadlines.lease_ends(lease_id)
            for process in self.processes:
                process.disturbed()

        self.scheduler.call_at(event.at, take_over)

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
        self._handles = [asyncio.get_running_loop().create_future() for _ in self.plan.jobs]
        async with Client(self._producer.store, retry_for=3) as client, asyncio.TaskGroup() as group:
            self._answering = group
            for index, job in enumerate(self.plan.jobs):
                group.create_task(self._enqueue(client, index, job))
            if self.operated:
                told = (client, self.database.now, self.note, self._kept_quiet)
                at_gates = self.plan.theme is Theme.GATES
                operators = GateOperators(*told, self._handles, self.checker.gates) if at_gates else Operators(*told)
                operators.begin(group, self.plan.acts, self.plan.calm_at + _ECHO)

    def _kept_quiet(self) -> None:
        self.to_enqueue -= 1

    async def _enqueue(self, client: Client, index: int, job: PlannedJob) -> None:
        await asyncio.sleep(job.at)
        call = await planned_call(index, job, self._handles)
        self.names[call.id] = f"job {index}"
        self.enqueued.add(call.id)
        self.database.refusals[call.id] = job.refuses
        _ = call.output  # a use of it: the history may end before it's enqueued, and a call that is dropped warns
        open_for = job.open_for
        while True:
            try:
                if open_for is None:
                    handle = await client.enqueue(call)
                else:
                    async with client.transaction() as transaction:
                        handle = await transaction.enqueue(call)
                        await asyncio.sleep(open_for)
            except StoreUnavailable:
                self.note(f"{self.name(call.id)} couldn't be enqueued, trying again")
                open_for = None  # its commit may be unclear: an enqueue looks what became of it
                await asyncio.sleep(1)
            else:
                break
        self._handles[index].set_result(handle)
        self.acknowledged.add(call.id)
        self.to_enqueue -= 1
        outside = Outside(self.checker, self.note, self.name(handle.id))
        for answer in job.answers:
            self._answering.create_task(outside.answer(client, handle, JOB_TYPES[job.kind], answer))
        for after in job.asked:
            self._answering.create_task(outside.ask(handle, after))


def simulate(seed: int) -> Verdict:
    """Live through one history."""
    return History(seed).run()
