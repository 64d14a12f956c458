"""Rows into values. A strange row is shown as well as it can be."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import orjson

from aioqueue.store_rules._states import shown_state
from aioqueue.vocabulary._job import AttemptError, ClaimedJob, Job
from aioqueue.vocabulary._origin import decode_origin
from aioqueue.vocabulary._trace import stored_trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioqueue.postgres._connections_driver import Row

__all__ = [
    "ARCHIVED_COLUMNS",
    "ASKED",
    "CLAIMED_COLUMNS",
    "LIVE_COLUMNS",
    "RECOVERED_COLUMNS",
    "claimed_job",
    "flat",
    "job_snapshot",
    "moment",
]


def moment(column: str) -> str:
    """A time that Python can hold: PostgreSQL's go from 4713 BC to 294276 and to infinity."""
    bounded = f"least(greatest({column}, '0001-01-03 00:00:00+00'::timestamptz), '9999-12-31 23:59:59.999999+00'::timestamptz)"
    return f"CASE WHEN {column} IS NOT NULL THEN {bounded} END"


# As text: a user's pool or connect function may have set its own codecs for json.
_OWNED_COLUMNS = f"""j.id, j.type, j.payload::text, j.priority, j.attempt, j.claims, coalesce(j.lease_id, 0),
    {moment("j.created_at")}, {moment("j.run_at")}, {moment("j.started_at")}, j.max_attempts, j.retry::text, j.timeout,
    %s, j.reschedules, j.key, j.tags, j.metadata::text,
    CASE WHEN octet_length(j.trace) <= 1024 THEN j.trace END, coalesce(j.chain_id, j.id), j.position, j.origin, j.marked"""
CLAIMED_COLUMNS = _OWNED_COLUMNS % "j.expires_at IS NOT NULL AND j.expires_at <= now() AND j.attempt = 1 AND j.reschedules = 0"
# What had expired when it was to be started was discarded then: what is recovered was started in time.
RECOVERED_COLUMNS = _OWNED_COLUMNS % "false"

ASKED = """coalesce(j.cancel_reason, CASE WHEN (SELECT true FROM @schema@.cancel_request LIMIT 1) THEN (
        SELECT r.reason FROM @schema@.cancel_request r WHERE r.chain_id = coalesce(j.chain_id, j.id)) END)"""
"""Why a job's chain was asked to end. The request is beside the row where somebody held that; almost
always there are none, which is seen once for a statement."""

# Not now(), which is when the transaction began: what a user's has made due since is ready.
_COMMON = f"""j.id, j.type, j.state, j.priority, j.payload::text AS payload, {moment("j.created_at")} AS created_at,
    {moment("j.run_at")} AS run_at, {moment("j.started_at")} AS started_at, %s AS finished_at, j.attempt, j.max_attempts,
    %s AS worker, %s AS output, %s AS outcome, j.errors::text[] AS errors, j.key, j.tags, j.metadata::text AS metadata,
    j.timeout, {moment("j.expires_at")} AS expires_at, j.reschedules, j.trace, j.run_at <= statement_timestamp() AS due,
    coalesce(j.chain_id, j.id) AS chain_id, j.position, %s AS open_blockers, %s AS cancel_reason,
    %s AS purge_at, j.webhook, j.origin, %s AS held_by"""
# A row keeps the id of the lease that settled it, negative where it was an orphan. The smallest number has no other sign.
_LAST_WORKER = """(SELECT l.worker FROM @schema@.past_lease l
        WHERE l.id = CASE WHEN j.lease_id > -9223372036854775808 THEN abs(j.lease_id) END)"""
LIVE_COLUMNS = _COMMON % (
    "NULL::timestamptz",
    "CASE WHEN j.state = 2 THEN (SELECT l.worker FROM @schema@.lease l WHERE l.id = j.lease_id) END",
    "NULL::text",
    "NULL::text",
    "j.open_blockers",
    ASKED,
    "NULL::timestamptz",
    "CASE WHEN j.state = 0 THEN j.gate END",
)
ARCHIVED_COLUMNS = _COMMON % (
    moment("j.finished_at"),
    _LAST_WORKER,
    "j.output::text",
    "j.outcome",
    "0",
    "NULL::text",
    moment("j.purge_at"),
    "NULL::text",
)


def flat(values: Iterable[Any]) -> Iterator[str]:
    """The texts of an array, which may have any number of dimensions, and NULL in it."""
    for value in values:
        if isinstance(value, str):
            yield value
        elif value is not None:
            yield from flat(value)


def claimed_job(row: Row) -> ClaimedJob:
    """Read one row of `CLAIMED_COLUMNS` or `RECOVERED_COLUMNS`; for its last one, the mark, see `with_blockers`."""
    (
        job_id, type_name, payload, priority, attempt, claims, lease_id, created_at, run_at, started_at, max_attempts,
        retry, timeout, expired, reschedules, key, tags, metadata, trace, chain_id, position, origin, _marked,
    ) = row  # fmt: skip
    return ClaimedJob(
        id=job_id,
        type=type_name,
        payload=payload.encode(),
        priority=priority,
        attempt=attempt,
        claims=claims,
        lease_id=lease_id,
        chain_id=chain_id,
        position=position,
        created_at=created_at,
        run_at=run_at,
        started_at=started_at or run_at,
        max_attempts=max_attempts,
        retry=None if retry is None else retry.encode(),
        # One that isn't a number, or infinite, is none.
        timeout=timeout if timeout is not None and isfinite(timeout) else None,
        expired=bool(expired),
        reschedules=reschedules,
        key=key,
        tags=tuple(flat(tags)) if tags else (),
        metadata=metadata.encode(),
        trace=None if trace is None else stored_trace(trace),
        origin=None if origin is None else decode_origin(origin),
    )


def _errors(stored: Iterable[Any]) -> tuple[AttemptError, ...]:
    errors: list[AttemptError] = []
    for text in flat(stored):
        try:
            value: object = orjson.loads(text)
        except orjson.JSONDecodeError:
            value = text
        errors.append(AttemptError.decode(value))
    return tuple(errors)


def job_snapshot(row: Row) -> Job:
    """Read one row of `LIVE_COLUMNS` or `ARCHIVED_COLUMNS`, by the columns' places: not every driver's rows know names."""
    (
        job_id, type_name, state, priority, payload, created_at, run_at, started_at, finished_at, attempt, max_attempts, worker,
        output, outcome, errors, key, tags, metadata, timeout, expires_at, reschedules, trace, due, chain_id, position,
        open_blockers, cancel_reason, purge_at, webhook, origin, held_by,
    ) = row  # fmt: skip
    return Job(
        id=job_id,
        chain_id=chain_id,
        position=position,
        type=type_name,
        state=shown_state(state, archived=finished_at is not None, due=bool(due), blocked=open_blockers > 0),
        priority=priority,
        payload=payload.encode(),
        created_at=created_at,
        run_at=run_at,
        started_at=started_at,
        finished_at=finished_at,
        attempt=attempt,
        max_attempts=max_attempts,
        worker=worker,
        output_json=None if output is None else output.encode(),
        outcome=outcome,
        errors=_errors(errors),
        key=key,
        tags=tuple(flat(tags)),
        metadata_json=metadata.encode(),
        timeout=timeout,
        expires_at=expires_at,
        reschedules=reschedules,
        trace=stored_trace(trace),
        open_blockers=open_blockers,
        cancel_reason=cancel_reason,
        purge_at=purge_at,
        webhook=webhook or None,
        origin=decode_origin(origin),
        held_by=held_by,
    )
