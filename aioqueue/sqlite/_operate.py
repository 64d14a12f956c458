"""What operators change. The functions run inside an open write transaction, in a thread."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aioqueue.errors import StoreError
from aioqueue.runtime._log import event
from aioqueue.sqlite._connections_halving import halved
from aioqueue.sqlite._notifications import merged
from aioqueue.sqlite._operate_prune import prune
from aioqueue.sqlite._rows import one, text_of
from aioqueue.sqlite._rows_times import NOW
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections import Connection
    from aioqueue.sqlite._connections_access import Writer
    from aioqueue.vocabulary._answers import Pruned
    from aioqueue.vocabulary._job import StoredState

__all__ = ["Operator"]

logger = logging.getLogger("aioqueue.sqlite")

_RETRY = """
INSERT INTO job (id, type, priority, state, run_at, created_at, max_attempts, claims, chain_id, position, key, unique_key,
                 trace, retry, timeout, tags, metadata, errors, payload)
SELECT id, type, priority, 1, :now, created_at, max_attempts, claims, chain_id, position, key, unique_key,
       trace, retry, timeout, tags, metadata, errors, payload
FROM archive WHERE id = :id
"""


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


def _retry(connection: sqlite3.Connection, ids: Sequence[UUID]) -> tuple[list[Changed], Notification | None]:
    """Bring failed and cancelled jobs back."""
    now = connection.execute(f"SELECT {NOW}").fetchone()[0]
    results: list[Changed] = []
    types: set[str] = set()
    for job_id in map(str, ids):
        live = one(connection, "SELECT state FROM job WHERE id = :id", {"id": job_id})
        row = one(connection, "SELECT state, type, unique_key FROM archive WHERE id = :id", {"id": job_id})
        if live is not None:
            results.append(Changed.RUNNING if live[0] == 2 else Changed.WRONG_STATE)
        elif row is None:
            results.append(Changed.NOT_FOUND)
        elif row[0] not in {6, 7} or _held(connection, row[2]):
            results.append(Changed.WRONG_STATE)
        else:
            connection.execute(_RETRY, {"id": job_id, "now": now})
            connection.execute("DELETE FROM archive WHERE id = :id", {"id": job_id})
            types.add(text_of(row[1]))
            results.append(Changed.DONE)
    return results, Notification(types=frozenset(types)) if types else None


def _held(connection: sqlite3.Connection, key: str | None) -> bool:
    return key is not None and one(connection, "SELECT 1 FROM job WHERE unique_key = :key", {"key": key}) is not None


def _run_now(connection: sqlite3.Connection, ids: Sequence[UUID]) -> tuple[list[Changed], Notification | None]:
    """Make pending jobs due."""
    now = connection.execute(f"SELECT {NOW}").fetchone()[0]
    results: list[Changed] = []
    types: set[str] = set()
    for job_id in map(str, ids):
        live = one(connection, "SELECT state, type FROM job WHERE id = :id", {"id": job_id})
        if live is None:
            archived = one(connection, "SELECT 1 FROM archive WHERE id = :id", {"id": job_id})
            results.append(Changed.NOT_FOUND if archived is None else Changed.WRONG_STATE)
        elif live[0] != 1:
            results.append(Changed.RUNNING if live[0] == 2 else Changed.WRONG_STATE)
        else:
            connection.execute("UPDATE job SET run_at = :now WHERE id = :id AND run_at > :now", {"id": job_id, "now": now})
            types.add(text_of(live[1]))
            results.append(Changed.DONE)
    return results, Notification(types=frozenset(types)) if types else None


def _delete(connection: sqlite3.Connection, ids: Sequence[UUID]) -> tuple[list[Changed], Notification | None]:
    """Remove jobs that aren't running."""
    results: list[Changed] = []
    gone: set[UUID] = set()
    for job_id in ids:
        parameters = {"id": str(job_id)}
        if connection.execute("DELETE FROM job WHERE id = :id AND state <> 2", parameters).rowcount:
            results.append(Changed.DONE)
        elif one(connection, "SELECT 1 FROM job WHERE id = :id", parameters) is not None:
            results.append(Changed.RUNNING)
        elif connection.execute("DELETE FROM archive WHERE id = :id", parameters).rowcount:
            results.append(Changed.DONE)
        else:
            results.append(Changed.NOT_FOUND)
        if results[-1] is Changed.DONE:
            gone.add(job_id)
    return results, Notification(finished=frozenset(gone)) if gone else None


_VERBS = {"retry": _retry, "run_now": _run_now, "delete": _delete}
