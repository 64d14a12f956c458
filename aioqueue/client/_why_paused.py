"""Why a job is kept back: pauses that are about it, and what it's held by."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from aioqueue.client._reasons import Reason, ReasonCode
from aioqueue.client._why_gates import gate_reason
from aioqueue.vocabulary._pauses import HELD_BY_PAUSE, PauseTarget

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioqueue.vocabulary._gates import GateStatus
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._pauses import Pause

__all__ = ["held_reasons", "paused_reasons", "resume_command"]


def paused_reasons(job: Job, pauses: Iterable[Pause]) -> list[Reason]:
    """All pauses that are about a job: of all jobs, of its type, of its key, by whomever.

    Arguments:
        job: As it is stored.
        pauses: All that there are.
    """
    return [_paused(each) for each in pauses if _is_about(each, job)]


def held_reasons(job: Job, reasons: Sequence[Reason], status: GateStatus | None = None) -> list[Reason]:
    """Why a job is held, beside the pauses.

    Arguments:
        job: A held one, as it is stored.
        reasons: The pauses that are about it.
        status: How the gate is at which it's held, if it is.
    """
    gate = job.held_by
    if gate is None:
        return [
            Reason(
                ReasonCode.HELD,
                "it is held back, or in a state that this version doesn't know",
                "If a newer version of aioqueue has written it, use that version to look at it.",
            )
        ]
    if status is not None and status.gate == gate:
        return [gate_reason(job, status)]
    if not gate.startswith(HELD_BY_PAUSE):
        return [Reason(ReasonCode.HELD, f"it is held back by {gate}")]
    key = gate.removeprefix(HELD_BY_PAUSE)
    if any(each.code is ReasonCode.PAUSED for each in reasons):
        return []
    return [
        Reason(
            ReasonCode.HELD,
            f"the jobs with the key {key} were paused, and aren't any more: workers bring them back within seconds, many at "
            "a time",
            "If this stays so, no worker is alive, or they can't reach the database: see their logs.",
        )
    ]


def _is_about(pause: Pause, job: Job) -> bool:
    if pause.target is PauseTarget.ALL:
        return True
    return pause.value == (job.type if pause.target is PauseTarget.TYPE else job.key)


def _paused(pause: Pause) -> Reason:
    if pause.target is PauseTarget.ALL:
        what = "all jobs"
    else:
        what = f"all jobs {'of' if pause.target is PauseTarget.TYPE else 'with the key'} {pause.value}"
    by = f" by {pause.by}" if pause.by else ""
    end = "until somebody resumes them" if pause.until is None else f"until {pause.until:%Y-%m-%d %H:%M:%S} UTC"
    why = f": {pause.reason}" if pause.reason else ""
    return Reason(
        ReasonCode.PAUSED,
        f"{what} are paused{by} since {pause.at:%Y-%m-%d %H:%M:%S} UTC, {end}{why}",
        f"To have them started again: {resume_command(pause)}.",
    )


def resume_command(pause: Pause) -> str:
    """What lifts a pause, for people."""
    value = shlex.quote(pause.value)
    option = {PauseTarget.ALL: "--all", PauseTarget.TYPE: value, PauseTarget.KEY: f"--key {value}"}[pause.target]
    return f"`aioqueue resume {option}`"
