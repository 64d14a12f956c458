"""Claiming one by one: when the database refuses a claim of many because of one of its rows.

Nothing that a column can hold does that to the claim itself. What's left is what an installation adds: a trigger that
raises, a constraint that old rows don't meet.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aioqueue.errors import RowRejected, StoreError, StoreIncompatible, StoreUnavailable
from aioqueue.postgres._rows import claimed_job
from aioqueue.vocabulary._job import AttemptError

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.postgres._claim import Owners
    from aioqueue.postgres._connections_reserved import ReservedConnection
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["Singly"]

logger = logging.getLogger("aioqueue.postgres")

# How many are tried beside those that are wanted.
_MORE = 100
_MOST_REMEMBERED = 1_000


class Singly:
    """Claims over the same connection as those of many.

    Arguments:
        link: The connection.
        statements: All statements of the store.
    """

    def __init__(self, link: ReservedConnection, statements: dict[str, str]) -> None:
        self._link = link
        self._statements = statements
        self._told: set[UUID] = set()

    async def claim(
        self, owners: Owners, lanes: tuple[list[str], list[int]], limit: int, refused: StoreError
    ) -> list[ClaimedJob]:
        """Claim up to `limit` jobs, each in a statement of its own, and set aside those that can't be.

        A row that the database rejects for what is in it is moved to the archive as failed, if others could be claimed: then
        it's not the installation that is broken. What is refused for another reason stays where it is.

        Arguments:
            owners: The leases.
            lanes: See `lanes_of`.
            limit: Jobs at most.
            refused: What the claim of many met.

        Raises:
            StoreError: No row could be claimed: what the claim of many met.
        """
        taken: list[ClaimedJob] = []
        guilty: list[tuple[UUID, StoreError]] = []
        for (job_id,) in await self._link.fetch(self._statements["claim_candidates"], *lanes, limit + _MORE):
            if len(taken) >= limit:
                break
            try:
                rows = await self._link.fetch(
                    self._statements["claim_one"], owners.leases, job_id, owners.types, owners.of_types
                )
            except (StoreUnavailable, StoreIncompatible):
                if taken:
                    break  # what was taken before is worth having; the next call meets the same error
                raise
            except StoreError as error:
                guilty.append((job_id, error))
            else:
                taken += [claimed_job(row) for row in rows]
        if not taken:
            raise refused
        for job_id, reason in guilty:
            await self._set_aside(job_id, reason)
        return taken

    async def _set_aside(self, job_id: UUID, error: StoreError) -> None:
        reason, moved = str(error), False
        if isinstance(error, RowRejected):
            noted = AttemptError(attempt=0, at=datetime.now(UTC), type="UnreadableRow", message=f"it can't be claimed: {error}")
            try:
                moved = bool(await self._link.fetch(self._statements["claim_refused"], job_id, noted.encode().decode()))
            except StoreError as worse:
                reason = f"{reason}, nor be moved to the archive: {worse}"
        if moved or job_id not in self._told:
            became = "it has failed" if moved else "it stays where it is, and makes the claims of others slow"
            logger.error("job %s can't be claimed: %s; %s", job_id, reason, became)
        if len(self._told) < _MOST_REMEMBERED:
            self._told.add(job_id)
