"""Plans of histories about jobs that continue, and about jobs that wait for others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue import Fixed, Retry
from tests.simulation.drawing import LEASE, draw_events, draw_job, failing_over, plain
from tests.simulation.plan import PLAIN_CHAIN_KINDS, Answer, Blow, Deed, Kind, Link, Plan, PlannedJob, Step, Wait

if TYPE_CHECKING:
    import random


def chains(chance: random.Random, plan: Plan) -> Plan:
    """Some chains are loops of one type, others of several; some end early."""
    deeds: tuple[Deed, ...] = (
        *("return", "return", "return", "at_once", "raise", "raise", "retry", "reschedule"),
        *("stubborn", "unwilling", "fail"),
    )
    blows: tuple[Blow, ...] = ("kill", "kill", "freeze", "freeze", "cut", "cut", "cut", "stop", "stop_twice", "force", "lock")
    shortest = chance.choice([0.2, LEASE])

    def steps() -> tuple[Step, ...]:
        longest = chance.choice([0.1, 2.0, 8.0])
        return tuple(
            Step(chance.choice(deeds), chance.uniform(0, longest), chance.uniform(0.1, 2)) for _ in range(chance.randint(0, 2))
        )

    def chain() -> PlannedJob:
        kinds = [chance.choice(PLAIN_CHAIN_KINDS)] if chance.random() < 0.5 else PLAIN_CHAIN_KINDS
        links = tuple(
            Link(chance.choice(kinds), steps(), chance.choice([None, None, None, chance.uniform(0, 3)]))
            for _ in range(chance.randint(0, 6))
        )
        return plain(
            draw_job(chance, plan.calm_at),
            steps(),
            kind=chance.choice(kinds),
            links=links,
            at=chance.uniform(0, 15),
            retry=Retry(max_attempts=chance.choice([1, 2, 5, 10]), backoff=Fixed(chance.choice([0.1, 1.0]))),
            refuses=chance.choice(["next", "all", *[""] * 18]),
        )

    changed = replace(plan, jobs=tuple(chain() for _ in range(chance.randint(2, 6))), processes=chance.choice([1, 2, 2, 3]))
    if chance.random() < 0.15:
        return failing_over(chance, changed)
    return replace(
        changed,
        events=draw_events(chance, (1, 6), plan.calm_at, blows, shortest, LEASE * 2.5),
        faults=replace(plan.faults, answer_lost=chance.choice([0.0, 0.05, 0.2]), late=chance.choice([0.3, 0.8])),
    )


def waiting(chance: random.Random, plan: Plan) -> Plan:
    """Diamonds, fans and chains of jobs, of which some fail."""
    deeds: tuple[Deed, ...] = ("return", "return", "complete", "complete", "at_once", "raise", "fail")
    blows: tuple[Blow, ...] = ("kill", "kill", "freeze", "cut", "cut", "stop", "force", "lock", "lock")
    fails = chance.random() < 0.7

    def steps() -> tuple[Step, ...]:
        longest = chance.choice([0.1, 2.0, 6.0])
        return tuple(
            Step(chance.choice(deeds if fails else deeds[:5]), chance.uniform(0, longest), chance.uniform(0, 1.5))
            for _ in range(chance.randint(0, 2))
        )

    def one(index: int) -> PlannedJob:
        before = chance.sample(range(index), min(index, chance.choice([0, 1, 1, 2, 2, 3])))
        waits = tuple(Wait(each, chance.random() < 0.3) for each in sorted(before))
        kind: Kind = "waits" if waits else chance.choice(["in_loop", "in_loop", "short", "link", "asked"])
        answers = chance.choice([0, 0, 0, 1, 2]) if kind != "asked" else chance.choice([1, 2])
        return plain(
            draw_job(chance, plan.calm_at),
            steps(),
            kind=kind,
            waits=waits,
            children=chance.choice([0, 0, 0, 1, 2]),
            answers=tuple(Answer(chance.uniform(0, 10), kind != "link" and chance.random() < 0.7) for _ in range(answers)),
            links=tuple(Link("link", steps(), None) for _ in range(2)) if kind == "link" else (),
            at=chance.uniform(0, 8) if waits else chance.uniform(0, 4),
            delay=chance.choice([None, None, None, chance.uniform(0, 5)]),
            expires=chance.choice([*[None] * 8, chance.uniform(3, 10)]),
            open_for=chance.choice([None, None, chance.uniform(0, 3)]),
            retry=Retry(max_attempts=chance.choice([1, 2, 5]), backoff=Fixed(0.1)),
        )

    return replace(
        plan,
        jobs=tuple(one(index) for index in range(chance.randint(4, 9))),
        events=draw_events(chance, (0, 4), 20.0, blows, 0.5, LEASE * 1.3),
        faults=replace(plan.faults, answer_lost=chance.choice([0.0, 0.05, 0.1]), slowest=chance.choice([0.01, 0.05, 0.3])),
        processes=chance.choice([1, 2, 2, 3]),
        concurrency=chance.randint(1, 4),
        calm_at=25.0,
    )
