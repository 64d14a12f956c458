"""Errors as texts that can be stored and logged: bounded, and free of what columns and log lines can't hold."""

from __future__ import annotations

import re
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aioqueue.runtime._exits import traceback_of
from aioqueue.vocabulary._job import AttemptError
from aioqueue.vocabulary._safe_text import safe_str, type_name

if TYPE_CHECKING:
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["attempt_error", "described", "job_event", "job_fields", "one_line", "stored_text", "traceback_text"]

_LONGEST_MESSAGE_CHARACTERS = 4_000
_LONGEST_TRACEBACK_CHARACTERS = 16_000
_LONGEST_LINE_CHARACTERS = 1_000
_LONGEST_TYPE_CHARACTERS = 200
_MOST_FRAMES = 30

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_NOT_IN_A_LINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def _visible(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode()


def _bounded(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return f"{text[: longest * 3 // 4]} […{len(text) - longest} characters left out…] {text[-longest // 4 :]}"


def stored_text(value: object, longest: int = _LONGEST_MESSAGE_CHARACTERS) -> str:
    """The text of anything: bounded, and with what a `text` column can't hold or a terminal would obey made visible."""
    return _CONTROL.sub(_visible, _bounded(safe_str(value), longest))


def one_line(value: object) -> str:
    """The text of anything, as one bounded line."""
    return _NOT_IN_A_LINE.sub(_visible, _bounded(safe_str(value), _LONGEST_LINE_CHARACTERS))


def described(error: BaseException) -> str:
    """What to call an error in a log: its type and its text, in one line."""
    return one_line(f"{type_name(error)}: {safe_str(error)}")


def job_event(name: str, job: ClaimedJob, worker: str = "", /, **fields: object) -> dict[str, object]:
    """What log records about a job carry beside their text: as `runtime._log.event`, with which job and attempt it is."""
    return {"event": name, **job_fields(job, worker), **fields}


def job_fields(job: ClaimedJob, worker: str) -> dict[str, object]:
    """Which job and attempt a record is about, and whose; and where the job comes from, if that's a schedule or a dry run."""
    fields: dict[str, object] = {
        "job_id": str(job.id),
        "job_type": job.type,
        "job_key": job.key,
        "chain_id": str(job.chain_id),
        "attempt": job.attempt,
        "worker": worker,
    }
    if job.origin is not None:
        fields |= job.origin.fields
    return fields


def attempt_error(error: BaseException, attempt: int, *, kind: str | None = None) -> AttemptError:
    """Describe an exception, whatever is wrong with it. Nothing of it is kept.

    Arguments:
        error: What was raised.
        attempt: The number of the attempt.
        kind: In place of the exception's type name.
    """
    return AttemptError(
        attempt=attempt,
        at=datetime.now(UTC),
        type=stored_text(kind or type_name(error), _LONGEST_TYPE_CHARACTERS),
        message=stored_text(error),
        traceback=traceback_text(error),
    )


def traceback_text(error: BaseException) -> str:
    """An error's traceback, bounded."""
    return stored_text(_traceback(error), _LONGEST_TRACEBACK_CHARACTERS)


def _traceback(error: BaseException) -> str:
    try:
        whole = traceback.TracebackException(type(error), error, traceback_of(error), limit=-_MOST_FRAMES, compact=True)
        return "".join(_bounded(safe_str(part), _LONGEST_MESSAGE_CHARACTERS) for part in whole.format())
    except BaseException as second:  # noqa: BLE001 - classified: what the error's parts raise is part of what is described
        return f"<its traceback can't be made: {type_name(second)}>"
