"""Looking and operating outside of transactions: what each verb of the protocol calls, and who is told afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.postgres._operate_due import DueTime
from aioqueue.postgres._stats import read_stats
from aioqueue.postgres._stats_workers import read_leases, read_standing
from aioqueue.vocabulary._listing import ListOrder
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.postgres._opened import Opened
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._answers import Cancellation, Changed, Pruned
    from aioqueue.vocabulary._attempt_log import AttemptLog
    from aioqueue.vocabulary._blockers import Blocker
    from aioqueue.vocabulary._job import Job, StoredState
    from aioqueue.vocabulary._listing import IdPage, JobFilter, Page
    from aioqueue.vocabulary._phases import Phase
    from aioqueue.vocabulary._stats import Stats
    from aioqueue.vocabulary._workers import LeaseFacts, Standing

__all__ = ["OperatingVerbs"]


class OperatingVerbs:
    """See `aioqueue.vocabulary._store_operating.Operable`. The store is one of these."""

    _schema: Schema

    @property
    def _opened(self) -> Opened:
        raise NotImplementedError

    def _tell(self, notification: Notification) -> None:
        raise NotImplementedError

    async def fetch(self, ids: Sequence[UUID]) -> Sequence[Job | None]:
        """See `aioqueue.abc.Store.fetch`."""
        return await self._opened.listings.fetch(ids)

    async def fetch_ends(self, ids: Sequence[UUID]) -> Sequence[Job | None]:
        """See `aioqueue.abc.Store.fetch_ends`."""
        return await self._opened.listings.fetch_ends(ids)

    async def list_chain(self, chain_id: UUID, limit: int, cursor: str | None = None) -> Page:
        """See `aioqueue.abc.Store.list_chain`."""
        return await self._opened.listings.chain(chain_id, limit, cursor)

    async def list_blockers(self, job_id: UUID, limit: int, *, after: int = -1) -> Sequence[Blocker]:
        """See `aioqueue.abc.Store.list_blockers`."""
        return await self._opened.listings.blockers(job_id, limit, after)

    async def list_dependents(self, chain_id: UUID, limit: int) -> Sequence[Blocker]:
        """See `aioqueue.abc.Store.list_dependents`."""
        return await self._opened.listings.dependents(chain_id, limit)

    async def list(
        self, where: JobFilter, limit: int, cursor: str | None = None, *, order: ListOrder = ListOrder.NEWEST
    ) -> Page:
        """See `aioqueue.abc.Store.list`."""
        return await self._opened.listings.page(where, limit, cursor, order)

    async def list_ids(self, where: JobFilter, limit: int, cursor: str | None = None) -> IdPage:
        """See `aioqueue.abc.Store.list_ids`."""
        return await self._opened.listings.ids(where, limit, cursor)

    async def find(self, types: Collection[str], key: str) -> Job | None:
        """See `aioqueue.abc.Store.find`."""
        return await self._opened.listings.find(types, key)

    async def stats(self) -> Stats:
        """See `aioqueue.abc.Store.stats`."""
        return await read_stats(self._opened.operations, self._schema)

    async def leases(self) -> Sequence[LeaseFacts]:
        """See `aioqueue.abc.Store.leases`."""
        return await read_leases(self._opened.operations, self._schema)

    async def standing(self, job_id: UUID, types: Collection[str]) -> Standing | None:
        """See `aioqueue.abc.Store.standing`."""
        return await read_standing(self._opened.operations, self._schema, job_id, types)

    async def retry(self, ids: Sequence[UUID], *, cascade: bool = False, from_start: bool = False) -> Sequence[Changed]:
        """See `aioqueue.abc.Store.retry`."""
        changes = await self._opened.operator.retry(ids, cascade=cascade, from_start=from_start)
        self._tell(changes.told)
        return changes.results

    async def fetch_phases(self, job_id: UUID) -> Sequence[Phase]:
        """See `aioqueue.abc.Operable.fetch_phases`."""
        return await self._opened.listings.phases(job_id)

    async def fetch_logs(self, job_id: UUID) -> Sequence[AttemptLog]:
        """See `aioqueue.abc.Operable.fetch_logs`."""
        return await self._opened.listings.logs(job_id)

    async def reschedule(
        self, ids: Sequence[UUID], *, delay: float | None = None, run_at: datetime | None = None
    ) -> Sequence[Changed]:
        """See `aioqueue.abc.Operable.reschedule`."""
        changes = await self._opened.operator.reschedule(ids, DueTime(run_at, delay))
        self._tell(changes.told)
        return changes.results

    async def run_now(self, ids: Sequence[UUID]) -> Sequence[Changed]:
        """See `aioqueue.abc.Store.run_now`."""
        changes = await self._opened.operator.run_now(ids)
        self._tell(changes.told)
        return changes.results

    async def cancel(self, ids: Sequence[UUID], reason: str) -> Sequence[Cancellation]:
        """See `aioqueue.abc.Store.cancel`."""
        results, told = await self._opened.operator.cancel(ids, reason)
        for each in told:
            self._tell(each)
        return results

    async def delete(self, ids: Sequence[UUID], *, cascade: bool = False) -> Sequence[Changed]:
        """See `aioqueue.abc.Store.delete`."""
        changes = await self._opened.operator.delete(ids, cascade=cascade)
        self._tell(changes.told)
        if changes.more:
            await self._opened.operator.remove_rest(changes.more)
        return changes.results

    async def prune(
        self, state: StoredState, older_than: float, types: Collection[str] | None, limit: int, cursor: str | None = None
    ) -> Pruned:
        """See `aioqueue.abc.SupportsPrune.prune`."""
        pruned, chains = await self._opened.operator.prune(state, older_than, types, limit, cursor)
        self._tell(Notification(finished=chains))
        return pruned

    async def take_duty(self, name: str, holder: str, duration: float) -> bool:
        """See `aioqueue.abc.SupportsRetention.take_duty`."""
        return await self._opened.retention.take_duty(name, holder, duration)

    async def find_old(self, ages: Mapping[StoredState, float], limit: int, cursor: str | None = None) -> IdPage:
        """See `aioqueue.abc.SupportsRetention.find_old`."""
        return await self._opened.retention.find_old(ages, limit, cursor)

    async def purge(self, chain_ids: Sequence[UUID], ages: Mapping[StoredState, float]) -> Sequence[UUID]:
        """See `aioqueue.abc.SupportsRetention.purge`."""
        removed = await self._opened.retention.purge(chain_ids, ages)
        self._tell(Notification(finished=frozenset(removed)))
        return removed
