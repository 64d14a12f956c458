"""Text for terminals and log files: one record is one line, whatever the names and messages hold."""

from __future__ import annotations

import logging
from typing import Literal

from aioqueue.logging import set_up_handler
from aioqueue.runtime._log import enable_loggers
from aioqueue.vocabulary._safe_text import visible as one_line

__all__ = ["configure_logging", "one_line"]


def configure_logging(level: str, log_format: Literal["text", "json"] = "text", *, given: bool = False) -> None:
    """Log to standard error, one line per record, unless the application has set up its own logging when it was imported.

    Arguments:
        level: A level's name, in any case.
        log_format: How records are written.
        given: Whether somebody asked for that level: it then counts for aioqueue's records in an application's logging too.
    """
    enable_loggers()
    ours = logging.getLogger("aioqueue")
    if logging.getLogger().handlers or ours.handlers:
        if given:
            ours.setLevel(level.upper())
        return
    logging.basicConfig(level=level.upper(), handlers=[set_up_handler(logging.StreamHandler(), log_format)])
