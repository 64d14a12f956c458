"""What operators call: looking at jobs, and changing them. `Client` has it all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from aioqueue.client._blockers import list_blockers, list_dependents
from aioqueue.client._bound import MISSING, Missing, operations_in
from aioqueue.client._changes import delete_jobs, retry_jobs, run_jobs_now
from aioqueue.client._diagnosis import diagnose
from aioqueue.client._handle import JobHandle, ids_of
from aioqueue.client._operate import find_by_key, find_end, find_job, list_page, list_steps
from aioqueue.client._portions import prune_in_portions
from aioqueue.client._why import why
from aioqueue.vocabulary._listing import ListOrder

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Sequence
    from datetime import timedelta
    from uuid import UUID

    from typing_extensions import Unpack

    from aioqueue.abc import Store
    from aioqueue.client._bound import Connection
    from aioqueue.client._filters import Filters
    from aioqueue.client._portions import Changes, OnPortion
    from aioqueue.client._reasons import Why
    from aioqueue.client._session import Session
    from aioqueue.client._transaction import Transaction
    from aioqueue.definitions._job_type import JobType
    from aioqueue.definitions._registry import Registry
    from aioqueue.vocabulary._answers import Changed
    from aioqueue.vocabulary._blockers import Blocker
    from aioqueue.vocabulary._finding import Finding
    from aioqueue.vocabulary._job import Job, JobState
    from aioqueue.vocabulary._listing import JobFilter, Page
    from aioqueue.vocabulary._stats import Stats
    from aioqueue.vocabulary._store_operating import Operable
    from aioqueue.vocabulary._workers import LeaseFacts

    Tx = Connection | Transaction | Literal[Missing.MISSING]

__all__ = ["Operations"]

R = TypeVar("R")


class Operations:
    """The client's methods for operators.

    Those that take `tx=` look, and change, in that transaction, as `enqueue` stores in it: they see what was written in it, and
    what they change is so once it's committed. Without `tx=` they see what is committed, also inside our own `transaction()`
    of the same task, whose own changes aren't yet; there, what changes jobs is refused, as enqueueing is.
    """

    _session: Session

    async def job(self, job_id: UUID | str | JobHandle[Any], *, tx: Tx = MISSING) -> Job:
        """Look at one job as it is stored now, whatever its type: exactly this one, wherever its chain has got to.

        Arguments:
            job_id: An id or a handle.
            tx: A transaction to look in, as of `enqueue`.

        Raises:
            ValueError: The id isn't one.
            JobNotFound: There is no such job.
            StoreUnavailable: The database can't be reached.
            NotInTransaction: `tx` is in autocommit mode.
            OutsideTransaction: `tx` is None.
            ClientClosed: The client isn't open.
        """
        return await find_job(self._looking(tx), job_id)

    async def chain(self, job_id: UUID | str | JobHandle[Any], *, tx: Tx = MISSING) -> Job:
        """Look where a chain has got to: at its live step, or at its last one.

        Arguments:
            job_id: The chain's id, which is its first job's, or any other step's.
            tx: As of `job`.

        Returns:
            That step; its `chain_id` is the chain's. A job that nothing was continued from is a chain of one. A chain whose
            last steps were pruned is at the last one that is left, which is `continued`; there is no result of it any more.

        Raises:
            JobNotFound: There is no such chain. Others as `job` raises them.
        """
        return await find_end(self._looking(tx), job_id)

    async def chain_jobs(
        self, job_id: UUID | str | JobHandle[Any], *, limit: int = 100, cursor: str | None = None, tx: Tx = MISSING
    ) -> Page:
        """Show the steps of a chain, from the first to the live or last one. Earlier ones may have been pruned.

        Arguments:
            job_id: As of `chain`.
            limit: Steps on the page at most: 1 to 1,000.
            cursor: `page.cursor` of the page before.
            tx: As of `job`.

        Returns:
            The page; its `cursor` is None at the end.

        Raises:
            JobNotFound: There is no such chain.
            ValueError: The id isn't one, or the cursor isn't one of ours.
            ConfigurationError: The limit is out of its range.
        """
        return await list_steps(self._looking(tx), job_id, limit, cursor)

    async def blockers(
        self, job_id: UUID | str | JobHandle[Any], *, limit: int = 100, after: int = -1, tx: Tx = MISSING
    ) -> Sequence[Blocker]:
        """Show the chains that a job waits for, or has waited for, in the order in which its call named them.

        Arguments:
            job_id: As of `chain`: of a chain, the live or last step is meant.
            limit: At most so many: 1 to 1,000.
            after: The `ordinal` of the last one that was shown before.
            tx: As of `job`.

        Raises:
            JobNotFound: There is no such job.
            ConfigurationError: The limit is out of its range.
        """
        return await list_blockers(self._looking(tx), job_id, limit, after)

    async def dependents(self, job_id: UUID | str | JobHandle[Any], *, limit: int = 100, tx: Tx = MISSING) -> Sequence[Blocker]:
        """Show unfinished jobs that wait for the end of a chain, by their ids.

        Arguments:
            job_id: As of `chain`.
            limit: At most so many: 1 to 1,000.
            tx: As of `job`.

        Raises:
            JobNotFound: There is no such chain.
            ConfigurationError: The limit is out of its range.
        """
        return await list_dependents(self._looking(tx), job_id, limit)

    async def list_jobs(
        self,
        *,
        where: JobFilter | None = None,
        order: ListOrder | str = ListOrder.NEWEST,
        limit: int = 100,
        cursor: str | None = None,
        tx: Tx = MISSING,
        **filters: Unpack[Filters],
    ) -> Page:
        """Show jobs, live and finished, page by page. Without filters all are shown.

        A page costs little, however many jobs there are; where few of very many fit, it may have fewer jobs than asked for, or
        none, and still a cursor.

        Arguments:
            where: Which, as one filter, such as `retry` takes it; instead of those below.
            order: `"newest"`, `"oldest"`, `"due"`: unfinished ones, the first due first; `"finished"`: finished ones, the
                newest end first.
            limit: Jobs on the page at most: 1 to 1,000.
            cursor: `page.cursor` of the page before.
            tx: As of `job`.
            filters: All of these have to fit. `states`, `types`: any of these states, and job types (under their older names
                too) or names. `key`: exactly this one. `tag`: among the tags. `created_after`, `created_before`,
                `finished_after`, `finished_before`: at this time or later, earlier than it; an aware datetime, or as a
                timedelta how long ago by this machine's clock. `worker`: running on one of this name. `outcome`: finished with
                this label. `error_type`: the newest error's, such as `"ValueError"`. `chain`: its steps, by the chain's own
                id or a handle that has it.

        Returns:
            The page; its `cursor` is None at the end. What is there all the time is shown once, whatever comes and goes while
            pages are turned; by due time or end, one whose time has changed meanwhile may be shown twice, or not at all.

        Raises:
            ValueError: A state isn't known, an id isn't one, or the cursor isn't one of this order.
            TypeError: There is no such filter.
            ConfigurationError: A value is out of its range, or filters and order contradict each other.
        """
        return await list_page(self._looking(tx), where, order, limit, cursor, **filters)

    async def list_chains(
        self,
        *,
        where: JobFilter | None = None,
        order: ListOrder | str = ListOrder.NEWEST,
        limit: int = 100,
        cursor: str | None = None,
        tx: Tx = MISSING,
        **filters: Unpack[Filters],
    ) -> Page:
        """Show chains, page by page: each as its live or last step, which the filters are about. A job alone is a chain of one.

        Arguments, return value and errors are those of `list_jobs`. A chain whose last step was pruned isn't shown.
        """
        return await list_page(self._looking(tx), where, order, limit, cursor, ends=True, **filters)

    async def find(self, job_type: JobType[..., R, Any], *, key: str, tx: Tx = MISSING) -> JobHandle[R] | None:
        """Find the job, or chain, that has a key.

        Arguments:
            job_type: The type of its first job, under its older names too.
            key: As its call was given it, unique or not.
            tx: As of `job`.

        Returns:
            The handle of the unfinished one that holds it as its unique key, otherwise of the newest unfinished one, otherwise
            of the newest finished one. None if there is none.

        Raises:
            StoreUnavailable: The database can't be reached.
            ClientClosed: The client isn't open.
        """
        found = await find_by_key(self._looking(tx), job_type, key)
        # With tx= it may not be committed yet: its handle is patient.
        unseen = tx is not MISSING
        return (
            None if found is None else JobHandle(self._session, job_type, found.chain_id, created=False, commit_unseen=unseen)
        )

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

    @overload
    async def retry(self, *jobs: UUID | str | JobHandle[Any], cascade: bool = False, tx: Tx = MISSING) -> Changes: ...

    @overload
    async def retry(
        self, *, where: JobFilter, on_portion: OnPortion | None = None, cascade: bool = False, tx: Tx = MISSING
    ) -> Counter[Changed]: ...

    async def retry(
        self,
        *jobs: UUID | str | JobHandle[Any],
        where: JobFilter | None = None,
        on_portion: OnPortion | None = None,
        cascade: bool = False,
        tx: Tx = MISSING,
    ) -> Changes | Counter[Changed]:
        """Make failed or cancelled jobs pending again, with all their attempts. Of a chain, the last step is meant.

        One that waits for a chain which lives again waits for that again. Many are changed in portions of 1,000, each with a
        commit of its own: calling it again, after whatever has cut it short, goes on with the rest.

        Arguments:
            jobs: Ids or handles. Any step's id stands for its chain.
            where: All that fit, of each chain its live or last step, from the newest; failed or cancelled ones, unless it says
                one of these states. An empty filter is refused.
            on_portion: Called, or awaited, after each portion's commit, with its `Changes` and the numbers so far. What it
                raises ends this, after that portion.
            cascade: Whether those that have failed since one of these had failed live again too, and so on. They do so in one
                transaction with it, however many they are: one that comes to its timeout changes nothing.
            tx: As of `enqueue`; nothing has changed before its owner commits. With `where=` 1,000 jobs at most.

        Returns:
            What became of each, by the id that was given; `holders` says which chains hold the unique keys of those that are
            `KEY_HELD`. With `where=`: how many became what.

        Raises:
            ValueError: An id isn't one; nothing was changed.
            ConfigurationError: The filter is empty, or of other states; or jobs and a filter are given.
            StoreError: The database refused; its `changed` says what became of the portions before. With `where=` a portion
                that is at fault, or whose rows somebody holds, stops no other: it's raised at the end.
            OutsideTransaction: The task is inside our own `transaction()`, or `completion()`, of which it wouldn't be part.
            TransactionError: With `tx`: more than 1,000 jobs fit; nothing was changed.
            ClientClosed: The client isn't open.
        """
        store, within = self._changing(tx), tx is not MISSING
        return await retry_jobs(store, jobs, where, on_portion, cascade=cascade, within=within)

    @overload
    async def run_now(self, *jobs: UUID | str | JobHandle[Any], tx: Tx = MISSING) -> Changes: ...

    @overload
    async def run_now(self, *, where: JobFilter, on_portion: OnPortion | None = None, tx: Tx = MISSING) -> Counter[Changed]: ...

    async def run_now(
        self,
        *jobs: UUID | str | JobHandle[Any],
        where: JobFilter | None = None,
        on_portion: OnPortion | None = None,
        tx: Tx = MISSING,
    ) -> Changes | Counter[Changed]:
        """Make pending jobs due now; of a chain, the live step. Arguments, return value and errors are those of `retry`.

        With `where=` those that are scheduled.
        """
        return await run_jobs_now(self._changing(tx), jobs, where, on_portion, within=tx is not MISSING)

    @overload
    async def delete(self, *jobs: UUID | str | JobHandle[Any], cascade: bool = False, tx: Tx = MISSING) -> Changes: ...

    @overload
    async def delete(
        self, *, where: JobFilter, on_portion: OnPortion | None = None, cascade: bool = False, tx: Tx = MISSING
    ) -> Counter[Changed]: ...

    async def delete(
        self,
        *jobs: UUID | str | JobHandle[Any],
        where: JobFilter | None = None,
        on_portion: OnPortion | None = None,
        cascade: bool = False,
        tx: Tx = MISSING,
    ) -> Changes | Counter[Changed]:
        """Remove jobs, finished or not. Of a chain all steps are removed.

        A running one's worker is told, and cancels the attempt. Arguments, return value and errors are those of `retry`; also:

        Arguments:
            where: Running jobs only if it says `running` among its states. One that fits, and is changed by somebody in the
                moment before it's removed, is removed all the same.
            cascade: Whether unfinished jobs that wait for one of these are removed too, and those that wait for them. Many are
                removed in portions, which workers go on with.

        Raises:
            BlockerReference: Other unfinished jobs wait for one of `jobs`, which was left as it is, without `cascade`. The
                others were removed: its `changed` says what became of each. With `where=` they're counted as `BLOCKS`.
        """
        store, within = self._changing(tx), tx is not MISSING
        return await delete_jobs(store, jobs, where, on_portion, cascade=cascade, within=within)

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
        return await prune_in_portions(self._committing(), older_than, states, types, on_portion)

    def _looking(self, tx: Tx) -> Operable:
        """What is looked with."""
        return self._session.opened().store if tx is MISSING else operations_in(self._session, tx)

    def _changing(self, tx: Tx) -> Operable:
        """What changes jobs."""
        return self._committing() if tx is MISSING else operations_in(self._session, tx)

    def _committing(self) -> Store:
        """The store, for what commits at once."""
        opened = self._session.opened()
        opened.refuse_outside_transaction()
        return opened.store
