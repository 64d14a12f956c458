"""Plans of histories about jobs with phases and progress, and about chains that are removed some seconds after their ends."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue import Fixed, Retry
from tests.simulation.drawing import LEASE, draw_events, draw_job, plain
from tests.simulation.plan import Blow, Deed, Kind, Link, Plan, PlannedJob, Step

if TYPE_CHECKING:
    import random

_DEEDS: tuple[Deed, ...] = (*("return", "return", "raise", "raise", "raise", "retry", "reschedule", "fail", "cancel"),)
_BLOWS: tuple[Blow, ...] = ("kill", "kill", "kill", "freeze", "freeze", "cut", "cut", "stop", "stop_twice", "force", "lock")


def phased(chance: random.Random, plan: Plan) -> Plan:
    """Jobs with phases, which are interrupted in each of them: by failures, crashes, lost leases and ends of workers."""

    def steps() -> tuple[Step, ...]:
        longest = chance.choice([0.5, 6.0, 15.0])
        return tuple(
            Step(chance.choice(_DEEDS), chance.uniform(0, longest), chance.uniform(0.1, 3)) for _ in range(chance.randint(0, 4))
        )

    def one() -> PlannedJob:
        kind: Kind = chance.choice(["phased", "phased", "phased", "link"])
        return plain(
            draw_job(chance, plan.calm_at),
            steps(),
            kind=kind,
            links=tuple(Link("link", (), chance.choice([None, 8.0])) for _ in range(2 if kind == "link" else 0)),
            at=chance.uniform(0, 10),
            retry=Retry(max_attempts=chance.choice([2, 5, 9]), backoff=Fixed(chance.choice([0.1, 1.0]))),
            asked=(chance.uniform(0, 20),) if chance.random() < 0.1 else (),
        )

    return replace(
        plan,
        jobs=tuple(one() for _ in range(chance.randint(2, 6))),
        events=draw_events(chance, (1, 6), 25.0, _BLOWS, 0.5, LEASE * 1.5),
        faults=replace(
            plan.faults,
            request_lost=chance.choice([0.0, 0.05, 0.3]),
            answer_lost=chance.choice([0.0, 0.05, 0.2]),
            late=chance.choice([0.0, 0.9]),
            slowest=chance.choice([0.01, 0.05, 0.3]),
        ),
        processes=chance.choice([1, 2, 2, 3]),
        calm_at=30.0,
        retention=5.0,
    )
