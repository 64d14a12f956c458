"""Tells of job types whose limit, rate, sequence or turn goes by a field of the metadata that their jobs don't have."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import orjson

from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from aioqueue.definitions._job_type import JobType
    from aioqueue.vocabulary._gates import GateRules
    from aioqueue.worker._holdings import Slot

__all__ = ["GateFields"]

logger = logging.getLogger("aioqueue.worker")


class GateFields:
    """Looks at jobs that begin, whoever has enqueued them, and tells of each type once."""

    def __init__(self) -> None:
        self._wanted: dict[str, dict[str, str]] = {}

    def look(self, slot: Slot, job_type: JobType[..., Any, Any], rules: GateRules) -> None:
        """Tell in the log if the job's metadata lacks a field by which its type's jobs are told apart.

        Arguments:
            slot: Of the job.
            job_type: Its type.
            rules: Of the type.
        """
        wanted = self._wanted.get(rules.type)
        if wanted is None:
            wanted = {option: by.name for option, by in rules.told_apart_by.items() if by.metadata}
            self._wanted[rules.type] = wanted
        if not wanted:
            return
        try:
            there: object = orjson.loads(slot.job.metadata)
        except orjson.JSONDecodeError:
            return
        lacking = {option: name for option, name in wanted.items() if isinstance(there, dict) and name not in there}
        if lacking:
            self._wanted[rules.type] = {}
            _tell(slot, lacking, job_type.parameters)


def _tell(slot: Slot, lacking: dict[str, str], parameters: tuple[str, ...]) -> None:
    """Say which fields aren't there, and what may have been meant instead: a parameter."""
    job = slot.job
    logger.warning(
        "%s %s: its type tells jobs apart by a field of the metadata that it hasn't got (%s): all jobs without it count as "
        "one. Give it at the call, or by a middleware, as None where there is no value; or name a parameter, of which there "
        "are: %s. It's told once",
        one_line(job.type),
        job.id,
        one_line(", ".join(f"{option}{name!r}" for option, name in lacking.items())),
        ", ".join(parameters) or "none",
        extra=slot.event("gates.field_missing", fields=list(dict.fromkeys(lacking.values()))),
    )
