"""Storing jobs each for itself: ordinary ones by one statement that commits by itself, whatever keys others hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.postgres._insert_decisions import Stored
from aioqueue.postgres._insert_rows import job_size, sequenced_arguments, waiting_arguments
from aioqueue.postgres._insert_sequences import has_sequences
from aioqueue.postgres._notifications import inserted_note
from aioqueue.postgres._rows_portions import in_portions
from aioqueue.store_rules._unique_keys import unique_hashes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.postgres._connections import Pool
    from aioqueue.vocabulary._job import NewJob

__all__ = ["insert_apart", "is_quick"]


def is_quick(job: NewJob) -> bool:
    """Whether one statement stores it, and what holds its key is left alone."""
    if job.blockers or job.chosen_id or job.implied:
        return False
    return job.unique is None or (job.unique.on_conflict != "replace" and job.unique.window is None)


async def insert_apart(pool: Pool, statements: dict[str, str], jobs: Sequence[NewJob], origin: str | None) -> Stored:
    """Store jobs that are quick, and commit. Of those whose keys are held it's looked up who holds them.

    Arguments:
        pool: Where connections come from.
        statements: Those of `_insert_rows`, and maybe others.
        jobs: What is to be stored.
        origin: Who tells other processes; None if nobody is to be told.
    """
    stored = Stored()
    hashes: dict[UUID, UUID] = {}
    others: dict[UUID, Sequence[UUID]] = {}
    for job in jobs:
        if job.unique is not None:
            hashes[job.id], *older = unique_hashes(job)
            if older:
                others[job.id] = older
    left = jobs
    # Under the other names of a type that was renamed: rows from before carry them.
    if others:
        wanted = [hash_ for each in others.values() for hash_ in each]
        chains = {row[1]: row[2] for row in await pool.read(statements["insert_holders"], [], wanted)}
        for job in jobs:
            if (held := next((chains[hash_] for hash_ in others.get(job.id, ()) if hash_ in chains), None)) is not None:
                stored.keep(job, held)
        left = [job for job in left if job.id not in stored.chains and job.id not in stored.refused]
    while left:
        # In the order of the batch, in which sequences run; what was held, and is free by now, once more.
        left = [
            job
            for portion in in_portions(left, job_size)
            for job in await _insert_portion(pool, statements, portion, jobs, hashes, origin, stored)
        ]
    return stored


async def _insert_portion(
    pool: Pool,
    statements: dict[str, str],
    portion: Sequence[NewJob],
    jobs: Sequence[NewJob],
    hashes: dict[UUID, UUID],
    origin: str | None,
    stored: Stored,
) -> list[NewJob]:
    """Store a portion of jobs, in the order of their keys; returns those whose keys were held and are free."""
    portion = sorted(portion, key=lambda job: hashes[job.id].int if job.id in hashes else -1) if len(portion) > 1 else portion
    note = inserted_note(portion, origin)
    if has_sequences(portion):
        arguments = sequenced_arguments(portion, note, (), jobs, hashes)
        rows = await pool.fetch(statements["insert_sequenced_briefly"], *arguments)
    else:
        rows = await pool.fetch(statements["insert_briefly"], *waiting_arguments(portion, note, (), hashes))
    made = {row[0] for row in rows}
    made.discard(None)
    stored.created |= made
    if len(made) == len(portion):
        return []
    left = [job for job in portion if job.id not in made and job.id in hashes]
    if not left:
        return []
    wanted = [job.id for job in left], [hashes[job.id] for job in left]
    found = await pool.read(statements["insert_holders"], *wanted)
    present = {row[0] for row in found if row[1] is None}
    holders = {row[1]: row[2] for row in found if row[1] is not None}
    again: list[NewJob] = []
    for job in left:
        if job.id in present:
            continue
        if (holder := holders.get(hashes[job.id])) is None:
            again.append(job)
        else:
            stored.keep(job, holder)
    return again
