"""Which state of a registry's code says what its schedules are: all stores decide it alike, under a lock of the owner's.

Generations have an order: by their release numbers; those without one come before those with one, in the order in which they
were first seen. The current one is the newest of those that live workers have; where none lives that has another one, whoever
asks. So a rolling deploy goes from the old one to the new one once, whatever starts or starts again in between, and a rollback
comes about once the last worker of the newer code is gone; or at once, with a higher release number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._schedules import Generation

__all__ = ["KEPT_GENERATIONS", "Decision", "KnownGeneration", "decide"]

KEPT_GENERATIONS = 50
"""Of one owner; the ones that were live longest ago are forgotten, and would be new again."""


@dataclass(frozen=True, slots=True)
class KnownGeneration:
    """One generation as it's stored.

    Attributes:
        digest: Of its definitions.
        release: Its number; None without one.
        seen: When it was first seen, in the order of its owner's: from 1.
        live: Whether a worker has it, by the database's clock.
    """

    digest: str
    release: int | None
    seen: int
    live: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a generation that a worker has.

    Attributes:
        seen: Its place among its owner's.
        current: Whether its schedules are the ones that tick.
        refused: Whether its release number is that of other definitions: it isn't stored at all.
    """

    seen: int
    current: bool
    refused: bool = False


def decide(generation: Generation, known: Sequence[KnownGeneration]) -> Decision:
    """Decide about one, among all that its owner has."""
    same = [each for each in known if each.release == generation.release and each.digest == generation.digest]
    if not same and generation.release is not None and any(each.release == generation.release for each in known):
        return Decision(seen=0, current=False, refused=True)
    seen = same[0].seen if same else 1 + max((each.seen for each in known), default=0)
    place = _order(generation.release, seen)
    newer = any(each.live and _order(each.release, each.seen) > place for each in known)
    return Decision(seen=seen, current=not newer)


def _order(release: int | None, seen: int) -> tuple[int, int]:
    return (0, seen) if release is None else (1, release)
