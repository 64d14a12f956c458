"""The job of a schedule, as JSON: everything of a `NewJob` but its id, where it comes from, and when it's due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._gates import SequenceMember
from aioqueue.vocabulary._new_job import NewJob
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.vocabulary._origin import Origin

__all__ = ["decode_template", "encode_template"]

_TEXTS = ("payload", "metadata", "retry")
_PLAIN = ("type", "priority", "delay", "expires", "max_attempts", "timeout", "key", "max_delay", "keep", "webhook")


def encode_template(job: NewJob) -> bytes:
    """Write it; always the same bytes for the same job. Its id, due time, trace, origin and blockers aren't in it."""
    fields: dict[str, Any] = {name: getattr(job, name) for name in _PLAIN}
    for name in _TEXTS:
        value: bytes | None = getattr(job, name)
        fields[name] = None if value is None else value.decode()
    fields["aliases"], fields["tags"] = job.aliases, job.tags
    unique = job.unique
    fields["unique"] = unique and {"until": unique.until, "window": unique.window_seconds, "on_conflict": unique.on_conflict}
    sequence = job.sequence
    if sequence is not None:  # else left out, so that templates are as they were before there were sequences
        fields["sequence"] = {"name": sequence.name, "strict": sequence.strict, "block": sequence.block}
    return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)


def decode_template(template: bytes, job_id: UUID, origin: Origin | None, trace: str | None = None) -> NewJob:
    """Make a job of it.

    Raises:
        ValueError: It isn't one that this code can read: newer code may have written it.
    """
    try:
        fields: dict[str, Any] = orjson.loads(template)
        texts: dict[str, Any] = {name: None if fields[name] is None else fields[name].encode() for name in _TEXTS}
        return NewJob(
            id=job_id,
            **{name: fields[name] for name in _PLAIN},
            **texts,
            aliases=tuple(fields["aliases"]),
            tags=tuple(fields["tags"]),
            unique=None if fields["unique"] is None else Unique(**fields["unique"]),
            sequence=SequenceMember(**fields["sequence"]) if "sequence" in fields else None,
            origin=origin,
            trace=trace,
        )
    except (KeyError, TypeError, AttributeError, ConfigurationError) as error:
        raise ValueError(f"the schedule's job can't be read: {error!r}") from error
