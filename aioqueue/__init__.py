"""Durable background jobs for asyncio, in the database that you have: PostgreSQL or SQLite."""

# First of all: in a process that is a worker, it takes the signals over before anything else is imported.
from aioqueue.runtime import _process as _process  # isort: split

from aioqueue.client import BoundClient, Changes, Client, EventStream, JobHandle, Reason, ReasonCode, Transaction, Why
from aioqueue.definitions._call import Call
from aioqueue.definitions._completion import Completion
from aioqueue.definitions._context import Attempt, current_attempt
from aioqueue.definitions._continuation import done
from aioqueue.definitions._job_type import JobType
from aioqueue.definitions._middleware import CallNext, CompletionMiddleware, EnqueueMiddleware, EnqueueNext, Middleware
from aioqueue.definitions._registry import Registry
from aioqueue.definitions._resources import Resource
from aioqueue.errors import (
    AioqueueError,
    AlreadyFinished,
    ArgumentsError,
    BlockerCycle,
    BlockerNotFound,
    BlockerReference,
    CallAlreadyEnqueued,
    CallError,
    CallNeverEnqueued,
    ClientClosed,
    CompletionNotDone,
    ConfigurationError,
    ConflictingOptions,
    DuplicateJob,
    JobCancelled,
    JobError,
    JobFailed,
    JobNotFound,
    LeaseLost,
    NotCommitted,
    NotInProcess,
    NotInTransaction,
    NotSupported,
    OutputNotReady,
    OutsideTransaction,
    PhaseError,
    PhaseNotDeclared,
    PhaseRepeated,
    PhaseResultError,
    PhasesOverlap,
    ProcessFailed,
    RegistrationError,
    ResultError,
    ResultTimeout,
    RowRejected,
    StoreContended,
    StoreError,
    StoreIncompatible,
    StoreUnavailable,
    TransactionError,
    WrongJobType,
)
from aioqueue.telemetry._server import MetricsServer, serve_metrics
from aioqueue.vocabulary._answers import Cancellation, Changed
from aioqueue.vocabulary._attempt_log import AttemptLog
from aioqueue.vocabulary._blockers import Blocker
from aioqueue.vocabulary._cancel_reason import CancelReason
from aioqueue.vocabulary._ends import Completed, Failed
from aioqueue.vocabulary._finding import Finding, Verdict
from aioqueue.vocabulary._job import AttemptError, Inserted, Job, JobState, NewJob, Priority
from aioqueue.vocabulary._job_attempts import JobAttempt
from aioqueue.vocabulary._job_control import Cancel, Fail, JobControl, Reschedule, RetryIn
from aioqueue.vocabulary._listing import JobFilter, ListOrder, Page
from aioqueue.vocabulary._pauses import Pause, PauseTarget
from aioqueue.vocabulary._phases import Phase, PhaseState, Progress
from aioqueue.vocabulary._retry import Backoff, Exponential, Fixed, Linear, Retry, Steps
from aioqueue.vocabulary._stats import Stats
from aioqueue.vocabulary._unique import Unique
from aioqueue.vocabulary._webhooks import Delivery, DeliveryPage, DeliveryState
from aioqueue.vocabulary._workers import LeaseFacts
from aioqueue.worker import Health, LateAttempt, OnceResult, Worker

__all__ = [
    "AioqueueError",
    "AlreadyFinished",
    "ArgumentsError",
    "Attempt",
    "AttemptError",
    "AttemptLog",
    "Backoff",
    "Blocker",
    "BlockerCycle",
    "BlockerNotFound",
    "BlockerReference",
    "BoundClient",
    "Call",
    "CallAlreadyEnqueued",
    "CallError",
    "CallNeverEnqueued",
    "CallNext",
    "Cancel",
    "CancelReason",
    "Cancellation",
    "Changed",
    "Changes",
    "Client",
    "ClientClosed",
    "Completion",
    "CompletionMiddleware",
    "CompletionNotDone",
    "Completed",
    "ConfigurationError",
    "ConflictingOptions",
    "Delivery",
    "DeliveryPage",
    "DeliveryState",
    "DuplicateJob",
    "EnqueueMiddleware",
    "EnqueueNext",
    "EventStream",
    "Exponential",
    "Fail",
    "Failed",
    "Finding",
    "Fixed",
    "Health",
    "Inserted",
    "Job",
    "JobAttempt",
    "JobCancelled",
    "JobControl",
    "JobError",
    "JobFailed",
    "JobFilter",
    "JobHandle",
    "JobNotFound",
    "JobState",
    "JobType",
    "LateAttempt",
    "LeaseFacts",
    "LeaseLost",
    "Linear",
    "ListOrder",
    "MetricsServer",
    "Middleware",
    "NewJob",
    "NotCommitted",
    "NotInProcess",
    "NotInTransaction",
    "NotSupported",
    "OnceResult",
    "OutputNotReady",
    "OutsideTransaction",
    "Page",
    "Pause",
    "PauseTarget",
    "Phase",
    "PhaseError",
    "PhaseNotDeclared",
    "PhaseRepeated",
    "PhaseResultError",
    "PhaseState",
    "PhasesOverlap",
    "Priority",
    "ProcessFailed",
    "Progress",
    "Reason",
    "ReasonCode",
    "RegistrationError",
    "Registry",
    "Reschedule",
    "Resource",
    "ResultError",
    "ResultTimeout",
    "Retry",
    "RetryIn",
    "RowRejected",
    "Stats",
    "Steps",
    "StoreContended",
    "StoreError",
    "StoreIncompatible",
    "StoreUnavailable",
    "Transaction",
    "TransactionError",
    "Unique",
    "Verdict",
    "Why",
    "Worker",
    "WrongJobType",
    "current_attempt",
    "done",
    "serve_metrics",
]
