"""Text for terminals and log files: one record is one line, whatever the names and messages hold."""

from __future__ import annotations

import logging
import re
import time

from aioqueue.runtime._log import enable_loggers

__all__ = ["OneLineFormatter", "configure_logging", "one_line"]

# Control characters, the line separators that str.splitlines knows, and what turns the direction of writing round.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

RECORD_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def one_line(text: str) -> str:
    r"""Make control characters visible: a newline becomes `\n`, an escape `\x1b`.

    Arguments:
        text: Anything.

    Returns:
        Text that stays on its line and does nothing to a terminal.
    """
    return _UNSAFE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    return _SHORT_ESCAPES.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


class OneLineFormatter(logging.Formatter):
    """Writes a record as one line, its traceback included, with the time in UTC."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        """Write one record; logging calls it."""
        return one_line(super().format(record))


def configure_logging(level: str, *, given: bool = False) -> None:
    """Log to standard error, one line per record, unless the application has set up its own logging when it was imported.

    Arguments:
        level: A level's name, in any case.
        given: Whether somebody asked for that level: it then counts for aioqueue's records in an application's logging too.
    """
    enable_loggers()
    ours = logging.getLogger("aioqueue")
    if logging.getLogger().handlers or ours.handlers:
        if given:
            ours.setLevel(level.upper())
        return
    handler = logging.StreamHandler()
    handler.setFormatter(OneLineFormatter(RECORD_FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
