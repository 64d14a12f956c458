"""Calls as plans have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.jobs import JOB_TYPES
from tests.simulation.plan import CHAIN_KINDS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from aioqueue import Call
    from tests.simulation.plan import PlannedJob

__all__ = ["planned_call"]


async def planned_call(index: int, job: PlannedJob, handles: Sequence[asyncio.Future[Any]]) -> Call[str]:
    """Make the call of a planned job, once those are enqueued for which it waits.

    Arguments:
        index: Its number in the plan.
        job: What is planned.
        handles: Of all jobs of the plan.
    """
    chained = job.kind in CHAIN_KINDS
    arguments: list[Any] = [index, 0] if chained else [index]
    if job.kind == "waits":
        blockers = [(await handles[each.index], each.settled) for each in job.waits]
        arguments.append([handle.output for handle, settled in blockers if not settled])
        arguments.append([handle.settled for handle, settled in blockers if settled])
    if job.tenant:
        arguments.append(job.tenant)
    call: Call[str] = JOB_TYPES[job.kind](*arguments).options(priority=job.priority)
    if chained:
        call = call.options(key=f"chain {index}", unique=True)
    elif job.key is not None:
        call = call.options(key=job.key)
    if job.kind != "rude":
        call = call.options(retry=job.retry)
    for option in ("timeout", "delay", "expires", "sequence"):
        if (value := getattr(job, option)) is not None:
            call = call.options(**{option: value})
    return call
