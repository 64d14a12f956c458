"""Watches schedules: each tick is decided once, none is lost, nothing paused ticks, and the newest code says what there is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from aioqueue.store_rules._schedules import OVERLAPPED
from aioqueue.vocabulary._schedule_template import decode_template
from aioqueue.vocabulary._schedules import TickOutcome
from tests.simulation.promises import Promise
from tests.simulation.scheduler import START

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from aioqueue.vocabulary._job import NewJob
    from aioqueue.vocabulary._schedules import DecidedTick, Generation, NewSchedule, Reconciled, Tick, Ticked
    from tests.simulation.account import Book, Truth

__all__ = ["ScheduleChecker"]

_EPOCH = datetime.fromtimestamp(START, UTC)
_IN_TIME = 15.0
"""Seconds after its nominal time within which a tick is decided, while nothing goes wrong."""
_GRACE_OF_NONE = 60.0


@dataclass
class Known:
    """One schedule.

    Attributes:
        anchor: From which its ticks are counted: the first is 1.
        through: The number of the newest tick that was decided, or doesn't count.
        chain: Of the newest tick that was enqueued.
    """

    definition: NewSchedule
    anchor: datetime
    through: int = 0
    paused: bool = False
    chain: UUID | None = None

    @property
    def every(self) -> timedelta:
        return timedelta(seconds=self.definition.every or 0.0)

    def at(self, number: int) -> datetime:
        """The nominal time of a tick."""
        return self.anchor + number * self.every

    def number(self, at: datetime | None) -> int | None:
        """Which tick has this nominal time; None if none has."""
        number = 0 if at is None else round((at - self.anchor) / self.every)
        return number if number > 0 and self.at(number) == at else None


class ScheduleChecker:
    """See the module.

    Arguments:
        book: The account.
        last: Gives the live or last step of a chain.

    Attributes:
        call_it: Gives a tick's job its name.
        calm_since: Gives the time from which nothing has gone wrong any more; infinite before.
    """

    def __init__(self, book: Book, last: Callable[[UUID], Truth | None]) -> None:
        self._book = book
        self._require = book.require
        self._last = last
        self._known: dict[str, Known] = {}
        self._enqueued: set[tuple[str, datetime]] = set()
        self._generations: dict[tuple[str, int | None], tuple[int, float]] = {}
        self.call_it: Callable[[UUID, str], None] = lambda job_id, name: None
        self.calm_since: Callable[[], float] = lambda: float("inf")

    def _now(self) -> datetime:
        return _EPOCH + timedelta(seconds=self._book.now())

    # -- what there is ------------------------------------------------------------------------------------------------

    def put(self, schedules: Sequence[NewSchedule]) -> None:
        """Somebody has stored schedules."""
        for new in schedules:
            self._book.note(f"schedule {new.name} is put")
            self._put(new)

    def _put(self, new: NewSchedule) -> None:
        known = self._known.get(new.name)
        if known is None:
            self._known[new.name] = Known(new, self._now())
        elif known.definition.timing != new.timing:
            self._known[new.name] = Known(new, self._now(), paused=known.paused, chain=known.chain)
        else:
            known.definition = new

    def reconciled(self, generation: Generation, schedules: Sequence[NewSchedule], live: float, said: Reconciled) -> None:
        """A worker has said what its code schedules."""
        now, mine = self._book.now(), (generation.digest, generation.release)
        place, _ = self._generations.get(mine, (len(self._generations) + 1, 0.0))
        self._generations[mine] = (place, now + live)
        newest = max((each for each, (_, until) in self._generations.items() if until > now), key=self._order)
        what = f"generation {place} is {'current' if said.current else 'superseded'}"
        self._book.note(f"{what}; changed: {', '.join(said.changed)}; removed: {', '.join(said.removed)}")
        right = said.current == (newest == mine)
        self._require(Promise.ONE_GENERATION, right, f"{what}, and the newest that lives is {self._generations[newest][0]}")
        if not said.current:
            return
        for new in schedules:
            if new.name not in self._known or self._known[new.name].definition.owner == generation.owner:
                self._put(new)
        names = {new.name for new in schedules}
        for name in [name for name, known in self._known.items() if known.definition.owner == generation.owner]:
            if name not in names:
                del self._known[name]

    def _order(self, each: tuple[str, int | None]) -> tuple[bool, int]:
        release = each[1]
        return release is not None, self._generations[each][0] if release is None else release

    def paused(self, names: Sequence[str]) -> None:
        """Somebody has paused schedules."""
        for name in names:
            if name in self._known:
                self._book.note(f"schedule {name} is paused")
                self._known[name].paused = True

    def resumed(self, names: Sequence[str]) -> None:
        """Somebody has resumed schedules: what was due before doesn't count."""
        for name in names:
            known = self._known.get(name)
            if known is not None and known.paused:
                self._book.note(f"schedule {name} is resumed")
                known.paused, known.through = False, max(known.through, (self._now() - known.anchor) // known.every)

    def deleted(self, names: Sequence[str]) -> None:
        """Somebody has deleted schedules."""
        for name in names:
            self._book.note(f"schedule {name} is deleted")
            self._known.pop(name, None)

    # -- ticks --------------------------------------------------------------------------------------------------------

    def inserted(self, new: NewJob) -> None:
        """The job of a tick was stored."""
        if new.origin is None or new.origin.schedule is None or new.origin.nominal_time is None:
            return
        of_tick = new.origin.schedule, new.origin.nominal_time
        name = f"{of_tick[0]} at {(of_tick[1] - _EPOCH).total_seconds():.3f}"
        self.call_it(new.id, name)
        self._require(Promise.ONCE_A_TICK, of_tick not in self._enqueued, f"{name} is enqueued twice")
        self._enqueued.add(of_tick)

    def ticked(self, ticks: Sequence[Tick], results: Sequence[Ticked]) -> None:
        """Ticks were decided, or not."""
        for tick, result in zip(ticks, results, strict=True):
            if result.decided:
                self._decided(tick, result.ticks)

    def _decided(self, tick: Tick, ticks: Sequence[DecidedTick]) -> None:
        known, what = self._known.get(tick.name), f"a tick of {tick.name}"
        said = ", ".join(f"{each.outcome.name} {(each.nominal_time - _EPOCH).total_seconds():.3f}" for each in ticks)
        self._book.note(f"schedule {tick.name}{', by hand' if tick.by_hand else ''}: {said or 'worked out'}")
        self._require(Promise.CURRENT_CODE, known is not None, f"{what} was decided, and there's no such schedule")
        if known is None:
            return
        for new in tick.jobs:
            template = decode_template(known.definition.template, new.id, None)
            self._require(Promise.CURRENT_CODE, new.payload == template.payload, f"{what} is of another definition")
        if not tick.by_hand:
            self._require(Promise.NOT_PAUSED, not known.paused, f"{what} was decided, and it's paused")
            self._look_at_overlap(known, tick, ticks, what)
            self._move_on(known, tick, ticks, what)
        known.chain = next((each.chain_id for each in reversed(ticks) if each.chain_id is not None), known.chain)

    def _look_at_overlap(self, known: Known, tick: Tick, ticks: Sequence[DecidedTick], what: str) -> None:
        last = None if known.chain is None else self._last(known.chain)
        lives = last is not None and last.ended is None
        for each in ticks[: len(tick.jobs)]:
            overlapped = each.reason == OVERLAPPED
            right = overlapped == (lives and known.definition.overlap == "skip")
            self._require(Promise.OVERLAP, right, f"{what} is {each.outcome.name}, and the one before is {lives and 'live'}")
            lives = lives or each.chain_id is not None

    def _move_on(self, known: Known, tick: Tick, ticks: Sequence[DecidedTick], what: str) -> None:
        numbers = [known.number(each.nominal_time) for each in ticks]
        for number, each in zip(numbers, ticks, strict=True):
            at = f"{(each.nominal_time - _EPOCH).total_seconds():.3f}"
            self._require(Promise.ONCE_A_TICK, number is not None, f"{what} at {at} is none of its times")
            early = each.nominal_time > self._now()
            self._require(Promise.NOT_BEFORE_TICK, not early, f"{what} at {at} was decided before its time")
            again = number is not None and number <= known.through
            self._require(Promise.ONCE_A_TICK, not again, f"{what} at {at} was decided before, or doesn't count")
        following = known.number(tick.next_at)
        counted = known.through + sum(each.count for each in ticks) + 1
        self._require(
            Promise.NO_TICK_LOST, following == counted, f"{what}: tick {counted} comes next, and it goes on with {following}"
        )
        if following is None:
            return
        several = len(tick.jobs) > 1 and known.definition.catch_up != "all"
        self._require(Promise.NO_TICK_LOST, not several, f"{what}: {len(tick.jobs)} are enqueued at once")
        newest = [each for number, each in zip(numbers, ticks, strict=True) if number == following - 1]
        if newest and newest[0].outcome is TickOutcome.SKIPPED and newest[0].reason != OVERLAPPED:
            grace = _GRACE_OF_NONE if known.definition.catch_up == "none" else known.definition.grace
            late = known.definition.catch_up != "all" and (self._now() - newest[0].nominal_time).total_seconds() > grace
            self._require(Promise.NO_TICK_LOST, late, f"{what} was skipped: {newest[0].reason}, and it's within its grace")
        known.through = following - 1

    def look(self) -> None:
        """After each change: what is due was decided in time."""
        if self._book.violation is not None or (since := self.calm_since()) > self._book.now():
            return
        now, calm = self._now(), _EPOCH + timedelta(seconds=since)
        for known in self._known.values():
            at = known.at(known.through + 1)
            late = not known.paused and (now - max(at, calm)).total_seconds() > _IN_TIME
            text = f"a tick of {known.definition.name} at {(at - _EPOCH).total_seconds():.3f} isn't decided yet"
            self._require(Promise.TICKS_IN_TIME, not late, text)
