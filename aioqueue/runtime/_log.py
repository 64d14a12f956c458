"""The package's loggers, which a program's logging configuration must not silence by the way."""

from __future__ import annotations

import logging

__all__ = ["enable_loggers"]


def enable_loggers() -> None:
    """Undo what `logging.config.dictConfig` does by default to loggers that were there before: it disables them.

    Called when a worker starts. Who wants less of aioqueue's records sets a level.
    """
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and (name == "aioqueue" or name.startswith("aioqueue.")):
            logger.disabled = False
