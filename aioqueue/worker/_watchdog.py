"""Notices that the event loop doesn't turn, and says which job keeps it, and where in its code."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from aioqueue.definitions._context import attempt_in
from aioqueue.runtime._log import event
from aioqueue.worker._text import job_fields, one_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from aioqueue.vocabulary._job import Claim
    from aioqueue.worker._health import Troubles
    from aioqueue.worker._holdings import Slot

__all__ = ["STUCK_SECONDS", "Watchdog"]

logger = logging.getLogger("aioqueue.worker")

STUCK_SECONDS = 300.0
"""After which a blocked event loop is taken for stuck, and no lease is renewed."""

_LOOK_SECONDS = 1.0
"""Between looks at the event loop, at most."""
_SHORTEST_LOOK_SECONDS = 0.01
_LONGEST_STACK_CHARACTERS = 900
_MOST_NAMED = 10
_PART = "event_loop"
"""Its name in `Health.troubles`."""


class Watchdog:
    """Asks the event loop for an answer, again and again while something of a user's runs, and tells when none comes.

    The leases' thread looks, between its renewals: it goes on while the event loop is blocked, and a second thread would see no
    more. Each question is one callback in the event loop; there is one at most every second. What is told are the seconds since
    the question: the block may have begun before it, after the answer to the one before. Made in the event loop's thread.

    Arguments:
        name: The worker's.
        blocked_after: Seconds without an answer after which the log names what blocks the event loop; 0 for never.
        held: What the worker holds; read from the thread.
        troubles: Where it shows meanwhile.

    Attributes:
        look_every: Seconds between looks.
    """

    def __init__(self, name: str, blocked_after: float, held: dict[Claim, Slot], troubles: Troubles) -> None:
        self._name = one_line(name)
        self._blocked_after = blocked_after
        self._held = held
        self._troubles = troubles
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._lock = threading.Lock()
        self._asked: float | None = None
        self._next_report = 0.0
        self._reported: dict[str, object] | None = None
        self.look_every = max(min(_LOOK_SECONDS, blocked_after / 2 or _LOOK_SECONDS), _SHORTEST_LOOK_SECONDS)

    def look(self, tell: Callable[[Callable[[], None]], None]) -> float:
        """See whether the event loop still answers, and give for how many seconds at least it hasn't. In the leases' thread.

        Arguments:
            tell: Has something called in the event loop.
        """
        now = time.monotonic()
        asked = self._asked
        if asked is None:
            if not self._held:  # nothing of a user's runs
                return 0.0
            self._asked, self._next_report = now, min(self._blocked_after or STUCK_SECONDS, STUCK_SECONDS)
            tell(self._answered)
            return 0.0
        blocked = now - asked
        if blocked >= self._next_report:
            self._next_report = STUCK_SECONDS if blocked < STUCK_SECONDS else float("inf")
            self._report(asked, blocked)
        return blocked

    def _report(self, asked: float, blocked: float) -> None:
        where, stuck = self._code(), blocked >= STUCK_SECONDS
        about = self._job() or {"worker": self._name}
        jobs = one_line(
            f"{about['job_type']} {about['job_id']}"
            if "job_id" in about
            else ", ".join(f"{slot.job.type} {slot.job.id}" for slot in list(self._held.values())[:_MOST_NAMED])
        )
        with self._lock:
            if self._asked != asked:  # it has just answered
                return
            self._reported = about
            self._troubles.note(_PART, f"blocked for over {blocked:.1f} s. Running: {jobs}")
        text = (
            "the event loop has been blocked for over %.1f s (%s): use a `def` handler, or a thread. Running: %s. Stuck at: %s"
        )
        if stuck:
            extra = event("event_loop.stuck", duration=blocked, code=where, **about)
            logger.warning(text, blocked, "the lease is left to lapse", jobs, where, extra=extra)
        else:
            extra = event("event_loop.blocked", duration=blocked, code=where, **about)
            logger.warning(text, blocked, "the lease is still renewed", jobs, where, extra=extra)

    def _answered(self) -> None:
        """The event loop has turned."""
        with self._lock:
            asked, self._asked = self._asked, None
            about, self._reported = self._reported, None
            if about is None or asked is None:
                return
            self._troubles.forget(_PART)
        blocked = time.monotonic() - asked
        extra = event("event_loop.turns_again", duration=blocked, **about)
        logger.warning("the event loop turns again, after over %.1f s", blocked, extra=extra)

    def _code(self) -> str:
        """What the event loop's thread executes: as many whole frames as a line has place for, the innermost at the end."""
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None:
            return "unknown"
        stack = traceback.extract_stack(frame, limit=12)
        del frame
        # Of a path its end: what people look for is there, and a line has place for few whole ones.
        frames = [f"{'/'.join(Path(each.filename).parts[-3:])}:{each.lineno} in {each.name}: {each.line}\n" for each in stack]
        chosen: list[str] = []
        while frames and sum(map(len, chosen)) + len(frames[-1]) <= _LONGEST_STACK_CHARACTERS:
            chosen.insert(0, frames.pop())
        return one_line("".join(chosen) or "a frame that is too long to be shown")

    def _job(self) -> dict[str, object] | None:
        """The fields of the job whose task is being executed; None where that can't be told, such as in a callback."""
        task = asyncio.current_task(self._loop)
        if task is None:
            return None
        job_id = _job_of(task)
        for slot in list(self._held.values()):
            if slot.task is task or slot.job.id == job_id:
                return job_fields(slot.job, slot.worker)
        return None


def _job_of(task: asyncio.Task[object]) -> UUID | None:
    """The job whose handler has started a task."""
    if sys.version_info >= (3, 12):
        attempt = attempt_in(task.get_context())
        return None if attempt is None else attempt.job.id
    return None  # a task doesn't show its context there
