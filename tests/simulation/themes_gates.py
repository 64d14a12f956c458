"""Plans of histories about limits, rates, sequences and turns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue import Fixed, InSequence, Retry
from tests.simulation.drawing import LEASE, QUIET, draw_events, draw_job, plain
from tests.simulation.plan import CHAIN_KINDS, Act, Blow, Deed, Kind, Link, Plan, PlannedAct, PlannedJob, Step

if TYPE_CHECKING:
    import random

_KINDS: tuple[Kind, ...] = ("limited", "limited", "twice_limited", "rated", "fair", "in_loop", "link", "gated_link")
_DEEDS: tuple[Deed, ...] = ("return", "return", "raise", "fail", "retry", "reschedule", "unwilling")
_BLOWS: tuple[Blow, ...] = ("kill", "kill", "freeze", "cut", "cut_all", "stop", "stop_twice", "force", "lock", "forget")
_TENANTS = ("x", "y")
SEQUENCES = ("s", "t")
_LIMITS = ("stripe", "stripe", "job:limited", "job:twice_limited")
_TYPES = ("limited", "twice_limited", "rated", "fair", "gated_link")
_ACTS: tuple[Act, ...] = (
    *("limit", "limit", "limit", "rate", "unlimit", "go_on", "pause_type", "pause_key", "resume_type", "resume_key"),
    *("job_now", "job_now", "job_later", "job_later", "job_retry", "job_retry", "job_delete", "job_delete"),
)


def _act(chance: random.Random, until: float) -> PlannedAct:
    act: Act = chance.choice(_ACTS)
    values = {
        "limit": _LIMITS,
        "unlimit": (*_LIMITS, "rate:rated"),
        "go_on": SEQUENCES,
        "pause_type": _TYPES,
        "resume_type": _TYPES,
        "pause_key": ("k",),
        "resume_key": ("k",),
    }.get(act, ("",))
    return PlannedAct(
        at=chance.uniform(0.5, until),
        act=act,
        which=chance.randrange(100),
        value=chance.choice(values),
        until=None,
        schedule=None,
        number=chance.randint(0, 3),
    )


def _job(chance: random.Random, plan: Plan, until: float) -> PlannedJob:
    kind: Kind = chance.choice(_KINDS)
    chained = kind in CHAIN_KINDS
    steps = tuple(Step(chance.choice(_DEEDS), chance.uniform(0, 3), chance.uniform(0.1, 2)) for _ in range(2))
    in_sequence = chance.random() < 0.6
    strict, block = chance.random() < 0.4, chance.random() < 0.3
    return plain(
        draw_job(chance, plan.calm_at),
        steps,
        kind=kind,
        links=tuple(Link(chance.choice(["link", "gated_link"]), (), None) for _ in range(2 if chained else 0)),
        at=chance.uniform(0, until),
        retry=Retry(max_attempts=3, backoff=Fixed(chance.choice([0.2, 2.0]))),
        delay=chance.choice([None, None, None, chance.uniform(0, 3)]),
        expires=chance.choice([*[None] * 7, chance.uniform(0.5, 5)]),
        asked=(chance.uniform(0, 5),) if chance.random() < 0.15 else (),
        tenant=chance.choice(_TENANTS) if kind in {"limited", "twice_limited", "rated", "fair"} else "",
        key=chance.choice([None, None, "k"]),
        sequence=InSequence(chance.choice(SEQUENCES), strict=strict, on_failure="block" if block else "continue")
        if in_sequence
        else None,
    )


def at_gates(chance: random.Random, plan: Plan) -> Plan:
    """Jobs at all kinds of gates, that end in all ways, and operators; in half of the histories nothing else goes wrong."""
    quiet, calm_at = chance.random() < 0.5, 20.0
    faults = replace(
        plan.faults,
        request_lost=chance.choice([0.0, 0.05]),
        answer_lost=chance.choice([0.0, 0.05]),
        late=0.0,
        notification_lost=chance.choice([0.0, 0.2, 1.0]),
        slowest=chance.choice([0.01, 0.05]),
    )
    first = PlannedAct(0.0, "limit", 0, "stripe", None, None, chance.randint(1, 3))
    return replace(
        plan,
        jobs=tuple(_job(chance, plan, 8.0) for _ in range(chance.randint(8, 20))),
        acts=(first, *(_act(chance, calm_at - 4) for _ in range(chance.randint(2, 16)))),
        events=() if quiet else draw_events(chance, (0, 5), calm_at - 2, _BLOWS, 0.5, LEASE * 1.5),
        faults=QUIET if quiet else faults,
        starved=0.0,
        processes=chance.choice([1, 2, 2, 3]),
        workers=1,
        concurrency=chance.randint(2, 4),
        calm_at=calm_at,
        quiet=quiet,
    )
