"""Keeps what handlers log, for job types with `capture_logs=True`: it's stored with the outcome of the attempt.

Records are seen where they're made, by the factory that `logging` has for them: a handler at the root logger would change what
programs print that have set nothing up, and would miss loggers that don't propagate. What the loggers' levels don't let through
is no record.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections import deque
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from aioqueue.vocabulary._safe_text import safe_str, type_name
from aioqueue.worker._text import stored_text, traceback_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["CapturedLogs", "begin_capturing", "capturing"]

_here: contextvars.ContextVar[CapturedLogs] = contextvars.ContextVar("aioqueue_captured_logs")

_MOST_LINES = 1_000
_MOST_BYTES = 256 * 1024
_LONGEST_MESSAGE_CHARACTERS = 4_000
_LONGEST_NAME_CHARACTERS = 200


class CapturedLogs:
    """The newest records of one attempt, up to 1,000 of them and 256 KiB. Any thread may add some."""

    __slots__ = ("_closed", "_lines", "_lock", "_lost", "_size")

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._lock = threading.RLock()  # a signal's handler that logs may come in between, in this very thread
        self._size = self._lost = 0
        self._closed = False

    def add(self, record: logging.LogRecord) -> None:
        """Keep a record. Its text is made now, since what it's made of may change."""
        line = _encoded(record)
        with self._lock:
            if self._closed:
                return
            self._lines.append(line)
            self._size += len(line)
            while len(self._lines) > _MOST_LINES or self._size > _MOST_BYTES:
                self._size -= len(self._lines.popleft())
                self._lost += 1

    def encode(self) -> bytes | None:
        """All of them as one JSON array, the oldest first, after a line that says how many are left out; None without any."""
        with self._lock:
            if not self._lines:
                return None
            lost = [orjson.dumps({"left_out": self._lost})] if self._lost else []
            return b"[" + b",".join([*lost, *self._lines]) + b"]"

    def close(self) -> None:
        """Keep nothing more: the attempt has ended."""
        with self._lock:
            self._closed = True


def begin_capturing() -> CapturedLogs:
    """Keep what is logged from now on in this context, and in the tasks and threads that are started in it."""
    captured = CapturedLogs()
    _here.set(captured)
    return captured


class _Factory:
    """Makes records as the factory before it does, and keeps those of attempts that capture them.

    Workers put it in front while they run. Whoever has put another one before it since goes on calling it: then it stays, and
    does nothing without a worker.
    """

    def __init__(self) -> None:
        self._workers = 0
        self._before: Callable[..., logging.LogRecord] = logging.LogRecord
        self._lock = threading.Lock()
        self._in_place = False

    def __call__(self, name: Any, *arguments: Any, **named: Any) -> logging.LogRecord:
        record = self._before(name, *arguments, **named)
        if name is not None and (captured := _here.get(None)) is not None:  # logging.makeLogRecord gives no name
            captured.add(record)
        return record

    @contextmanager
    def capturing(self) -> Generator[None]:
        """Within the block, see records."""
        with self._lock:
            self._workers += 1
            if not self._in_place:
                self._before = logging.getLogRecordFactory()
                logging.setLogRecordFactory(self)
                self._in_place = True
        try:
            yield
        finally:
            with self._lock:
                self._workers -= 1
                if not self._workers and logging.getLogRecordFactory() is self:
                    logging.setLogRecordFactory(self._before)
                    self._in_place = False


def _encoded(record: logging.LogRecord) -> bytes:
    """One line: `time`, `level`, `logger`, `message`, and `exception` where there is one."""
    line = {
        "time": datetime.fromtimestamp(record.created if record.created > 0 else time.time(), UTC),
        "level": stored_text(record.levelname, _LONGEST_NAME_CHARACTERS),
        "logger": stored_text(record.name, _LONGEST_NAME_CHARACTERS),
        "message": stored_text(_message(record), _LONGEST_MESSAGE_CHARACTERS),
    }
    if record.exc_info and record.exc_info[1] is not None:
        line["exception"] = traceback_text(record.exc_info[1])
    return orjson.dumps(line)


def _message(record: logging.LogRecord) -> str:
    try:
        return safe_str(record.getMessage())
    except Exception as error:  # noqa: BLE001 - classified: arguments that don't fit the text, or have no text
        return f"{safe_str(record.msg)} <its arguments can't be put in: {type_name(error)}>"


capturing = _Factory().capturing
