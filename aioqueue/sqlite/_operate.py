"""What operators change. The functions run inside an open write transaction, in a thread."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioqueue.errors import StoreError
from aioqueue.runtime._log import event
from aioqueue.sqlite._connections_halving import halved
from aioqueue.sqlite._notifications import merged
from aioqueue.sqlite._operate_prune import prune
from aioqueue.sqlite._rows import dump, one, text_of
from aioqueue.sqlite._rows_chain import LAST_STEPS, OF_CHAIN, chain_of
from aioqueue.sqlite._rows_ids import RowId, any_id
from aioqueue.sqlite._rows_times import NOW
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections import Connection
    from aioqueue.sqlite._connections_access import Writer
    from aioqueue.vocabulary._answers import Pruned

__all__ = ["Operator"]

logger = logging.getLogger("aioqueue.sqlite")

_RETRY = f"""
INSERT INTO job (id, type, priority, state, run_at, created_at, max_attempts, claims, chain_id, position, key, unique_key,
                 trace, retry, timeout, tags, metadata, errors, payload)
SELECT id, type, priority, 1, :now, created_at, max_attempts, claims, chain_id, position, key, unique_key,
       trace, retry, timeout, tags, metadata, errors, payload
FROM archive WHERE id = {any_id("step")}
"""

_REMOVE_ARCHIVED = f"DELETE FROM archive WHERE id = {any_id('step')}"

_MAKE_DUE = f"UPDATE job SET run_at = :now WHERE id = {any_id('step')} AND run_at > :now"

_END = f"""
WITH {LAST_STEPS}
SELECT live IS NULL, coalesce(job.state, archive.state), coalesce(job.type, archive.type), archive.unique_key,
    typeof(coalesce(live, archived)) = 'blob', CAST(coalesce(live, archived) AS BLOB)
FROM step LEFT JOIN job ON job.id = step.live LEFT JOIN archive ON archive.id = step.archived
WHERE coalesce(live, archived) IS NOT NULL
"""

_LATER, _FIRST = OF_CHAIN

_RUNS = f"""
SELECT EXISTS (SELECT 1 FROM job INDEXED BY job_chain WHERE {_LATER} AND state = 2)
    OR EXISTS (SELECT 1 FROM job WHERE {_FIRST} AND state = 2)
"""

_REMOVE_STEPS = f"DELETE FROM job WHERE {_LATER}"
_REMOVE_FIRST = f"DELETE FROM job WHERE {_FIRST}"
_REMOVE_ARCHIVED_STEPS = f"DELETE FROM archive WHERE {_LATER}"
_REMOVE_ARCHIVED_FIRST = f"DELETE FROM archive WHERE {_FIRST}"


class Operator:
    """Changes by operators in one open store, each job on its own.

    Arguments:
        writer: Where they run.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def change(self, verb: str, ids: Sequence[UUID]) -> Sequence[Changed]:
        """Change jobs, as `aioqueue.abc.Store` promises of `retry`, `run_now` and `delete`.

        A row that refuses it is told in the log, and doesn't keep the others from being changed.
        """

        def run(connection: Connection, abandoned: Callable[[], bool]) -> tuple[list[Changed], Notification | None]:
            results: list[Changed] = []
            notifications: list[Notification] = []
            for part, outcome in halved(connection, self._writer.timeout, ids, _VERBS[verb], abandoned):
                if not isinstance(outcome, StoreError):
                    results += outcome[0]
                    notifications += [] if outcome[1] is None else [outcome[1]]
                elif len(ids) == 1:
                    raise outcome
                else:
                    results.append(Changed.WRONG_STATE)
                    logger.error(
                        "job %s can't be changed: %s",
                        part[0],
                        outcome,
                        extra=event("store.job_not_changed", job_id=str(part[0])),
                    )
            return results, merged(notifications)

        return await self._writer.hop(run)

    async def prune(
        self, state: StoredState, older_than: float, types: Collection[str] | None, limit: int, cursor: str | None
    ) -> Pruned:
        """Remove one portion of what finished long ago."""
        return await self._writer.write(lambda connection: prune(connection, state, older_than, types, limit, cursor))


@dataclass(frozen=True, slots=True)
class _End:
    """The live or last step of a chain.

    Attributes:
        archived: Whether it's in the archive.
        state: As stored.
        type: Its type.
        unique_key: What it held, of an archived one.
        parameters: Its id, for statements with `any_id("step")`.
    """

    archived: bool
    state: Any
    type: str
    unique_key: str | None
    parameters: dict[str, Any]

    @classmethod
    def of(cls, connection: sqlite3.Connection, job_id: UUID) -> _End | None:
        """Find the end of a chain by any step's id; None if there is no such chain."""
        row = one(connection, _END, {"ids": dump([str(job_id)])})
        if row is None:
            return None
        archived, state, job_type, unique_key, blob, raw = row
        return cls(bool(archived), state, text_of(job_type), unique_key, RowId.read(blob, raw).parameters("step"))

    @property
    def not_now(self) -> Changed:
        """What is told where it isn't in the state for a change."""
        return Changed.RUNNING if self.state == StoredState.RUNNING and not self.archived else Changed.WRONG_STATE


def _retry(connection: sqlite3.Connection, ids: Sequence[UUID]) -> tuple[list[Changed], Notification | None]:
    """Bring failed and cancelled jobs back."""
    now = connection.execute(f"SELECT {NOW}").fetchone()[0]
    results: list[Changed] = []
    types: set[str] = set()
    for job_id in ids:
        end = _End.of(connection, job_id)
        if end is None:
            results.append(Changed.NOT_FOUND)
        elif not end.archived or end.state not in _RETRIABLE or _held(connection, end.unique_key):
            results.append(end.not_now)
        else:
            connection.execute(_RETRY, {**end.parameters, "now": now})
            connection.execute(_REMOVE_ARCHIVED, end.parameters)
            types.add(end.type)
            results.append(Changed.DONE)
    return results, Notification(types=frozenset(types)) if types else None


_RETRIABLE = frozenset({StoredState.FAILED, StoredState.CANCELLED})


def _held(connection: sqlite3.Connection, key: str | None) -> bool:
    return key is not None and one(connection, "SELECT 1 FROM job WHERE unique_key = :key", {"key": key}) is not None


def _run_now(connection: sqlite3.Connection, ids: Sequence[UUID]) -> tuple[list[Changed], Notification | None]:
    """Make pending jobs due."""
    now = connection.execute(f"SELECT {NOW}").fetchone()[0]
    results: list[Changed] = []
    types: set[str] = set()
    for job_id in ids:
        end = _End.of(connection, job_id)
        if end is None:
            results.append(Changed.NOT_FOUND)
        elif end.state != StoredState.PENDING or end.archived:
            results.append(end.not_now)
        else:
            connection.execute(_MAKE_DUE, {**end.parameters, "now": now})
            types.add(end.type)
            results.append(Changed.DONE)
    return results, Notification(types=frozenset(types)) if types else None


def _delete(connection: sqlite3.Connection, ids: Sequence[UUID]) -> tuple[list[Changed], Notification | None]:
    """Remove chains that don't run, all of their steps."""
    results: list[Changed] = []
    gone: set[UUID] = set()
    for job_id in ids:
        chain = chain_of(connection, job_id)
        parameters = chain.parameters("chain")
        if _End.of(connection, job_id) is None:
            results.append(Changed.NOT_FOUND)
        elif connection.execute(_RUNS, parameters).fetchone()[0]:
            results.append(Changed.RUNNING)
        else:
            statements = (_REMOVE_STEPS, _REMOVE_FIRST, _REMOVE_ARCHIVED_STEPS, _REMOVE_ARCHIVED_FIRST)
            removed = sum(connection.execute(each, parameters).rowcount for each in statements)
            results.append(Changed.DONE if removed else Changed.WRONG_STATE)
            if removed:
                gone.add(chain.shown)
    return results, Notification(finished=frozenset(gone)) if gone else None


_VERBS = {"retry": _retry, "run_now": _run_now, "delete": _delete}
