"""What operators ask about jobs that wait for each other: which, and whether one can be deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.client._filters import check_limit
from aioqueue.client._operate import find_end
from aioqueue.errors import BlockerReference
from aioqueue.store_rules._unique_keys import TAKEN_OVER_ORDINAL
from aioqueue.vocabulary._answers import Changed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from aioqueue.client._handle import JobHandle
    from aioqueue.vocabulary._blockers import Blocker
    from aioqueue.vocabulary._store_operating import Operable

__all__ = ["list_blockers", "list_dependents", "refuse_blockers"]

_MOST_NAMED = 10


async def list_blockers(store: Operable, job_id: UUID | str | JobHandle[Any], limit: int, after: int) -> Sequence[Blocker]:
    """Show what a job waits for, as `Client.blockers` promises.

    Raises:
        ValueError: The id isn't one.
        JobNotFound: There is no such job.
        ConfigurationError: The limit is out of its range.
    """
    check_limit(limit)
    return await store.list_blockers((await find_end(store, job_id)).id, limit, after=after)


async def list_dependents(store: Operable, job_id: UUID | str | JobHandle[Any], limit: int) -> Sequence[Blocker]:
    """Show what waits for a chain, as `Client.dependents` promises. Its errors are those of `list_blockers`."""
    check_limit(limit)
    return await store.list_dependents((await find_end(store, job_id)).chain_id, limit)


async def refuse_blockers(store: Operable, changed: Mapping[UUID, Changed]) -> None:
    """Say which jobs weren't deleted, since others wait for them.

    Raises:
        BlockerReference: There is one.
    """
    kept = [job_id for job_id, became in changed.items() if became is Changed.BLOCKS]
    if not kept:
        return
    (end,) = await store.fetch_ends(kept[:1])
    # One may be there that has only taken the chain's key over, which doesn't keep it.
    edges: Sequence[Blocker] = () if end is None else await store.list_dependents(end.chain_id, _MOST_NAMED + 2)
    waiting = list(dict.fromkeys(each.job_id for each in edges if each.ordinal != TAKEN_OVER_ORDINAL))
    jobs = [each for each in await store.fetch(waiting[:_MOST_NAMED]) if each is not None]
    which = ", ".join(f"{each.id} of {each.type}" for each in jobs) + (" and more" if len(waiting) > _MOST_NAMED else "")
    others = f" ({len(kept) - 1} others neither)" if len(kept) > 1 else ""
    raise BlockerReference(
        f"the job {kept[0]} wasn't deleted{others}, since unfinished jobs wait for it{f': {which}' if which else ''}. "
        "cascade=True deletes them too",
        dependents=tuple(waiting[:_MOST_NAMED]),
        changed=dict(changed),
        job_id=kept[0],
        job_type=None if end is None else end.type,
        chain_id=None if end is None else end.chain_id,
    )
