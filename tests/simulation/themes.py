"""Makes a plan of a seed. Each seed has a theme: some of the faults are frequent in it, others don't happen."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue import Exponential, Fixed, Linear, Retry
from tests.simulation.network import Faults
from tests.simulation.plan import CHAIN_KINDS, Blow, Deed, Event, Link, Plan, PlannedJob, Step, Theme, Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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

THEMES: tuple[Theme, ...] = (*[Theme.MIXED] * 4, *[Theme.ROUGH] * 2, *[each for each in Theme if each is not Theme.MIXED])
"""Taken in turns, seed by seed."""


def seeds_of(theme: Theme | None, count: int) -> Iterator[int]:
    """The first seeds of a theme, or of all."""
    fitting = (seed for seed in range(1_000_000) if theme is None or THEMES[seed % len(THEMES)] is theme)
    return (seed for seed, _ in zip(fitting, range(count), strict=False))


def plan_of(seed: int) -> Plan:
    """Make the plan of a seed."""
    theme = THEMES[seed % len(THEMES)]
    chance = random.Random(f"plan {seed}")
    return _THEMES[theme](chance, _mixed(seed, theme, chance))


def _mixed(seed: int, theme: Theme, chance: random.Random) -> Plan:
    calm_at = chance.uniform(15, 45)
    return Plan(
        seed=seed,
        theme=theme,
        jobs=tuple(_job(chance, calm_at) for _ in range(chance.randint(2, 7))),
        events=tuple(_event(chance, calm_at, BLOWS, 0.2, LEASE * 2.5) for _ in range(chance.randint(0, 5))),
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


def _job(chance: random.Random, calm_at: float) -> PlannedJob:
    return PlannedJob(
        at=chance.uniform(0, calm_at * 0.7),
        kind=chance.choice(["in_thread", "in_thread", "rude", "short", "short", *["in_loop"] * 5]),
        steps=tuple(_step(chance, DEEDS) for _ in range(chance.randint(0, 4))),
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


def _plain(job: PlannedJob, steps: tuple[Step, ...], **changed: object) -> PlannedJob:
    """The same, but simple: nothing about it is odd that isn't asked for."""
    simple = replace(job, kind="in_loop", steps=steps, timeout=None, delay=None, expires=None, refuses="")
    return replace(simple, **changed)


def _step(chance: random.Random, deeds: Sequence[Deed]) -> Step:
    longest = chance.choice([0.1, 2.0, 12.0])
    return Step(chance.choice(deeds), chance.uniform(0, longest), chance.uniform(0.1, chance.choice([1.0, 15.0])))


def _event(chance: random.Random, until: float, blows: Sequence[Blow], shortest: float, longest: float) -> Event:
    return Event(
        at=chance.uniform(0.1, until),
        blow=chance.choice(blows),
        victim=chance.randrange(12),
        seconds=chance.uniform(shortest, longest),
        same_name=chance.random() < 0.5,
    )


def _events(
    chance: random.Random, count: tuple[int, int], until: float, blows: Sequence[Blow], shortest: float, longest: float
) -> tuple[Event, ...]:
    return tuple(_event(chance, until, blows, shortest, longest) for _ in range(chance.randint(*count)))


_QUIET = Faults(request_lost=0.0, answer_lost=0.0, claim_answer_lost=0.0, late=0.0, notification_lost=0.0, slowest=0.01)


# -- the themes -------------------------------------------------------------------------------------------------------


def _rough(chance: random.Random, plan: Plan) -> Plan:
    deeds: tuple[Deed, ...] = ("return", "stubborn", "unwilling", "raise")
    blows: tuple[Blow, ...] = ("cut", "cut", "cut_all", "freeze", "freeze_all", "kill")

    def steps(count: int) -> tuple[Step, ...]:
        return tuple(Step(chance.choice(deeds), chance.uniform(3, 25), chance.uniform(1, 20)) for _ in range(count))

    return replace(
        plan,
        jobs=tuple(replace(job, steps=steps(len(job.steps)), timeout=None) for job in plan.jobs),
        events=_events(chance, (1, 5), plan.calm_at, blows, LEASE * 0.8, LEASE * 2.5),
    )


def _late(chance: random.Random, plan: Plan) -> Plan:
    deeds: tuple[Deed, ...] = ("raise", "retry", "reschedule", "return", "unwilling")

    def step() -> Step:
        return Step(chance.choice(deeds), chance.uniform(0, 2), chance.uniform(0.1, 2))

    return replace(
        plan,
        jobs=tuple(
            _plain(job, tuple(step() for _ in range(5)), retry=replace(job.retry, max_attempts=5), at=chance.uniform(0, 10))
            for job in plan.jobs
        ),
        events=_events(chance, (1, 4), plan.calm_at, ["stop", "stop", "stop_twice", "cancel", "cut"], 0.2, LEASE),
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
            _plain(_job(chance, plan.calm_at), steps(), at=chance.uniform(0, 12), retry=Retry(backoff=Fixed(0.1)))
            for _ in range(chance.randint(20, 30))
        ),
        events=(
            *_events(chance, (1, 3), 12.0, ["freeze"], lease, lease * 2),
            *_events(chance, (6, 14), 12.0, ["forget"], 0.0, 0.0),
        ),
        faults=replace(_QUIET, slowest=chance.choice([0.05, 0.3])),
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
                steps=tuple(_step(chance, deeds) for _ in range(chance.randint(1, 4))),
                refuses=chance.choice(["", "", "outcome", "all", "all"]),
            )
            for job in plan.jobs
        ),
        events=_events(chance, (0, 2), plan.calm_at, ["kill", "freeze", "stop"], 1.0, LEASE * 2),
        faults=replace(_QUIET, answer_lost=plan.faults.answer_lost),
    )


def _locked(chance: random.Random, plan: Plan) -> Plan:
    return replace(
        plan,
        jobs=tuple(
            _plain(job, tuple(_step(chance, ["return", "raise", "at_once"]) for _ in job.steps), delay=job.delay)
            for job in (_job(chance, plan.calm_at) for _ in range(chance.randint(4, 10)))
        ),
        events=(
            *_events(chance, (3, 8), plan.calm_at, ["lock"], 1.0, 25.0),
            *_events(chance, (0, 2), plan.calm_at, ["kill", "stop", "freeze"], 1.0, LEASE * 2),
        ),
        faults=replace(_QUIET, slowest=plan.faults.slowest),
    )


def _backlog(chance: random.Random, plan: Plan) -> Plan:
    return replace(
        plan,
        jobs=tuple(
            _plain(_job(chance, 2.0), (Step("return", chance.uniform(0, 0.6), 0.0),), at=chance.uniform(0, 15))
            for _ in range(chance.randint(25, 40))
        ),
        events=(),
        faults=replace(_QUIET, claim_answer_lost=0.2, slowest=0.3),
        starved=0.0,
        processes=chance.randint(1, 2),
        workers=1,
    )


def _failover(chance: random.Random, plan: Plan) -> Plan:
    return replace(
        plan,
        events=(
            Event(chance.uniform(3, 20), "failover", 0, chance.uniform(0.5, 20), same_name=False),
            *_events(chance, (0, 2), plan.calm_at, ["kill", "freeze", "stop"], 1.0, LEASE * 2),
        ),
        faults=replace(_QUIET, slowest=plan.faults.slowest),
        processes=chance.randint(2, 3),
    )


def _silent(chance: random.Random, plan: Plan) -> Plan:
    blows: tuple[Blow, ...] = ("silence", "silence", "silence", "silence_all")
    return replace(
        plan,
        jobs=tuple(
            _plain(job, (Step("return", chance.uniform(1, 25), 0.0),), kind=chance.choice(["in_loop", "in_loop", "short"]))
            for job in plan.jobs
        ),
        events=_events(chance, (1, 3), plan.calm_at, blows, LEASE * 0.5, LEASE * 3),
        faults=replace(_QUIET, slowest=plan.faults.slowest),
    )


def _deaf(chance: random.Random, plan: Plan) -> Plan:
    deeds: tuple[Deed, ...] = ("deaf", "hard_of_hearing", "hard_of_hearing", "return")

    def steps() -> tuple[Step, ...]:
        return tuple(Step(chance.choice(deeds), chance.uniform(1, 25), chance.uniform(20, 90)) for _ in range(2))

    return replace(
        plan,
        jobs=tuple(
            _plain(job, steps(), timeout=chance.choice([None, 2.0, 5.0]), at=chance.uniform(0, 10)) for job in plan.jobs
        ),
        events=(
            *_events(chance, (1, 3), plan.calm_at, ["stop", "stop", "stop_twice", "force"], 1.0, LEASE),
            *_events(chance, (0, 1), plan.calm_at, ["cut", "freeze"], LEASE, LEASE * 2),
        ),
        faults=replace(_QUIET, slowest=plan.faults.slowest),
    )


def _leaving(chance: random.Random, plan: Plan) -> Plan:
    away_at, away = chance.uniform(3, 20), chance.uniform(5, 20)
    return replace(
        plan,
        jobs=tuple(
            _plain(job, (Step("return", chance.uniform(1, 20), 0.0),) * 2, at=chance.uniform(0, 10)) for job in plan.jobs
        ),
        events=(
            Event(away_at, "cut_all", chance.randrange(2), away, same_name=False),
            *_events(chance, (1, 3), away_at + away, ["stop"], 1.0, 20.0),
        ),
        faults=replace(_QUIET, slowest=plan.faults.slowest),
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
            _event(chance, 1.0, ["freeze", "freeze", "cut"], LEASE * 0.7, LEASE * 1.05), at=6.0 + 10 * k + chance.uniform(0, 2)
        )
        for k in range(5)
    )
    return replace(
        plan,
        jobs=tuple(
            _plain(_job(chance, plan.calm_at), steps(), at=chance.uniform(0, 30), retry=Retry(backoff=Fixed(0.1)))
            for _ in range(chance.randint(6, 10))
        ),
        events=events,
        faults=replace(_QUIET, slowest=chance.choice([0.05, 0.3, 0.3])),
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
            replace(_plain(job, tuple(replace(step, deed="return", seconds=chance.uniform(2, 20)) for step in job.steps)))
            for job in plan.jobs
        ),
        events=(
            *_events(chance, (1, 4), calm_at / 2, blows, LEASE * 0.7, LEASE * 1.3),
            *_events(chance, (0, 2), calm_at / 2, ["sick"], 20.0, 60.0),
        ),
        faults=replace(_QUIET, slowest=plan.faults.slowest),
        processes=chance.choice([2, 2, 3, 4]),
        lease=chance.choice([LEASE, 2.5 * LEASE]),
        calm_at=calm_at,
    )


def _chains(chance: random.Random, plan: Plan) -> Plan:
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
        kinds = [chance.choice(CHAIN_KINDS)] if chance.random() < 0.5 else CHAIN_KINDS
        links = tuple(
            Link(chance.choice(kinds), steps(), chance.choice([None, None, None, chance.uniform(0, 3)]))
            for _ in range(chance.randint(0, 6))
        )
        return _plain(
            _job(chance, plan.calm_at),
            steps(),
            kind=chance.choice(kinds),
            links=links,
            at=chance.uniform(0, 15),
            retry=Retry(max_attempts=chance.choice([1, 2, 5, 10]), backoff=Fixed(chance.choice([0.1, 1.0]))),
            refuses=chance.choice(["next", "all", *[""] * 18]),
        )

    changed = replace(plan, jobs=tuple(chain() for _ in range(chance.randint(2, 6))), processes=chance.choice([1, 2, 2, 3]))
    if chance.random() < 0.15:
        return _failover(chance, changed)
    return replace(
        changed,
        events=_events(chance, (1, 6), plan.calm_at, blows, shortest, LEASE * 2.5),
        faults=replace(plan.faults, answer_lost=chance.choice([0.0, 0.05, 0.2]), late=chance.choice([0.3, 0.8])),
    )


def _waiting(chance: random.Random, plan: Plan) -> Plan:
    """Diamonds, fans and chains of jobs, of which some fail."""
    deeds: tuple[Deed, ...] = ("return", "return", "return", "return", "at_once", "raise", "fail")
    blows: tuple[Blow, ...] = ("kill", "kill", "freeze", "cut", "cut", "stop", "force", "lock", "lock")
    fails = chance.random() < 0.7

    def steps() -> tuple[Step, ...]:
        longest = chance.choice([0.1, 2.0, 6.0])
        return tuple(
            Step(chance.choice(deeds if fails else deeds[:5]), chance.uniform(0, longest), 0.1)
            for _ in range(chance.randint(0, 2))
        )

    def one(index: int) -> PlannedJob:
        before = chance.sample(range(index), min(index, chance.choice([0, 1, 1, 2, 2, 3])))
        waits = tuple(Wait(each, chance.random() < 0.3) for each in sorted(before))
        kind = "waits" if waits else chance.choice(["in_loop", "in_loop", "short", "link"])
        return _plain(
            _job(chance, plan.calm_at),
            steps(),
            kind=kind,
            waits=waits,
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
        events=_events(chance, (0, 4), 20.0, blows, 0.5, LEASE * 1.3),
        faults=replace(plan.faults, answer_lost=chance.choice([0.0, 0.05, 0.1]), slowest=chance.choice([0.01, 0.05, 0.3])),
        processes=chance.choice([1, 2, 2, 3]),
        concurrency=chance.randint(1, 4),
        calm_at=25.0,
    )


_THEMES: dict[Theme, Callable[[random.Random, Plan], Plan]] = {
    Theme.MIXED: lambda _, plan: plan,
    Theme.ROUGH: _rough,
    Theme.LATE: _late,
    Theme.FROZEN: _frozen,
    Theme.RUDE: _rude,
    Theme.LOCKED: _locked,
    Theme.BACKLOG: _backlog,
    Theme.FAILOVER: _failover,
    Theme.SILENT: _silent,
    Theme.DEAF: _deaf,
    Theme.LEAVING: _leaving,
    Theme.RETURNING: _returning,
    Theme.CHAINS: _chains,
    Theme.WAITING: _waiting,
    Theme.RECOVERY: _recovery,
}
