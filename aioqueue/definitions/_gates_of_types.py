"""At which gates the jobs of a registry wait, and which limits its code defines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.definitions._gates import check_rate
from aioqueue.vocabulary._gates import JOB_LIMIT, RATE, LimitKind, NewLimit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioqueue.definitions._gates import Rate
    from aioqueue.definitions._job_type import JobType
    from aioqueue.vocabulary._gates import GateRules

__all__ = ["gate_rules", "limits_of", "new_rate"]


def gate_rules(types: Mapping[str, JobType[..., Any, Any]]) -> dict[str, GateRules]:
    """The rules of those types that have any: what claims are told.

    Arguments:
        types: By name and alias, as `Registry.types` and `Registry.runnable` give them.

    Returns:
        By the same names. What is stored under an alias waits at the gates of its type's present name.
    """
    return {name: each.gate_rules for name, each in types.items() if each.gate_rules is not None}


def limits_of(types: Mapping[str, JobType[..., Any, Any]]) -> list[NewLimit]:
    """The limits and rates that types define for themselves, by name. Shared limits are defined at run time alone.

    Arguments:
        types: As of `gate_rules`.
    """
    limits: dict[str, NewLimit] = {}
    for each in types.values():
        own, rate = each.own_limit, each.rate
        if own is not None:
            limits[JOB_LIMIT + each.name] = NewLimit(name=JOB_LIMIT + each.name, places=own.places)
        if rate is not None:
            limits[RATE + each.name] = new_rate(each.name, rate)
    return [limits[name] for name in sorted(limits)]


def new_rate(name: str, rate: Rate) -> NewLimit:
    """The limit that a rate is, of the type of this name."""
    per, burst = check_rate(rate.starts, rate.per, rate.burst)
    return NewLimit(name=RATE + name, kind=LimitKind.STARTS, places=rate.starts, per=per, burst=burst)
