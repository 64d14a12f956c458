"""Cuts many rows into what one statement may have, and inserts them chunk by chunk."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.runtime._batcher import portions
from aioqueue.vocabulary._job import Inserted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
    from uuid import UUID

    from aioqueue.vocabulary._job import NewJob

__all__ = ["CHUNK_ROWS", "as_own", "cut", "insert_chunks", "missing_of", "with_stored"]

CHUNK_ROWS = 5_000
"""Rows in one statement at most."""


def cut(jobs: Sequence[NewJob]) -> list[Sequence[NewJob]]:
    """Cut rows into what one statement may have.

    Rows that belong together stay so, though they may be more: an implied job and those that wait for it, since whether it's
    stored depends on what becomes of these; and all, where one may be refused, so that nothing is stored then in a transaction
    of the user's.
    """
    chunks = list(portions(jobs, CHUNK_ROWS, lambda job: job.size))
    if len(chunks) == 1:
        return chunks
    if any(job.chosen_id or (job.unique is not None and job.unique.on_conflict == "raise") for job in jobs):
        return [jobs]
    if not any(job.implied for job in jobs):
        return chunks
    if not any(job.unique for job in jobs):  # then all that wait are stored, and so each implied one is needed
        return [[replace(job, implied=False) if job.implied else job for job in chunk] for chunk in chunks]
    return list(_joined(chunks, _reaches(jobs)))


def _reaches(jobs: Sequence[NewJob]) -> list[int]:
    """For each row, the place of the last one that has to be in the same statement as it or one before it."""
    places = {job.id: place for place, job in enumerate(jobs) if job.implied}
    reaches = list(range(len(jobs)))
    for place, job in enumerate(jobs):
        for each in job.blockers:
            if each.chain_id in places:
                reaches[places[each.chain_id]] = place
    for place in range(1, len(reaches)):
        reaches[place] = max(reaches[place], reaches[place - 1])
    return reaches


def _joined(chunks: Sequence[Sequence[NewJob]], reaches: Sequence[int]) -> Sequence[Sequence[NewJob]]:
    """The chunks, each that would be cut within what belongs together joined with the next."""
    joined: list[list[NewJob]] = [[]]
    end = 0
    for chunk in chunks:
        if joined[-1] and reaches[end - 1] < end:
            joined.append([])
        joined[-1] += chunk
        end += len(chunk)
    return joined


async def insert_chunks(
    jobs: Sequence[NewJob], insert: Callable[[Sequence[NewJob]], Awaitable[Sequence[Inserted]]]
) -> Sequence[Inserted]:
    """Insert rows chunk by chunk, in a transaction that is open.

    A store finds by itself that a blocker wasn't stored, since another chain holds its unique key, where that's in the same
    chunk; where it was in one before, the chain is put in its place here.
    """
    chunks = cut(jobs)
    if len(chunks) == 1:
        return await insert(jobs)
    inserted: list[Inserted] = []
    elsewhere: dict[UUID, UUID] = {}
    for chunk in chunks:
        results = await insert([_redirected(job, elsewhere) for job in chunk] if elsewhere else chunk)
        elsewhere.update((job.id, each.id) for job, each in zip(chunk, results, strict=True) if job.id != each.id)
        inserted += results
    return inserted


def _redirected(job: NewJob, elsewhere: Mapping[UUID, UUID]) -> NewJob:
    """The job, waiting for the chains that stand for those that weren't stored."""
    if not any(each.chain_id in elsewhere for each in job.blockers):
        return job
    blockers = (replace(each, chain_id=elsewhere.get(each.chain_id, each.chain_id)) for each in job.blockers)
    return replace(job, blockers=tuple(blockers))


def missing_of(jobs: Sequence[NewJob], stored: Collection[UUID]) -> list[NewJob]:
    """The jobs that an earlier try hasn't stored. One whose id was chosen is always among them: it may be somebody else's."""
    return [job for job in jobs if job.chosen_id or job.id not in stored]


def with_stored(jobs: Sequence[NewJob], stored: Collection[UUID], inserted: Sequence[Inserted]) -> list[Inserted]:
    """One answer for each job, in order.

    Arguments:
        jobs: All.
        stored: Those that an earlier try has stored.
        inserted: What became of `missing_of` these.
    """
    rest = iter(inserted)
    answers = [next(rest) if job.chosen_id or job.id not in stored else Inserted(job.id, created=True) for job in jobs]
    return as_own(jobs, answers, among=stored)


def as_own(jobs: Sequence[NewJob], inserted: Sequence[Inserted], *, among: Collection[UUID] | None = None) -> list[Inserted]:
    """Say that an earlier try has stored what a repeated insert has found under the calls' own ids.

    Of several calls with one chosen id that's the first. Whether it was somebody else who has stored that, nobody can tell.

    Arguments:
        jobs: All.
        inserted: What the repeated insert says of them.
        among: Those that an earlier try may have stored; None for all.
    """
    seen: set[UUID] = set()
    own: list[Inserted] = []
    for job, each in zip(jobs, inserted, strict=True):
        found = each.id == job.id and each.refused is None and job.id not in seen
        own.append(Inserted(job.id, created=True) if found and (among is None or job.id in among) else each)
        seen.add(job.id)
    return own
