"""What is written in place of an outcome that the database refuses: less and less, until it's accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aioqueue.worker._outcome import failed, failed_for_no_reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioqueue.vocabulary._job import ClaimedJob
    from aioqueue.worker._outcome import Outcome

__all__ = ["Refusal"]

_FIRST_SECONDS = 60.0
_LONGEST_SECONDS = 300.0
_LONGEST_REASON_CHARACTERS = 500


def _with_the_reason(job: ClaimedJob, reason: str) -> Outcome:
    return failed(job, "OutcomeRefused", f"the outcome was refused: {reason[:_LONGEST_REASON_CHARACTERS]}")


def _without_the_reason(job: ClaimedJob, _: str) -> Outcome:
    return failed(job, "OutcomeRefused", "the outcome was refused")


def _without_anything(_: ClaimedJob, __: str) -> Outcome:
    return failed_for_no_reason()


_INSTEAD: tuple[Callable[[ClaimedJob, str], Outcome], ...] = (_with_the_reason, _without_the_reason, _without_anything)


class Refusal(NamedTuple):
    """What has been refused about one claim.

    Attributes:
        reason: What the database said at first, as one line.
        times: How often it has refused something.
    """

    reason: str
    times: int = 1

    @property
    def hopeless(self) -> bool:
        """Whether nothing is left that might be accepted: it's tried now and then, and nobody waits for it."""
        return self.times > len(_INSTEAD)

    @property
    def wait(self) -> float:
        """Seconds until the next try."""
        if not self.hopeless:
            return 0.0
        return min(_FIRST_SECONDS * 2.0 ** min(self.times - len(_INSTEAD) - 1, 16), _LONGEST_SECONDS)

    def again(self) -> Refusal:
        """What was written instead was refused too."""
        return self._replace(times=self.times + 1)

    def instead(self, job: ClaimedJob) -> Outcome:
        """What to try next: the job has failed."""
        return _INSTEAD[min(self.times, len(_INSTEAD)) - 1](job, self.reason)
