"""What stands for a unique key in the tables: a hash, since an index refuses long keys themselves."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.errors import RowRejected

if TYPE_CHECKING:
    from aioqueue.vocabulary._job import NewJob

__all__ = ["unique_hash", "unique_hashes"]


def unique_hash(type_name: str, key: str) -> UUID:
    """Hash a type's name and a key: the first 16 bytes of SHA-256.

    PostgreSQL's function `enqueue_v1` computes the same in SQL, so it can't change without a migration of both stores.

    Raises:
        RowRejected: One of them can't be UTF-8.
    """
    try:
        return UUID(bytes=hashlib.sha256(f"{len(type_name)}:{type_name}{key}".encode()).digest()[:16])
    except UnicodeEncodeError as error:
        raise RowRejected(f"a key can't be stored: {error}") from None


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
    return tuple(unique_hash(name, job.key) for name in job.unique_names)
