"""What operators look for: one job, a chain, a page of a listing, the job that has a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.client._filters import check_limit, read_filters, read_order
from aioqueue.client._handle import ids_of
from aioqueue.client._progress import with_all_phases
from aioqueue.definitions._job_type import JobType
from aioqueue.errors import JobNotFound, NotSupported
from aioqueue.vocabulary._abilities import SupportsMigrate
from aioqueue.vocabulary._safe_text import storable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from typing_extensions import Unpack

    from aioqueue.abc import Store
    from aioqueue.client._filters import Filters
    from aioqueue.client._handle import JobHandle
    from aioqueue.vocabulary._attempt_log import AttemptLog
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._listing import JobFilter, ListOrder, Page
    from aioqueue.vocabulary._store_operating import Operable

__all__ = ["find_by_key", "find_end", "find_job", "find_logs", "list_page", "list_steps", "migrate"]


async def migrate(store: Store) -> Sequence[str]:
    """Bring the schema up to date, as `Client.migrate` promises.

    Raises:
        NotSupported: The store has no migrations.
    """
    if not isinstance(store, SupportsMigrate):
        raise NotSupported(f"{store.description} has no migrations", ability="migrate")
    return await store.migrate()


async def find_job(store: Operable, job_id: UUID | str | JobHandle[Any]) -> Job:
    """Look at one job, as `Client.job` promises.

    Raises:
        ValueError: The id isn't one.
        JobNotFound: There is no such job.
    """
    (wanted,) = ids_of([job_id])
    (found,) = await store.fetch([wanted])
    if found is None:
        raise JobNotFound(f"there is no job {wanted}: it was never committed, or has been deleted", job_id=wanted)
    return with_all_phases(found)


async def find_end(store: Operable, job_id: UUID | str | JobHandle[Any]) -> Job:
    """Look at a chain's live or last step, as `Client.chain` promises.

    Raises:
        ValueError: The id isn't one.
        JobNotFound: There is no such chain.
    """
    (wanted,) = ids_of([job_id])
    (found,) = await store.fetch_ends([wanted])
    if found is None:
        raise JobNotFound(f"there is no job {wanted}, and no chain: it was never committed, or has been deleted", job_id=wanted)
    return with_all_phases(found)


async def find_logs(store: Operable, job_id: UUID | str | JobHandle[Any]) -> Sequence[AttemptLog]:
    """Give what one job's attempts have logged, as `Client.logs` promises.

    Raises:
        ValueError: The id isn't one.
        JobNotFound: There is no such job.
    """
    (wanted,) = ids_of([job_id])
    return await store.fetch_logs(wanted) or await _no_logs(store, wanted)


async def _no_logs(store: Operable, job_id: UUID) -> Sequence[AttemptLog]:
    await find_job(store, job_id)
    return ()


async def list_steps(store: Operable, job_id: UUID | str | JobHandle[Any], limit: int, cursor: str | None) -> Page:
    """Show one page of a chain's steps, as `Client.chain_jobs` promises.

    Raises:
        ValueError: The id isn't one, or the cursor.
        JobNotFound: There is no such chain.
        ConfigurationError: The limit is out of its range.
    """
    check_limit(limit)
    return await store.list_chain((await find_end(store, job_id)).chain_id, limit, cursor)


async def list_page(
    store: Operable,
    where: JobFilter | None,
    order: ListOrder | str,
    limit: int,
    cursor: str | None,
    *,
    ends: bool = False,
    **filters: Unpack[Filters],
) -> Page:
    """Show one page of jobs, as `Client.list_jobs` promises, or with `ends` of chains, as `Client.list_chains` does.

    Raises:
        ValueError: A state isn't known, an id isn't one, or the cursor isn't one of this order.
        TypeError: There is no such filter.
        ConfigurationError: A value can't be used.
    """
    check_limit(limit)
    read = read_filters(where, ends=ends, **filters)
    return await store.list(read, limit, cursor, order=read_order(order, read))


async def find_by_key(store: Operable, job_type: JobType[..., Any, Any], key: str) -> Job | None:
    """Look for the chain with a key, as `Client.find` promises.

    Raises:
        TypeError: One of these isn't what it should be.
    """
    if not isinstance(job_type, JobType):
        raise TypeError(f"find takes a job type, what @registry.job has made, not {job_type!r:.100}")
    if not isinstance(key, str):
        raise TypeError(f"a key is text, not {key!r:.100}")
    # Not every database can be asked for what it can't have.
    return await store.find((job_type.name, *job_type.aliases), key) if storable(key) else None
