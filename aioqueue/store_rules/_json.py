"""What has to be JSON before it's stored, where the tables don't see to it themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from aioqueue.errors import RowRejected

if TYPE_CHECKING:
    from aioqueue.vocabulary._job import NewJob

__all__ = ["require_json"]

_NOTHING = b"{}"


def require_json(job: NewJob) -> None:
    """Refuse a job whose payload or metadata isn't JSON: no worker could read it. PostgreSQL's column type does this.

    Raises:
        RowRejected: One of them isn't.
    """
    for what, text in (("payload", job.payload), ("metadata", job.metadata)):
        if text != _NOTHING:
            try:
                orjson.loads(text)
            except orjson.JSONDecodeError as error:
                raise RowRejected(f"job {job.id}: its {what} isn't JSON: {error}") from error
