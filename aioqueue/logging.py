"""Log records for machines and for people, and the job's fields on each record that is made inside a handler.

aioqueue logs through Python's `logging` and sets nothing up in a program of yours. What is here is for its handlers:

    handler = set_up_handler(logging.StreamHandler(), "json")
    logging.basicConfig(level=logging.INFO, handlers=[handler])

The command line does the same for `--log-format`.
"""

from __future__ import annotations

import json
import logging
import math
import os
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from aioqueue.definitions._context import running_attempt
from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._safe_text import safe_str, type_name, visible

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = ["JobFields", "JsonFormatter", "TextFormatter", "set_up_handler"]

_Handler = TypeVar("_Handler", bound=logging.Handler)

_LONGEST_MESSAGE_CHARACTERS = 32_000
_LONGEST_EXCEPTION_CHARACTERS = 32_000
_LONGEST_FIELD_CHARACTERS = 4_000
_LONGEST_NAME_CHARACTERS = 200
_MOST_FIELDS = 100

_OF_LOGGING = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
"""Attributes that records have anyway; the others are fields."""
_OURS = frozenset({"time", "level", "logger", "event", "message", "exception", "stack"})
"""Names in an object that a field can't have."""
_OF_JOB = ("job_id", "job_type", "job_key", "chain_id", "attempt", "worker")

_COLORS = {"DEBUG": "\x1b[2m", "WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[1;31m"}
_END_OF_COLOR = "\x1b[0m"


class JobFields(logging.Filter):
    """Puts the job's fields on each record that is made while its handler runs, by whichever library.

    The fields are `job_id`, `job_type`, `job_key`, `chain_id`, `attempt` (from 1) and `worker`; of a schedule's job also
    `schedule` and `nominal_time`, and of a dry run `dry_run`. What others' records have under such a name already is kept as
    `job_id_` and so on; a record of aioqueue's that names a job or worker itself stays as it is. What counts is where the
    record is made: in an `async def` handler, in the thread of a `def` handler, in tasks that they start, in middlewares and
    resources; not in threads that a handler starts without its context. Add it to a handler of logging's, not to a logger,
    whose filters don't see the records of loggers below it.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields; logging calls it. True: every record goes on."""
        attempt = running_attempt()
        if attempt is not None:
            job, fields = attempt.job, record.__dict__
            if _is_ours(record) and ("job_id" in fields or "worker" in fields):
                return True
            values = (str(job.id), job.type, job.key, str(job.chain_id), job.attempt, attempt.worker_id)
            given: dict[str, object] = dict(zip(_OF_JOB, values, strict=True))
            if job.origin is not None:
                given |= job.origin.fields
            for name, value in given.items():
                if name in fields and not _is_same(theirs := fields[name], value):
                    fields[_free(name, fields)] = theirs
                fields[name] = value
        return True


class JsonFormatter(logging.Formatter):
    """Writes a record as one JSON object in one line, in ASCII.

    `time` (UTC, ISO 8601), `level`, `logger`, `event` (of aioqueue's records), `message`, then the record's fields by their
    names, the job's first, and `exception` and `stack`, where there are such, as text. A field whose name is taken is written
    as `level_` and so on. Long texts are cut in their middle. Whatever a record holds, there is an object: what isn't JSON is
    written as its text.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Write one record; logging calls it."""
        written: dict[str, object] = {
            "time": _time_of(record),
            "level": safe_str(record.levelname),
            "logger": _bounded(safe_str(record.name), _LONGEST_NAME_CHARACTERS),
        }
        if _is_ours(record) and (name := record.__dict__.get("event")) is not None:
            written["event"] = _plain(name)
        written["message"] = _message_of(record)
        for name, value in _fields_of(record):
            written[_free(name, written.keys() | _OURS)] = value
        if exception := _exception_of(record):
            written["exception"] = exception
        if record.stack_info:
            written["stack"] = _bounded(safe_str(record.stack_info), _LONGEST_EXCEPTION_CHARACTERS)
        return json.dumps(written).replace("\x7f", "\\u007f")


class TextFormatter(logging.Formatter):
    """Writes a record as one line for people: time in UTC, level, logger and message, aligned.

    A record that isn't aioqueue's ends with the job in whose handler it was made. Control characters are made visible, so that
    nothing that a record holds begins a line of its own or changes a terminal.

    Arguments:
        color: Whether warnings and errors are coloured.
    """

    def __init__(self, *, color: bool = False) -> None:
        super().__init__()
        self._color = color

    def format(self, record: logging.LogRecord) -> str:
        """Write one record; logging calls it."""
        level = f"{visible(safe_str(record.levelname)):<8}"
        if self._color and (color := _COLORS.get(record.levelname)):
            level = f"{color}{level}{_END_OF_COLOR}"
        parts = [_message_of(record) + _job_of(record), _exception_of(record), safe_str(record.stack_info or "")]
        text = "\n".join(part for part in parts if part)
        return f"{_time_of(record)} {level} {visible(safe_str(record.name)):<17} {visible(text)}"


def set_up_handler(handler: _Handler, log_format: Literal["text", "json"] = "text") -> _Handler:
    """Have a handler of logging's write records in one of the two formats, with the job's fields.

    Text is coloured if the handler writes to a terminal, and `NO_COLOR` isn't set.

    Arguments:
        handler: Any.
        log_format: `text`, for people, or `json`: one object a line.

    Returns:
        The handler.

    Raises:
        ConfigurationError: There is no such format.
    """
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
    elif log_format == "text":
        handler.setFormatter(TextFormatter(color=_takes_color(handler)))
    else:
        raise ConfigurationError(f"log_format must be text or json, not {log_format!r}")
    if not any(isinstance(each, JobFields) for each in handler.filters):
        handler.addFilter(JobFields())
    return handler


def _takes_color(handler: logging.Handler) -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    stream: Any = getattr(handler, "stream", None)
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError, OSError):  # a stream of somebody's own, or a closed one
        return False


def _time_of(record: logging.LogRecord) -> str:
    try:
        made = datetime.fromtimestamp(record.created, UTC)
    except (ValueError, OverflowError, OSError, TypeError):  # a record that somebody made by hand
        made = datetime.now(UTC)
    return made.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message_of(record: logging.LogRecord) -> str:
    try:
        text = safe_str(record.getMessage())
    except Exception as error:  # noqa: BLE001 - classified: arguments that don't fit the text, or whose own texts fail
        text = f"{safe_str(record.msg)} <its arguments can't be written: {type_name(error)}>"
    return _bounded(text, _LONGEST_MESSAGE_CHARACTERS)


def _exception_of(record: logging.LogRecord) -> str:
    """Its traceback, as it was written already (bounded, by aioqueue itself), or made here."""
    if record.exc_text:
        text = safe_str(record.exc_text)
    elif not isinstance(record.exc_info, tuple) or record.exc_info[1] is None:
        return ""
    else:
        try:
            text = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
        except Exception as error:  # noqa: BLE001 - classified: what the exception's parts raise is part of what is written
            text = f"<its traceback can't be made: {type_name(error)}>"
    return _bounded(text, _LONGEST_EXCEPTION_CHARACTERS)


def _job_of(record: logging.LogRecord) -> str:
    """The job in whose handler a record of others was made; aioqueue's own name theirs in their text."""
    fields = record.__dict__
    if _is_ours(record) or not fields.keys() >= {"job_type", "job_id", "attempt"}:
        return ""
    shown = [_bounded(safe_str(fields.get(name)), _LONGEST_NAME_CHARACTERS) for name in ("job_type", "job_id", "attempt")]
    return f" [{shown[0]} {shown[1]} attempt {shown[2]}{', dry run' if fields.get('dry_run') is True else ''}]"


def _fields_of(record: logging.LogRecord) -> Iterable[tuple[str, object]]:
    # The job's come first: however many there are, these are written, under their own names.
    fields = {name: record.__dict__[name] for name in _OF_JOB if name in record.__dict__} | record.__dict__
    no_fields = _OF_LOGGING | {"event"} if _is_ours(record) else _OF_LOGGING
    for name in [name for name in fields if name not in no_fields][:_MOST_FIELDS]:
        yield _bounded(safe_str(name), _LONGEST_NAME_CHARACTERS), _plain(fields[name])


def _is_ours(record: logging.LogRecord) -> bool:
    return safe_str(record.name).partition(".")[0] == "aioqueue"


def _is_same(theirs: object, ours: object) -> bool:
    """Whether there is nothing to keep of theirs; of other types the methods could be anything."""
    return type(theirs) is type(ours) and theirs == ours


def _free(name: str, taken: Collection[str]) -> str:
    """The name, with as many underscores as it takes."""
    while name in taken:
        name += "_"
    return name


def _plain(value: object) -> object:
    """A value that can be written as JSON, as bounded as its text is."""
    kind = type(value)  # of a subclass the methods could be anything
    if value is None or kind is bool:
        return value
    if kind is int and isinstance(value, int) and abs(value) < 2**63:
        return value
    if kind is float and isinstance(value, float) and math.isfinite(value):
        return value
    if kind in (list, tuple, dict):
        try:
            if len(json.dumps(value, allow_nan=False)) <= _LONGEST_FIELD_CHARACTERS:
                return value
        except (TypeError, ValueError, RecursionError):  # something in it isn't JSON, or it holds itself
            pass
    return _bounded(safe_str(value), _LONGEST_FIELD_CHARACTERS)


def _bounded(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return f"{text[: longest * 3 // 4]} […{len(text) - longest} characters left out…] {text[-longest // 4 :]}"
