"""What lies between the processes and the database: it loses requests, answers and whole connections."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from aioqueue.errors import LeaseLost, StoreError, StoreUnavailable

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from aioqueue.abc import Listener, Notification
    from aioqueue.errors import AioqueueError
    from tests.simulation.checker import Checker
    from tests.simulation.process import Process
    from tests.simulation.scheduler import Scheduler

T = TypeVar("T")

CALM_LATENCY = 0.01


@dataclass(frozen=True)
class Faults:
    """How often what goes wrong.

    Attributes:
        request_lost: Of all calls: it never reaches the database.
        answer_lost: Of all calls: it's carried out, and the caller gets an error.
        claim_answer_lost: The same, of claims alone.
        late: Of lost requests: they are carried out after all, seconds after the caller got its error.
        notification_lost: Of all notifications.
        slowest: Seconds that a request or an answer takes at most.
    """

    request_lost: float
    answer_lost: float
    claim_answer_lost: float
    late: float
    notification_lost: float
    slowest: float


class Later:
    """What a request's work returns when its second half is done some time after the first, as in a long transaction."""

    def __init__(self, seconds: float, work: Callable[[], object]) -> None:
        self.seconds = seconds
        self.work = work


class Network:
    """What the stores of one history share: the listeners, the checker and the faults.

    Attributes:
        calm: Whether nothing goes wrong any more.
        sick_until: Until when statements of a kind fail.
        changed: Called after each request that was carried out.
    """

    def __init__(self, scheduler: Scheduler, checker: Checker, chance: random.Random, faults: Faults) -> None:
        self.scheduler = scheduler
        self.checker = checker
        self.chance = chance
        self.faults = faults
        self.calm = False
        self.listeners: list[tuple[Process, Listener]] = []
        self.sick_until: dict[str, float] = {}
        self.changed: Callable[[], None] = lambda: None
        self._server = 0

    def happens(self, probability: float) -> bool:
        return not self.calm and self.chance.random() < probability

    def latency(self) -> float:
        return self.chance.uniform(0.0005, CALM_LATENCY if self.calm else self.faults.slowest)

    def failed_over(self) -> None:
        """What is under way to the server never arrives: another one has taken its place."""
        self._server += 1

    def notify(self, notification: Notification) -> None:
        for process, listener in self.listeners:
            if process.reachable and not self.happens(self.faults.notification_lost):
                self._deliver(process, listener, notification)

    def _deliver(self, process: Process, listener: Listener, notification: Notification) -> None:
        def arrive() -> None:
            if any(known is listener for _, known in self.listeners):
                process.loop.call_soon_threadsafe(listener, notification)

        self.scheduler.call_at(self.scheduler.now + self.latency(), arrive)

    def request(self, process: Process, verb: str, work: Callable[[], T], answer: Callable[[T | AioqueueError], None]) -> None:
        """Send something to the database; the answer, or an error, comes later.

        Arguments:
            process: Whose request it is.
            verb: What it asks for.
            work: What the database does about it.
            answer: Gets what that gave.
        """
        now, at, server = self.scheduler.now, self.scheduler.call_at, self._server

        def tell(result: T | AioqueueError) -> None:
            if isinstance(result, StoreUnavailable | LeaseLost):
                process.erred_at = self.scheduler.now
            answer(result)

        if not process.reachable or self.happens(self.faults.request_lost):
            process.disturbed()
            if process.reachable and self.happens(self.faults.late):
                at(now + self.chance.uniform(0, 3.0), lambda: self._late(process, server, work))
            wait = process.patience if not process.reachable else self.latency()
            at(now + wait, lambda: tell(StoreUnavailable("the request was lost")))
            return

        def arrive() -> None:
            if not process.alive and self.chance.random() < 0.5:
                return
            self._carry_out(process, server, verb, work, give_back)

        def give_back(result: T | AioqueueError) -> None:
            if not process.reachable or self.happens(self.faults.answer_lost):
                process.disturbed()
                result = StoreUnavailable("the answer was lost")
            elif verb == "claim" and self.happens(self.faults.claim_answer_lost):
                result = StoreUnavailable("the answer was lost")
            at(self.scheduler.now + self.latency(), lambda: tell(result))

        at(now + self.latency(), arrive)

    def _carry_out(
        self, process: Process, server: int, verb: str, work: Callable[[], T], done: Callable[[T | AioqueueError], None]
    ) -> None:
        if server != self._server:
            process.disturbed()
            done(StoreUnavailable("the server is gone"))
            return
        if not self.calm and self.sick_until.get(verb, 0.0) > self.scheduler.now:
            done(StoreError(f"{verb} doesn't work at the moment"))
            return
        self.checker.caller = process
        try:
            result: T | AioqueueError = work()
        except (StoreError, LeaseLost) as error:
            result = error
        self.changed()
        if isinstance(result, Later):
            second: Callable[[], T] = result.work
            when = self.scheduler.now + result.seconds
            self.scheduler.call_at(when, lambda: self._carry_out(process, server, verb, second, done))
            return
        done(result)

    def _late(self, process: Process, server: int, work: Callable[[], object]) -> None:
        if server == self._server:
            self.checker.caller = process
            with suppress(StoreError, LeaseLost):
                work()
            self.changed()
