"""Job types of which one worker runs fewer at once than it has slots: `concurrency=` of a type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.vocabulary._quota import Quota

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aioqueue.definitions._job_type import JobType
    from aioqueue.worker._holdings import Holdings

__all__ = ["TypeConcurrency"]


class TypeConcurrency:
    """Knows how many jobs of which types may be claimed besides those that run.

    Arguments:
        names: Of the types that the worker claims, aliases too.
        types: By name and alias.
        holdings: What the worker runs.
    """

    def __init__(self, names: Sequence[str], types: Mapping[str, JobType[..., Any, Any]], holdings: Holdings) -> None:
        self._holdings = holdings
        own = {types[name] for name in names if types[name].concurrency is not None}
        self._limits = [
            Quota(frozenset(name for name in names if types[name] is job_type), job_type.concurrency)
            for job_type in own
            if job_type.concurrency is not None
        ]

    def quotas(self) -> list[Quota]:
        """How many more may run, of each type that says how many may; 0 where there's no room."""
        if not self._limits:
            return []
        running = [slot.job.type for slot in self._holdings.running.values()]
        return [Quota(each.types, max(0, each.jobs - sum(name in each.types for name in running))) for each in self._limits]

    def claimable(self, names: Iterable[str]) -> tuple[tuple[str, ...], list[Quota]]:
        """Of types, those of which at least one more job may run; and how many, of those that say so."""
        quotas = self.quotas()
        if not quotas:
            return tuple(names), []
        full = {name for quota in quotas if quota.jobs == 0 for name in quota.types}
        return tuple(name for name in names if name not in full), [quota for quota in quotas if quota.jobs > 0]
