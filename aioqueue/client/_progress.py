"""How far jobs have come: their phases, those that haven't begun included, and callbacks that hear of it."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
from typing import TYPE_CHECKING

from aioqueue.errors import ConfigurationError
from aioqueue.runtime._left_behind import leave
from aioqueue.runtime._log import event
from aioqueue.store_rules._phases import shown_state_of_phase
from aioqueue.vocabulary._phases import Phase, PhaseState
from aioqueue.vocabulary._safe_text import safe_repr

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from aioqueue.definitions._call import JobDefinition
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._phases import Progress

    OnProgress = Callable[[Progress], object]

__all__ = ["OnProgress", "Teller", "check_on_progress", "with_all_phases"]

logger = logging.getLogger("aioqueue")

_LAST_WORD_SECONDS = 1.0
"""That a callback gets for what is said at the end, before the result is given without waiting for it."""


def check_on_progress(callback: object) -> None:
    """Check what is to be called with progress, before anything is waited for.

    Raises:
        ConfigurationError: It can't be called.
    """
    if callback is not None and not callable(callback):
        raise ConfigurationError(
            f"on_progress is a function that takes a Progress, `def` or `async def`, not {safe_repr(callback)}"
        )


def with_all_phases(job: Job, job_type: JobDefinition | None = None) -> Job:
    """Show a job with all phases of its type, in their order: stores know of those that have begun.

    Which phases there are its worker tells with its progress. Others, such as one that has another name by now, aren't shown.

    Arguments:
        job: A snapshot.
        job_type: If its worker hasn't told yet, the type says it, if it's the job's.
    """
    names = () if job.progress is None else job.progress.phases
    if not names and job_type is not None and job.type in (job_type.name, *job_type.aliases):
        names = job_type.phases
    if not names:
        return job
    begun = {phase.name: phase for phase in job.phases}
    waiting = shown_state_of_phase(PhaseState.WAITING, job.state)
    phases = tuple(begun.get(name) or Phase(name=name, state=waiting) for name in names)
    return dataclasses.replace(job, phases=phases)


class Teller:
    """Calls one callback with the newest progress of a job, beside whoever waits for the job's end.

    While the callback is busy, what is said meanwhile is passed over for what is said last.

    Arguments:
        callback: Called, and awaited if it's something to await. What it raises is logged.
        job_id: Of the job whose result is awaited, for the log.
    """

    def __init__(self, callback: OnProgress, job_id: UUID) -> None:
        self._callback = callback
        self._job_id = job_id
        self._newest: Progress | None = None
        self._told: Progress | None = None
        self._wake = asyncio.Event()
        self._ended = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name="aioqueue progress")

    def hear(self, job: Job) -> None:
        """Take the newest snapshot of the job."""
        if job.progress is not None and job.progress != self._newest:
            self._newest = job.progress
            self._wake.set()

    async def finish(self) -> None:
        """Wait a moment for the callback to hear the last word."""
        self._ended = True
        self._wake.set()
        await asyncio.wait([self._task], timeout=_LAST_WORD_SECONDS)

    def stop(self) -> None:
        """Stop at once, whatever the callback does. Always called."""
        if not self._task.done():
            self._task.cancel()
            leave(self._task)

    async def _run(self) -> None:
        while True:
            while self._newest is self._told:
                if self._ended:
                    return
                self._wake.clear()
                await self._wake.wait()
            self._told = self._newest
            if self._told is not None:
                await self._tell(self._told)

    async def _tell(self, progress: Progress) -> None:
        try:
            answer = self._callback(progress)
            if inspect.isawaitable(answer):
                await answer
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._log(error)  # of something else that it has awaited
        except Exception as error:  # noqa: BLE001 - logged: whatever a callback of the user's raises
            self._log(error)

    def _log(self, error: BaseException) -> None:
        logger.error(
            "a callback for progress (on_progress=) has raised: %s",
            type(error).__name__,
            exc_info=error,
            extra=event("client.progress_callback_failed", job_id=str(self._job_id)),
        )
