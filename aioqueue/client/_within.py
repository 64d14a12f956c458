"""What operators call in an open transaction: the methods that a client's transaction has, and `client.using(session)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from aioqueue.client._blockers import list_blockers, list_dependents
from aioqueue.client._changes import cancel_jobs, delete_jobs, reschedule_jobs, retry_jobs, run_jobs_now
from aioqueue.client._handle import JobHandle
from aioqueue.client._operate import find_by_key, find_end, find_job, find_logs, list_page, list_steps
from aioqueue.vocabulary._listing import ListOrder

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from typing_extensions import Unpack

    from aioqueue.client._filters import Filters
    from aioqueue.client._portions import Cancellations, Changes, OnCancelled, OnPortion
    from aioqueue.client._session import Session
    from aioqueue.definitions._job_type import JobType
    from aioqueue.vocabulary._answers import Cancellation, Changed
    from aioqueue.vocabulary._attempt_log import AttemptLog
    from aioqueue.vocabulary._blockers import Blocker
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._listing import JobFilter, Page
    from aioqueue.vocabulary._store_operating import Operable

__all__ = ["OperationsWithin"]

R = TypeVar("R")


class OperationsWithin:
    """Methods for operators, in an open transaction: they see what was written in it, and what they change is so once it's
    committed. After an error of theirs it's as it was before the call, and goes on.
    """

    __slots__ = ()

    _session: Session

    def _operations(self) -> Operable:
        """The store's verbs in the transaction."""
        raise NotImplementedError

    async def job(self, job_id: UUID | str | JobHandle[Any]) -> Job:
        """As `Client.job`, in this transaction."""
        return await find_job(self._operations(), job_id)

    async def chain(self, job_id: UUID | str | JobHandle[Any]) -> Job:
        """As `Client.chain`, in this transaction."""
        return await find_end(self._operations(), job_id)

    async def chain_jobs(self, job_id: UUID | str | JobHandle[Any], *, limit: int = 100, cursor: str | None = None) -> Page:
        """As `Client.chain_jobs`, in this transaction."""
        return await list_steps(self._operations(), job_id, limit, cursor)

    async def blockers(self, job_id: UUID | str | JobHandle[Any], *, limit: int = 100, after: int = -1) -> Sequence[Blocker]:
        """As `Client.blockers`, in this transaction."""
        return await list_blockers(self._operations(), job_id, limit, after)

    async def dependents(self, job_id: UUID | str | JobHandle[Any], *, limit: int = 100) -> Sequence[Blocker]:
        """As `Client.dependents`, in this transaction."""
        return await list_dependents(self._operations(), job_id, limit)

    async def logs(self, job_id: UUID | str | JobHandle[Any]) -> Sequence[AttemptLog]:
        """As `Client.logs`, in this transaction."""
        return await find_logs(self._operations(), job_id)

    async def list_jobs(
        self,
        *,
        where: JobFilter | None = None,
        order: ListOrder | str = ListOrder.NEWEST,
        limit: int = 100,
        cursor: str | None = None,
        **filters: Unpack[Filters],
    ) -> Page:
        """As `Client.list_jobs`, in this transaction."""
        return await list_page(self._operations(), where, order, limit, cursor, **filters)

    async def list_chains(
        self,
        *,
        where: JobFilter | None = None,
        order: ListOrder | str = ListOrder.NEWEST,
        limit: int = 100,
        cursor: str | None = None,
        **filters: Unpack[Filters],
    ) -> Page:
        """As `Client.list_chains`, in this transaction."""
        return await list_page(self._operations(), where, order, limit, cursor, ends=True, **filters)

    async def find(self, job_type: JobType[..., R, Any], *, key: str) -> JobHandle[R] | None:
        """As `Client.find`, in this transaction."""
        found = await find_by_key(self._operations(), job_type, key)
        # It may have been enqueued in this very transaction: its handle is patient until that is committed.
        return None if found is None else JobHandle(self._session, job_type, found.chain_id, created=False, commit_unseen=True)

    @overload
    async def retry(self, *jobs: UUID | str | JobHandle[Any], cascade: bool = False, from_start: bool = False) -> Changes: ...

    @overload
    async def retry(
        self, *, where: JobFilter, on_portion: OnPortion | None = None, cascade: bool = False, from_start: bool = False
    ) -> Counter[Changed]: ...

    async def retry(
        self,
        *jobs: UUID | str | JobHandle[Any],
        where: JobFilter | None = None,
        on_portion: OnPortion | None = None,
        cascade: bool = False,
        from_start: bool = False,
    ) -> Changes | Counter[Changed]:
        """As `Client.retry`, in this transaction; with `where=` 1,000 jobs at most.

        Raises:
            TransactionError: More jobs fit; nothing was changed.
        """
        return await retry_jobs(
            self._operations(), jobs, where, on_portion, cascade=cascade, from_start=from_start, within=True
        )

    @overload
    async def run_now(self, *jobs: UUID | str | JobHandle[Any]) -> Changes: ...

    @overload
    async def run_now(self, *, where: JobFilter, on_portion: OnPortion | None = None) -> Counter[Changed]: ...

    async def run_now(
        self,
        *jobs: UUID | str | JobHandle[Any],
        where: JobFilter | None = None,
        on_portion: OnPortion | None = None,
    ) -> Changes | Counter[Changed]:
        """As `Client.run_now`, in this transaction; with `where=` as `retry`."""
        return await run_jobs_now(self._operations(), jobs, where, on_portion, within=True)

    @overload
    async def reschedule(
        self,
        *jobs: UUID | str | JobHandle[Any],
        delay: float | timedelta | None = None,
        at: datetime | None = None,
    ) -> Changes: ...

    @overload
    async def reschedule(
        self,
        *,
        where: JobFilter,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        on_portion: OnPortion | None = None,
    ) -> Counter[Changed]: ...

    async def reschedule(
        self,
        *jobs: UUID | str | JobHandle[Any],
        where: JobFilter | None = None,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        on_portion: OnPortion | None = None,
    ) -> Changes | Counter[Changed]:
        """As `Client.reschedule`, in this transaction; with `where=` as `retry`."""
        return await reschedule_jobs(self._operations(), jobs, where, on_portion, delay=delay, at=at, within=True)

    @overload
    async def cancel(self, *jobs: UUID | str | JobHandle[Any], reason: str = "") -> dict[UUID, Cancellation]: ...

    @overload
    async def cancel(
        self, *, where: JobFilter, reason: str = "", on_portion: OnCancelled | None = None
    ) -> Counter[Cancellation]: ...

    async def cancel(
        self,
        *jobs: UUID | str | JobHandle[Any],
        where: JobFilter | None = None,
        reason: str = "",
        on_portion: OnCancelled | None = None,
    ) -> Cancellations | Counter[Cancellation]:
        """As `Client.cancel`, in this transaction; with `where=` as `retry`. Running jobs' workers hear of it at the commit.

        Raises:
            StoreContended: Somebody has locked one of the jobs; nothing was changed.
        """
        return await cancel_jobs(self._operations(), jobs, where, on_portion, reason=reason, within=True)

    @overload
    async def delete(self, *jobs: UUID | str | JobHandle[Any], cascade: bool = False) -> Changes: ...

    @overload
    async def delete(
        self, *, where: JobFilter, on_portion: OnPortion | None = None, cascade: bool = False
    ) -> Counter[Changed]: ...

    async def delete(
        self,
        *jobs: UUID | str | JobHandle[Any],
        where: JobFilter | None = None,
        on_portion: OnPortion | None = None,
        cascade: bool = False,
    ) -> Changes | Counter[Changed]:
        """As `Client.delete`, in this transaction; with `where=` as `retry`."""
        return await delete_jobs(self._operations(), jobs, where, on_portion, cascade=cascade, within=True)
