"""Claiming one by one: when the database refuses a claim of many because of one of its rows.

Nothing that a column can hold does that to the claim itself. What's left is what an installation adds: a trigger that
raises, a constraint that old rows don't meet.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aioqueue.errors import RowRejected, StoreError, StoreIncompatible, StoreUnavailable
from aioqueue.postgres._claim_owners import ALL_VALID, LOGGED, OWNERS, claimed
from aioqueue.postgres._events_log import logged
from aioqueue.postgres._gates_claim import Gated
from aioqueue.postgres._pauses_parked import key_is_paused, parking, type_is_free
from aioqueue.postgres._rows import claimed_job
from aioqueue.postgres._settle_archive import archive
from aioqueue.postgres._webhooks_ends import delivery_columns, ending_of, insert_deliveries
from aioqueue.runtime._log import event
from aioqueue.store_rules._deliveries import delivery_of
from aioqueue.vocabulary._event_log import EventKind
from aioqueue.vocabulary._job import AttemptError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from aioqueue.postgres._claim_owners import Owners
    from aioqueue.postgres._connections_reserved import ReservedConnection
    from aioqueue.postgres._gates_claim import GateClaims
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.store_rules._quotas import Rooms
    from aioqueue.vocabulary._gates import GateRules
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["SingleClaims", "claim_singly_statements"]

logger = logging.getLogger("aioqueue.postgres")

# How many are tried beside those that are wanted.
_MORE_ROWS = 100
_MOST_REMEMBERED_ROWS = 1_000

# A few of each lane, so that no lane with many that can't be claimed stands before all others.
_CANDIDATES = f"""SELECT head.id, lane.type, head.gated FROM unnest($1::text[], $2::smallint[]) AS lane(type, priority)
CROSS JOIN LATERAL (
    SELECT first.run_at, first.id, first.gated, row_number() OVER (ORDER BY first.run_at, first.id) AS place
    FROM (SELECT j.run_at, j.id, j.gates IS NOT NULL AS gated FROM @schema@.job j
          WHERE j.state = 1 AND j.type = lane.type AND j.priority = lane.priority AND j.run_at <= now()
          ORDER BY j.run_at, j.id LIMIT $3::integer) AS first
) AS head
WHERE {type_is_free("lane.type")}
ORDER BY head.place, lane.priority, head.run_at, head.id LIMIT $3::integer"""
_CLAIM_ONE = f"""WITH {OWNERS}, met AS MATERIALIZED (
    SELECT j.id, {key_is_paused("j.key")} AS paused FROM @schema@.job j
    WHERE {ALL_VALID} AND j.id = $2::uuid AND j.state + 0 = 1 AND j.run_at <= now() AND {type_is_free("j.type")}
      AND j.gates IS NULL
    FOR UPDATE OF j SKIP LOCKED
), picked AS MATERIALIZED (
    SELECT id FROM met WHERE NOT paused
), @claimed@
SELECT (SELECT paused FROM met), claimed.* FROM {LOGGED} LEFT JOIN claimed ON true WHERE logged.done IS NULL"""
_PARK_ONE = f"""WITH {parking("SELECT $1::uuid")} SELECT id FROM parked"""
_REFUSED = f"""WITH locked AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j WHERE j.id = $1::uuid AND j.state + 0 = 1 FOR UPDATE OF j SKIP LOCKED
), gone AS (
    DELETE FROM @schema@.job j WHERE j.id = ANY(ARRAY(SELECT id FROM locked)) RETURNING j.*
), archived AS (
    {archive(state="6", lease_id="NULL", outcome="NULL", output="NULL", error="$2::text")}
    FROM gone RETURNING id, coalesce(chain_id, id) AS chain_id, type, attempt, claims
), delivered AS (
    {insert_deliveries(3)}
    JOIN gone ON gone.id = given.job_id AND gone.webhook = given.url
), {logged(f"SELECT '{EventKind.FAILED}', id, chain_id, type, attempt, claims, $2::text FROM archived", "error")}
SELECT id FROM archived"""


# What is to be sent of it, where somebody is to be told.
_ENDING = """SELECT j.id, coalesce(j.chain_id, j.id), j.type, 6, j.attempt, now(), j.webhook, j.key,
       ARRAY(SELECT tag FROM unnest(j.tags) AS tag WHERE tag IS NOT NULL), NULL, NULL, $2::text, j.origin
FROM @schema@.job j WHERE j.id = $1::uuid AND j.webhook IS NOT NULL"""


def claim_singly_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "claim_candidates": _CANDIDATES,
        "claim_park_one": _PARK_ONE,
        "claim_one": _CLAIM_ONE.replace("@claimed@", claimed("$3", "$4")),
        "claim_one_dry": _CLAIM_ONE.replace("@claimed@", claimed("$3", "$4", dry_run=True)),
        "claim_refused": _REFUSED,
        "claim_refused_ending": _ENDING,
    }
    return {name: schema.render(template) for name, template in templates.items()}


class SingleClaims:
    """Claims over the same connection as those of many.

    Arguments:
        connection: The connection.
        schema: Where the tables are.
        gates: Claims what waits at gates.
    """

    def __init__(self, connection: ReservedConnection, schema: Schema, gates: GateClaims) -> None:
        self._connection = connection
        self._gates = gates
        self._statements = claim_singly_statements(schema)
        self._told: set[UUID] = set()

    async def claim(
        self,
        owners: Owners,
        lanes: tuple[list[str], list[int]],
        limit: int,
        marked: set[UUID],
        refused: StoreError,
        rooms: Rooms,
        rules: Mapping[str, GateRules],
        *,
        dry_run: bool,
    ) -> list[ClaimedJob]:
        """Claim up to `limit` jobs, each in a statement of its own, and set aside those that can't be.

        A row that the database rejects for what is in it is moved to the archive as failed, if others could be claimed: then
        it's not the installation that is broken. What is refused for another reason stays where it is.

        Arguments:
            owners: The leases.
            lanes: As `lanes_of` gives them.
            limit: Jobs at most.
            marked: Where the ids of marked ones are added.
            refused: What the claim of many met.
            rooms: What the quotas leave.
            rules: Of the types that have any.
            dry_run: Whether they're dry runs from now on.

        Raises:
            StoreError: No row could be claimed, or parked: what the claim of many met.
        """
        await self._gates.turns.let_come_all()
        taken: list[ClaimedJob] = []
        parked = False
        guilty: list[tuple[UUID, StoreError]] = []
        for job_id, job_type, gated in await self._candidates(lanes, limit + _MORE_ROWS):
            if len(taken) >= limit:
                break
            if not rooms.has_room(job_type):
                continue
            try:
                one = await self._claim_one(owners, job_id, rules, at_gates=gated or job_type in rules, dry_run=dry_run)
            except (StoreUnavailable, StoreIncompatible):
                if taken:
                    break  # what was taken before is worth having; the next call meets the same error
                raise
            except StoreError as error:
                guilty.append((job_id, error))
            else:
                parked = parked or bool(one.paused) or one.parked > 0
                taken.extend(one.jobs)
                rooms.fill(job.type for job in one.jobs)
                marked.update(one.marked)
        if not taken and not parked:
            raise refused
        for job_id, reason in guilty:
            await self._set_aside(job_id, reason)
        return taken

    async def _claim_one(
        self, owners: Owners, job_id: UUID, rules: Mapping[str, GateRules], *, at_gates: bool, dry_run: bool
    ) -> Gated:
        """Claim one, or park it."""
        if at_gates:
            one = await self._gates.claim_one(owners, job_id, rules, dry_run=dry_run)
        else:
            one = await self._claim_plain(owners, job_id, dry_run=dry_run)
        if one.paused:
            await self._connection.fetch(self._statements["claim_park_one"], job_id)
        return one

    async def _claim_plain(self, owners: Owners, job_id: UUID, *, dry_run: bool) -> Gated:
        statement = self._statements["claim_one_dry" if dry_run else "claim_one"]
        ((paused, *row),) = await self._connection.fetch(statement, owners.leases, job_id, owners.types, owners.of_types)
        one = Gated()
        if paused:
            one.paused.add(("", 0))  # whichever it is
        if row[0] is not None:
            one.jobs.append(claimed_job(row))
            one.marked.update(row[:1] if row[-1] else ())
        return one

    async def _candidates(self, lanes: tuple[list[str], list[int]], limit: int) -> list[tuple[UUID, str, bool]]:
        """Ids of due jobs, their types, and whether they're at gates."""
        rows = await self._connection.fetch(self._statements["claim_candidates"], *lanes, limit)
        return [(job_id, job_type, gated) for job_id, job_type, gated in rows]

    async def _move(self, job_id: UUID, noted: str) -> bool:
        endings = await self._connection.fetch(self._statements["claim_refused_ending"], job_id, noted)
        made = [each for row in endings if (each := delivery_of(ending_of(row))) is not None]
        return bool(await self._connection.fetch(self._statements["claim_refused"], job_id, noted, *delivery_columns(made)))

    async def _set_aside(self, job_id: UUID, error: StoreError) -> None:
        reason, moved = str(error), False
        if isinstance(error, RowRejected):
            noted = AttemptError(attempt=0, at=datetime.now(UTC), type="UnreadableRow", message=f"it can't be claimed: {error}")
            try:
                moved = await self._move(job_id, noted.encode().decode())
            except StoreError as worse:
                reason = f"{reason}, nor be moved to the archive: {worse}"
        if moved or job_id not in self._told:
            became = "it has failed" if moved else "it stays where it is, and makes the claims of others slow"
            logger.error(
                "job %s can't be claimed: %s; %s",
                job_id,
                reason,
                became,
                extra=event("store.job_not_claimed", job_id=str(job_id)),
            )
        if len(self._told) < _MOST_REMEMBERED_ROWS:
            self._told.add(job_id)
