"""The package's loggers, which a program's logging configuration must not silence by the way, and what their records carry."""

from __future__ import annotations

import logging

__all__ = ["enable_loggers", "event"]


def enable_loggers() -> None:
    """Undo what `logging.config.dictConfig` does by default to loggers that were there before: it disables them.

    Called when a worker starts. Who wants less of aioqueue's records sets a level.
    """
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and (name == "aioqueue" or name.startswith("aioqueue.")):
            logger.disabled = False


def event(name: str, /, **fields: object) -> dict[str, object]:
    """What a record of ours carries beside its text (`extra`): what has happened, as a stable name, and its fields.

    The names and fields are a promise to whoever filters logs: `docs/how-to/logging.md` lists them, and a test compares it.

    Arguments:
        name: Of the event, such as `lease.lost`.
        fields: By name; none of a job's arguments, and no name that logging uses itself.
    """
    return {"event": name, **fields}
