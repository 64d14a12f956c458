"""Plans of histories about schedules, through deploys, and about pauses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue import Fixed, Retry
from tests.simulation.drawing import LEASE, draw_events, draw_job, plain
from tests.simulation.plan import (
    Act,
    Blow,
    Event,
    Kind,
    Link,
    Plan,
    PlannedAct,
    PlannedDeploy,
    PlannedJob,
    PlannedSchedule,
    Step,
)

if TYPE_CHECKING:
    import random

_NAMES = ("a", "b", "c")
_BLOWS: tuple[Blow, ...] = ("kill", "kill", "freeze", "freeze", "cut", "cut_all", "stop", "stop", "stop_twice", "force", "lock")
_ACTS: tuple[Act, ...] = (
    *("pause_all", "pause_type", "pause_type", "pause_key", "pause_key", "pause_key"),
    *("resume_all", "resume_type", "resume_key", "resume_key"),
    *("pause_schedule", "pause_schedule", "resume_schedule", "resume_schedule", "run_now", "run_now", "put", "put", "delete"),
)
_VALUES = {"type": ("ticked", "ticked", "link", "in_loop"), "key": ("k", "k", "chain 0")}


def _schedule(chance: random.Random, name: str) -> PlannedSchedule:
    return PlannedSchedule(
        name=name,
        every=chance.choice([1.0, 1.5, 2.0, 3.0, 5.0]),
        seconds=chance.choice([0.0, 0.2, 1.0, 4.0]),
        catch_up=chance.choice(["latest", "latest", "latest", "none", "all"]),
        grace=chance.choice([3600.0, 3600.0, 2.0]),
        overlap=chance.choice(["allow", "skip"]),
        key=chance.choice([None, "k"]),
    )


def _deploys(chance: random.Random) -> tuple[PlannedDeploy, ...]:
    """The first at once, each further one with some of its schedules as before, some changed, some new, some gone."""
    schedules = {name: _schedule(chance, name) for name in _NAMES if chance.random() < 0.6}
    numbered = chance.random() < 0.3
    deploys = [PlannedDeploy(0.0, tuple(schedules.values()), 1 if numbered else None)]
    for number in range(chance.randint(0, 2)):
        for name in _NAMES:
            fate = chance.random()
            if fate < 0.3:
                schedules[name] = _schedule(chance, name)
            elif fate < 0.5:
                schedules.pop(name, None)
            elif fate < 0.6 and name in schedules:
                schedules[name] = replace(schedules[name], seconds=0.1, overlap="skip")
        release = number + 2 if numbered else None
        deploys.append(PlannedDeploy(4.0 + 9.0 * number + chance.uniform(0, 4), tuple(schedules.values()), release))
    return tuple(deploys)


def _act(chance: random.Random, until: float) -> PlannedAct:
    act: Act = chance.choice(_ACTS)
    return PlannedAct(
        at=chance.uniform(0.5, until),
        act=act,
        which=chance.randrange(12),
        value=chance.choice(_VALUES.get(act.rpartition("_")[2], ("",))),
        until=chance.choice([None, None, chance.uniform(1, 8)]),
        schedule=_schedule(chance, "extra") if act == "put" else None,
    )


def planned(chance: random.Random, plan: Plan) -> Plan:
    """Schedules of a few seconds, on workers that are deployed anew, and pauses, between crashes and lost answers."""

    def job() -> PlannedJob:
        steps = tuple(Step(chance.choice(["return", "raise"]), chance.uniform(0, 3), 0.1) for _ in range(2))
        kind: Kind = chance.choice(["in_loop", "link"])
        return plain(
            draw_job(chance, plan.calm_at),
            steps,
            kind=kind,
            links=tuple(Link("link", (), None) for _ in range(2 if kind == "link" else 0)),
            at=chance.uniform(0, 15),
            retry=Retry(max_attempts=5, backoff=Fixed(0.5)),
        )

    calm_at, deploys, processes = 28.0, _deploys(chance), chance.choice([1, 2, 2, 3])
    rolled = [
        Event(deploy.at + chance.uniform(0, 5), "stop", chance.randrange(12), chance.uniform(0.1, 2), same_name=False)
        for deploy in deploys[1:]
        for _ in range(processes)
    ]
    return replace(
        plan,
        jobs=tuple(job() for _ in range(chance.randint(0, 3))),
        deploys=deploys,
        acts=tuple(_act(chance, calm_at - 3) for _ in range(chance.randint(0, 9))),
        events=(*rolled, *draw_events(chance, (0, 5), 25.0, _BLOWS, 0.5, LEASE * 1.5)),
        faults=replace(
            plan.faults,
            request_lost=chance.choice([0.0, 0.05, 0.2]),
            answer_lost=chance.choice([0.0, 0.05, 0.2]),
            late=chance.choice([0.0, 0.9]),
            notification_lost=chance.choice([0.0, 0.2, 1.0]),
            slowest=chance.choice([0.01, 0.05, 0.3]),
        ),
        processes=processes,
        calm_at=calm_at,
    )
