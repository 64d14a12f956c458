"""Every error that aioqueue raises on purpose.

    AioqueueError
    ├── ConfigurationError            settings that contradict each other, or can't be read
    │   ├── RegistrationError         a handler, name or annotation that can't be registered
    │   └── NotSupported              this store hasn't got an optional ability
    ├── CallError                     a call that can't be made or enqueued
    │   ├── ArgumentsError            arguments that don't fit the signature, or can't be stored
    │   ├── CallAlreadyEnqueued
    │   ├── ConflictingOptions
    │   ├── OutputNotReady            an output that was used before its job has run
    │   ├── DuplicateJob              another job has the unique key, and the call is to say so
    │   ├── BlockerNotFound           a chain to wait for that doesn't exist
    │   └── BlockerCycle              jobs that would wait for each other for ever
    ├── TransactionError
    │   ├── NotInTransaction          a `tx` that is in autocommit mode
    │   ├── OutsideTransaction        an enqueue beside our own open transaction
    │   ├── CompletionNotDone         a block of `completion()` that was left without `done`, or never committed
    │   └── NotCommitted              a result that was awaited before the commit
    ├── ClientClosed
    ├── JobError                      what became of one job; carries its id, and its chain's
    │   ├── JobNotFound
    │   ├── JobFailed
    │   ├── JobCancelled
    │   ├── ResultTimeout
    │   ├── AlreadyFinished           a job that was to be ended from outside, and has ended before
    │   ├── WrongJobType              a job that was to be completed as another type's
    │   ├── BlockerReference          a job that can't be deleted, since others wait for it
    │   └── ResultError               a stored output that isn't of the type that was declared
    ├── PhaseError                    a phase of a job that can't be run; carries its name
    │   ├── PhaseNotDeclared
    │   ├── PhaseRepeated             one that has finished in this attempt
    │   ├── PhasesOverlap             one that was to begin while another runs
    │   └── PhaseResultError          a result that can't be stored, or isn't of the function's type any more
    ├── ProcessFailed                 a handler's own process that couldn't be started, or has crashed
    ├── NotInProcess                  what doesn't reach a handler's own process, such as the client
    ├── LeaseLost                     a worker's lease has ended: nothing was claimed with it
    ├── DryRunRefused                 a job that can't be part of a dry run
    ├── SingletonHeld                 another process works under the name that only one may have
    ├── ScheduleError                 a schedule that can't be changed; carries its name
    │   ├── ScheduleNotFound
    │   └── ScheduleOwned             one that code defines, and that was to be put or deleted beside it
    └── StoreError                    the database refused
        ├── StoreUnavailable          it can't be reached, or can't write, now: worth trying again
        │   └── StoreContended        somebody else's open transaction holds what this needs
        ├── StoreIncompatible         its schema is too old or too new for this code, or missing
        └── RowRejected               one row of a batch is at fault

`JobControl` stands apart: handlers raise it to say what comes next, and it isn't an error.
A class exists here only because a caller would want to catch it apart from the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Required, TypedDict

from aioqueue.errors._root import AioqueueError, Portable
from aioqueue.errors._schedules import ScheduleError, ScheduleNotFound, ScheduleOwned
from aioqueue.errors._store import StoreError
from aioqueue.errors._workers import DryRunRefused, SingletonHeld

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack
    from uuid import UUID

__all__ = [
    "AioqueueError",
    "AlreadyFinished",
    "ArgumentsError",
    "BlockerCycle",
    "BlockerNotFound",
    "BlockerReference",
    "CallAlreadyEnqueued",
    "CallError",
    "CallNeverEnqueued",
    "ClientClosed",
    "CompletionNotDone",
    "ConfigurationError",
    "ConflictingOptions",
    "DryRunRefused",
    "DuplicateJob",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobNotFound",
    "LeaseLost",
    "NotCommitted",
    "NotInProcess",
    "NotInTransaction",
    "NotSupported",
    "OutputNotReady",
    "OutsideTransaction",
    "PhaseError",
    "PhaseNotDeclared",
    "PhaseRepeated",
    "PhaseResultError",
    "PhasesOverlap",
    "Portable",
    "ProcessFailed",
    "RegistrationError",
    "ResultError",
    "ResultTimeout",
    "RowRejected",
    "ScheduleError",
    "ScheduleNotFound",
    "ScheduleOwned",
    "SingletonHeld",
    "StoreContended",
    "StoreError",
    "StoreIncompatible",
    "StoreUnavailable",
    "TransactionError",
    "WrongJobType",
]


class ConfigurationError(AioqueueError):
    """Settings that contradict each other, or a value that can't be read."""


class RegistrationError(ConfigurationError):
    """A handler, a name or an annotation that can't be registered."""


class NotSupported(ConfigurationError):
    """The store hasn't got an ability that only some stores have.

    Arguments:
        message: Which store, and what to do instead.
        ability: The name of the method that it lacks, such as `statement`.
    """

    def __init__(self, message: str, *, ability: str) -> None:
        super().__init__(message)
        self.ability = ability


class CallError(AioqueueError):
    """A call that can't be made or enqueued."""


class ArgumentsError(CallError, TypeError):
    """Arguments that don't fit the handler's signature, or can't be stored exactly.

    Arguments:
        message: What is wrong and what to do about it.
        path: Where the value is, such as `order.items[2].price`; empty when the whole call is meant.
    """

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class CallAlreadyEnqueued(CallError):
    """The same call was enqueued twice; `call.copy()` makes another."""


class ConflictingOptions(CallError):
    """Options of one call that exclude each other."""


class DuplicateJob(CallError):
    """A call's unique key is held by another chain, and its `on_conflict` is `"raise"`. Nothing was stored.

    Arguments:
        message: Which one, and what it is.
        job_id: The id of the call's job.
        key: The key.
        chain_id: The id of the chain that holds it.
    """

    def __init__(self, message: str, *, job_id: UUID, key: str, chain_id: UUID) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.key = key
        self.chain_id = chain_id


class OutputNotReady(CallError):
    """The output of a call was used before its job has run: it can only be passed on as an argument of another call."""


class BlockerNotFound(CallError):
    """A job was to wait for a chain that isn't stored: it was never committed, or has been deleted.

    Arguments:
        message: Which one.
        blocker_id: The id that was given for it.
    """

    def __init__(self, message: str, *, blocker_id: UUID) -> None:
        super().__init__(message)
        self.blocker_id = blocker_id


class BlockerCycle(CallError):
    """Jobs would wait for each other for ever. Nothing was stored."""


class TransactionError(AioqueueError):
    """A transaction that is used where it can't be."""


class NotInTransaction(TransactionError):
    """The connection given as `tx=` has no open transaction: an enqueue on it would commit on its own."""


class OutsideTransaction(TransactionError):
    """An enqueue without `tx=`, or another change of jobs, inside aioqueue's own open transaction of the same task."""


class CompletionNotDone(TransactionError):
    """A block of `attempt.completion()` was left without `done`, or its `tx=` wasn't committed. Nothing of it was written."""


class NotCommitted(TransactionError):
    """A result was awaited before the transaction that enqueued its job had committed."""


class ClientClosed(AioqueueError):
    """The client, or its store, isn't open here: it was closed or never opened, or opened in another process or event loop.

    Use it inside `async with Client(...)`, and open one in each event loop, and in each process after a fork.
    """


class _OfJob(TypedDict, total=False):
    job_id: Required[UUID]
    job_type: str | None
    last_error: str | None
    chain_id: UUID | None


class JobError(AioqueueError):
    """What became of one job.

    Arguments:
        message: What happened.
        job_id: The job's id: of a chain, that of the step which this is about.
        job_type: The job's type name, where it is known.
        last_error: The newest error of the job's history, as text, where there is one.
        chain_id: The id of its chain, which is its first job's; None stands for the job's own.
    """

    def __init__(
        self,
        message: str,
        *,
        job_id: UUID,
        job_type: str | None = None,
        last_error: str | None = None,
        chain_id: UUID | None = None,
    ) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.chain_id = job_id if chain_id is None else chain_id
        self.job_type = job_type
        self.last_error = last_error


class JobNotFound(JobError):
    """No job has this id: it was never committed, or has been deleted."""


class JobFailed(JobError):
    """The job has failed for good."""


class JobCancelled(JobError):
    """The job was cancelled, or it expired before it could start."""


class ResultTimeout(JobError, TimeoutError):
    """The job wasn't finished within the timeout; it goes on."""


class AlreadyFinished(JobError):
    """The job was to be completed or failed from outside, and has ended before: `state` says how, such as `completed`."""

    def __init__(self, message: str, *, state: str, **job: Unpack[_OfJob]) -> None:
        super().__init__(message, **job)
        self.state = state


class WrongJobType(JobError):
    """The job was to be completed from outside, or enqueued with an id of the caller's choice, as one of another type than it
    is. Nothing was written.
    """


class BlockerReference(JobError):
    """The job can't be deleted, since other unfinished jobs wait for its chain; `cascade=True` takes them along.

    `dependents` are the ids of those that wait, ten at most; `changed` is what became of the jobs to be deleted with it, by id.
    """

    def __init__(
        self, message: str, *, dependents: tuple[UUID, ...], changed: Mapping[UUID, object], **job: Unpack[_OfJob]
    ) -> None:
        super().__init__(message, **job)
        self.dependents = dependents
        self.changed = changed


class ResultError(JobError):
    """The stored output can't be read as the type that the handler declares."""


class PhaseError(AioqueueError):
    """A phase of a job can't be run; `phase` is its name."""

    def __init__(self, message: str, *, phase: str) -> None:
        super().__init__(message)
        self.phase = phase


class PhaseNotDeclared(PhaseError):
    """The job's type has no phase of this name."""


class PhaseRepeated(PhaseError):
    """The phase has finished in this attempt, or an earlier one's result has taken its place."""


class PhasesOverlap(PhaseError):
    """Another phase of the attempt is running: they run one after another."""


class PhaseResultError(PhaseError):
    """What a phase has returned can't be stored, or what is stored of it isn't of its function's return type any more."""


class ProcessFailed(AioqueueError):
    """A handler's own process couldn't be started, or has ended before the handler did: it has crashed, was killed, or exited.

    `exit_code` is what it exited with, or the negative number of the signal that has killed it; None if it wasn't started.
    """

    def __init__(self, message: str, *, exit_code: int | None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class NotInProcess(AioqueueError, RuntimeError):
    """What was used of an attempt is in its worker only, and doesn't reach the process of its handler."""


class LeaseLost(AioqueueError):
    """The worker's lease, or one of its claims, is no longer its own.

    Arguments:
        message: Which one.
        reason: Of a claim: `taken_by_another_worker`, `already_completed`, `not_found`, `cancelled` or `lease_lapsed`.
    """

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class StoreUnavailable(StoreError):
    """The database can't be reached, or can't write, at the moment. Trying again may help."""


class StoreContended(StoreUnavailable):
    """Somebody else's open transaction holds what this needs, such as a unique key. Nothing was written."""


class StoreIncompatible(StoreError):
    """The schema is missing, too old, or too new for this code."""


class RowRejected(StoreError):
    """One row of a batch is at fault. A batch that raises this changed nothing, and may be halved."""


class CallNeverEnqueued(UserWarning):
    """A call was made and dropped without being enqueued: calling a job type doesn't run it."""
