"""The queue in numbers, as `Store.stats` and `Client.stats` give them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioqueue.vocabulary._job import JobState

__all__ = ["Stats", "TypeStats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeStats:
    """How many jobs of one type there are, by state as people see it.

    Attributes:
        counts: Every state that occurs.
        capped: The states whose number is at least the one shown: counting stops at 10,000.
        oldest_ready: Seconds that the oldest job has been due for that is ready, or waits for its turn (`fairness_by`); None
            without one.
    """

    counts: Mapping[JobState, int]
    capped: frozenset[JobState] = frozenset()
    oldest_ready: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """The whole queue in numbers.

    Attributes:
        types: By type name.
        workers: Names of the workers that hold a valid lease, one for each: two of one name are there twice.
    """

    types: Mapping[str, TypeStats]
    workers: tuple[str, ...] = ()

    def of(self, *names: str) -> TypeStats:
        """The numbers of several names together, such as those of a type that was renamed: `(job_type.name,
        *job_type.aliases)`.
        """
        counts: dict[JobState, int] = {}
        found = [self.types[name] for name in names if name in self.types]
        for each in found:
            for state, count in each.counts.items():
                counts[state] = counts.get(state, 0) + count
        oldest = [each.oldest_ready for each in found if each.oldest_ready is not None]
        return TypeStats(
            counts=counts,
            capped=frozenset(state for each in found for state in each.capped),
            oldest_ready=max(oldest, default=None),
        )
