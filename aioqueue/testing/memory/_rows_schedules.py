"""The rows of schedules, and of the states of code that define them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aioqueue.store_rules._generations import KEPT_GENERATIONS, KnownGeneration
from aioqueue.store_rules._schedules import KEPT_TICKS
from aioqueue.vocabulary._schedules import StoredSchedule, TickOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from aioqueue.vocabulary._schedules import DecidedTick, Generation

__all__ = ["GenerationRow", "Schedules", "with_ticks"]


@dataclass(slots=True)
class GenerationRow:
    """One state of a registry's code. `seen` is its place among its owner's, from 1."""

    digest: str
    release: int | None
    seen: int
    live_until: datetime


@dataclass(slots=True)
class Schedules:
    """What is kept of schedules.

    Attributes:
        rows: By name, each with its newest ticks.
        generations: By owner.
        stored: How many were new, so far.
    """

    rows: dict[str, StoredSchedule] = field(default_factory=dict[str, StoredSchedule])
    generations: dict[str, list[GenerationRow]] = field(default_factory=dict[str, list[GenerationRow]])
    stored: int = 0

    def known(self, owner: str, now: datetime) -> list[KnownGeneration]:
        """What is known of an owner's generations."""
        rows = self.generations.get(owner, [])
        return [KnownGeneration(row.digest, row.release, row.seen, live=row.live_until > now) for row in rows]

    def keep_alive(self, generation: Generation, seen: int, live_until: datetime) -> None:
        """Note that a worker has a generation, for the first time or again."""
        rows = [row for row in self.generations.get(generation.owner, []) if row.seen != seen]
        rows.append(GenerationRow(generation.digest, generation.release, seen, live_until))
        rows.sort(key=lambda row: row.live_until)
        self.generations[generation.owner] = rows[-KEPT_GENERATIONS:]


def with_ticks(stored: StoredSchedule, decided: Sequence[DecidedTick]) -> StoredSchedule:
    """A schedule with what became of further ticks, the newest of which are kept. What was enqueued before stays as it is."""
    ticks = {each.nominal_time: each for each in stored.ticks}
    for each in decided:
        there = ticks.get(each.nominal_time)
        if there is None or there.outcome is TickOutcome.SKIPPED:
            ticks[each.nominal_time] = each
    newest = sorted(ticks.values(), key=lambda each: each.nominal_time, reverse=True)
    return replace(stored, ticks=tuple(newest[:KEPT_TICKS]))
