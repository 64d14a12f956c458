"""States of a registry's code: the same jobs, and other schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue import Fixed, Registry, Retry
from tests.simulation.jobs import gated, registry, ticked
from tests.simulation.plan import Theme

if TYPE_CHECKING:
    from aioqueue import Call
    from tests.simulation.plan import Plan, PlannedSchedule

__all__ = ["call_of", "deployed"]


def call_of(each: PlannedSchedule, code: int) -> Call[str]:
    """What a schedule enqueues; it says which state of the code defines it."""
    call = ticked(each.name, code, each.seconds).options(retry=Retry(max_attempts=4, backoff=Fixed(0.5)))
    return call if each.key is None else call.options(key=each.key)


def deployed(plan: Plan, now: float) -> tuple[Registry, int | None]:
    """The registry that workers serve which are started now, and the number of its release."""
    if plan.theme is Theme.GATES:
        return gated, None
    number = sum(each.at <= now for each in plan.deploys) - 1
    if number < 0:
        return registry, None
    deploy = plan.deploys[number]
    made = Registry(name="shop")
    made.include(registry)
    for each in deploy.schedules:
        made.schedule(call_of(each, number), name=each.name, **each.options)
    return made, deploy.release
