"""What is there already of a batch of new jobs: their ids, who holds their unique keys, and which windows aren't over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioqueue.sqlite._resolve_ends import archived_ends
from aioqueue.sqlite._rows import dump, load
from aioqueue.sqlite._rows_chain import HOLDS_KEY
from aioqueue.sqlite._rows_ids import RowId, id_of, uuid_text
from aioqueue.sqlite._rows_times import NOW
from aioqueue.store_rules._unique_keys import unique_digests
from aioqueue.vocabulary._blockers import ChainEnd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._job import NewJob

__all__ = ["Found", "Holder", "look"]

_FITS = "type IN (SELECT value FROM json_each(asked.value ->> 1))"

_PRESENT = f"""
SELECT json_group_array(json_array(place, fits)) FROM (
    SELECT asked.key AS place, coalesce(
        (SELECT {_FITS} FROM job WHERE id = asked.value ->> 0),
        (SELECT {_FITS} FROM archive WHERE id = asked.value ->> 0),
        iif(asked.value ->> 2 AND (EXISTS (SELECT 1 FROM job WHERE chain_id = asked.value ->> 0)
                                   OR EXISTS (SELECT 1 FROM archive WHERE chain_id = asked.value ->> 0)), 1, NULL)) AS fits
    FROM json_each(:ids) AS asked)
WHERE fits IS NOT NULL
"""
"""A chain may have gone on from a job, and the job been pruned since: then nothing says of what type it was."""

_CHAIN = "iif(typeof(chain_id) = 'text' AND length(chain_id) = 36, chain_id, id)"

_WAITS = """typeof(id) = 'text' AND state IN (0, 1) AND position IS 0 AND (chain_id IS NULL OR chain_id = id)
            AND typeof(claims) = 'integer' AND typeof(created_at) = 'integer'"""
"""What is replaced keeps its id, its claims and its time of creation: where these are odd, nobody could claim it."""

_LOOK = f"""
SELECT {NOW}, ({_PRESENT}),
    (SELECT json_group_array(json_array(unique_key, typeof(id) = 'blob', hex(CAST(id AS BLOB)),
        typeof({_CHAIN}) = 'blob', hex(CAST({_CHAIN} AS BLOB)),
        {_WAITS},
        iif(typeof(created_at) = 'integer', created_at, {NOW}), claims IS NOT 0))
     FROM job WHERE {HOLDS_KEY} AND unique_key IN (SELECT value FROM json_each(:keys))),
    (SELECT json_group_array(json_array(key, chain_id)) FROM dedup
     WHERE key IN (SELECT value FROM json_each(:windows)) AND expires_at > {NOW})
"""


@dataclass(slots=True, eq=False)
class Holder:
    """A chain that holds a unique key. It isn't changed; a frozen class would cost each new job a microsecond.

    Attributes:
        key: The hash of that.
        chain_id: Its id.
        chain: The same, as text: as it's stored, unless that's odd.
        row_id: The id of its live step, likewise.
        row: The same, as it's stored.
        waits: Whether that is its first job, and waits to be started.
        created_at: When that was created, in microseconds.
        claimed: Whether that was claimed already.
        finished: Whether the chain has completed, and keeps the key since its window isn't over.
    """

    key: str
    chain_id: UUID
    chain: str
    row_id: str
    row: RowId | None = None
    waits: bool = False
    created_at: int = 0
    claimed: bool = False
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What is there already.

    Attributes:
        now: The database's time.
        keys: The hashes of jobs' unique keys, by the jobs' places; first the one that is stored.
        present: By the places of jobs whose ids are there already: whether that one's type is among the job's names.
        holders: Who holds a key, by their hashes.
        windows: Those that have completed, likewise.
    """

    now: int
    keys: Mapping[int, Sequence[str]]
    present: Mapping[int, bool]
    holders: Mapping[str, Holder]
    windows: Mapping[str, Holder]


def look(connection: Statements, jobs: Sequence[NewJob], *, repeated: bool) -> Found:
    """See what is there already.

    Raises:
        RowRejected: A key can't be hashed.
    """
    keys = {place: [uuid_text(key) for key in unique_digests(job)] for place, job in enumerate(jobs) if job.unique is not None}
    windowed = [place for place in keys if _has_window(jobs[place])]
    asked = {
        "ids": dump([[str(job.id), job.unique_names, repeated or job.chosen_id] for job in jobs]),
        "keys": dump([key for each in keys.values() for key in each]),
        "windows": dump([key for place in windowed for key in keys[place]]),
    }
    now, present, holders, windows = connection.execute(_LOOK, asked).fetchone()
    return Found(
        now,
        keys,
        {place: bool(fits) for place, fits in load(present)},
        dict(map(_holder, load(holders))),
        _completed(connection, load(windows)),
    )


def _has_window(job: NewJob) -> bool:
    return job.unique is not None and job.unique.window is not None


def _holder(entry: Sequence[object]) -> tuple[str, Holder]:
    key, is_blob, raw, chain_is_blob, raw_chain, waits, created_at, claimed = entry
    row, chain = RowId(bool(is_blob), bytes.fromhex(str(raw))), RowId(bool(chain_is_blob), bytes.fromhex(str(raw_chain)))
    held = str(key)
    known = {"waits": bool(waits) and str(row.shown) == row.text, "claimed": bool(claimed)}
    return held, Holder(held, chain.shown, str(chain.shown), str(row.shown), row, created_at=int(str(created_at)), **known)


def _completed(connection: Statements, windows: list[tuple[str, str]]) -> dict[str, Holder]:
    """Those chains with a window that have completed. Of others nothing is kept, of which nothing is left neither."""
    if not windows:
        return {}
    ends = archived_ends(connection, [chain for _, chain in windows])
    return {
        key: Holder(key, id_of(chain), chain, chain, finished=True)
        for (key, chain), end in zip(windows, ends, strict=True)
        if end is not None and end.state is ChainEnd.COMPLETED
    }
