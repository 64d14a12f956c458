"""What is said beside changes at limits: that nobody is known to ask for one, or that one that is 0 keeps a job."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from aioqueue.cli._pauses import unknown_types
from aioqueue.vocabulary._abilities import SupportsGates
from aioqueue.vocabulary._gates import JOB_LIMIT, RATE, LimitKind, name_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from aioqueue.client import Client
    from aioqueue.vocabulary._gates import StoredLimit
    from aioqueue.vocabulary._job import Job

__all__ = ["known_limits", "note_of_closed", "note_of_new"]


async def known_limits(client: Client) -> Sequence[StoredLimit]:
    """The limits that there are; nothing where the store knows none."""
    return await client.limits.list() if isinstance(client.store, SupportsGates) else ()


async def note_of_new(client: Client, name: str, before: Collection[str]) -> str:
    """Say that a limit that was put for the first time is one of which nobody is known to ask; nothing where it may be.

    Arguments:
        client: Open.
        name: The limit's.
        before: Names of limits that were there before.
    """
    if name in before:
        return ""
    option = "rate=Rate(...)" if name.startswith(RATE) else "limit=Limit(...)"
    job_type = name.removeprefix(RATE).removeprefix(JOB_LIMIT)
    if job_type == name and not await unknown_types(client, [name]):
        return (
            f"{name} is a new limit for types to share. That of the job type {name} is {JOB_LIMIT}{name}, its rate {RATE}{name}"
        )
    if job_type == name:
        return (
            f"{name} is new, and no job is known to wait at it: job types share it by limit={name!r}. To see which limits a "
            "registry's types ask for, and nobody has put: `aioqueue doctor MODULE:REGISTRY`"
        )
    if await unknown_types(client, [job_type]):
        return f"there is no job of the type {job_type}, and no live worker runs it: is that its name?"
    return f"no worker has told of a {option} of {job_type} so far: where its code has none, nobody looks at this one"


async def note_of_closed(client: Client, jobs: Iterable[Job | None], types: Iterable[str] = ()) -> list[str]:
    """Say which limits of 0 keep jobs that are made due.

    Arguments:
        client: Open.
        jobs: Those that are meant, as they were before.
        types: Names of job types that are meant.
    """
    closed = {each.name: each for each in await known_limits(client) if each.places == 0}
    if not closed:
        return []
    found = {name_of(job.held_by) for job in jobs if job is not None and job.held_by is not None}
    for job_type in {*types, *(job.type for job in jobs if job is not None)}:
        found |= {JOB_LIMIT + job_type, RATE + job_type}
    return [_kept(closed[name]) for name in sorted(found & closed.keys())]


def _kept(limit: StoredLimit) -> str:
    rate = limit.kind is LimitKind.STARTS
    put = f"aioqueue limits put {shlex.quote(limit.name)} {'STARTS --per TIME' if rate else 'PLACES'}"
    return (
        f"the {'rate' if rate else 'limit'} {limit.name} is 0: what was made due is first in line there, and starts "
        f"once it's raised: `{put}`"
    )
