"""What operators call about what is to come: pauses, schedules, limits and sequences. `Operations` has it all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from aioqueue.client._limits import Limits
from aioqueue.client._operations_changing import ChangingOperations
from aioqueue.client._pausing import keeper_of_pauses, pause_jobs, read_target, resume_jobs
from aioqueue.client._schedules import Schedules
from aioqueue.client._sequences import Sequences

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from aioqueue.definitions._job_type import JobType
    from aioqueue.vocabulary._pauses import Pause

__all__ = ["PlanningOperations"]


class PlanningOperations(ChangingOperations):
    """The client's methods about what is to come. They take no `tx=`: what they say is so at once, for everybody."""

    @property
    def schedules(self) -> Schedules:
        """What is enqueued again and again: `await client.schedules.put("nightly", report(), cron="0 3 * * *")`."""
        return Schedules(self._session)

    @property
    def limits(self) -> Limits:
        """How many jobs run at once, or start in a time: `await client.limits.put("stripe", 10)`."""
        return Limits(self._session)

    @property
    def sequences(self) -> Sequences:
        """Whose turn it is in sequences: `await client.sequences.resume("account:42")`."""
        return Sequences(self._session)

    @overload
    async def pause(
        self,
        job_type: JobType[..., Any, Any] | str,
        /,
        *more: JobType[..., Any, Any] | str,
        until: datetime | timedelta | None = None,
        reason: str = "",
        by: str = "",
    ) -> None: ...

    @overload
    async def pause(self, *, key: str, until: datetime | timedelta | None = None, reason: str = "", by: str = "") -> None: ...

    @overload
    async def pause(
        self,
        *,
        all: Literal[True],
        until: datetime | timedelta | None = None,
        reason: str = "",
        by: str = "",
    ) -> None: ...

    async def pause(
        self,
        *types: JobType[..., Any, Any] | str,
        key: str | None = None,
        all: bool = False,  # noqa: A002 - as it reads: `pause(all=True)`
        until: datetime | timedelta | None = None,
        reason: str = "",
        by: str = "",
    ) -> None:
        """Start no more of these jobs, in any worker, until they're resumed: those that run go on, and so does all else.

        It holds from its commit: no claim after that takes one of them. Jobs may still be enqueued, and wait. A job is kept
        back while any pause is about it: its type's, its key's, or that of all.

        Arguments:
            types: Job types, which stand for their older names too; or names.
            key: In place of types: jobs of any type with this key, unique or not.
            all: In place of these: all jobs.
            until: When it ends by itself: a timezone-aware time; or as a timedelta how long from now, by this machine's clock.
                None leaves it until it's lifted.
            reason: For people: why. At most 1,000 characters of it are kept.
            by: Who asks, for people. Each has a pause of their own, which takes the place of their earlier one.

        Raises:
            ConfigurationError: It isn't said what is meant, or a value can't be used: a time without a zone, or one that is
                over.
            NotSupported: The store knows no pauses.
            OutsideTransaction: The task is inside our own `transaction()`, or `completion()`, of which it wouldn't be part.
            StoreUnavailable: The database can't be reached. Doing it again is safe.
            ClientClosed: The client isn't open.
        """
        await pause_jobs(self._committing(), read_target(types, key, all), until, reason, by)

    @overload
    async def resume(
        self, job_type: JobType[..., Any, Any] | str, /, *more: JobType[..., Any, Any] | str, by: str | None = None
    ) -> int: ...

    @overload
    async def resume(self, *, key: str, by: str | None = None) -> int: ...

    @overload
    async def resume(self, *, all: Literal[True], by: str | None = None) -> int: ...

    async def resume(
        self,
        *types: JobType[..., Any, Any] | str,
        key: str | None = None,
        all: bool = False,  # noqa: A002 - as of `pause`
        by: str | None = None,
    ) -> int:
        """Lift pauses of just these: `all=True` lifts those of all jobs, and leaves those of types and keys.

        Arguments:
            types, key, all: As of `pause`.
            by: Only this one's; by default everybody's.

        Returns:
            How many pauses were lifted. Jobs whose key was paused come back in portions, by the workers, within seconds.

        Raises:
            AioqueueError: As `pause`.
        """
        return await resume_jobs(self._committing(), read_target(types, key, all), by)

    async def pauses(self) -> Sequence[Pause]:
        """Show what is paused: who asked for it, when, why, until when, and how many due jobs wait for its end.

        Raises:
            NotSupported: The store knows no pauses.
            StoreUnavailable: The database can't be reached.
            ClientClosed: The client isn't open.
        """
        return await keeper_of_pauses(self._session.opened().store).list_pauses()
