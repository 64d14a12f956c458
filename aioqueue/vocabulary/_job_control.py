"""What handlers raise to say what comes next: it's no error, and stands apart from the tree of `aioqueue.errors`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import Portable

if TYPE_CHECKING:
    from datetime import datetime, timedelta

__all__ = ["Cancel", "Fail", "JobControl", "Reschedule", "RetryIn"]


class JobControl(Portable):
    """Raised by handlers to say what comes next; middlewares should let it through."""


class Cancel(JobControl):
    """End the job as cancelled, without another attempt, and its chain with it.

    Arguments:
        reason: Why, for people; stored with the job.
        outcome: A short label for statistics, such as `"obsolete"`.
    """

    def __init__(self, reason: str, outcome: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.outcome = outcome


class Fail(JobControl):
    """End the job as failed, without another attempt.

    Arguments:
        reason: Why, for people; stored with the job.
        outcome: A short label for statistics, such as `"declined"`.
    """

    def __init__(self, reason: str, outcome: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.outcome = outcome


class RetryIn(JobControl):
    """Try again after a delay of the handler's own choice. It counts as an attempt.

    Arguments:
        delay: Seconds, or a timedelta; not negative.
    """

    def __init__(self, delay: float | timedelta) -> None:
        super().__init__(f"retry in {delay}")
        self.delay = delay


class Reschedule(JobControl):
    """Run the job again later without using an attempt. Bounded by the worker (see `Worker`).

    Arguments:
        delay: Seconds, or a timedelta; not negative.
        at: A timezone-aware time. Exactly one of the two is given.
    """

    def __init__(self, *, delay: float | timedelta | None = None, at: datetime | None = None) -> None:
        super().__init__(f"reschedule {f'in {delay}' if at is None else f'at {at}'}")
        self.delay = delay
        self.at = at
