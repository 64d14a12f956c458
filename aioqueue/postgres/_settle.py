"""Settling: how attempts ended, many at a time, each fenced by its claim and its lease.

The fast statement takes the rows that it can lock at once and writes every kind of outcome. What it didn't write is
looked up in one more statement: lost for a reason, or written by an earlier call. What is neither (locked by somebody,
or marked `slow_settle`) goes the slow way: one transaction each, which waits.

A pending or archived row remembers the lease that wrote it (negative when it was written about an orphan), so that a
repeated settlement is recognised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue._job import LostReason, SettlementKind, SettleResult, StoredState
from aioqueue.errors import RowRejected, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue._job import Claim, Settlement
    from aioqueue.postgres._connections import Link, Pool
    from aioqueue.postgres._schema import Schema
    from aioqueue.postgres._source import Row

__all__ = ["Fence", "Returned", "Settled", "Settler", "lost_reason", "settle_statements"]

T = TypeVar("T")

KEPT = 20
_WAIT_FOR_LOCK = "SET LOCAL lock_timeout = '5s'"

_OWNED = "EXISTS (SELECT FROM @schema@.lease l WHERE l.id = given.lease_id)"
_ORPHANED = "NOT EXISTS (SELECT FROM @schema@.lease l WHERE l.id = given.lease_id AND l.expires_at > now())"

# `state + 0` and `lease_id + 0`: a condition that matches the lease index would make the planner walk its dead entries.
_SETTLE = f"""WITH given AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::integer[], $3::bigint[], $4::smallint[], $5::text[], $6::text[], $7::float8[],
                         $8::timestamptz[], $9::text[])
        AS given(id, claims, lease_id, kind, output, outcome, delay, run_at, error)
    WHERE @owner@
), locked AS MATERIALIZED (
    SELECT j.id, j.claims, coalesce(j.lease_id, 0) AS lease_id FROM @schema@.job j
    WHERE j.id = ANY(ARRAY(SELECT id FROM given)) AND j.state + 0 = 2 @fast@ FOR UPDATE OF j @waiting@
), matched AS MATERIALIZED (
    SELECT given.* FROM given JOIN locked ON locked.id = given.id AND locked.claims = given.claims
                                         AND locked.lease_id = given.lease_id
), gone AS (
    DELETE FROM @schema@.job j WHERE j.id = ANY(ARRAY(SELECT id FROM matched WHERE kind < 8)) RETURNING j.*
), archived AS (
    INSERT INTO @schema@.archive (id, type, priority, run_at, state, attempt, claims, lease_id, max_attempts, reschedules,
        timeout, chain_id, position, key, unique_key, created_at, started_at, finished_at, expires_at, outcome, trace, tags,
        retry, metadata, payload, output, errors)
    SELECT gone.id, gone.type, gone.priority, gone.run_at, matched.kind, gone.attempt, gone.claims, @sign@ gone.lease_id,
           gone.max_attempts, gone.reschedules, gone.timeout, gone.chain_id, gone.position, gone.key, gone.unique_key,
           gone.created_at, gone.started_at, now(), gone.expires_at, matched.outcome, gone.trace, gone.tags, gone.retry,
           gone.metadata, gone.payload, matched.output::json,
           CASE WHEN matched.error IS NULL THEN gone.errors
                ELSE (gone.errors || matched.error::json)[greatest(1, cardinality(gone.errors) + 2 - {KEPT}):] END
    FROM gone JOIN matched ON matched.id = gone.id
    RETURNING id
), back AS MATERIALIZED (
    SELECT * FROM matched WHERE kind >= 8
), returned AS (
    UPDATE @schema@.job j
    SET state = 1, lease_id = @sign@ j.lease_id,
        run_at = greatest(j.run_at, clock_timestamp(),
                          coalesce(back.run_at, now() + back.delay * interval '1 second', now())),
        attempt = CASE back.kind WHEN 9 THEN greatest(j.attempt - 1, 0) ELSE j.attempt END,
        reschedules = j.reschedules + CASE back.kind WHEN 9 THEN 1 ELSE 0 END,
        errors = CASE WHEN back.error IS NULL THEN j.errors
                      ELSE (j.errors || back.error::json)[greatest(1, cardinality(j.errors) + 2 - {KEPT}):] END
    FROM back WHERE back.id = j.id
    RETURNING j.id, j.type, greatest(0, extract(epoch FROM j.run_at - now()))::float8 AS delay
), told AS MATERIALIZED (
    SELECT pg_catalog.pg_notify('@channel@', json_build_object('o', $10::text, 'd', due.delay, 't',
               CASE WHEN octet_length(due.types::text) < 7000 THEN due.types END)::text)::text AS done
    FROM (SELECT json_agg(DISTINCT type) AS types, min(delay) AS delay FROM returned WHERE delay <= 3600) AS due
    WHERE $10::text IS NOT NULL AND due.types IS NOT NULL
    UNION ALL
    SELECT pg_catalog.pg_notify('@channel@', json_build_object('o', $10::text, 'f', json_agg(id))::text)::text
    FROM (SELECT id, (row_number() OVER () - 1) / 150 AS part FROM archived) AS parts
    WHERE $10::text IS NOT NULL
      AND EXISTS (SELECT FROM @schema@.subscriber s WHERE s.expires_at > now() AND s.id::text <> $10::text)
    GROUP BY part
)
SELECT id, NULL::text AS type, NULL::float8 AS delay FROM archived
UNION ALL SELECT id, type, delay FROM returned
UNION ALL SELECT NULL, NULL, NULL FROM told WHERE done IS NOT NULL"""

# What has become of these jobs, in one snapshot: live, archived, and whether their leases are there, and valid.
_FATES = """SELECT given.id, j.state, j.claims, coalesce(j.lease_id, 0), a.state, a.claims, coalesce(a.lease_id, 0),
       l.id IS NOT NULL, coalesce(l.expires_at > now(), false)
FROM unnest($1::uuid[], $2::bigint[]) AS given(id, lease_id)
LEFT JOIN LATERAL (SELECT * FROM @schema@.job WHERE id = given.id) AS j ON true
LEFT JOIN LATERAL (SELECT * FROM @schema@.archive WHERE id = given.id ORDER BY finished_at DESC LIMIT 1) AS a ON true
LEFT JOIN LATERAL (SELECT * FROM @schema@.lease WHERE id = given.lease_id) AS l ON true"""


def settle_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    statements = {"fates": schema.render(_FATES)}
    for name, owner, sign in (("settle", _OWNED, ""), ("settle_orphaned", _ORPHANED, "-")):
        template = _SETTLE.replace("@owner@", owner).replace("@sign@", sign)
        fast = template.replace("@fast@", "AND NOT j.slow_settle").replace("@waiting@", "SKIP LOCKED")
        statements[name] = schema.render(fast)
        statements[f"{name}_slowly"] = schema.render(template.replace("@fast@", "").replace("@waiting@", ""))
    return statements


@dataclass(frozen=True, slots=True)
class Fence:
    """What a write is fenced by.

    Attributes:
        id, claims, lease_id: The claim.
        kind: What is written, so that only the same is taken for an earlier try of it; None if nothing is.
    """

    id: UUID
    claims: int
    lease_id: int
    kind: SettlementKind | None = None


@dataclass(frozen=True, slots=True)
class Returned:
    """A job that became pending again."""

    type: str
    delay: float


@dataclass(slots=True)
class Settled:
    """What a call wrote.

    Attributes:
        results: One each, in order.
        finished: Jobs that it moved to the archive, or that were found there.
        returned: Jobs that it made pending.
    """

    results: list[SettleResult]
    finished: set[UUID]
    returned: list[Returned]


def lost_reason(row: Row, fence: Fence, *, orphaned: bool) -> SettleResult | None:
    """Read one row of `fates`.

    Returns:
        A result without a reason, if an earlier call wrote it; None if nothing stands in the way of writing it.
    """
    _, state, claims, lease_id, archived, archived_claims, archived_lease_id, exists, valid = row
    writer = -fence.lease_id if orphaned else fence.lease_id
    if state == StoredState.RUNNING and claims == fence.claims and lease_id == fence.lease_id:
        return SettleResult(LostReason.TAKEN) if (valid if orphaned else not exists) else None
    if state is not None:
        again = fence.kind is None or fence.kind >= SettlementKind.RETRIED
        if state == StoredState.PENDING and again and claims == fence.claims and lease_id == writer:
            return SettleResult()
        return SettleResult(LostReason.TAKEN)
    if archived is None:
        return SettleResult(LostReason.NOT_FOUND)
    same = fence.kind is None or archived == fence.kind
    if same and archived_claims == fence.claims and archived_lease_id == writer:
        return SettleResult()
    return SettleResult(LostReason.CANCELLED if archived == StoredState.CANCELLED else LostReason.COMPLETED)


def fates_arguments(claims: Sequence[Claim] | Sequence[Fence], lease_ids: Sequence[int]) -> list[Any]:
    """The arguments of `fates`."""
    return [[claim.id for claim in claims], lease_ids]


def _arguments(settlements: Sequence[Settlement], note: str | None) -> list[Any]:
    try:
        return [
            [each.id for each in settlements],
            [each.claims for each in settlements],
            [each.lease_id for each in settlements],
            [int(each.kind) for each in settlements],
            [None if each.output is None else each.output.decode() for each in settlements],
            _unless_empty([each.outcome for each in settlements]),
            _unless_empty([each.delay for each in settlements]),
            _unless_empty([each.run_at for each in settlements]),
            _unless_empty([None if each.error is None else each.error.encode().decode() for each in settlements]),
            note,
        ]
    except (UnicodeDecodeError, TypeError) as error:
        raise RowRejected(f"an outcome can't be stored: {error}") from None


def _unless_empty(column: list[T | None]) -> list[T | None]:
    """Leave out a column of nothing but NULL: `unnest` fills it up, and the driver takes its time over each value."""
    return column if any(value is not None for value in column) else []


class Settler:
    """Settles over one reserved connection, and the slow ones over the pool.

    Arguments:
        link: The reserved connection.
        pool: For what waits.
        statements: See `settle_statements`.
        origin: Who tells; None if nobody is to be told.
    """

    def __init__(self, link: Link, pool: Pool, statements: dict[str, str], origin: str | None) -> None:
        self._link = link
        self._pool = pool
        self._statements = statements
        self._origin = origin

    async def settle(self, settlements: Sequence[Settlement], *, orphaned: bool) -> Settled:
        """See `Store.settle`."""
        name = "settle_orphaned" if orphaned else "settle"
        first: dict[UUID, int] = {}
        for index, settlement in enumerate(settlements):
            first.setdefault(settlement.id, index)
        batch = [settlements[index] for index in first.values()]
        done = Settled([SettleResult()] * len(settlements), set(), [])
        rows = await self._link.fetch(self._statements[name], *_arguments(batch, self._origin))
        written = self._note(done, rows, settlements, first)
        rest = [index for index, each in enumerate(settlements) if each.id not in written or first[each.id] != index]
        if rest:
            await self._settle_rest(name, settlements, rest, done, orphaned=orphaned)
        return done

    def _note(
        self, done: Settled, rows: Sequence[Row], settlements: Sequence[Settlement], places: dict[UUID, int]
    ) -> set[UUID]:
        written: set[UUID] = set()
        for job_id, type_name, delay in rows:
            if job_id is None:
                continue
            written.add(job_id)
            if settlements[places[job_id]].kind >= SettlementKind.RETRIED:
                done.returned.append(Returned(type_name, delay))
            else:
                done.finished.add(job_id)
        return written

    async def _settle_rest(
        self, name: str, settlements: Sequence[Settlement], rest: Sequence[int], done: Settled, *, orphaned: bool
    ) -> None:
        chosen = [settlements[index] for index in rest]
        fences = [Fence(each.id, each.claims, each.lease_id, each.kind) for each in chosen]
        rows = await self._link.fetch(self._statements["fates"], *fates_arguments(fences, [each.lease_id for each in fences]))
        fates = {row[0]: row for row in rows}
        busy: StoreUnavailable | None = None
        for index, fence in zip(rest, fences, strict=True):
            settlement = settlements[index]
            result = lost_reason(fates[fence.id], fence, orphaned=orphaned)
            if result is None:
                try:
                    result = await self._settle_slowly(name, settlement, fence, done, orphaned=orphaned)
                except RowRejected as error:
                    result = SettleResult(LostReason.ERROR, str(error))
                except StoreUnavailable as error:
                    busy = error
                    continue
            if result.lost is None and settlement.kind < SettlementKind.RETRIED:
                done.finished.add(settlement.id)
            done.results[index] = result
        if busy is not None:
            # The others are written, and repeating the call says so.
            raise busy

    async def _settle_slowly(
        self, name: str, settlement: Settlement, fence: Fence, done: Settled, *, orphaned: bool
    ) -> SettleResult:
        async with self._pool.transaction() as connection:
            await connection.execute(_WAIT_FOR_LOCK)
            arguments = _arguments([settlement], self._origin)
            rows = await connection.fetch(self._statements[f"{name}_slowly"], *arguments)
            if self._note(done, rows, [settlement], {settlement.id: 0}):
                return SettleResult()
            fates = await connection.fetch(self._statements["fates"], *fates_arguments([fence], [fence.lease_id]))
            return lost_reason(fates[0], fence, orphaned=orphaned) or SettleResult(LostReason.TAKEN)
