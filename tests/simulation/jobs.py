"""The job types of histories. Their handlers are those of whichever history is going on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue import Call, Completed, Failed, Limit, Rate, Registry
from tests.simulation.handlers import going_on
from tests.simulation.phases import PHASES
from tests.simulation.rude import POLICY

if TYPE_CHECKING:
    from tests.simulation.plan import Kind

__all__ = ["JOB_TYPES", "gated", "gates_of", "registry", "ticked"]

SHORT_LEASE = 4.0

registry = Registry()
gated = Registry()
"""Those of histories about gates. The limit of those that share one is put by operators."""


@registry.job(name="in_loop")
async def in_loop(index: int) -> str:
    return await going_on[-1].run_in_loop(index)


@registry.job(name="in_thread")
def in_thread(index: int) -> str:
    return going_on[-1].run_in_thread(index)


@registry.job(name="rude", retry=POLICY)
async def rude(index: int) -> str:
    return await going_on[-1].run_in_loop(index)


@registry.job(name="short", lease=SHORT_LEASE)
async def short(index: int) -> str:
    return await going_on[-1].run_in_loop(index)


@registry.job(name="link")
async def link(index: int, place: int) -> Call[str]:
    handlers = going_on[-1]
    return handlers.followed(index, place, await handlers.run_in_loop(index, place))


@registry.job(name="link_in_thread")
def link_in_thread(index: int, place: int) -> Call[str]:
    handlers = going_on[-1]
    return handlers.followed(index, place, handlers.run_in_thread(index, place))


@registry.job(name="short_link", lease=SHORT_LEASE)
async def short_link(index: int, place: int) -> Call[str]:
    handlers = going_on[-1]
    return handlers.followed(index, place, await handlers.run_in_loop(index, place))


@registry.job(name="waits")
async def waits(index: int, outputs: list[str], ends: list[Completed[str] | Failed]) -> str:
    assert all(isinstance(each, str) for each in outputs)
    assert all(isinstance(each, Completed | Failed) for each in ends)
    return await going_on[-1].run_in_loop(index)


@registry.job(name="child")
async def child(index: int) -> str:
    return going_on[-1].run_child(index)


@registry.job(name="ticked")
async def ticked(schedule: str, code: int, seconds: float) -> str:
    """Of some state of the code."""
    del schedule, code
    return await going_on[-1].run_ticked(seconds)


@registry.job(name="phased", phases=PHASES)
async def phased(index: int) -> str:
    return await going_on[-1].run_phased(index)


@registry.declare(name="asked")
async def asked(index: int) -> str: ...


@gated.job(name="limited", limit=Limit(2, by="tenant"))
async def limited(index: int, tenant: str) -> str:
    del tenant
    return await going_on[-1].run_in_loop(index)


@gated.job(name="twice_limited", limit=(Limit(2, by="tenant"), "stripe"))
async def twice_limited(index: int, tenant: str) -> str:
    del tenant
    return await going_on[-1].run_in_loop(index)


@gated.job(name="rated", rate=Rate(3, per=6.0, burst=2), limit="stripe")
async def rated(index: int, tenant: str) -> str:
    del tenant
    return await going_on[-1].run_in_loop(index)


@gated.job(name="fair", fairness_by="tenant", limit="stripe")
async def fair(index: int, tenant: str) -> str:
    del tenant
    return await going_on[-1].run_in_loop(index)


@gated.job(name="gated_link", limit="stripe")
async def gated_link(index: int, place: int) -> Call[str]:
    handlers = going_on[-1]
    return handlers.followed(index, place, await handlers.run_in_loop(index, place))


def gates_of(job_type: str, tenant: str) -> tuple[str, ...]:
    """The limits and rates at which a job must wait, whatever the product says."""
    own = f'="{tenant}"'
    return {
        "limited": (f"job:limited{own}",),
        "twice_limited": (f"job:twice_limited{own}", "stripe"),
        "rated": ("rate:rated", "stripe"),
        "fair": ("stripe",),
        "gated_link": ("stripe",),
    }.get(job_type, ())


gated.include(registry)

JOB_TYPES: dict[Kind, Any] = {
    "in_loop": in_loop,
    "in_thread": in_thread,
    "rude": rude,
    "short": short,
    "link": link,
    "link_in_thread": link_in_thread,
    "short_link": short_link,
    "waits": waits,
    "asked": asked,
    "child": child,
    "phased": phased,
    "limited": limited,
    "twice_limited": twice_limited,
    "rated": rated,
    "fair": fair,
    "gated_link": gated_link,
}
