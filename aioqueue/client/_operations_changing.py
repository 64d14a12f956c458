"""What operators call to change jobs: retry, run now, reschedule, cancel, delete, prune. `Operations` has it all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from aioqueue.client._bound import MISSING, Missing, operations_in
from aioqueue.client._changes import cancel_jobs, delete_jobs, reschedule_jobs, retry_jobs, run_jobs_now
from aioqueue.client._portions import prune_in_portions

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.client._bound import Connection
    from aioqueue.client._handle import JobHandle
    from aioqueue.client._portions import Cancellations, Changes, OnCancelled, OnPortion
    from aioqueue.client._session import Session
    from aioqueue.client._transaction import Transaction
    from aioqueue.definitions._job_type import JobType
    from aioqueue.vocabulary._answers import Cancellation, Changed
    from aioqueue.vocabulary._job import JobState
    from aioqueue.vocabulary._listing import JobFilter
    from aioqueue.vocabulary._store_operating import Operable

    Tx = Connection | Transaction | Literal[Missing.MISSING]

__all__ = ["ChangingOperations"]


class ChangingOperations:
    """The client's methods that change jobs."""

    _session: Session

    @overload
    async def retry(
        self, *jobs: UUID | str | JobHandle[Any], cascade: bool = False, from_start: bool = False, tx: Tx = MISSING
    ) -> Changes: ...

    @overload
    async def retry(
        self,
        *,
        where: JobFilter,
        on_portion: OnPortion | None = None,
        cascade: bool = False,
        from_start: bool = False,
        tx: Tx = MISSING,
    ) -> Counter[Changed]: ...

    async def retry(
        self,
        *jobs: UUID | str | JobHandle[Any],
        where: JobFilter | None = None,
        on_portion: OnPortion | None = None,
        cascade: bool = False,
        from_start: bool = False,
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
            from_start: Whether the results of their phases are forgotten, and with them their progress: otherwise the next
                attempt goes on behind what is completed. Those that come along with `cascade` keep theirs.
            tx: As of `enqueue`; nothing has changed before its owner commits. With `where=` 1,000 jobs at most.

        Returns:
            What became of each, by the id that was given; `holders` says which chains hold the unique keys of those that are
            `KEY_HELD`. One that somebody's open transaction holds, its row, its unique key, or with `cascade` a job behind it,
            is `CONTENDED` after about two seconds (within a transaction of our own at once): it hasn't been changed, and stops
            no other. With `where=`: how many became what.

        Raises:
            ValueError: An id isn't one; nothing was changed.
            ConfigurationError: The filter is empty, or of other states; or jobs and a filter are given.
            StoreError: The database refused; its `changed` says what became of the portions before. With `where=` a portion
                with a row at fault stops no other, nor does one that meets a lock on a whole table, or on SQLite's file: it's
                raised at the end. With another library's transaction as `tx` whatever that one can't lock is an error.
            OutsideTransaction: The task is inside our own `transaction()`, or `completion()`, of which it wouldn't be part.
            TransactionError: With `tx`: more than 1,000 jobs fit; nothing was changed.
            ClientClosed: The client isn't open.
        """
        store, within = self._changing(tx), tx is not MISSING
        return await retry_jobs(store, jobs, where, on_portion, cascade=cascade, from_start=from_start, within=within)

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
    async def reschedule(
        self,
        *jobs: UUID | str | JobHandle[Any],
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        tx: Tx = MISSING,
    ) -> Changes: ...

    @overload
    async def reschedule(
        self,
        *,
        where: JobFilter,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        on_portion: OnPortion | None = None,
        tx: Tx = MISSING,
    ) -> Counter[Changed]: ...

    async def reschedule(
        self,
        *jobs: UUID | str | JobHandle[Any],
        where: JobFilter | None = None,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        on_portion: OnPortion | None = None,
        tx: Tx = MISSING,
    ) -> Changes | Counter[Changed]:
        """Change when pending jobs are due; of a chain, the live step. A time to expire isn't moved with it.

        Arguments, return value and errors are those of `retry`; also:

        Arguments:
            where: Those that are scheduled, unless it says `ready` or `held`.
            delay: Seconds, or a timedelta, from now by the database's clock.
            at: In place of it: a timezone-aware time. One in the past means now.

        Raises:
            ConfigurationError: There isn't one of the two, or it can't be a time.
        """
        store, within = self._changing(tx), tx is not MISSING
        return await reschedule_jobs(store, jobs, where, on_portion, delay=delay, at=at, within=within)

    @overload
    async def cancel(
        self, *jobs: UUID | str | JobHandle[Any], reason: str = "", tx: Tx = MISSING
    ) -> dict[UUID, Cancellation]: ...

    @overload
    async def cancel(
        self, *, where: JobFilter, reason: str = "", on_portion: OnCancelled | None = None, tx: Tx = MISSING
    ) -> Counter[Cancellation]: ...

    async def cancel(
        self,
        *jobs: UUID | str | JobHandle[Any],
        where: JobFilter | None = None,
        reason: str = "",
        on_portion: OnCancelled | None = None,
        tx: Tx = MISSING,
    ) -> Cancellations | Counter[Cancellation]:
        """Ask jobs to end, and their chains with them. What isn't running is cancelled at once, and never starts.

        Of a running one the worker is told, wherever it is: its attempt is cancelled. The job is cancelled too once that has
        ended, unless its handler has returned a value, completed it or raised `Fail`. Arguments, return value and errors are
        those of `retry`; also:

        Arguments:
            where: Those that aren't finished, running ones included.
            reason: For people: stored with each job, of which at most 1,000 characters are kept. The first one that a chain is
                given counts.

        Returns:
            What became of each, by the id that was given: `CANCELLED`; `CANCELLING` (it's running, or somebody holds its row);
            `FINISHED` before; `NOT_FOUND`. With `where=`: how many became what.

        Raises:
            TypeError: The reason isn't text.
            StoreContended: With `tx`, or on SQLite: somebody held a row, or the file, for too long; nothing was changed.
        """
        return await cancel_jobs(self._changing(tx), jobs, where, on_portion, reason=reason, within=tx is not MISSING)

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

    def _changing(self, tx: Tx) -> Operable:
        """What changes jobs."""
        return self._committing() if tx is MISSING else operations_in(self._session, tx)

    def _committing(self) -> Store:
        """The store, for what commits at once."""
        opened = self._session.opened()
        opened.refuse_outside_transaction()
        return opened.store
