"""Makes the handles of jobs, and waits for their results: what a producer holds of a job."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from aioqueue.client._cancelling import cancelling
from aioqueue.client._finished import became, last_error, named
from aioqueue.client._phase import Phase
from aioqueue.client._progress import Teller, check_on_progress, with_all_phases
from aioqueue.client._waiters import GAVE_UP, step_that_counts
from aioqueue.definitions._context import current_attempt
from aioqueue.definitions._output import HasOutput
from aioqueue.errors import (
    JobCancelled,
    JobFailed,
    JobNotFound,
    NotCommitted,
    RegistrationError,
    ResultError,
    ResultTimeout,
)
from aioqueue.vocabulary._identifiers import read_id
from aioqueue.vocabulary._job import Job, JobState
from aioqueue.vocabulary._time import seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta
    from uuid import UUID

    from aioqueue.client._phase import TransactionState
    from aioqueue.client._progress import OnProgress
    from aioqueue.client._session import Session
    from aioqueue.definitions._call import Call, JobDefinition
    from aioqueue.vocabulary._answers import Cancellation
    from aioqueue.vocabulary._job import Inserted
    from aioqueue.vocabulary._phases import Progress

__all__ = ["JobHandle", "ids_of", "make_handles"]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class JobHandle(HasOutput[R_co]):
    """One job, or the chain that it begins, as its producer sees it.

    `client.enqueue` gives it, and `client.handle(job_type, id)` makes another. The id may be that of any step of a chain:
    result and snapshot are those of the chain.

    Attributes:
        id: The job's id; an enqueued one's is also its chain's.
        job_type: Its type, which says what the result is.
        created: Whether the enqueue stored it; False if a chain with the same unique key, or the chosen id, was there already.
        replaced: Whether that one has got the call's arguments and options (`Unique(on_conflict="replace")`).
    """

    __slots__ = ("_commit_unseen", "_session", "_state", "created", "id", "job_type", "replaced")

    id: UUID
    job_type: JobDefinition
    created: bool
    replaced: bool

    def __init__(
        self,
        session: Session,
        job_type: JobDefinition,
        job_id: UUID | str,
        *,
        created: bool = True,
        replaced: bool = False,
        state: TransactionState | None = None,
        commit_unseen: bool = False,
    ) -> None:
        self.id = read_id(job_id)
        self.job_type = job_type
        self.created = created
        self.replaced = replaced
        self._session = session
        self._state = state
        self._commit_unseen = commit_unseen

    async def result(self, timeout: float | timedelta | None = None, *, on_progress: OnProgress | None = None) -> R_co:
        """Wait for the end, of the job or of the chain that it's a step of, and give the output.

        One wake-up and one look-up serve all who wait in a client. A job that was enqueued with `tx=` in a user's
        transaction, whose commit nobody reports, isn't missed before the client's `uncommitted_grace` has passed.
        In a handler it holds a slot while it waits, which warns.

        Arguments:
            timeout: Seconds or timedelta, after which it looks a last time; 0 looks once; None waits for ever.
            on_progress: Called, or awaited, with the job's newest `Progress` meanwhile, about twice a second at most; the last
                one comes before the result. What it raises is logged. One that is busy misses what isn't the newest any more,
                and holds the result up for a second at most.

        Returns:
            The output, in the type that the handler declares.

        Raises:
            ResultTimeout: It isn't finished; it goes on.
            JobFailed: It failed for good, in a chain at the step that `job_id` names; `last_error` says why.
            JobCancelled: It was cancelled, or expired before it could start.
            JobNotFound: There is no such job: it was rolled back, or deleted.
            ResultError: The output can't be read as the declared type.
            NotCommitted: The transaction that enqueues it is still open.
            ClientClosed: The client isn't open, or was closed meanwhile.
        """
        limit = None if timeout is None else seconds(timeout, "timeout")
        self._check_committed()
        _warn_in_attempt(self.job_type.name)
        return self._read(await self._finished(limit, on_progress))

    async def snapshot(self) -> Job:
        """Look at the job as it is stored now: in a chain, at the step that is live, or at the last one.

        Raises:
            JobNotFound: There is no such job (yet, where a user's transaction hasn't been committed).
            NotCommitted: The transaction that enqueues it is still open.
            StoreUnavailable: The database can't be reached.
            ClientClosed: The client isn't open.
        """
        self._check_committed()
        (job,) = await self._session.opened().store.fetch_ends([self.id])
        return with_all_phases(self._found(job), self.job_type)

    async def progress(self) -> Progress | None:
        """Look how far the job had come when it said so last: in a chain, the step that is live, or the last one.

        Returns:
            None if it hasn't said anything. What it has said stays when it has ended.

        Raises:
            AioqueueError: As `snapshot`.
        """
        return (await self.snapshot()).progress

    async def cancel(self, *, reason: str = "") -> Cancellation:
        """Ask the job to end, and its chain with it, as `Client.cancel` does.

        Arguments:
            reason: Why, for people.

        Returns:
            What became of it; `NOT_FOUND`, too, where a user's transaction that enqueues it hasn't been committed.

        Raises:
            NotCommitted: The transaction that enqueues it is still open: there it's `tx.cancel(handle)`.
            JobNotFound: That transaction was rolled back.
            OutsideTransaction: The task is inside our own `transaction()`, or `completion()`, of which it wouldn't be part.
            StoreUnavailable: The database can't be reached.
            ClientClosed: The client isn't open.
        """
        self._check_committed()
        opened = self._session.opened()
        opened.refuse_outside_transaction()
        return (await cancelling(opened.store, reason)([self.id]))[self.id]

    def _check_committed(self) -> None:
        phase = None if self._state is None else self._state.phase
        if phase is Phase.OPEN:
            raise NotCommitted(
                f"the job {self.id} of {self.job_type.name} is enqueued in a transaction that is still open, so it doesn't "
                "exist yet: look at it after the `async with client.transaction()` block"
            )
        if phase is Phase.ROLLED_BACK:
            self._missing("the transaction that enqueued it was rolled back")

    async def _finished(self, limit: float | None, on_progress: OnProgress | None) -> Job:
        check_on_progress(on_progress)
        opened = self._session.opened()
        uncommitted = self._commit_unseen or (self._state is not None and self._state.phase is Phase.UNCLEAR)
        if limit == 0:
            (end,) = await opened.store.fetch_ends([self.id])
            job = step_that_counts(end)
            if (job is None and not uncommitted) or (job is not None and job.state.finished):
                return self._found(job)
            self._timed_out(job, 0)
        teller = None if on_progress is None else Teller(on_progress, self.id)
        try:
            waiter = opened.waiters.add(
                self.id,
                patience=opened.settings.uncommitted_grace if uncommitted else 0,
                give_up_after=limit,
                hear=None if teller is None else teller.hear,
            )
            try:
                found = await waiter.future
            finally:
                opened.waiters.remove(waiter)
            if teller is not None and isinstance(found, Job):
                await teller.finish()
        finally:
            if teller is not None:
                teller.stop()
        if found is GAVE_UP:
            self._timed_out(waiter.seen, cast("float", limit))
        return self._found(found, waiter.seen)

    def _found(self, job: Job | None, seen: Job | None = None) -> Job:
        if job is None:
            self._missing("it was never committed, or has been deleted", seen)
        return job

    def _missing(self, reason: str, seen: Job | None = None) -> NoReturn:
        raise JobNotFound(
            f"there is no job {self.id} of {self.job_type.name}: {reason}",
            job_id=self.id,
            job_type=self.job_type.name,
            chain_id=None if seen is None else seen.chain_id,
        )

    def _timed_out(self, job: Job | None, limit: float) -> NoReturn:
        if job is None:
            raise ResultTimeout(
                f"the job {self.id} of {self.job_type.name} isn't finished after {limit:g} s: it is not there yet",
                job_id=self.id,
                job_type=self.job_type.name,
            )
        raise ResultTimeout(
            f"{named(job)} isn't finished after {limit:g} s: it is {job.state.value}",
            job_id=job.id,
            job_type=job.type,
            last_error=last_error(job),
            chain_id=job.chain_id,
        )

    def _read(self, job: Job) -> R_co:
        if job.state is JobState.COMPLETED:
            return self._decode(job)
        kind = JobFailed if job.state is JobState.FAILED else JobCancelled
        raise kind(
            f"{named(job)} {became(job)}",
            job_id=job.id,
            job_type=job.type,
            last_error=last_error(job),
            chain_id=job.chain_id,
        )

    def _decode(self, job: Job) -> R_co:
        try:
            output: Any = self.job_type.decode_output(b"null" if job.output_json is None else job.output_json)
        except RegistrationError:
            raise
        except Exception as error:
            # Whatever a converter or validator of the user's raises.
            raise ResultError(
                f"the output of {named(job)} isn't what {self.job_type.name} declares: {error}",
                job_id=job.id,
                job_type=job.type,
                last_error=last_error(job),
                chain_id=job.chain_id,
            ) from error
        return cast("R_co", output)

    def __repr__(self) -> str:
        how = "" if self.created else " (was there already, and was replaced)" if self.replaced else " (was there already)"
        return f"<JobHandle {self.job_type.name} {self.id}{how}>"


def make_handles(
    session: Session,
    calls: Sequence[Call[R]],
    inserted: Sequence[Inserted],
    *,
    state: TransactionState | None = None,
    commit_unseen: bool = False,
) -> list[JobHandle[R]]:
    """Make the handles of calls that were enqueued.

    Arguments:
        session: Of the client that enqueued them.
        calls: As enqueued.
        inserted: What became of each, in order.
        state: Of the client's transaction in which that was.
        commit_unseen: Whether that was in a transaction of the user's, whose commit nobody reports.
    """
    return [
        JobHandle(
            session,
            call.job_type,
            each.id,
            created=each.created,
            replaced=each.replaced,
            state=state,
            commit_unseen=commit_unseen,
        )
        for call, each in zip(calls, inserted, strict=True)
    ]


def ids_of(jobs: Iterable[UUID | str | JobHandle[Any]]) -> list[UUID]:
    """The ids of what is given as ids, their texts or handles, each once.

    Raises:
        ValueError: One is neither.
    """
    return list(dict.fromkeys(each.id if isinstance(each, JobHandle) else read_id(each) for each in jobs))


def _warn_in_attempt(name: str) -> None:
    try:
        attempt = current_attempt()
    except RuntimeError:
        return
    warnings.warn(
        f"the handler of {attempt.job.type} waits for the result of a {name} job: it holds its slot all the while, and if all "
        "slots wait like this, nothing runs any more",
        RuntimeWarning,
        stacklevel=3,
    )
