"""What a seed stands for: jobs, processes, what their handlers do, and what goes wrong when."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from aioqueue import Exponential, Fixed, Linear, Retry
from tests.simulation.store import Faults

Deed = Literal[
    "return", "at_once", "raise", "fail", "retry", "reschedule", "reschedule_at", "block", "stubborn", "unwilling", "cancel"
]
Blow = Literal["kill", "freeze", "cut", "cut_all", "stop", "stop_twice", "force", "cancel", "clock"]

DEEDS: tuple[Deed, ...] = (
    *("return", "return", "at_once", "raise", "raise", "fail", "retry"),
    *("reschedule", "reschedule_at", "block", "stubborn", "unwilling", "cancel"),
)
BLOWS: tuple[Blow, ...] = (
    "kill",
    "kill",
    "freeze",
    "freeze",
    "cut",
    "cut",
    "cut_all",
    "stop",
    "stop_twice",
    "force",
    "cancel",
    "clock",
)

LEASE = 6.0


@dataclass(frozen=True)
class Step:
    """What a handler does in one of its runs.

    Attributes:
        deed: How it goes.
        seconds: How long it takes.
        extra: How long it goes on once it's cancelled, or the delay it asks for.
    """

    deed: Deed
    seconds: float
    extra: float


@dataclass(frozen=True)
class PlannedJob:
    """One job.

    Attributes:
        at: When it's enqueued.
        threaded: Whether its handler is a plain function.
        steps: Run by run; after the last it returns at once.
    """

    at: float
    threaded: bool
    steps: tuple[Step, ...]
    retry: Retry
    timeout: float | None
    delay: float | None
    expires: float | None
    priority: Literal[1, 2, 3, 4]


@dataclass(frozen=True)
class Event:
    """Something that happens to the processes.

    Attributes:
        victim: Which of the processes that are there then; modulo their number.
        seconds: How long it lasts; what takes a process away brings another after that time.
        same_name: Whether that one has the same name.
    """

    at: float
    blow: Blow
    victim: int
    seconds: float
    same_name: bool


@dataclass(frozen=True)
class Plan:
    """One history, before it happens."""

    seed: int
    jobs: tuple[PlannedJob, ...]
    events: tuple[Event, ...]
    faults: Faults
    processes: int
    workers: int
    concurrency: int
    poll_interval: float
    grace: float
    calm_at: float


def plan_of(seed: int) -> Plan:
    """Make the plan of a seed."""
    chance = random.Random(f"plan {seed}")
    calm_at = chance.uniform(15, 45)
    rough = chance.random() < 0.3
    return Plan(
        seed=seed,
        jobs=tuple(_job(chance, calm_at, rough=rough) for _ in range(chance.randint(2, 7))),
        events=tuple(_event(chance, calm_at, rough=rough) for _ in range(chance.randint(rough, 5))),
        faults=Faults(
            request_lost=chance.choice([0.0, 0.02, 0.1]),
            answer_lost=chance.choice([0.0, 0.02, 0.1]),
            late=0.3,
            notification_lost=chance.choice([0.0, 0.2, 1.0]),
            slowest=chance.choice([0.01, 0.05, 0.3]),
        ),
        processes=chance.randint(1, 3),
        workers=chance.choice([1, 1, 2]),
        concurrency=chance.randint(1, 3),
        poll_interval=chance.choice([1.0, 5.0]),
        grace=chance.choice([0.0, 2.0, 10.0]),
        calm_at=calm_at,
    )


def _job(chance: random.Random, calm_at: float, *, rough: bool) -> PlannedJob:
    threaded = chance.random() < 0.2
    return PlannedJob(
        at=chance.uniform(0, calm_at * 0.7),
        threaded=threaded,
        steps=tuple(_step(chance, rough=rough) for _ in range(chance.randint(0, 4))),
        retry=Retry(
            max_attempts=chance.choice([1, 2, 3, 5]),
            backoff=chance.choice([Fixed(1), Linear(0.5), Exponential(initial=0.5, maximum=5)]),
            jitter=chance.choice([0.0, 0.2]),
        ),
        timeout=None if rough else chance.choice([None, None, 2.0, 8.0]),
        delay=chance.choice([None, None, chance.uniform(0, 15)]),
        expires=chance.choice([None, None, None, chance.uniform(0.5, 10)]),
        priority=chance.choice([1, 2, 3, 4]),
    )


def _step(chance: random.Random, *, rough: bool) -> Step:
    if rough:  # long ones, that outlive their leases
        return Step(chance.choice(["return", "stubborn", "unwilling", "raise"]), chance.uniform(3, 25), chance.uniform(1, 20))
    longest = chance.choice([0.1, 2.0, 12.0])
    return Step(chance.choice(DEEDS), chance.uniform(0, longest), chance.uniform(0.1, chance.choice([1.0, 15.0])))


def _event(chance: random.Random, calm_at: float, *, rough: bool) -> Event:
    return Event(
        at=chance.uniform(0.1, calm_at),
        blow=chance.choice(["cut", "cut", "cut_all", "freeze", "kill"]) if rough else chance.choice(BLOWS),
        victim=chance.randrange(6),
        seconds=chance.uniform(LEASE * 0.8 if rough else 0.2, LEASE * 2.5),
        same_name=chance.random() < 0.5,
    )
