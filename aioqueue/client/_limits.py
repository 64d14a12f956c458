"""Limits at run time: `client.limits`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.definitions._gates import check_places, check_rate
from aioqueue.definitions._job_type import JobType
from aioqueue.definitions._names import check_name, check_shared_limit
from aioqueue.errors import ConfigurationError, NotSupported, RegistrationError
from aioqueue.vocabulary._abilities import SupportsGates
from aioqueue.vocabulary._gates import JOB_LIMIT, RATE, LimitKind, NewLimit
from aioqueue.vocabulary._safe_text import safe_repr

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from aioqueue.client._session import Session
    from aioqueue.vocabulary._gates import StoredLimit

    AnyJobType = JobType[..., Any, Any]

__all__ = ["Limits", "keeper_of_gates"]


class Limits:
    """How many jobs run at once, or start in a time, in all workers together: `client.limits`. What is changed is so at once.

    A lower number lets nobody in until fewer run; what runs goes on. 0 lets nobody in. A higher one, or none any more, lets in
    those that wait. What code says (`limit=Limit(…)`, `rate=Rate(…)`) is stored by the workers that serve the type; what is
    changed here stays, until the code says something else than before.

    Each method raises `NotSupported` where the store knows no limits, `StoreUnavailable` where the database can't be reached,
    `ClientClosed` where the client isn't open; and those that change something `OutsideTransaction` inside our own
    `transaction()` or `completion()`. Nothing here takes `tx=`.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    async def put(self, limit: str | AnyJobType, places: int) -> None:
        """Let so many jobs run at once: those of a type, or of all types that share a limit. May be repeated.

        Arguments:
            limit: The name of a shared limit, which types have as `limit="stripe"`; or a job type with a limit of its own, or
                the name of that, `"job:"` and the type's. Where the type's limit has `by=`, each value has so many.
            places: How many; 0 for none.

        Raises:
            ConfigurationError: There can be no such limit, or the number is out of its range.
        """
        name = _limit_name(limit)
        await self._put(NewLimit(name=name, places=check_places(places, "places")))

    async def put_rate(
        self, job_type: str | AnyJobType, starts: int, *, per: float | timedelta, burst: int | None = None
    ) -> None:
        """Let so many jobs of a type start in a time. May be repeated.

        Arguments:
            job_type: With a rate, or its name. Where the rate has `by=`, each value has so many.
            starts: How many in `per`; 0 for none.
            per: Seconds or timedelta.
            burst: How many may start at once after a while in which none did; by default as many as `starts`.

        Raises:
            ConfigurationError: The type has no rate, or a value is out of its range.
        """
        time, most = check_rate(starts, per, burst)
        await self._put(NewLimit(name=_rate_name(job_type), kind=LimitKind.STARTS, places=starts, per=time, burst=most))

    async def remove(self, limit: str | AnyJobType) -> bool:
        """Limit nothing by it any more. One that code defines is there again when a worker of the type starts.

        Arguments:
            limit: As of `put`; also `"rate:"` and the name of a job type.

        Returns:
            Whether it was there.

        Raises:
            ConfigurationError: There can be no such limit.
        """
        return await self._remove(_rate_name(limit) if _names_rate(limit) else _limit_name(limit))

    async def remove_rate(self, job_type: str | AnyJobType) -> bool:
        """Let any number of a type's jobs start in any time. A rate that code defines is there again when a worker starts.

        Arguments:
            job_type: As of `put_rate`.

        Returns:
            Whether there was one.

        Raises:
            ConfigurationError: The type has no rate.
        """
        return await self._remove(_rate_name(job_type))

    async def list(self) -> Sequence[StoredLimit]:
        """All that are stored, by name, with how many jobs run and wait there; 10,000 at most."""
        return await keeper_of_gates(self._session.opened().store).list_limits()

    async def _put(self, limit: NewLimit) -> None:
        await self._changing().put_limits([limit])

    async def _remove(self, name: str) -> bool:
        (there,) = await self._changing().remove_limits([name])
        return there

    def _changing(self) -> SupportsGates:
        opened = self._session.opened()
        opened.refuse_outside_transaction()
        return keeper_of_gates(opened.store)


def keeper_of_gates(store: object) -> SupportsGates:
    """The store, as far as it knows gates.

    Raises:
        NotSupported: It doesn't.
    """
    if not isinstance(store, SupportsGates):
        description = getattr(store, "description", "this store")
        raise NotSupported(f"{description} knows no limits, rates and sequences", ability="put_limits")
    return store


def _names_rate(limit: object) -> bool:
    return isinstance(limit, str) and limit.startswith(RATE)


def _limit_name(limit: str | AnyJobType) -> str:
    if isinstance(limit, JobType):
        if limit.own_limit is None and not limit.declared_only:
            raise ConfigurationError(
                f"{limit.name} has no limit of its own, so nothing would look at one: give the type limit=Limit(...)"
                + "".join(f", or put the number of {each!r}, which it shares" for each in limit.limit)
                + (", or see put_rate and remove_rate: it has a rate" if limit.rate is not None else "")
            )
        return JOB_LIMIT + limit.name
    if _names_rate(limit):
        raise ConfigurationError(f"{limit!r} is a rate: client.limits.put_rate says how many start, and in which time")
    if isinstance(limit, str) and limit.startswith(JOB_LIMIT):
        return JOB_LIMIT + _type_name(limit.removeprefix(JOB_LIMIT))
    return check_shared_limit(limit)


def _rate_name(job_type: str | AnyJobType) -> str:
    if isinstance(job_type, JobType):
        if job_type.rate is None and not job_type.declared_only:
            raise ConfigurationError(
                f"{job_type.name} has no rate, so nothing would look at one: give the type rate=Rate(..., per=...)"
            )
        return RATE + job_type.name
    if not isinstance(job_type, str):
        raise ConfigurationError(f"a rate is a job type's, or that of a name, not of {safe_repr(job_type)}")
    return RATE + _type_name(job_type.removeprefix(RATE))


def _type_name(name: str) -> str:
    try:
        return check_name(name)
    except RegistrationError as error:
        raise ConfigurationError(str(error)) from None
