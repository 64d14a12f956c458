"""The verbs for looking and operating: a store's, and a transaction's."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from aioqueue.testing.memory._listing import fetch, fetch_ends, find, list_chain, list_ids, list_jobs
from aioqueue.testing.memory._listing_blockers import list_blockers, list_dependents
from aioqueue.testing.memory._operate import delete, reschedule, retry, run_now
from aioqueue.testing.memory._operate_cancel import cancel
from aioqueue.testing.memory._progress import fetch_logs, fetch_phases
from aioqueue.testing.memory._stats import stats
from aioqueue.testing.memory._stats_workers import leases, standing
from aioqueue.vocabulary._listing import ListOrder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database
    from aioqueue.vocabulary._answers import Cancellation, Changed
    from aioqueue.vocabulary._attempt_log import AttemptLog
    from aioqueue.vocabulary._blockers import Blocker
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._listing import IdPage, JobFilter, Page
    from aioqueue.vocabulary._phases import Phase
    from aioqueue.vocabulary._stats import Stats
    from aioqueue.vocabulary._store_operating import Operable
    from aioqueue.vocabulary._workers import LeaseFacts, Standing

__all__ = ["Operations", "operations", "refusing"]

T = TypeVar("T")


class Operations:
    """See `aioqueue.abc.Operable`. Whoever derives from it says where the verbs are carried out."""

    async def _verb(self, verb: str, work: Callable[[Database], T]) -> T:
        raise NotImplementedError

    async def fetch(self, ids: Sequence[UUID]) -> Sequence[Job | None]:
        """Snapshots of jobs. See `Store.fetch`."""
        return await self._verb("fetch", lambda database: fetch(database, ids))

    async def fetch_ends(self, ids: Sequence[UUID]) -> Sequence[Job | None]:
        """Snapshots of the steps that count. See `Store.fetch_ends`."""
        return await self._verb("fetch_ends", lambda database: fetch_ends(database, ids))

    async def list_chain(self, chain_id: UUID, limit: int, cursor: str | None = None) -> Page:
        """One page of a chain. See `Store.list_chain`."""
        return await self._verb("list_chain", lambda database: list_chain(database, chain_id, limit, cursor))

    async def list_blockers(self, job_id: UUID, limit: int, *, after: int = -1) -> Sequence[Blocker]:
        """What a job waits for. See `Store.list_blockers`."""
        return await self._verb("list_blockers", lambda database: list_blockers(database, job_id, limit, after))

    async def list_dependents(self, chain_id: UUID, limit: int) -> Sequence[Blocker]:
        """Who waits for a chain. See `Store.list_dependents`."""
        return await self._verb("list_dependents", lambda database: list_dependents(database, chain_id, limit))

    async def list(
        self, where: JobFilter, limit: int, cursor: str | None = None, *, order: ListOrder = ListOrder.NEWEST
    ) -> Page:
        """One page of jobs. See `Store.list`."""
        return await self._verb("list", lambda database: list_jobs(database, where, limit, cursor, order))

    async def list_ids(self, where: JobFilter, limit: int, cursor: str | None = None) -> IdPage:
        """One page of their ids. See `Store.list_ids`."""
        return await self._verb("list_ids", lambda database: list_ids(database, where, limit, cursor))

    async def find(self, types: Collection[str], key: str) -> Job | None:
        """The job with a key. See `Store.find`."""
        return await self._verb("find", lambda database: find(database, types, key))

    async def stats(self) -> Stats:
        """Numbers by type and state. See `Store.stats`."""
        return await self._verb("stats", lambda database: stats(database))

    async def leases(self) -> Sequence[LeaseFacts]:
        """All leases. See `Store.leases`."""
        return await self._verb("leases", lambda database: leases(database))

    async def standing(self, job_id: UUID, types: Collection[str]) -> Standing | None:
        """Where a live job stands. See `Store.standing`."""
        return await self._verb("standing", lambda database: standing(database, job_id, types))

    async def retry(self, ids: Sequence[UUID], *, cascade: bool = False, from_start: bool = False) -> Sequence[Changed]:
        """Make failed and cancelled jobs pending again. See `Store.retry`."""
        return await self._verb("retry", lambda database: retry(database, ids, cascade=cascade, from_start=from_start))

    async def fetch_phases(self, job_id: UUID) -> Sequence[Phase]:
        """What is stored of a job's phases. See `Store.fetch_phases`."""
        return await self._verb("fetch_phases", lambda database: fetch_phases(database, job_id))

    async def fetch_logs(self, job_id: UUID) -> Sequence[AttemptLog]:
        """What was kept of a job's logs. See `Store.fetch_logs`."""
        return await self._verb("fetch_logs", lambda database: fetch_logs(database, job_id))

    async def reschedule(
        self, ids: Sequence[UUID], *, delay: float | None = None, run_at: datetime | None = None
    ) -> Sequence[Changed]:
        """Change when pending jobs are due. See `Store.reschedule`."""
        return await self._verb("reschedule", lambda database: reschedule(database, ids, delay, run_at))

    async def run_now(self, ids: Sequence[UUID]) -> Sequence[Changed]:
        """Make pending jobs due. See `Store.run_now`."""
        return await self._verb("run_now", lambda database: run_now(database, ids))

    async def cancel(self, ids: Sequence[UUID], reason: str) -> Sequence[Cancellation]:
        """Ask chains to end. See `Store.cancel`."""
        return await self._verb("cancel", lambda database: cancel(database, ids, reason))

    async def delete(self, ids: Sequence[UUID], *, cascade: bool = False) -> Sequence[Changed]:
        """Remove jobs. See `Store.delete`."""
        return await self._verb("delete", lambda database: delete(database, ids, cascade=cascade))


def operations(verb: Callable[[str, Callable[[Database], T]], Awaitable[T]]) -> Operations:
    """The verbs, carried out by a function that takes a verb's name and what it does."""
    return _Elsewhere(verb)


def refusing(refuse: Callable[[], None]) -> Operable:
    """Verbs each of which only calls a function that raises."""

    async def verb(name: str, work: object) -> object:
        del name, work
        refuse()
        return None

    return cast("Operable", _Elsewhere(verb))


class _Elsewhere(Operations):
    def __init__(self, verb: Callable[..., Awaitable[object]]) -> None:
        self._carry_out = verb

    async def _verb(self, verb: str, work: Callable[[Database], T]) -> T:
        return cast("T", await self._carry_out(verb, work))
