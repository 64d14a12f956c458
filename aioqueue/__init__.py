"""Durable background jobs for asyncio, in the database that you have: PostgreSQL or SQLite."""

# First of all: in a process that is a worker, it takes the signals over before anything else is imported.
from aioqueue.runtime import _process as _process  # isort: split

from aioqueue.client import BoundClient, Client, JobHandle, Reason, ReasonCode, Transaction, Why
from aioqueue.definitions._call import Call
from aioqueue.definitions._context import Attempt, current_attempt
from aioqueue.definitions._continuation import done
from aioqueue.definitions._job_type import JobType
from aioqueue.definitions._middleware import CallNext, EnqueueMiddleware, EnqueueNext, Middleware
from aioqueue.definitions._registry import Registry
from aioqueue.definitions._resources import Resource
from aioqueue.errors import (
    AioqueueError,
    ArgumentsError,
    CallAlreadyEnqueued,
    CallError,
    CallNeverEnqueued,
    ClientClosed,
    ConfigurationError,
    ConflictingOptions,
    Fail,
    JobCancelled,
    JobControl,
    JobError,
    JobFailed,
    JobNotFound,
    LeaseLost,
    NotCommitted,
    NotInTransaction,
    NotSupported,
    OutsideTransaction,
    RegistrationError,
    Reschedule,
    ResultError,
    ResultTimeout,
    RetryIn,
    RowRejected,
    StoreContended,
    StoreError,
    StoreIncompatible,
    StoreUnavailable,
    TransactionError,
)
from aioqueue.telemetry._server import MetricsServer, serve_metrics
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._finding import Finding, Verdict
from aioqueue.vocabulary._job import AttemptError, Inserted, Job, JobState, NewJob, Priority
from aioqueue.vocabulary._listing import Page
from aioqueue.vocabulary._retry import Backoff, Exponential, Fixed, Linear, Retry, Steps
from aioqueue.vocabulary._stats import Stats
from aioqueue.vocabulary._workers import LeaseFacts
from aioqueue.worker import Health, LateAttempt, OnceResult, Worker

__all__ = [
    "AioqueueError",
    "ArgumentsError",
    "Attempt",
    "AttemptError",
    "Backoff",
    "BoundClient",
    "Call",
    "CallAlreadyEnqueued",
    "CallError",
    "CallNeverEnqueued",
    "CallNext",
    "Changed",
    "Client",
    "ClientClosed",
    "ConfigurationError",
    "ConflictingOptions",
    "EnqueueMiddleware",
    "EnqueueNext",
    "Exponential",
    "Fail",
    "Finding",
    "Fixed",
    "Health",
    "Inserted",
    "Job",
    "JobCancelled",
    "JobControl",
    "JobError",
    "JobFailed",
    "JobHandle",
    "JobNotFound",
    "JobState",
    "JobType",
    "LateAttempt",
    "LeaseFacts",
    "LeaseLost",
    "Linear",
    "MetricsServer",
    "Middleware",
    "NewJob",
    "NotCommitted",
    "NotInTransaction",
    "NotSupported",
    "OnceResult",
    "OutsideTransaction",
    "Page",
    "Priority",
    "Registry",
    "Reason",
    "ReasonCode",
    "RegistrationError",
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
    "Verdict",
    "Why",
    "Worker",
    "current_attempt",
    "done",
    "serve_metrics",
]
