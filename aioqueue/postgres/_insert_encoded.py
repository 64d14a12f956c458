"""New jobs as one JSON text: the argument of the SQL function that stores jobs for drivers other than ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from aioqueue.errors import RowRejected
from aioqueue.postgres._insert_columns import refuse_naive
from aioqueue.vocabulary._trace import stored_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._blockers import NewBlocker
    from aioqueue.vocabulary._gates import SequenceMember
    from aioqueue.vocabulary._job import NewJob
    from aioqueue.vocabulary._unique import Unique

__all__ = ["encode_jobs"]


def encode_jobs(jobs: Sequence[NewJob]) -> str:
    """Give the argument of `enqueue_v2`: a JSON array, whose payloads are text so that they stay as they are.

    Raises:
        RowRejected: A row can't be expressed.
    """
    refuse_naive(jobs)
    try:
        return orjson.dumps(
            [
                {
                    "id": str(job.id),
                    "type": job.type,
                    "payload": job.payload.decode(),
                    "priority": job.priority,
                    "delay": job.delay,
                    "run_at": None if job.run_at is None else job.run_at.isoformat(),
                    "expires": job.expires,
                    # Without a policy the number isn't one that somebody gave, and the function would take it for one.
                    **({} if job.retry is None else {"max_attempts": job.max_attempts, "retry": job.retry.decode()}),
                    "timeout": job.timeout,
                    "key": job.key,
                    "unique": _unique(job.unique),
                    **({"aliases": job.aliases} if job.aliases and (job.unique or job.chosen_id) else {}),
                    "tags": list(job.tags),
                    "metadata": job.metadata.decode(),
                    **({} if job.trace is None else {"trace": stored_trace(job.trace)}),
                    **({} if job.max_delay is None else {"max_delay": job.max_delay}),
                    **({"chosen_id": True} if job.chosen_id else {}),
                    **({"implied": True} if job.implied else {}),
                    **({} if job.keep is None else {"keep": job.keep}),
                    **({} if job.webhook is None else {"webhook": job.webhook}),
                    **({} if job.origin is None else {"origin": job.origin.encode()}),
                    **({} if job.sequence is None else {"sequence": _sequence(job.sequence)}),
                    **({"blockers": [_blocker(each) for each in job.blockers]} if job.blockers else {}),
                }
                for job in jobs
            ]
        ).decode()
    except (TypeError, UnicodeDecodeError) as error:
        raise RowRejected(f"a job can't be stored: {error}") from None


def _unique(unique: Unique | None) -> bool | dict[str, object]:
    if unique is None or (unique.until == "finished" and unique.window is None and unique.on_conflict == "return"):
        return unique is not None
    return {"until": unique.until, "window": unique.window_seconds, "on_conflict": unique.on_conflict}


def _sequence(member: SequenceMember) -> str | dict[str, Any]:
    if not (member.strict or member.block):
        return member.name
    return {"name": member.name, "strict": member.strict, "block": member.block}


def _blocker(blocker: NewBlocker) -> dict[str, Any]:
    return {"chain_id": str(blocker.chain_id), "settled": blocker.settled, "places": blocker.places.decode()}
