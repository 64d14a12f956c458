"""What operators call: looking at jobs; the classes below have what changes them, and what is to come. `Client` has it all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

from aioqueue.client._blockers import list_blockers, list_dependents
from aioqueue.client._bound import MISSING, Missing, operations_in
from aioqueue.client._deliveries import list_deliveries, replay_deliveries
from aioqueue.client._diagnosis import diagnose
from aioqueue.client._handle import JobHandle, ids_of
from aioqueue.client._operate import find_by_key, find_end, find_job, find_logs, list_page, list_steps
from aioqueue.client._operations_planning import PlanningOperations
from aioqueue.client._why import why
from aioqueue.vocabulary._listing import ListOrder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from typing_extensions import Unpack

    from aioqueue.client._bound import Connection
    from aioqueue.client._filters import Filters
    from aioqueue.client._reasons import Why
    from aioqueue.client._session import Session
    from aioqueue.client._transaction import Transaction
    from aioqueue.definitions._job_type import JobType
    from aioqueue.definitions._registry import Registry
    from aioqueue.vocabulary._attempt_log import AttemptLog
    from aioqueue.vocabulary._blockers import Blocker
    from aioqueue.vocabulary._finding import Finding
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._listing import JobFilter, Page
    from aioqueue.vocabulary._stats import Stats
    from aioqueue.vocabulary._store_operating import Operable
    from aioqueue.vocabulary._webhooks import Delivery, DeliveryPage, DeliveryState
    from aioqueue.vocabulary._workers import LeaseFacts

    Tx = Connection | Transaction | Literal[Missing.MISSING]

__all__ = ["Operations"]

R = TypeVar("R")


class Operations(PlanningOperations):
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

    async def logs(self, job_id: UUID | str | JobHandle[Any], *, tx: Tx = MISSING) -> Sequence[AttemptLog]:
        """Show what a job's attempts have logged, where its type has `capture_logs=`: the newest ten, oldest first.

        Each is written with the outcome of its attempt: what is running has none yet, and one that was lost never gets any.

        Arguments:
            job_id: As of `job`: exactly this one.
            tx: As of `job`.

        Raises:
            JobNotFound: There is no such job. Others as `job` raises them.
        """
        return await find_logs(self._looking(tx), job_id)

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

    async def deliveries(
        self,
        job: UUID | str | JobHandle[Any] | None = None,
        *,
        state: DeliveryState | str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> DeliveryPage:
        """Show what is sent, or was, of ends of jobs that have a webhook, the newest first: the last answer, and the next try.

        Arguments:
            job: Only of this job's chain: an id, of any step, or a handle.
            state: Only those in this one: `"pending"`, `"delivered"` or `"failed"`.
            limit: On the page at most: 1 to 1,000.
            cursor: `page.cursor` of the page before.

        Raises:
            ValueError: The id isn't one, the state isn't known, or the cursor isn't one of ours.
            NotSupported: The store keeps no deliveries.
            StoreUnavailable: The database can't be reached.
        """
        return await list_deliveries(self._session.opened().store, job, state, limit, cursor)

    async def replay_deliveries(self, *deliveries: Delivery | UUID | str) -> list[bool]:
        """Have deliveries sent once more, at once and whatever became of them: with the same ids and bodies.

        Arguments:
            deliveries: As `deliveries` shows them, or their ids.

        Returns:
            Whether each was there.

        Raises:
            ValueError: An id isn't one.
            NotSupported: The store keeps no deliveries.
            StoreUnavailable: The database can't be reached.
        """
        return await replay_deliveries(self._session.opened().store, deliveries)

    async def leases(self) -> Sequence[LeaseFacts]:
        """Show the leases of all workers: who is alive, since when, for which types, with how many slots, and how busy."""
        return await self._session.opened().store.leases()

    def _looking(self, tx: Tx) -> Operable:
        """What is looked with."""
        return self._session.opened().store if tx is MISSING else operations_in(self._session, tx)
