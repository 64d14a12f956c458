"""Changing many jobs of which somebody's open transaction holds one: it's found, and left out; the others are changed.

Only where the change of all of them has met such a lock. Whose rows are locked is asked with one statement; what else is
held, such as a unique key, is found by trying halves, which are undone: those that wait for each other are changed together.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from uuid import UUID

from aioqueue.errors import StoreContended
from aioqueue.postgres._errors import LOCKED, sqlstate
from aioqueue.postgres._insert_waits import only_trying, whole_or_nothing
from aioqueue.postgres._notifications import merged
from aioqueue.postgres._pauses_parked import PARKED
from aioqueue.postgres._rows_chain import ENDS
from aioqueue.vocabulary._answers import Changed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._notification import Notification

__all__ = ["DELETED", "RETRIED", "RUN", "Change", "Changes", "Touched", "apart_statements", "change_apart"]

_HARDLY = ("lock_timeout = '20ms'",)
"""How long a row is waited for while halves are tried: it has been waited for before."""

_MOST_LOOKS = 2

# One that goes on at that moment is skipped too, though nobody holds what it has become: so it's looked twice.
_HELD = f"""WITH {ENDS}, touched AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j
    WHERE j.id = ANY(ARRAY(SELECT live FROM ends))
      AND ($2::integer[] IS NULL OR (j.state + 0 = ANY($2) AND (j.state + 0 <> 0 OR ({PARKED}))))
    UNION ALL
    SELECT a.id FROM @schema@.archive a
    WHERE a.id = ANY(ARRAY(SELECT last FROM ends)) AND ($3::integer[] IS NULL OR a.state + 0 = ANY($3))
), free AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j WHERE j.id = ANY(ARRAY(SELECT id FROM touched)) FOR UPDATE SKIP LOCKED
), free_archived AS MATERIALIZED (
    SELECT a.id FROM @schema@.archive a WHERE a.id = ANY(ARRAY(SELECT id FROM touched)) FOR UPDATE SKIP LOCKED
)
SELECT ends.asked FROM ends
WHERE coalesce(ends.live, ends.last) IN (SELECT id FROM touched)
  AND coalesce(ends.live, ends.last) NOT IN (SELECT id FROM free UNION ALL SELECT id FROM free_archived)"""


def apart_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {"held": schema.render(_HELD)}


class Touched(NamedTuple):
    """Which rows a change locks, by their states; None for all.

    Attributes:
        live: Of chains' live steps; of those that are held only what is parked.
        last: Of the last ones of those that have ended.
    """

    live: list[int] | None
    last: list[int] | None


RETRIED = Touched([], [6, 7])
RUN = Touched([0, 1], [])
DELETED = Touched(None, None)


@dataclass(frozen=True, slots=True)
class Changes:
    """What a call has done.

    Attributes:
        results: One each, in order.
        told: What listeners are told.
        more: Chains that were deleted of which there may be steps left: `Operator.remove_rest` removes those.
    """

    results: list[Changed]
    told: Notification
    more: frozenset[UUID] = frozenset()


Change: TypeAlias = "Callable[[Sequence[UUID]], Awaitable[Changes]]"


async def change_apart(
    connection: Connection, statements: dict[str, str], ids: Sequence[UUID], touched: Touched, change: Change, *, seconds: float
) -> Changes:
    """Change those that nobody holds, within the connection's open transaction; the others are `CONTENDED`.

    Arguments:
        connection: In a transaction, in which rows are waited for briefly.
        statements: Those of this module, and maybe others.
        ids: Of any steps.
        touched: Which rows the change locks.
        change: Changes some of them there.
        seconds: How long it's looked for what is held. What is tried later, and can't be changed together, is contended.

    Raises:
        StoreContended, asyncpg.PostgresError: Such as where somebody has locked a whole table.
    """
    until = time.monotonic() + seconds

    async def keep(some: Sequence[UUID]) -> Changes:
        async with whole_or_nothing(connection):
            return await change(some)

    async def only_try(some: Sequence[UUID]) -> Changes:
        async with only_trying(connection, _HARDLY):
            return await change(some)

    wanted = list(dict.fromkeys(ids))
    held = set(wanted)
    for _ in range(_MOST_LOOKS):
        async with only_trying(connection, ()):  # their locks are given back: a worker may wait for one
            held = {row[0] for row in await connection.fetch(statements["held"], list(held), *touched)}
        if not held:
            break
    wanted = [each for each in wanted if each not in held]
    done: list[tuple[Sequence[UUID], Changes]] = []
    try:
        if wanted:
            done.append((wanted, await keep(wanted)))
    except Exception as error:  # whatever the driver
        if not _is_contention(error):
            raise
        _, contended = await _in_halves(wanted, only_try, until)
        done, _ = await _in_halves([each for each in wanted if each not in contended], keep, until)
    became = {job_id: each for some, changes in done for job_id, each in zip(some, changes.results, strict=True)}
    return Changes(
        [became.get(each, Changed.CONTENDED) for each in ids],
        merged([changes.told for _, changes in done]),
        frozenset[UUID]().union(*(changes.more for _, changes in done)),
    )


async def _in_halves(ids: Sequence[UUID], do: Change, until: float) -> tuple[list[tuple[Sequence[UUID], Changes]], set[UUID]]:
    """Do it for all together; or for halves, until those with which it can't be done are alone.

    Returns:
        What was done, by parts; and those with which it can't be.
    """
    parts, done, contended = [ids] if ids else [], list[tuple["Sequence[UUID]", Changes]](), set[UUID]()
    while parts:
        part = parts.pop()
        try:
            done.append((part, await do(part)))
        except Exception as error:  # whatever the driver
            if not _is_contention(error):
                raise
            half = len(part) // 2
            if half and time.monotonic() < until:
                parts += [part[half:], part[:half]]
            else:
                contended.update(part)
    return done, contended


def _is_contention(error: Exception) -> bool:
    return isinstance(error, StoreContended) or sqlstate(error) == LOCKED
