"""Plans of histories about jobs that are asked to end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue import Fixed, Retry
from tests.simulation.drawing import LEASE, draw_events, draw_job, plain
from tests.simulation.plan import Blow, Deed, Kind, Link, Plan, PlannedJob, Step, Wait

if TYPE_CHECKING:
    import random

_DEEDS: tuple[Deed, ...] = (
    *("return", "return", "return", "raise", "raise", "retry", "reschedule", "reschedule_at", "fail"),
    *("stubborn", "unwilling", "hard_of_hearing", "cancel", "complete", "block", "gives_up", "gives_up"),
)
_BLOWS: tuple[Blow, ...] = (
    "kill",
    "kill",
    "freeze",
    "cut",
    "cut",
    "stop",
    "stop",
    "stop_twice",
    "force",
    "lock",
    "lock",
    "lock",
)
_KINDS: tuple[Kind, ...] = ("in_loop", "in_loop", "in_thread", "short", "link", "link_in_thread", "short_link")


def cancelling(chance: random.Random, plan: Plan) -> Plan:
    """Jobs and chains of all kinds, each asked at some moments: before, while and after it runs, and while it waits again."""

    def steps() -> tuple[Step, ...]:
        longest = chance.choice([0.5, 3.0, 10.0])
        return tuple(
            Step(chance.choice(_DEEDS), chance.uniform(0, longest), chance.uniform(0.1, 5)) for _ in range(chance.randint(0, 3))
        )

    def one(index: int) -> PlannedJob:
        before = chance.sample(range(index), min(index, chance.choice([0, 0, 0, 1, 2])))
        waits = tuple(Wait(each, chance.random() < 0.5) for each in sorted(before))
        kind: Kind = "waits" if waits else chance.choice(_KINDS)
        chained = kind in {"link", "link_in_thread", "short_link"}
        links = tuple(Link(kind, steps(), chance.choice([None, 1.0])) for _ in range(chance.randint(0, 3) if chained else 0))
        return plain(
            draw_job(chance, plan.calm_at),
            steps(),
            kind=kind,
            waits=waits,
            links=links,
            asked=tuple(chance.uniform(0, chance.choice([1.0, 15.0])) for _ in range(chance.choice([0, 1, 1, 1, 2]))),
            at=chance.uniform(0, 10),
            delay=chance.choice([None, None, chance.uniform(0, 5)]),
            timeout=chance.choice([None, None, None, 4.0]),
            expires=chance.choice([*[None] * 8, chance.uniform(3, 10)]),
            retry=Retry(max_attempts=chance.choice([1, 2, 5]), backoff=Fixed(chance.choice([0.1, 2.0]))),
        )

    return replace(
        plan,
        jobs=tuple(one(index) for index in range(chance.randint(3, 8))),
        events=draw_events(chance, (0, 4), 20.0, _BLOWS, 0.5, LEASE * 1.5),
        faults=replace(plan.faults, answer_lost=chance.choice([0.0, 0.05, 0.1]), slowest=chance.choice([0.01, 0.05, 0.3])),
        processes=chance.choice([1, 2, 2, 3]),
        concurrency=chance.randint(1, 4),
        calm_at=25.0,
    )
