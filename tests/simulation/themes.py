"""Makes a plan of a seed. Each seed has a theme: some of the faults are frequent in it, others don't happen."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue import Fixed, Retry
from tests.simulation.drawing import BLOWS, LEASE, QUIET, draw_event, draw_events, draw_job, draw_step, failing_over, plain
from tests.simulation.network import Faults
from tests.simulation.plan import Blow, Deed, Event, Plan, Step, Theme
from tests.simulation.themes_cancelling import cancelling
from tests.simulation.themes_chains import chains, waiting
from tests.simulation.themes_gates import at_gates
from tests.simulation.themes_phases import phased
from tests.simulation.themes_plans import planned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FIRST_OF_PHASES = 1_000_000
"""From this seed on all histories are about phases: so the seeds before have the histories that they had."""
FIRST_OF_PLANS = 2_000_000
"""From this seed on all are about schedules and pauses."""
FIRST_OF_GATES = 3_000_000
"""From this seed on all are about limits, rates, sequences and turns."""
_LATER = {Theme.PHASES: FIRST_OF_PHASES, Theme.PLANS: FIRST_OF_PLANS, Theme.GATES: FIRST_OF_GATES}
THEMES: tuple[Theme, ...] = (
    *[Theme.MIXED] * 4,
    *[Theme.ROUGH] * 2,
    *[each for each in Theme if each not in {Theme.MIXED, *_LATER}],
)
"""Taken in turns, seed by seed."""


def theme_of(seed: int) -> Theme:
    """What the history of a seed is about."""
    later = [theme for theme, first in _LATER.items() if seed >= first]
    return later[-1] if later else THEMES[seed % len(THEMES)]


def seeds_of(theme: Theme | None, count: int) -> Iterator[int]:
    """The first seeds of a theme, or of all."""
    first = 0 if theme is None else _LATER.get(theme, 0)
    fitting = (seed for seed in range(first, 2 * FIRST_OF_GATES) if theme in (None, theme_of(seed)))
    return (seed for seed, _ in zip(fitting, range(count), strict=False))


def plan_of(seed: int) -> Plan:
    """Make the plan of a seed."""
    theme = theme_of(seed)
    chance = random.Random(f"plan {seed}")
    return _THEMES[theme](chance, _mixed(seed, theme, chance))


def _mixed(seed: int, theme: Theme, chance: random.Random) -> Plan:
    calm_at = chance.uniform(15, 45)
    return Plan(
        seed=seed,
        theme=theme,
        jobs=tuple(draw_job(chance, calm_at) for _ in range(chance.randint(2, 7))),
        events=tuple(draw_event(chance, calm_at, BLOWS, 0.2, LEASE * 2.5) for _ in range(chance.randint(0, 5))),
        faults=Faults(
            request_lost=chance.choice([0.0, 0.02, 0.1]),
            answer_lost=chance.choice([0.0, 0.02, 0.1]),
            claim_answer_lost=0.0,
            late=0.3,
            notification_lost=chance.choice([0.0, 0.2, 1.0]),
            slowest=chance.choice([0.01, 0.05, 0.3]),
        ),
        names_refused=chance.random() < 0.5,
        starved=chance.choice([0.0, 0.0, 0.0, 0.02]),
        processes=chance.randint(1, 3),
        workers=chance.choice([1, 1, 2]),
        concurrency=chance.randint(1, 3),
        lease=LEASE,
        poll_interval=chance.choice([1.0, 5.0]),
        grace=chance.choice([0.0, 2.0, 10.0]),
        calm_at=calm_at,
    )


# -- the themes -------------------------------------------------------------------------------------------------------


def _rough(chance: random.Random, plan: Plan) -> Plan:
    deeds: tuple[Deed, ...] = ("return", "stubborn", "unwilling", "raise")
    blows: tuple[Blow, ...] = ("cut", "cut", "cut_all", "freeze", "freeze_all", "kill")

    def steps(count: int) -> tuple[Step, ...]:
        return tuple(Step(chance.choice(deeds), chance.uniform(3, 25), chance.uniform(1, 20)) for _ in range(count))

    return replace(
        plan,
        jobs=tuple(replace(job, steps=steps(len(job.steps)), timeout=None) for job in plan.jobs),
        events=draw_events(chance, (1, 5), plan.calm_at, blows, LEASE * 0.8, LEASE * 2.5),
    )


def _late(chance: random.Random, plan: Plan) -> Plan:
    deeds: tuple[Deed, ...] = ("raise", "retry", "reschedule", "return", "unwilling")

    def step() -> Step:
        return Step(chance.choice(deeds), chance.uniform(0, 2), chance.uniform(0.1, 2))

    return replace(
        plan,
        jobs=tuple(
            plain(job, tuple(step() for _ in range(5)), retry=replace(job.retry, max_attempts=5), at=chance.uniform(0, 10))
            for job in plan.jobs
        ),
        events=draw_events(chance, (1, 4), plan.calm_at, ["stop", "stop", "stop_twice", "cancel", "cut"], 0.2, LEASE),
        faults=replace(plan.faults, request_lost=0.2, answer_lost=0.1, late=0.8),
        grace=0.0,
    )


def _frozen(chance: random.Random, plan: Plan) -> Plan:
    lease = 3.0

    def steps() -> tuple[Step, ...]:
        return tuple(Step("return", chance.uniform(0, 0.5), 0.0) for _ in range(4))

    return replace(
        plan,
        jobs=tuple(
            plain(draw_job(chance, plan.calm_at), steps(), at=chance.uniform(0, 12), retry=Retry(backoff=Fixed(0.1)))
            for _ in range(chance.randint(20, 30))
        ),
        events=(
            *draw_events(chance, (1, 3), 12.0, ["freeze"], lease, lease * 2),
            *draw_events(chance, (6, 14), 12.0, ["forget"], 0.0, 0.0),
        ),
        faults=replace(QUIET, slowest=chance.choice([0.05, 0.3])),
        starved=chance.choice([0.1, 0.3]),
        processes=chance.randint(2, 3),
        workers=1,
        concurrency=chance.randint(2, 5),
        lease=lease,
        poll_interval=1.0,
        calm_at=16.0,
    )


def _rude(chance: random.Random, plan: Plan) -> Plan:
    deeds: tuple[Deed, ...] = ("return", "raise", "raise_hostile", "fail_hostile", "fail", "at_once")
    return replace(
        plan,
        jobs=tuple(
            replace(
                job,
                kind=chance.choice(["rude", "rude", "in_loop", "in_thread"]),
                steps=tuple(draw_step(chance, deeds) for _ in range(chance.randint(1, 4))),
                refuses=chance.choice(["", "", "outcome", "all", "all"]),
            )
            for job in plan.jobs
        ),
        events=draw_events(chance, (0, 2), plan.calm_at, ["kill", "freeze", "stop"], 1.0, LEASE * 2),
        faults=replace(QUIET, answer_lost=plan.faults.answer_lost),
    )


def _locked(chance: random.Random, plan: Plan) -> Plan:
    return replace(
        plan,
        jobs=tuple(
            plain(job, tuple(draw_step(chance, ["return", "raise", "at_once"]) for _ in job.steps), delay=job.delay)
            for job in (draw_job(chance, plan.calm_at) for _ in range(chance.randint(4, 10)))
        ),
        events=(
            *draw_events(chance, (3, 8), plan.calm_at, ["lock"], 1.0, 25.0),
            *draw_events(chance, (0, 2), plan.calm_at, ["kill", "stop", "freeze"], 1.0, LEASE * 2),
        ),
        faults=replace(QUIET, slowest=plan.faults.slowest),
    )


def _backlog(chance: random.Random, plan: Plan) -> Plan:
    return replace(
        plan,
        jobs=tuple(
            plain(draw_job(chance, 2.0), (Step("return", chance.uniform(0, 0.6), 0.0),), at=chance.uniform(0, 15))
            for _ in range(chance.randint(25, 40))
        ),
        events=(),
        faults=replace(QUIET, claim_answer_lost=0.2, slowest=0.3),
        starved=0.0,
        processes=chance.randint(1, 2),
        workers=1,
    )


def _silent(chance: random.Random, plan: Plan) -> Plan:
    blows: tuple[Blow, ...] = ("silence", "silence", "silence", "silence_all")
    return replace(
        plan,
        jobs=tuple(
            plain(job, (Step("return", chance.uniform(1, 25), 0.0),), kind=chance.choice(["in_loop", "in_loop", "short"]))
            for job in plan.jobs
        ),
        events=draw_events(chance, (1, 3), plan.calm_at, blows, LEASE * 0.5, LEASE * 3),
        faults=replace(QUIET, slowest=plan.faults.slowest),
    )


def _deaf(chance: random.Random, plan: Plan) -> Plan:
    deeds: tuple[Deed, ...] = ("deaf", "hard_of_hearing", "hard_of_hearing", "return")

    def steps() -> tuple[Step, ...]:
        return tuple(Step(chance.choice(deeds), chance.uniform(1, 25), chance.uniform(20, 90)) for _ in range(2))

    return replace(
        plan,
        jobs=tuple(plain(job, steps(), timeout=chance.choice([None, 2.0, 5.0]), at=chance.uniform(0, 10)) for job in plan.jobs),
        events=(
            *draw_events(chance, (1, 3), plan.calm_at, ["stop", "stop", "stop_twice", "force"], 1.0, LEASE),
            *draw_events(chance, (0, 1), plan.calm_at, ["cut", "freeze"], LEASE, LEASE * 2),
        ),
        faults=replace(QUIET, slowest=plan.faults.slowest),
    )


def _leaving(chance: random.Random, plan: Plan) -> Plan:
    away_at, away = chance.uniform(3, 20), chance.uniform(5, 20)
    return replace(
        plan,
        jobs=tuple(
            plain(job, (Step("return", chance.uniform(1, 20), 0.0),) * 2, at=chance.uniform(0, 10)) for job in plan.jobs
        ),
        events=(
            Event(away_at, "cut_all", chance.randrange(2), away, same_name=False),
            *draw_events(chance, (1, 3), away_at + away, ["stop"], 1.0, 20.0),
        ),
        faults=replace(QUIET, slowest=plan.faults.slowest),
        lease=chance.choice([30.0, 60.0]),
        grace=chance.choice([20.0, 30.0]),
    )


def _returning(chance: random.Random, plan: Plan) -> Plan:
    """One after the other, so that the others have had their quiet when a lease runs out. Each worker of a process has its own
    lease, and they run out together."""

    def steps() -> tuple[Step, ...]:
        return tuple(Step("return", chance.uniform(5, 15), 0.0) for _ in range(3))

    events = tuple(
        replace(
            draw_event(chance, 1.0, ["freeze", "freeze", "cut"], LEASE * 0.7, LEASE * 1.05),
            at=6.0 + 10 * k + chance.uniform(0, 2),
        )
        for k in range(5)
    )
    return replace(
        plan,
        jobs=tuple(
            plain(draw_job(chance, plan.calm_at), steps(), at=chance.uniform(0, 30), retry=Retry(backoff=Fixed(0.1)))
            for _ in range(chance.randint(6, 10))
        ),
        events=events,
        faults=replace(QUIET, slowest=chance.choice([0.05, 0.3, 0.3])),
        processes=chance.choice([2, 2, 3]),
        workers=2,
        concurrency=2,
        starved=0.0,
        calm_at=58.0,
    )


def _recovery(chance: random.Random, plan: Plan) -> Plan:
    blows: tuple[Blow, ...] = ("kill", "kill", "kill", "freeze", "cut", "cut")
    calm_at = plan.calm_at + 30
    return replace(
        plan,
        jobs=tuple(
            replace(plain(job, tuple(replace(step, deed="return", seconds=chance.uniform(2, 20)) for step in job.steps)))
            for job in plan.jobs
        ),
        events=(
            *draw_events(chance, (1, 4), calm_at / 2, blows, LEASE * 0.7, LEASE * 1.3),
            *draw_events(chance, (0, 2), calm_at / 2, ["sick"], 20.0, 60.0),
        ),
        faults=replace(QUIET, slowest=plan.faults.slowest),
        processes=chance.choice([2, 2, 3, 4]),
        lease=chance.choice([LEASE, 2.5 * LEASE]),
        calm_at=calm_at,
    )


_THEMES: dict[Theme, Callable[[random.Random, Plan], Plan]] = {
    Theme.MIXED: lambda _, plan: plan,
    Theme.ROUGH: _rough,
    Theme.LATE: _late,
    Theme.FROZEN: _frozen,
    Theme.RUDE: _rude,
    Theme.LOCKED: _locked,
    Theme.BACKLOG: _backlog,
    Theme.FAILOVER: failing_over,
    Theme.SILENT: _silent,
    Theme.DEAF: _deaf,
    Theme.LEAVING: _leaving,
    Theme.RETURNING: _returning,
    Theme.CHAINS: chains,
    Theme.WAITING: waiting,
    Theme.RECOVERY: _recovery,
    Theme.CANCELLING: cancelling,
    Theme.PHASES: phased,
    Theme.PLANS: planned,
    Theme.GATES: at_gates,
}
