"""Settling: how attempts ended, many at a time, each fenced by its claim and its lease.

The fast statement takes the rows that it can lock at once and writes every kind of outcome. What it didn't write is
looked up in one more statement: lost for a reason, or written by an earlier call. What is neither (locked by somebody,
or `marked`) goes the slow way once, all of it in one statement on another connection. What is locked even
then is busy: nothing here waits for a row. Batches in which chains continue have statements of their own.

A pending or archived row remembers the lease that wrote it (negative when it was written about an orphan), so that a
repeated settlement is recognised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from aioqueue.errors import RowRejected, StoreError, StoreIncompatible, StoreUnavailable
from aioqueue.postgres._rows_portions import in_portions
from aioqueue.postgres._settle_archive import archive, history
from aioqueue.postgres._settle_chain import CONTINUED_PARTS, PLAIN_PARTS, continuations, next_arguments
from aioqueue.postgres._settle_fates import Fence, chain_of, fate_of, fates_statements
from aioqueue.vocabulary._job import LostReason, SettleResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._connections_reserved import ReservedConnection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import Settlement

__all__ = ["Returned", "Settled", "Settler", "settle_statements"]

T = TypeVar("T")

_OWNED = "EXISTS (SELECT FROM @schema@.lease l WHERE l.id = given.lease_id)"
# The expired leases that orphans had go first, as in a recovery: a renewal at that moment has either been seen, or finds no
# row. One that is locked is being renewed or taken, so that its jobs have to wait.
_ENDED = """free AS MATERIALIZED (
    SELECT l.id FROM @schema@.lease l WHERE l.id = ANY($3::bigint[]) AND l.expires_at <= now() FOR UPDATE SKIP LOCKED
), ended AS MATERIALIZED (
    DELETE FROM @schema@.lease l WHERE l.id = ANY(ARRAY(SELECT id FROM free)) RETURNING l.id
), """
_ORPHANED = """(given.lease_id IN (SELECT id FROM ended)
                            OR NOT EXISTS (SELECT FROM @schema@.lease l WHERE l.id = given.lease_id))"""
_ENDED_TOLD = """UNION ALL
    SELECT pg_catalog.pg_notify('@channel@', json_build_object('o', $10::text, 'l', json_agg(id))::text)::text
    FROM (SELECT id, (row_number() OVER () - 1) / 150 AS part FROM ended) AS parts WHERE $10::text IS NOT NULL GROUP BY part"""

_ARCHIVE = archive(
    state="matched.kind",
    lease_id="@sign@ gone.lease_id",
    outcome="matched.outcome",
    output="matched.output",
    error="matched.error",
)
# `state + 0` and `lease_id + 0`: a condition that matches the lease index would make the planner walk its dead entries.
_SETTLE = f"""WITH @ended@given AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::integer[], $3::bigint[], $4::smallint[], $5::text[], $6::text[], $7::float8[],
                         $8::timestamptz[], $9::text[])
        AS given(id, claims, lease_id, kind, output, outcome, delay, run_at, error)
    WHERE @owner@
), locked AS MATERIALIZED (
    SELECT j.id, j.claims, coalesce(j.lease_id, 0) AS lease_id FROM @schema@.job j
    WHERE j.id = ANY(ARRAY(SELECT id FROM given)) AND j.state + 0 = 2 @fast@ FOR UPDATE OF j SKIP LOCKED
), matched AS MATERIALIZED (
    SELECT given.* FROM given JOIN locked ON locked.id = given.id AND locked.claims = given.claims
                                         AND locked.lease_id = given.lease_id
), @next@gone AS (
    DELETE FROM @schema@.job j WHERE j.id = ANY(ARRAY(SELECT id FROM matched WHERE kind < 8@kept@)) RETURNING j.*
), archived AS (
    {_ARCHIVE}
    FROM gone JOIN matched ON matched.id = gone.id
    RETURNING id, chain_id, state
), @continued@back AS MATERIALIZED (
    SELECT * FROM matched WHERE kind >= 8
), returned AS (
    UPDATE @schema@.job j
    SET state = 1, lease_id = @sign@ j.lease_id,
        run_at = greatest(nullif(j.run_at, 'infinity'), clock_timestamp(),
                          coalesce(back.run_at, now() + back.delay * interval '1 second', now())),
        attempt = CASE back.kind WHEN 9 THEN greatest(j.attempt, 1) - 1 ELSE j.attempt END,
        reschedules = CASE back.kind WHEN 9 THEN least(j.reschedules, 2147483646) + 1 ELSE j.reschedules END,
        errors = {history("j.errors", "back.error")}
    FROM back WHERE back.id = j.id
    RETURNING j.id, j.type, greatest(0, extract(epoch FROM j.run_at - now()))::float8 AS delay
), told AS MATERIALIZED (
    SELECT pg_catalog.pg_notify('@channel@', json_build_object('o', $10::text, 'd', due.delay, 't',
               CASE WHEN octet_length(due.types::text) < 7000 THEN due.types END)::text)::text AS done
    FROM (SELECT json_agg(DISTINCT type) AS types, min(delay) AS delay FROM @due@ WHERE delay <= 3600) AS due
    WHERE $10::text IS NOT NULL AND due.types IS NOT NULL
    UNION ALL
    SELECT pg_catalog.pg_notify('@channel@', json_build_object('o', $10::text, 'f', json_agg(id))::text)::text
    FROM (SELECT coalesce(chain_id, id) AS id, (row_number() OVER () - 1) / 150 AS part FROM archived@ends@) AS parts
    WHERE $10::text IS NOT NULL
      AND EXISTS (SELECT FROM @schema@.subscriber s WHERE s.expires_at > now() AND s.id::text <> $10::text)
    GROUP BY part
    @told@
)
SELECT id, chain_id::text AS type, NULL::float8 AS delay FROM archived
UNION ALL SELECT id, type, delay FROM returned
@went_on@@leases@UNION ALL SELECT NULL, NULL, NULL FROM told WHERE done IS NOT NULL"""

_TAKEN = "the chain can't be continued: a job with the next one's id is there already"


def settle_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    statements = fates_statements(schema)
    owned = {"@owner@": _OWNED, "@sign@": "", "@ended@": "", "@told@": "", "@leases@": ""}
    orphaned = {
        "@owner@": _ORPHANED,
        "@sign@": "-",
        "@ended@": _ENDED,
        "@told@": _ENDED_TOLD,
        "@leases@": "UNION ALL SELECT NULL, id::text, NULL FROM ended\n",
    }
    for name, replaced in (
        ("settle", {**owned, **PLAIN_PARTS}),
        ("settle_continued", {**owned, **CONTINUED_PARTS}),
        ("settle_orphaned", {**orphaned, **PLAIN_PARTS}),
        ("settle_orphaned_continued", {**orphaned, **CONTINUED_PARTS}),
    ):
        template = _SETTLE
        for mark, text in replaced.items():
            template = template.replace(mark, text)
        statements[name] = schema.render(template.replace("@fast@", "AND NOT j.marked"))
        statements[f"{name}_slowly"] = schema.render(template.replace("@fast@", ""))
    return statements


@dataclass(frozen=True, slots=True)
class Returned:
    """A job that became pending: again, or as the next one of a chain."""

    type: str
    delay: float


@dataclass(slots=True)
class Settled:
    """What a call wrote.

    Attributes:
        results: One each, in order.
        ended_chains: The ids of chains that have ended with it, or were found to have.
        returned: Jobs that it made pending.
        ended_leases: Leases that orphans had.
    """

    results: list[SettleResult]
    ended_chains: set[UUID] = field(default_factory=set[UUID])
    returned: list[Returned] = field(default_factory=list[Returned])
    ended_leases: set[int] = field(default_factory=set[int])


def _arguments(settlements: Sequence[Settlement], note: str | None) -> list[Any]:
    try:
        if not all(each.delay is None or isfinite(each.delay) for each in settlements):
            raise ValueError("an infinite delay")
        if any(each.run_at is not None and each.run_at.utcoffset() is None for each in settlements):
            raise ValueError("run_at has no time zone")
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
    except (ValueError, TypeError) as error:
        raise RowRejected(f"an outcome can't be stored: {error}") from None


def _unless_empty(column: list[T | None]) -> list[T | None]:
    """Leave out a column of nothing but NULL: `unnest` fills it up, and the driver takes its time over each value."""
    return column if any(value is not None for value in column) else []


class Settler:
    """Settles over one reserved connection, and what can't be written at once over a pool.

    Arguments:
        connection: The reserved connection.
        pool: For the slow statement.
        schema: Where the tables are.
        origin: Who tells; None if nobody is to be told.
    """

    def __init__(self, connection: ReservedConnection, pool: Pool, schema: Schema, origin: str | None) -> None:
        self._connection = connection
        self._pool = pool
        self._statements = settle_statements(schema)
        self._origin = origin

    async def settle(self, settlements: Sequence[Settlement], *, orphaned: bool) -> Settled:
        """Write how attempts ended, as `aioqueue.abc.Store.settle` says."""
        name = "settle_orphaned" if orphaned else "settle"
        done = Settled([SettleResult()] * len(settlements))
        chosen = _each_job_once(settlements, range(len(settlements)))
        written: set[int] = set()
        for portion in in_portions(chosen, lambda index: settlements[index].size):
            written |= await self._write(self._connection, name, settlements, portion, done)
        rest = [index for index in range(len(settlements)) if index not in written]
        if rest and (waiting := await self._look_up(settlements, rest, done, orphaned=orphaned)):
            written = await self._settle_slowly(name, settlements, waiting, done)
            rest = [index for index in waiting if index not in written]
            for index in await self._look_up(settlements, rest, done, orphaned=orphaned):
                done.results[index] = SettleResult(busy=True)
        return done

    async def _write(
        self,
        connections: ReservedConnection | Pool,
        name: str,
        settlements: Sequence[Settlement],
        indices: Sequence[int],
        done: Settled,
        *,
        slowly: bool = False,
    ) -> set[int]:
        """Execute one statement for these, and note what it has written; returns what nothing is left to do about."""
        places = {settlements[index].id: index for index in indices}
        batch = [settlements[index] for index in indices]
        arguments = _arguments(batch, self._origin)
        if continued := continuations(batch):
            name += "_continued"
            arguments += next_arguments(continued)
        written: set[int] = set()
        statement = self._statements[f"{name}_slowly" if slowly else name]
        for job_id, text, delay in await connections.fetch(statement, *arguments):
            if job_id is None:
                if delay is not None:
                    done.returned.append(Returned(text, delay))
                elif text is not None:
                    done.ended_leases.add(int(text))
                continue
            index = places[job_id]
            written.add(index)
            kind = settlements[index].kind
            if not kind.finishes:
                done.returned.append(Returned(text, delay))
            elif delay is not None:
                done.results[index] = SettleResult(LostReason.ERROR, _TAKEN)
            elif kind.ends_chain:
                done.ended_chains.add(job_id if text is None else UUID(text))
        return written

    async def _look_up(
        self, settlements: Sequence[Settlement], indices: Sequence[int], done: Settled, *, orphaned: bool
    ) -> list[int]:
        """Find out what became of these. Returns those that are neither lost nor written."""
        left = [index for index in indices if done.results[index] == SettleResult()]
        if not left:
            return []
        fences = [Fence(each.id, each.claims, each.lease_id, each.kind) for each in (settlements[index] for index in left)]
        asked = [each.id for each in fences], [each.lease_id for each in fences]
        rows = await self._connection.fetch(self._statements["fates"], *asked)
        fates = {row[0]: row for row in rows}
        waiting: list[int] = []
        for index, fence in zip(left, fences, strict=True):
            result = fate_of(fates[fence.id], fence, orphaned=orphaned)
            if result is None:
                waiting.append(index)
                continue
            done.results[index] = result
            if result.lost is not None:
                continue
            if settlements[index].kind.ends_chain:
                done.ended_chains.add(chain_of(fates[fence.id]))
            elif (job := settlements[index].next) is not None:
                done.returned.append(Returned(job.type, job.delay or 0.0))
        return waiting

    async def _settle_slowly(
        self, name: str, settlements: Sequence[Settlement], indices: Sequence[int], done: Settled
    ) -> set[int]:
        """Write what can be locked by now. A row that the database refuses is refused alone."""
        written: set[int] = set()
        portions = list(in_portions(_each_job_once(settlements, indices), lambda index: settlements[index].size))
        while portions:
            portion = portions.pop()
            try:
                written |= await self._write(self._pool, name, settlements, portion, done, slowly=True)
            except (StoreUnavailable, StoreIncompatible):
                raise
            except StoreError as error:
                if half := len(portion) // 2:
                    portions += [portion[:half], portion[half:]]
                elif isinstance(error, RowRejected):
                    done.results[portion[0]] = SettleResult(LostReason.ERROR, str(error))
                else:  # such as a trigger that raises: not now
                    done.results[portion[0]] = SettleResult(message=str(error), busy=True)
        return written


def _each_job_once(settlements: Sequence[Settlement], indices: Iterable[int]) -> list[int]:
    """One statement can't change a row twice: the first that is said of each job counts, the others are looked up."""
    first: dict[UUID, int] = {}
    for index in indices:
        first.setdefault(settlements[index].id, index)
    return list(first.values())
