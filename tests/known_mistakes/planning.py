"""Workers that make mistakes with schedules."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from aioqueue.worker import _schedules
from aioqueue.worker._schedules import Schedules
from aioqueue.worker._schedules_put_off import PutOff
from tests.known_mistakes.mistake import Mistake, instead_of
from tests.simulation.plan import Theme
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioqueue.definitions._due_ticks import DueTicks
    from aioqueue.vocabulary._schedules import Tick

__all__ = ["WORKERS_PLANS"]


def _passes_over(real: Callable[..., DueTicks], *arguments: Any) -> DueTicks:
    return replace(real(*arguments), skipped=())


def _only_the_next(real: Callable[..., DueTicks], *arguments: Any) -> DueTicks:
    """What was missed is left alone, as if nobody had wanted it."""
    due = real(*arguments)
    return replace(due, nominal_times=(), skipped=()) if due.skipped else due


def _never_alone(real: Callable[..., Tick], *arguments: Any) -> Tick:
    return replace(real(*arguments), alone=False)


def _a_little_early(real: Callable[..., DueTicks], schedule: Any, now: Any) -> DueTicks:
    """By a clock of its own, which is three seconds ahead."""
    return real(schedule, now + timedelta(seconds=3))


WORKERS_PLANS: dict[str, Mistake] = {
    "a worker that passes over missed ticks": Mistake(
        (instead_of(_schedules, "work_out", _passes_over),), breaks=Promise.NO_TICK_LOST, theme=Theme.PLANS
    ),
    "a worker that makes up for no tick": Mistake(
        (instead_of(_schedules, "work_out", _only_the_next),), breaks=Promise.NO_TICK_LOST, theme=Theme.PLANS
    ),
    "a worker that enqueues beside the tick before": Mistake(
        (instead_of(_schedules, "tick_of", _never_alone),), breaks=Promise.OVERLAP, theme=Theme.PLANS
    ),
    "a worker that looks for no ticks": Mistake(
        ((Schedules, "_look_at", lambda _: math.inf),), breaks=Promise.TICKS_IN_TIME, theme=Theme.PLANS
    ),
    "a worker that leaves a schedule alone that has failed once": Mistake(
        ((PutOff, "waiting", lambda put_off: list(put_off._entries)),), breaks=Promise.TICKS_IN_TIME, theme=Theme.PLANS
    ),
    "a worker that decides ticks before their time": Mistake(
        (instead_of(_schedules, "work_out", _a_little_early),), breaks=Promise.NOT_BEFORE_TICK, theme=Theme.PLANS
    ),
}
