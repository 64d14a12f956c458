"""The verbs for people and their tools, wherever their statements run: by themselves, or in a transaction that is open."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Protocol, TypeVar

from aioqueue.sqlite._listing import fetch, list_ids, list_jobs
from aioqueue.sqlite._listing_blockers import list_blockers, list_dependents
from aioqueue.sqlite._listing_chain import fetch_ends, list_chain
from aioqueue.sqlite._listing_find import find
from aioqueue.sqlite._operate import reschedule, run_now
from aioqueue.sqlite._operate_cancel import cancel
from aioqueue.sqlite._operate_delete import delete
from aioqueue.sqlite._operate_retry import retry
from aioqueue.sqlite._progress_read import fetch_logs, fetch_phases
from aioqueue.sqlite._stats import read_stats
from aioqueue.sqlite._stats_workers import read_leases, read_standing
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._listing import ListOrder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.sqlite._operate_steps import Change
    from aioqueue.vocabulary._answers import Cancellation
    from aioqueue.vocabulary._attempt_log import AttemptLog
    from aioqueue.vocabulary._blockers import Blocker
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._listing import IdPage, JobFilter, Page
    from aioqueue.vocabulary._phases import Phase
    from aioqueue.vocabulary._stats import Stats
    from aioqueue.vocabulary._workers import LeaseFacts, Standing

__all__ = ["OperatingVerbs"]

T = TypeVar("T")
Answer = TypeVar("Answer")


class _Read(Protocol):
    """Runs a body in one snapshot of the file."""

    async def __call__(self, body: Callable[[Statements], T], /) -> T: ...


class _ChangeJobs(Protocol):
    """Makes a change to jobs, and tells of it when it's committed. Arguments as of `Operator.change`."""

    async def __call__(self, change: Change[Answer], ids: Sequence[UUID], refused: Answer | None, /) -> Sequence[Answer]: ...


class OperatingVerbs:
    """What `aioqueue.abc.Operable` asks for.

    Arguments:
        read: Where is looked.
        change: Makes a change to jobs, and tells of it when it's committed.
    """

    def __init__(self, read: _Read, change: _ChangeJobs) -> None:
        self._read = read
        self._change = change

    async def fetch(self, ids: Sequence[UUID]) -> Sequence[Job | None]:
        """See `aioqueue.abc.Operable.fetch`."""
        return await self._read(lambda connection: fetch(connection, ids))

    async def fetch_ends(self, ids: Sequence[UUID]) -> Sequence[Job | None]:
        """See `aioqueue.abc.Operable.fetch_ends`."""
        return await self._read(lambda connection: fetch_ends(connection, ids))

    async def list_chain(self, chain_id: UUID, limit: int, cursor: str | None = None) -> Page:
        """See `aioqueue.abc.Operable.list_chain`."""
        return await self._read(lambda connection: list_chain(connection, chain_id, limit, cursor))

    async def list_blockers(self, job_id: UUID, limit: int, *, after: int = -1) -> Sequence[Blocker]:
        """See `aioqueue.abc.Operable.list_blockers`."""
        return await self._read(lambda connection: list_blockers(connection, job_id, limit, after))

    async def list_dependents(self, chain_id: UUID, limit: int) -> Sequence[Blocker]:
        """See `aioqueue.abc.Operable.list_dependents`."""
        return await self._read(lambda connection: list_dependents(connection, chain_id, limit))

    async def list(
        self, where: JobFilter, limit: int, cursor: str | None = None, *, order: ListOrder = ListOrder.NEWEST
    ) -> Page:
        """See `aioqueue.abc.Operable.list`."""
        return await self._read(lambda connection: list_jobs(connection, where, limit, cursor, order))

    async def list_ids(self, where: JobFilter, limit: int, cursor: str | None = None) -> IdPage:
        """See `aioqueue.abc.Operable.list_ids`."""
        return await self._read(lambda connection: list_ids(connection, where, limit, cursor))

    async def find(self, types: Collection[str], key: str) -> Job | None:
        """See `aioqueue.abc.Operable.find`."""
        return await self._read(lambda connection: find(connection, types, key))

    async def stats(self) -> Stats:
        """See `aioqueue.abc.Operable.stats`."""
        return await self._read(read_stats)

    async def leases(self) -> Sequence[LeaseFacts]:
        """See `aioqueue.abc.Operable.leases`."""
        return await self._read(read_leases)

    async def standing(self, job_id: UUID, types: Collection[str]) -> Standing | None:
        """See `aioqueue.abc.Operable.standing`."""
        return await self._read(lambda connection: read_standing(connection, job_id, types))

    async def retry(self, ids: Sequence[UUID], *, cascade: bool = False, from_start: bool = False) -> Sequence[Changed]:
        """See `aioqueue.abc.Operable.retry`."""
        return await self._change(functools.partial(retry, cascade=cascade, from_start=from_start), ids, Changed.WRONG_STATE)

    async def fetch_phases(self, job_id: UUID) -> Sequence[Phase]:
        """See `aioqueue.abc.Operable.fetch_phases`."""
        return await self._read(lambda connection: fetch_phases(connection, job_id))

    async def fetch_logs(self, job_id: UUID) -> Sequence[AttemptLog]:
        """See `aioqueue.abc.Operable.fetch_logs`."""
        return await self._read(lambda connection: fetch_logs(connection, job_id))

    async def reschedule(
        self, ids: Sequence[UUID], *, delay: float | None = None, run_at: datetime | None = None
    ) -> Sequence[Changed]:
        """See `aioqueue.abc.Operable.reschedule`."""
        change = functools.partial(reschedule, delay=delay, run_at=run_at)
        return await self._change(change, ids, Changed.WRONG_STATE)

    async def run_now(self, ids: Sequence[UUID]) -> Sequence[Changed]:
        """See `aioqueue.abc.Operable.run_now`."""
        return await self._change(run_now, ids, Changed.WRONG_STATE)

    async def cancel(self, ids: Sequence[UUID], reason: str) -> Sequence[Cancellation]:
        """See `aioqueue.abc.Operable.cancel`."""
        return await self._change(functools.partial(cancel, reason=reason), ids, None)

    async def delete(self, ids: Sequence[UUID], *, cascade: bool = False) -> Sequence[Changed]:
        """See `aioqueue.abc.Operable.delete`."""
        return await self._change(functools.partial(delete, cascade=cascade), ids, Changed.WRONG_STATE)
