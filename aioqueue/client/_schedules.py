"""Schedules at run time: `client.schedules`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, overload

from aioqueue.client._enqueue import check_call
from aioqueue.client._filters import check_limit
from aioqueue.client._handle import JobHandle
from aioqueue.client._named import NamedType, named_call
from aioqueue.client._pausing import read_by, read_reason
from aioqueue.client._schedule import ListedSchedules, shown_schedule
from aioqueue.definitions._due_ticks import job_of, tick_by_hand
from aioqueue.definitions._schedules import read_schedule, read_schedule_name, read_timing
from aioqueue.definitions._timing import timing_of, upcoming
from aioqueue.errors import ConfigurationError, NotSupported, ScheduleError, ScheduleNotFound, ScheduleOwned, StoreContended
from aioqueue.store_rules._schedules import OVERLAPPED
from aioqueue.vocabulary._abilities import SupportsSchedules
from aioqueue.vocabulary._safe_text import safe_repr, storable
from aioqueue.vocabulary._schedules import ScheduleChange, TickOutcome
from aioqueue.vocabulary._time import aware

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta
    from typing import Unpack

    from aioqueue.client._opened import Opened
    from aioqueue.client._schedule import Schedule
    from aioqueue.client._session import Session
    from aioqueue.definitions._call import Call
    from aioqueue.definitions._call_options import CallOptions
    from aioqueue.definitions._schedules import ScheduleOptions
    from aioqueue.vocabulary._schedules import DecidedTick, Overlap, StoredSchedule, Tick, Ticked

__all__ = ["Schedules"]

_TRIES = 5
_MOST_PREVIEWED = 1_000


class Schedules:
    """The schedules in a database: `client.schedules`. What changes them is so at once, for all workers.

    Those that code defines (`registry.schedule`) are here too, once a worker that serves the registry has run: they're looked
    at, paused, resumed and run by hand as others are, and changed and removed in the code. Nothing here takes `tx=`.

    Each method raises `NotSupported` where the store keeps no schedules, `StoreUnavailable` where the database can't be
    reached, `ClientClosed` where the client isn't open; and those that change something `OutsideTransaction` inside our own
    `transaction()` or `completion()`.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    async def put(self, name: str, call: Call[Any], **options: Unpack[ScheduleOptions]) -> Schedule:
        """Enqueue a call again and again, from now on; may be repeated: the same once more changes nothing.

        What is there with this name is changed. If that changes its timing, it begins anew: its next tick is the first one
        after now. A pause stays.

        Arguments:
            name: 1 to 200 characters, all of which can be seen.
            call: Of which each tick enqueues another, with an id of its own: with its options, but for `at=` and `id=`, and
                without outputs of other calls. Of a chain, the first.
            options: When its ticks are, and what becomes of those that were missed: `cron=` or `every=`, `timezone=`,
                `catch_up=`, `grace=`, `catch_up_limit=` and `overlap=`, as of `Registry.schedule`.

        Returns:
            It, as it is stored then.

        Raises:
            ScheduleOwned: A registry's code defines the schedule of this name.
            ConfigurationError: A value can't be used, such as an expression that never fires, or the extra `cron` isn't
                installed; the message says why.
            CallError: The call can't be enqueued again and again; ConflictingOptions with the option at fault.
            TypeError: There is no such option.
        """
        check_call(call)
        schedule = read_schedule(call, read_schedule_name(name), **options)
        await self._keeper(self._committing()).put_schedules([schedule])
        return await self.get(schedule.name)

    async def put_by_name(
        self,
        name: str,
        job_type: str,
        arguments: Mapping[str, object] | None = None,
        *,
        call_options: CallOptions | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Do the same where of the job type only the name is known. Nothing checks its arguments before it runs.

        Arguments:
            name, options: As of `put`.
            job_type: The full name, with its prefix.
            arguments: By name: JSON values.
            call_options: As of `Call.options`.

        Raises:
            ArgumentsError: The arguments can't be stored exactly. Others as `put` raises them.
        """
        return await self.put(name, named_call(job_type, arguments, {} if call_options is None else call_options), **options)

    async def list(self, *, limit: int = 100, cursor: str | None = None) -> ListedSchedules:
        """Show schedules by name, page by page, each with what became of its newest ticks.

        Arguments:
            limit: On the page at most: 1 to 1,000.
            cursor: `page.cursor` of the page before.

        Raises:
            ConfigurationError: The limit is out of its range.
        """
        check_limit(limit)
        page = await self._keeper(self._session.opened()).list_schedules(limit, cursor)
        return ListedSchedules(tuple(shown_schedule(each, page.now) for each in page.schedules), page.cursor)

    async def get(self, name: str) -> Schedule:
        """Show one schedule, with what became of its newest ticks.

        Raises:
            ScheduleNotFound: There is none of this name.
        """
        stored, now = await self._find(self._keeper(self._session.opened()), name)
        return shown_schedule(stored, now)

    async def pause(self, name: str, *, reason: str = "", by: str = "") -> None:
        """Decide no ticks of a schedule until it's resumed; also of one that code defines, through deploys.

        Arguments:
            name: The schedule's.
            reason: For people: why.
            by: For people: who asks.

        Raises:
            ScheduleNotFound: There is none of this name.
        """
        why, who = read_reason(reason), read_by(by)
        (there,) = await self._keeper(self._committing()).pause_schedules([_known_name(name)], why, who)
        _check_there(name, there=there)

    async def resume(self, name: str) -> None:
        """Decide ticks again. Those that were due meanwhile aren't caught up on, whatever its `catch_up` is.

        Raises:
            ScheduleNotFound: There is none of this name.
        """
        (there,) = await self._keeper(self._committing()).resume_schedules([_known_name(name)])
        _check_there(name, there=there)

    async def delete(self, name: str) -> None:
        """Remove a schedule, with what is kept of its ticks. Jobs that it has enqueued stay.

        Raises:
            ScheduleNotFound: There is none of this name.
            ScheduleOwned: It's defined in the code of workers that are alive, which would bring it back.
        """
        keeper = self._keeper(self._committing())
        (became,) = await keeper.delete_schedules([_known_name(name)])
        _check_there(name, there=became is not ScheduleChange.NOT_FOUND)
        if became is ScheduleChange.OWNED:
            raise ScheduleOwned(
                f"the schedule {name} is defined in the code of workers that are alive: remove it there, and deploy that; or "
                f"pause it, which lasts: client.schedules.pause({name!r}), or `aioqueue schedules pause {name}`",
                name=name,
            )

    async def run_now(self, name: str, *, overlap: Overlap | None = None) -> JobHandle[Any]:
        """Enqueue a job of a schedule now, beside its own ticks, which stay what they are; also of one that is paused.

        Arguments:
            name: The schedule's.
            overlap: In place of the schedule's own: with `"skip"` nothing is enqueued while the chain of the tick before, or
                of an earlier run by hand, hasn't ended.

        Returns:
            The handle of the job; of the one that is there already with its unique key (`created` is False). Its
            `nominal_time` is now, by the database's clock. Its result is plain JSON values.

        Raises:
            ScheduleNotFound: There is none of this name.
            ScheduleError: An earlier chain hasn't ended, and `overlap` is `"skip"`; or newer code has written the schedule.
            StoreUnavailable: The database can't be reached; it may have been enqueued all the same: `get` shows what was.
        """
        opened = self._committing()
        keeper = self._keeper(opened)

        async def decide(tick: Tick) -> Ticked:
            (ticked,) = await keeper.tick([tick])
            return ticked

        for _ in range(_TRIES):
            stored, now = await self._find(keeper, name)
            try:
                tick = tick_by_hand(stored, job_of(stored, now))
            except ValueError as error:
                raise ScheduleError(f"the schedule {name} can't be run by this version: {error}", name=name) from None
            alone = (overlap or stored.definition.overlap) == "skip"
            ticked = await opened.ticker.tick(replace(tick, alone=alone), decide)
            if ticked.decided:
                return self._handle(stored, ticked.ticks[0])
        raise StoreContended(f"the schedule {name} is changed all the time by others: nothing was enqueued")

    @overload
    async def preview(self, name: str, *, count: int = 10, after: datetime | None = None) -> Sequence[datetime]: ...

    @overload
    async def preview(
        self,
        *,
        cron: str | None = None,
        every: float | timedelta | None = None,
        timezone: str = "UTC",
        count: int = 10,
        after: datetime | None = None,
    ) -> Sequence[datetime]: ...

    async def preview(
        self,
        name: str | None = None,
        *,
        cron: str | None = None,
        every: float | timedelta | None = None,
        timezone: str = "UTC",
        count: int = 10,
        after: datetime | None = None,
    ) -> Sequence[datetime]:
        """Work out the next ticks of a schedule, paused or not; or of a timing that is none yet, for which the client needn't
        be open.

        Arguments:
            name: The schedule's.
            cron, every, timezone: In place of it, as of `put`; an interval counts from `after`.
            count: How many: 1 to 1,000.
            after: Those after this time, timezone-aware; by default after now: by the database's clock for a schedule, by this
                machine's for a timing.

        Returns:
            The times, in UTC; fewer than `count` where there are no more in the next 50 years.

        Raises:
            ScheduleNotFound: There is none of this name.
            ConfigurationError: A value can't be used, or the extra `cron` isn't installed.
        """
        if not 1 <= count <= _MOST_PREVIEWED:
            raise ConfigurationError(f"count must be 1 to {_MOST_PREVIEWED:,}, not {count!r}")
        begin = None if after is None else aware(after, "after")
        if name is None:
            begin = datetime.now(UTC) if begin is None else begin
            return upcoming(read_timing(begin, cron=cron, every=every, timezone=timezone), begin, count)
        if cron is not None or every is not None:
            raise ConfigurationError("a preview is of a schedule by its name, or of cron= or every=")
        stored, now = await self._find(self._keeper(self._session.opened()), name)
        begin = max(now if begin is None else begin, stored.since)
        return upcoming(timing_of(stored.definition, stored.anchor), begin, count)

    def _handle(self, stored: StoredSchedule, tick: DecidedTick) -> JobHandle[Any]:
        if tick.chain_id is None:
            name = stored.name
            way_out = ': overlap="allow" enqueues it all the same' if tick.reason == OVERLAPPED else ""
            raise ScheduleError(f"the schedule {name} wasn't run: {tick.reason}{way_out}", name=name)
        created = tick.outcome is TickOutcome.ENQUEUED
        return JobHandle(self._session, NamedType(stored.definition.job_type), tick.chain_id, created=created)

    async def _find(self, keeper: SupportsSchedules, name: str) -> tuple[StoredSchedule, datetime]:
        """A schedule, and the database's clock."""
        (found,) = await keeper.fetch_schedules([_known_name(name)])
        if found is None:
            raise _not_found(name)
        return found, (await keeper.due_schedules(1)).now

    def _committing(self) -> Opened:
        opened = self._session.opened()
        opened.refuse_outside_transaction()
        return opened

    def _keeper(self, opened: Opened) -> SupportsSchedules:
        store = opened.store
        if not isinstance(store, SupportsSchedules):
            raise NotSupported(f"{store.description} keeps no schedules", ability="schedules")
        return store


def _known_name(name: str) -> str:
    """A name that a schedule may have.

    Raises:
        TypeError: It isn't text.
        ScheduleNotFound: No schedule can have it.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a schedule is text, not {safe_repr(name)}")
    if not storable(name):
        raise _not_found(name)
    return name


def _check_there(name: str, *, there: bool) -> None:
    if not there:
        raise _not_found(name)


def _not_found(name: str) -> ScheduleNotFound:
    return ScheduleNotFound(
        f"there is no schedule {safe_repr(name)}: `client.schedules.list()` or `aioqueue schedules list` shows which there are",
        name=name,
    )
