"""Between the vocabulary's values and the rows: what every room needs, and snapshots of jobs. Odd rows don't raise here."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from aioqueue.errors import RowRejected
from aioqueue.sqlite._errors import is_about_json
from aioqueue.sqlite._rows_ids import id_of
from aioqueue.sqlite._rows_times import moment
from aioqueue.store_rules._history import KEPT_ERRORS
from aioqueue.store_rules._states import shown_state
from aioqueue.vocabulary._job import AttemptError, Job
from aioqueue.vocabulary._origin import decode_origin
from aioqueue.vocabulary._trace import stored_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioqueue.sqlite._connections_statements import Statements

__all__ = [
    "SELECT_ARCHIVED",
    "SELECT_LIVE",
    "Unreadable",
    "dump",
    "errors_of",
    "history",
    "job_snapshot",
    "load",
    "one",
    "tags_of",
    "text_of",
]

T = TypeVar("T")

_JOB_COLUMNS = """id, type, state, priority, payload, created_at, run_at, started_at, {finished_at}, attempt, max_attempts,
    {worker}, {output}, {outcome}, errors, key, tags, metadata, timeout, expires_at, reschedules, trace,
    chain_id, position, {open_blockers}, {cancel_reason}, {purge_at}, webhook,
    origin, {held_by}, {is_held}"""

SELECT_LIVE = "SELECT " + _JOB_COLUMNS.format(
    finished_at="NULL",
    worker="(SELECT worker FROM lease WHERE lease.id = job.lease_id AND job.state = 2)",
    output="NULL",
    outcome="NULL",
    open_blockers="open_blockers",
    cancel_reason="cancel_reason",
    purge_at="NULL",
    held_by="iif(state = 0 AND open_blockers = 0, gate, NULL)",
    is_held="open_blockers = 0",
)

SELECT_ARCHIVED = "SELECT " + _JOB_COLUMNS.format(
    finished_at="finished_at",
    worker="(SELECT worker FROM past_lease WHERE past_lease.id = archive.settled_lease)",
    output="output",
    outcome="outcome",
    open_blockers="0",
    cancel_reason="NULL",
    purge_at="purge_at",
    held_by="NULL",
    is_held="0",
)


class Unreadable(Exception):
    """Some row of a batch can't be read: each is to be looked at alone."""


def dump(value: object) -> str:
    """Make JSON for a statement's parameter.

    Raises:
        RowRejected: It can't be JSON (an unpaired surrogate, an integer over 64 bits).
    """
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise RowRejected(f"a value can't be stored: {error}") from error


def load(value: str | bytes) -> Any:
    """Read JSON that a statement has put together."""
    return orjson.loads(value)


def one(connection: Statements, statement: str, parameters: dict[str, Any]) -> Any:
    """Give the first row of a statement; None without any.

    Raises:
        Unreadable: A value of some row can't be put into JSON.
    """
    try:
        return connection.execute(statement, parameters).fetchone()
    except sqlite3.OperationalError as error:
        if is_about_json(error):
            raise Unreadable(str(error)) from error
        raise


def text_of(value: Any) -> str:
    """Read a value of a text column, whatever it is."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def history(error: str) -> str:
    """Append an error to a job's history, in SQL; a history that can't be read begins anew.

    Arguments:
        error: SQL for the error as JSON text.
    """
    return f"""(
    SELECT json_insert(CASE WHEN json_array_length(e) >= {KEPT_ERRORS} THEN json_remove(e, '$[0]') ELSE e END,
                       '$[#]', json({error}))
    FROM (SELECT iif(json_valid(job.errors) AND typeof(job.errors) = 'text' AND json_type(job.errors) = 'array',
                     job.errors, '[]') AS e))"""


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownVariableType]  # from JSON: any list


def tags_of(value: Any) -> tuple[str, ...]:
    """Read the column of tags."""
    try:
        tags = orjson.loads(value)
    except (orjson.JSONDecodeError, TypeError):
        return ()
    return tuple(map(str, _listed(tags)))


def errors_of(value: Any) -> tuple[AttemptError, ...]:
    if value == "[]":
        return ()
    try:
        entries = orjson.loads(value)
    except (orjson.JSONDecodeError, TypeError):
        entries = [value]
    return tuple(map(AttemptError.decode, _listed(entries)))


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return str(value).encode("utf-8", "replace")


def _optional(value: Any, read: Callable[[Any], T]) -> T | None:
    return None if value is None else read(value)


def _integer(value: Any) -> int:
    return value if isinstance(value, int) else 0


def job_snapshot(row: Sequence[Any], now: int) -> Job:
    """Read a row of `SELECT_LIVE` or `SELECT_ARCHIVED`."""
    (job_id, job_type, state, priority, payload, created_at, run_at, started_at, finished_at) = row[:9]
    (attempt, max_attempts, worker, output, outcome, errors, key, tags, metadata, timeout, expires_at) = row[9:20]
    reschedules, trace, chain_id, position, open_blockers, cancel_reason, purge_at, webhook = row[20:28]
    origin, held_by, is_held = row[28:31]
    own_id = id_of(job_id)
    return Job(
        id=own_id,
        chain_id=own_id if chain_id is None else id_of(chain_id),
        position=_integer(position),
        open_blockers=_integer(open_blockers),
        type=str(job_type),
        state=shown_state(
            state,
            archived=finished_at is not None,
            due=isinstance(run_at, (int, float)) and run_at <= now,
            blocked=not is_held,
        ),
        priority=_integer(priority),
        payload=_bytes(payload),
        created_at=moment(created_at),
        run_at=moment(run_at),
        started_at=_optional(started_at, moment),
        finished_at=_optional(finished_at, moment),
        attempt=_integer(attempt),
        max_attempts=_optional(max_attempts, _integer),
        worker=_optional(worker, str),
        output_json=_optional(output, _bytes),
        outcome=_optional(outcome, str),
        errors=errors_of(errors),
        key=_optional(key, str),
        tags=tags_of(tags),
        metadata_json=_bytes(metadata),
        timeout=timeout if isinstance(timeout, float) else None,
        expires_at=_optional(expires_at, moment),
        reschedules=_integer(reschedules),
        trace=stored_trace(trace),
        cancel_reason=_optional(cancel_reason, text_of),
        purge_at=_optional(purge_at, moment),
        webhook=_optional(webhook, text_of) or None,
        held_by=_optional(held_by, text_of),
        origin=decode_origin(_optional(origin, text_of)),
    )
