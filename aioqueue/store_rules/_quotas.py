"""What room the quotas of a claim leave, while it takes one job after the other. No I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.vocabulary._quota import Quota

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Rooms", "narrowed"]


class Rooms:
    """The room that is left of quotas.

    Arguments:
        quotas: As of `aioqueue.abc.Store.claim`.
    """

    def __init__(self, quotas: Sequence[Quota]) -> None:
        self._types = [quota.types for quota in quotas]
        self._left = [quota.jobs for quota in quotas]
        self._of_type = {name: place for place, quota in enumerate(quotas) for name in quota.types}

    def has_room(self, job_type: str) -> bool:
        """Whether one more job of this type may be taken."""
        place = self._of_type.get(job_type)
        return place is None or self._left[place] > 0

    def fill(self, types: Iterable[str]) -> None:
        """Take room for jobs of these types, one each."""
        if self._of_type:
            for name in types:
                if (place := self._of_type.get(name)) is not None:
                    self._left[place] -= 1

    def left(self) -> list[Quota]:
        """The quotas for what else is taken. Those without any room say 0."""
        return [Quota(types, max(0, left)) for types, left in zip(self._types, self._left, strict=True)]


def narrowed(quotas: Sequence[Quota], most: Mapping[str, int]) -> Sequence[Quota]:
    """Quotas by which no more than so many jobs of each of these types are taken."""
    if not most:
        return quotas
    narrow = [replace(quota, jobs=min([quota.jobs, *(most[name] for name in quota.types if name in most)])) for quota in quotas]
    known = {name for quota in quotas for name in quota.types}
    return [*narrow, *(Quota(frozenset([name]), jobs) for name, jobs in most.items() if name not in known)]
