"""What stands for a unique key in the tables: a hash, since an index refuses long keys themselves."""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.errors import DuplicateJob, RowRejected, WrongJobType

if TYPE_CHECKING:
    from aioqueue.vocabulary._job import NewJob

__all__ = ["TAKEN_OVER_ORDINAL", "duplicate_job", "unique_digests", "unique_hash", "unique_hashes", "wrong_type_of_chosen"]

TAKEN_OVER_ORDINAL = 1_000_000
"""The place of the chain from which a job has taken its unique key over, among those that it waits for: behind all others."""


@functools.lru_cache(maxsize=4096)  # one insert asks several times
def unique_hash(type_name: str, key: str) -> UUID:
    """Hash a type's name and a key: the first 16 bytes of SHA-256.

    PostgreSQL's function `enqueue_hash` computes the same in SQL, so it can't change without a migration of both stores.

    Raises:
        RowRejected: One of them can't be UTF-8.
    """
    return UUID(bytes=_digest(type_name, key))


def _digest(type_name: str, key: str) -> bytes:
    try:
        return hashlib.sha256(f"{len(type_name)}:{type_name}{key}".encode()).digest()[:16]
    except UnicodeEncodeError as error:
        raise RowRejected(f"a key can't be stored: {error}") from None


def duplicate_job(job: NewJob, chain_id: UUID) -> DuplicateJob:
    """What is raised for a job whose unique key a chain holds, and whose `on_conflict` is `"raise"`."""
    key = job.key or ""
    message = f"job {job.id}: the chain {chain_id} has the unique key {key!r} of {job.type}"
    return DuplicateJob(message, job_id=job.id, key=key, chain_id=chain_id)


def wrong_type_of_chosen(job: NewJob) -> WrongJobType:
    """What is raised for a job whose id its caller has chosen, and that is there as one of another type."""
    return WrongJobType(
        f"job {job.id} is there already, and of another type than {job.type}: choose another id for this one, such as one "
        "that is made of its type's name, too",
        job_id=job.id,
    )


def unique_hashes(job: NewJob) -> tuple[UUID, ...]:
    """Hash the key of a job under each name of its type, the one that is stored first; nothing for a job that isn't unique.

    Live rows from before the type was renamed carry the hash of another name, so all are looked for.

    Raises:
        RowRejected: It's unique without a key, or the key can't be UTF-8.
    """
    if not job.unique:
        return ()
    if job.key is None:
        raise RowRejected("unique needs a key")
    if not job.aliases:
        return (unique_hash(job.type, job.key),)
    return tuple(unique_hash(name, job.key) for name in job.unique_names)


def unique_digests(job: NewJob) -> tuple[bytes, ...]:
    """Give the bytes of `unique_hashes`.

    Raises:
        RowRejected: As of that.
    """
    if not job.unique:
        return ()
    if job.key is None:
        raise RowRejected("unique needs a key")
    if not job.aliases:
        return (_digest(job.type, job.key),)
    return tuple(_digest(name, job.key) for name in job.unique_names)
