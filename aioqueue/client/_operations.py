"""What operators call: looking at jobs, and changing them. `Client` has it all."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from aioqueue.client._blockers import list_blockers, list_dependents, refuse_blockers
from aioqueue.client._diagnosis import diagnose
from aioqueue.client._handle import JobHandle, ids_of
from aioqueue.client._operate import change_in_portions, find_end, find_job, list_steps, prune_in_portions, read_filter
from aioqueue.client._why import why

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import timedelta
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.client._reasons import Why
    from aioqueue.client._session import Session
    from aioqueue.definitions._job_type import JobType
    from aioqueue.definitions._registry import Registry
    from aioqueue.vocabulary._answers import Changed
    from aioqueue.vocabulary._blockers import Blocker
    from aioqueue.vocabulary._finding import Finding
    from aioqueue.vocabulary._job import Job, JobState
    from aioqueue.vocabulary._listing import Page
    from aioqueue.vocabulary._stats import Stats
    from aioqueue.vocabulary._workers import LeaseFacts

__all__ = ["Operations"]


class Operations:
    """The client's methods for operators."""

    _session: Session

    async def job(self, job_id: UUID | str | JobHandle[Any]) -> Job:
        """Look at one job as it is stored now, whatever its type: exactly this one, wherever its chain has got to.

        Raises:
            ValueError: The id isn't one.
            JobNotFound: There is no such job.
            StoreUnavailable: The database can't be reached.
            ClientClosed: The client isn't open.
        """
        return await find_job(self._session.opened().store, job_id)

    async def chain(self, job_id: UUID | str | JobHandle[Any]) -> Job:
        """Look where a chain has got to: at its live step, or at its last one.

        Arguments:
            job_id: The chain's id, which is its first job's, or any other step's.

        Returns:
            That step; its `chain_id` is the chain's. A job that nothing was continued from is a chain of one. A chain whose
            last steps were pruned is at the last one that is left, which is `continued`; there is no result of it any more.

        Raises:
            JobNotFound: There is no such chain. Others as `job` raises them.
        """
        return await find_end(self._session.opened().store, job_id)

    async def chain_jobs(self, job_id: UUID | str | JobHandle[Any], *, limit: int = 100, cursor: str | None = None) -> Page:
        """Show the steps of a chain, from the first to the live or last one. Earlier ones may have been pruned.

        Arguments:
            job_id: As of `chain`.
            limit: Steps on the page at most: 1 to 1,000.
            cursor: `page.cursor` of the page before.

        Returns:
            The page; its `cursor` is None at the end.

        Raises:
            JobNotFound: There is no such chain.
            ValueError: The id isn't one, or the cursor isn't one of ours.
            ConfigurationError: The limit is out of its range.
        """
        return await list_steps(self._session.opened().store, job_id, limit, cursor)

    async def blockers(self, job_id: UUID | str | JobHandle[Any], *, limit: int = 100, after: int = -1) -> Sequence[Blocker]:
        """Show the chains that a job waits for, or has waited for, in the order in which its call named them.

        Arguments:
            job_id: As of `chain`: of a chain, the live or last step is meant.
            limit: At most so many: 1 to 1,000.
            after: The `ordinal` of the last one that was shown before.

        Raises:
            JobNotFound: There is no such job.
            ConfigurationError: The limit is out of its range.
        """
        return await list_blockers(self._session.opened().store, job_id, limit, after)

    async def dependents(self, job_id: UUID | str | JobHandle[Any], *, limit: int = 100) -> Sequence[Blocker]:
        """Show unfinished jobs that wait for the end of a chain, by their ids.

        Arguments:
            job_id: As of `chain`.
            limit: At most so many: 1 to 1,000.

        Raises:
            JobNotFound: There is no such chain.
            ConfigurationError: The limit is out of its range.
        """
        return await list_dependents(self._session.opened().store, job_id, limit)

    async def list_jobs(
        self,
        *,
        states: Iterable[JobState | str] = (),
        types: Iterable[JobType[..., Any, Any] | str] = (),
        key: str | None = None,
        tag: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        """Show jobs, live and finished, the newest first.

        Arguments:
            states: Any of these; none means all.
            types: Any of these job types (under their older names too) or names; none means all.
            key: Exactly this key.
            tag: Among the tags.
            limit: Jobs on the page at most: 1 to 1,000.
            cursor: `page.cursor` of the page before.

        Returns:
            The page; its `cursor` is None at the end.

        Raises:
            ValueError: The cursor isn't one of ours, or a state isn't known.
            ConfigurationError: The limit is out of its range.
        """
        where = read_filter(states, types, key, tag, limit)
        return await self._session.opened().store.list(where, limit, cursor)

    async def stats(self) -> Stats:
        """Count jobs by type and state, exactly up to 10,000 each, and name the workers that are alive."""
        return await self._session.opened().store.stats()

    async def why(self, job: UUID | str | JobHandle[Any]) -> Why:
        """Say why a job isn't running: with reasons for programs and for people, and what to do about each.

        Arguments:
            job: Its id or handle, whatever its type and state. That there is no such job is a reason, too, and so is that its
                chain has gone on from it: then the step that counts is named. A handle of a declared type says that its job may
                be one that waits to be completed from outside.

        Raises:
            ValueError: The id isn't one.
            StoreUnavailable: The database can't be reached.
            ClientClosed: The client isn't open.
        """
        (wanted,) = ids_of([job])
        declared = isinstance(job, JobHandle) and getattr(job.job_type, "declared_only", False)
        return await why(self._session.opened().store, wanted, declared=declared)

    async def diagnose(self, registry: Registry | None = None) -> Sequence[Finding]:
        """Look for what is wrong around the queue, as `aioqueue doctor` does, whether the client is open or not.

        Arguments:
            registry: Its types are compared with those of unfinished jobs.
        """
        return await diagnose(self._session, registry)

    async def leases(self) -> Sequence[LeaseFacts]:
        """Show the leases of all workers: who is alive, since when, for which types, with how many slots, and how busy."""
        return await self._session.opened().store.leases()

    async def retry(self, *jobs: UUID | str | JobHandle[Any], cascade: bool = False) -> dict[UUID, Changed]:
        """Make failed or cancelled jobs pending again, with all their attempts. Of a chain, the last step is meant.

        One that waits for a chain which lives again waits for that again. Many are changed in portions of 1,000, each with a
        commit of its own.

        Arguments:
            jobs: Ids or handles. Any step's id stands for its chain.
            cascade: Whether those that have failed since one of these had failed live again too, and so on. They do so in one
                transaction with it, however many they are: one that comes to its timeout changes nothing.

        Returns:
            What became of each, by the id that was given.

        Raises:
            ValueError: An id isn't one; nothing was changed.
            StoreError: The database refused; its `changed` says what became of the portions before.
            OutsideTransaction: The task is inside our own `transaction()`, or `completion()`, of which it wouldn't be part.
            ClientClosed: The client isn't open.
        """
        return await change_in_portions(functools.partial(self._changing().retry, cascade=cascade), jobs)

    async def run_now(self, *jobs: UUID | str | JobHandle[Any]) -> dict[UUID, Changed]:
        """Make pending jobs due now; of a chain, the live step. Arguments, return value and errors are those of `retry`."""
        return await change_in_portions(self._changing().run_now, jobs)

    async def delete(self, *jobs: UUID | str | JobHandle[Any], cascade: bool = False) -> dict[UUID, Changed]:
        """Remove jobs, finished or not. Of a chain all steps are removed.

        A running one's worker is told, and cancels the attempt. Arguments, return value and errors are those of `retry`; also:

        Arguments:
            cascade: Whether unfinished jobs that wait for one of these are removed too, and those that wait for them. Many are
                removed in portions, which workers go on with.

        Raises:
            BlockerReference: Other unfinished jobs wait for one of them, which was left as it is, without `cascade`. The others
                were removed: its `changed` says what became of each.
        """
        store = self._changing()
        changed = await change_in_portions(functools.partial(store.delete, cascade=cascade), jobs)
        await refuse_blockers(store, changed)
        return changed

    async def prune(
        self,
        *,
        older_than: float | timedelta,
        states: Iterable[JobState | str] = (),
        types: Iterable[JobType[..., Any, Any] | str] = (),
        on_portion: Callable[[Sequence[UUID]], object] | None = None,
    ) -> int:
        """Remove jobs that finished long ago, in portions of up to 1,000, each with a commit of its own.

        Arguments:
            older_than: Seconds, or a timedelta, since they finished, by the database's clock.
            states, types: As of `list_jobs`; states of finished jobs.
            on_portion: Called with the ids of each portion once they're gone.

        Returns:
            How many were removed. A job that is retried meanwhile, or has failed again since, stays.

        Raises:
            ConfigurationError: An argument can't be used.
            NotSupported: The store can't prune.
            OutsideTransaction: As of `retry`.
            StoreUnavailable: The database can't be reached; what was removed before is gone.
        """
        return await prune_in_portions(self._changing(), older_than, states, types, on_portion)

    def _changing(self) -> Store:
        """The store, for what commits at once."""
        opened = self._session.opened()
        opened.refuse_outside_transaction()
        return opened.store
