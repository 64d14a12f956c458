"""Rows that can't be read, claimed or counted, since somebody wrote strange values with SQL, or a trigger raises.

Batches are read as a whole. Only when that fails does a room look at each row alone, with what is here: what is odd is moved
to the archive as failed, with the reason in its history, and its neighbours go on. What can't be moved either is left where
it is, told in the log and by the store's troubles, and passed over for a while.
"""

from __future__ import annotations

import functools
import logging
import math
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aioqueue.errors import StoreError
from aioqueue.runtime._log import event
from aioqueue.sqlite._connections import in_transaction
from aioqueue.sqlite._errors import concerns_a_row
from aioqueue.sqlite._rows import history
from aioqueue.sqlite._rows_claimed import CLAIMED_COLUMNS, is_counter, is_position
from aioqueue.sqlite._rows_ids import RowId, any_id, id_of
from aioqueue.sqlite._rows_times import NOW
from aioqueue.sqlite._settle_archive import PURGE_AT
from aioqueue.sqlite._webhooks_write import write_deliveries
from aioqueue.vocabulary._job import AttemptError, StoredState

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections import Connection

__all__ = ["OddRows", "what_is_odd", "what_is_odd_in"]

logger = logging.getLogger("aioqueue.sqlite")

_PASSED_OVER_SECONDS = 60.0
"""After that a row that could be neither claimed nor failed is tried again."""

_READ = f"SELECT {CLAIMED_COLUMNS}, job.state FROM job WHERE id = {any_id('id')}"


def _sound(column: str, instead: str, condition: str = "true") -> str:
    return f"iif(typeof({column}) = 'integer' AND {condition}, {column}, {instead})"


_COUNTER = "{0} BETWEEN 0 AND 2147483646"

_AFTER_THE_LAST_STEP = """coalesce((
        SELECT position + 1 FROM archive AS step INDEXED BY archive_chain
        WHERE step.chain_id = :chain AND step.position BETWEEN 0 AND 2147483645 ORDER BY step.position DESC LIMIT 1),
    :chain IS NOT NULL)"""
"""The chain ends with the row that fails, and whoever looks for its end has to find that one."""

_ARCHIVE = f"""
INSERT OR REPLACE INTO archive (id, type, priority, state, run_at, created_at, started_at, finished_at, expires_at, attempt,
    max_attempts, claims, reschedules, chain_id, position, key, unique_key, trace, retry, timeout, tags, metadata, errors,
    payload, keep, purge_at, webhook, origin)
SELECT :shown, CAST(type AS TEXT), {_sound("priority", "2")}, 6, {_sound("run_at", ":now")}, {_sound("created_at", ":now")},
    {_sound("started_at", "NULL")}, :now, {_sound("expires_at", "NULL")},
    {_sound("attempt", "0", _COUNTER.format("attempt"))}, {_sound("max_attempts", "NULL")},
    {_sound("claims", "1073741823", _COUNTER.format("claims"))},
    {_sound("reschedules", "0", _COUNTER.format("reschedules"))},
    :chain, {_sound("position", _AFTER_THE_LAST_STEP, _COUNTER.format("position"))},
    CAST(key AS TEXT), iif(until_started, NULL, CAST(unique_key AS TEXT)), CAST(trace AS TEXT),
    CAST(retry AS TEXT), iif(typeof(timeout) = 'real' AND abs(timeout) < 9e999, timeout, NULL), CAST(tags AS TEXT),
    CAST(metadata AS TEXT), {history(":error")}, CAST(payload AS TEXT),
    iif(typeof(keep) = 'real' AND abs(keep) < 9e999, keep, NULL),
    iif(typeof(keep) = 'real' AND abs(keep) < 1e12, {PURGE_AT}, NULL), CAST(webhook AS TEXT),
    CAST(origin AS TEXT)
FROM job WHERE id = {any_id("id")} AND state = :state AND (:state = 1 OR lease_id IS :lease)
"""
"""Archives an odd row as a failed job that can be read, and retried. Its fence is beyond all that were given out."""

_DELETE = f"DELETE FROM job WHERE id = {any_id('id')}"


class OddRows:
    """What one store knows of odd rows, and does with them, in its threads.

    Arguments:
        timeout: Seconds to wait for each write lock.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._stuck: dict[RowId, tuple[float, str]] = {}

    def __contains__(self, row_id: object) -> bool:
        """Whether this row is passed over."""
        return row_id in self._stuck

    def __len__(self) -> int:
        return len(self._stuck)

    def trouble(self) -> str:
        """What is wrong at the moment; empty when all is well."""
        stuck = list(self._stuck.items())
        if not stuck:
            return ""
        row_id, (_, reason) = stuck[0]
        return f"{len(stuck)} jobs can be neither run nor failed, such as {row_id.shown}: {reason}"

    def any_stuck(self) -> bool:
        """Whether there are rows that have to be passed over."""
        if self._stuck:
            now = time.monotonic()
            self._stuck = {row_id: entry for row_id, entry in self._stuck.items() if entry[0] > now}
        return bool(self._stuck)

    def read(self, connection: sqlite3.Connection, row_id: RowId, state: StoredState) -> Sequence[Any] | None:
        """Read the columns of a claim; None if the row is passed over, or isn't in that state any more."""
        if row_id in self._stuck:
            return None
        return _read(connection, row_id, state)

    def fail(
        self,
        connection: Connection,
        row_id: RowId,
        reason: str,
        *,
        state: StoredState = StoredState.PENDING,
        lease: object = None,
    ) -> list[UUID]:
        """Move a row to the archive as failed, in a transaction of its own, if it still is in that state, of that lease.

        Returns:
            The id of the chain that has ended with it; nothing when it wasn't moved.

        Raises:
            StoreError: The file can't be written.
        """
        move = functools.partial(_move, row_id=row_id, reason=reason, state=state, lease=lease)
        try:
            moved = in_transaction(connection, self.timeout, move)
        except StoreError as refused:
            if not concerns_a_row(refused):
                raise
            told = f"{reason}; nor can it be moved to the archive: {refused}"
            self._stuck[row_id] = (time.monotonic() + _PASSED_OVER_SECONDS, told)
            logger.error(
                "job %s is passed over: %s", row_id.shown, told, extra=event("store.row_passed_over", job_id=row_id.shown)
            )
            return []
        if moved is None:
            return []
        logger.error(
            "job %s was moved to the archive as failed: %s",
            row_id.shown,
            reason,
            extra=event("store.row_failed", job_id=row_id.shown),
        )
        return [moved]


def _read(connection: sqlite3.Connection, row_id: RowId, state: StoredState) -> Sequence[Any] | None:
    row = connection.execute(_READ, row_id.parameters("id")).fetchone()
    return row[:-1] if row is not None and row[-1] == state else None


def _move(connection: sqlite3.Connection, row_id: RowId, reason: str, state: StoredState, lease: object) -> UUID | None:
    entry = _read(connection, row_id, state)
    if entry is None:
        return None
    attempt = entry[4] if is_counter(entry[4]) else 0
    error = AttemptError(attempt=attempt, at=datetime.now(UTC), type="UnreadableRow", message=reason)
    now = connection.execute(f"SELECT {NOW}").fetchone()[0]
    chain = entry[19] if _is_id(entry[19]) else None
    new = {"shown": str(row_id.shown), "now": now, "error": error.encode().decode(), "state": int(state), "lease": lease}
    if connection.execute(_ARCHIVE, row_id.parameters("id") | new | {"chain": chain}).rowcount != 1:
        return None
    connection.execute(_DELETE, row_id.parameters("id"))
    write_deliveries(connection, [str(row_id.shown)], now)
    return row_id.shown if chain is None else id_of(chain)


# -- what is odd --------------------------------------------------------------------------------------------------


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and str(id_of(value)) == value


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int)


def _or_null(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


_SOUND: dict[str, Callable[[Any], bool]] = {
    "id": _is_id,
    "type": _is_text,
    "payload": _is_text,
    "priority": _is_integer,
    "attempt": is_counter,
    "claims": is_counter,
    "lease_id": _or_null(_is_integer),
    "created_at": _is_number,
    "run_at": _is_number,
    "started_at": _or_null(_is_number),
    "max_attempts": _or_null(_is_integer),
    "retry": _or_null(_is_text),
    "timeout": _or_null(_is_number),
    "expires_at": _or_null(_is_number),
    "reschedules": is_counter,
    "key": _or_null(_is_text),
    "tags": _is_text,
    "metadata": _is_text,
    "trace": _or_null(_is_text),
    "chain_id": _or_null(_is_id),
    "position": is_position,
    "marked": _is_integer,
    "origin": _or_null(_is_text),
}
"""What each column that a claim reads may hold, in the statement's order."""


def what_is_odd(entry: Sequence[Any]) -> str:
    """Say what is wrong with the columns of a claim; empty when nothing is."""
    return what_is_odd_in(dict(zip(_SOUND, entry, strict=True)))


def what_is_odd_in(values: dict[str, Any]) -> str:
    """Say what is wrong with some of these columns, by name; empty when nothing is."""
    wrong = [f"{name} = {value!r:.80}" for name, value in values.items() if not _SOUND[name](value)]
    return f"the stored row can't be read: {', '.join(wrong)}" if wrong else ""
