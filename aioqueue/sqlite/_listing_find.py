"""Looking for the job with a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.sqlite._rows import SELECT_ARCHIVED, SELECT_LIVE, dump, job_snapshot
from aioqueue.sqlite._rows_chain import HOLDS_KEY
from aioqueue.sqlite._rows_times import NOW
from aioqueue.store_rules._unique_keys import unique_hash
from aioqueue.vocabulary._job import StoredState

if TYPE_CHECKING:
    from collections.abc import Collection

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._job import Job

__all__ = ["find"]

_MOST_LOOKED_AT = 10_000
"""Of the newest jobs with the key: how many are asked for their chain's first type, live and archived ones each."""

_HOLDER = f"""
{SELECT_LIVE}, {NOW} FROM job INDEXED BY job_unique
WHERE unique_key IN (SELECT value FROM json_each(:hashes)) AND {HOLDS_KEY} ORDER BY id DESC LIMIT 1
"""

_TYPES = "(SELECT value FROM json_each(:types))"

_NEWEST_CHAIN = f"""
SELECT id FROM (
    SELECT id, type, chain_id FROM {{table}} INDEXED BY {{table}}_key WHERE key = :key AND {{counts}} AND id >= coalesce((
        SELECT id FROM (SELECT id, type, chain_id, state FROM {{table}} INDEXED BY {{table}}_key
                        WHERE key = :key ORDER BY id DESC LIMIT :most)
        WHERE chain_id IS NULL AND type IN {_TYPES} AND {{counts}} ORDER BY id DESC LIMIT 1), '')
    ORDER BY id DESC LIMIT :most) AS step
WHERE coalesce((SELECT type FROM archive AS first WHERE first.id = step.chain_id),
               (SELECT type FROM job AS first WHERE first.id = step.chain_id), step.type) IN {_TYPES}
ORDER BY coalesce(chain_id, id) DESC, id DESC LIMIT 1
"""
"""Ids begin with their time, so a chain that is newer than a job has no step whose id is smaller than the job's."""

_UNFINISHED = f"{SELECT_LIVE}, {NOW} FROM job WHERE id = ({_NEWEST_CHAIN.format(table='job', counts='true')})"

_FINISHED = f"""
{SELECT_ARCHIVED}, {NOW} FROM archive
WHERE id = ({_NEWEST_CHAIN.format(table="archive", counts=f"state <> {StoredState.CONTINUED:d}")})
"""


def find(connection: Statements, types: Collection[str], key: str) -> Job | None:
    """The step that counts of the chain with this key, as `aioqueue.abc.Store.find` says.

    Raises:
        RowRejected: No job can have such a key.
    """
    asked: dict[str, Any] = {
        "hashes": dump([str(unique_hash(each, key)) for each in types]),
        "types": dump(list(types)),
        "key": key,
        "most": _MOST_LOOKED_AT,
    }
    for statement in (_HOLDER, _UNFINISHED, _FINISHED):
        row = connection.execute(statement, asked).fetchone()
        if row is not None:
            return job_snapshot(row, row[-1])
    return None
