"""What plans are drawn from: jobs, steps and events, and the shares of chance in them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue import Exponential, Fixed, Linear, Retry
from tests.simulation.network import Faults
from tests.simulation.plan import Blow, Deed, Event, Plan, PlannedJob, Step

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

LEASE = 6.0

DEEDS: tuple[Deed, ...] = (
    *("return", "return", "at_once", "raise", "raise", "fail", "retry"),
    *("reschedule", "reschedule_at", "block", "stubborn", "unwilling", "cancel"),
    *("hard_of_hearing", "raise_hostile", "fail_hostile"),
)
BLOWS: tuple[Blow, ...] = (
    *("kill", "kill", "freeze", "freeze", "cut", "cut", "cut_all", "stop", "stop_twice", "force", "cancel", "clock"),
    *("lock", "silence", "sick"),
)


def draw_job(chance: random.Random, calm_at: float) -> PlannedJob:
    return PlannedJob(
        at=chance.uniform(0, calm_at * 0.7),
        kind=chance.choice(["in_thread", "in_thread", "rude", "short", "short", *["in_loop"] * 5]),
        steps=tuple(draw_step(chance, DEEDS) for _ in range(chance.randint(0, 4))),
        retry=Retry(
            max_attempts=chance.choice([1, 2, 3, 5]),
            backoff=chance.choice([Fixed(1), Linear(0.5), Exponential(initial=0.5, maximum=5)]),
            jitter=chance.choice([0.0, 0.2]),
        ),
        timeout=chance.choice([None, None, 2.0, 8.0]),
        delay=chance.choice([None, None, chance.uniform(0, 15)]),
        expires=chance.choice([None, None, None, chance.uniform(0.5, 10)]),
        priority=chance.choice([1, 2, 3, 4]),
        refuses=chance.choice(["outcome", "all", *[""] * 18]),
    )


def plain(job: PlannedJob, steps: tuple[Step, ...], **changed: object) -> PlannedJob:
    """The same, but simple: nothing about it is odd that isn't asked for."""
    simple = replace(job, kind="in_loop", steps=steps, timeout=None, delay=None, expires=None, refuses="")
    return replace(simple, **changed)


def draw_step(chance: random.Random, deeds: Sequence[Deed]) -> Step:
    longest = chance.choice([0.1, 2.0, 12.0])
    return Step(chance.choice(deeds), chance.uniform(0, longest), chance.uniform(0.1, chance.choice([1.0, 15.0])))


def draw_event(chance: random.Random, until: float, blows: Sequence[Blow], shortest: float, longest: float) -> Event:
    return Event(
        at=chance.uniform(0.1, until),
        blow=chance.choice(blows),
        victim=chance.randrange(12),
        seconds=chance.uniform(shortest, longest),
        same_name=chance.random() < 0.5,
    )


def draw_events(
    chance: random.Random, count: tuple[int, int], until: float, blows: Sequence[Blow], shortest: float, longest: float
) -> tuple[Event, ...]:
    return tuple(draw_event(chance, until, blows, shortest, longest) for _ in range(chance.randint(*count)))


QUIET = Faults(request_lost=0.0, answer_lost=0.0, claim_answer_lost=0.0, late=0.0, notification_lost=0.0, slowest=0.01)


def failing_over(chance: random.Random, plan: Plan) -> Plan:
    return replace(
        plan,
        events=(
            Event(chance.uniform(3, 20), "failover", 0, chance.uniform(0.5, 20), same_name=False),
            *draw_events(chance, (0, 2), plan.calm_at, ["kill", "freeze", "stop"], 1.0, LEASE * 2),
        ),
        faults=replace(QUIET, slowest=plan.faults.slowest),
        processes=chance.randint(2, 3),
    )
