"""Which retry policy counts for a job: its own, its type's, or the worker's."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._retry import Retry
from aioqueue.vocabulary._safe_text import type_name
from aioqueue.worker._text import described, job_event, one_line

if TYPE_CHECKING:
    from aioqueue.definitions._job_type import JobType
    from aioqueue.definitions._registry import Registry
    from aioqueue.definitions._settings import WorkerSettings
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["USUAL", "Policies", "Policy", "delay_of", "retries"]

logger = logging.getLogger("aioqueue.worker")

USUAL = Retry()
"""Whose waits count where a policy is broken, and which counts as a whole where nothing else is known to be sound."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The retry policy that counts for one job.

    Attributes:
        retry: Backoff and classes.
        max_attempts: None for no limit.
        max_reschedules: None for no limit.
    """

    retry: Retry
    max_attempts: int | None
    max_reschedules: int | None

    @classmethod
    def of(
        cls, job: ClaimedJob, job_type: JobType[..., Any, Any] | None, default: Retry, max_reschedules: int | None
    ) -> Policy:
        """What is stored with the job, else its type's, else the worker's default: each as a whole.

        The job's number of attempts belongs to the policy that is stored with it. Without one nobody gave a number:
        the row has what its producer took for the usual one.
        """
        if job_type is not None and job_type.max_reschedules is not None:
            max_reschedules = job_type.max_reschedules
        own = job_type.retry if job_type is not None else None
        if job.retry is not None:
            return cls(_stored(job, job.retry, own) or own or default, job.max_attempts, max_reschedules)
        policy = own or default
        return cls(policy, policy.max_attempts, max_reschedules)

    def exhausted(self, attempt: int) -> bool:
        """Whether this attempt was the last."""
        return self.max_attempts is not None and attempt >= self.max_attempts


def _stored(job: ClaimedJob, stored: bytes, own: Retry | None) -> Retry | None:
    try:
        return _decode(stored, own.retry_on if own else (), own.fail_on if own else ())
    except Exception as error:  # noqa: BLE001 - logged; exception classes of the type's policy whose metaclass has no hash
        logger.error(
            "%s %s: the job's own retry policy can't be read with the classes of retry_on and fail_on of its type, so that "
            "of the type counts: %s",
            one_line(job.type),
            job.id,
            described(error),
            extra=job_event("attempt.policy_failed", job),
        )
        return None


@lru_cache(maxsize=256)
def _decode(stored: bytes, retry_on: tuple[type[BaseException], ...], fail_on: tuple[type[BaseException], ...]) -> Retry | None:
    try:
        return Retry.decode(stored, retry_on=retry_on, fail_on=fail_on)
    except ConfigurationError:  # only the number was given, or a newer version wrote it: the number still counts
        return None


class Policies:
    """Finds the policy that counts for a job of one worker.

    Arguments:
        registry: Where the job types are.
        settings: The worker's, for jobs of which nobody has said anything.
    """

    def __init__(self, registry: Registry, settings: WorkerSettings) -> None:
        self._registry = registry
        self._default = settings.default_retry
        self._max_reschedules = settings.max_reschedules

    def of(self, job: ClaimedJob) -> Policy:
        """The policy that counts for a job; the default one if its type isn't known here.

        Raises:
            Exception: Something of the user's that belongs to it is broken.
        """
        return Policy.of(job, self._registry.types.get(job.type), self._default, self._max_reschedules)

    def of_last_resort(self, job: ClaimedJob) -> Policy:
        """What counts if the job's own policy is broken: the usual waits, with its own number of attempts."""
        return Policy(Retry(), job.max_attempts, self._max_reschedules)


def delay_of(job: ClaimedJob, policy: Policy) -> float:
    """How long the policy lets the job wait. A backoff may be code of the user's: where it's broken, the default counts."""
    try:
        return policy.retry.delay(job.attempt)
    except BaseException as error:  # noqa: BLE001 - logged; it costs its own job nothing but the wait
        _log_broken_policy(job, policy, "it waits as long as the default policy says", error)
        return USUAL.delay(job.attempt)


def retries(job: ClaimedJob, policy: Policy, error: BaseException) -> bool:
    """Whether the policy tries again after such an error. Its classes may be broken: then it does."""
    try:
        return policy.retry.retries(error)
    except BaseException as second:  # noqa: BLE001 - logged; a class of `retry_on` or `fail_on`, or the error's own, is broken
        _log_broken_policy(job, policy, "its error counts as one that is retried", second)
        return True


def _log_broken_policy(job: ClaimedJob, policy: Policy, instead: str, error: BaseException) -> None:
    logger.error(
        "%s %s: the retry policy (%s) fails after attempt %d, so %s: %s",
        one_line(job.type),
        job.id,
        type_name(policy.retry.backoff),
        job.attempt,
        instead,
        described(error),
        extra=job_event("attempt.policy_failed", job),
    )
