"""Which ticks are due, and when the next one is.

What was decided leaves an entry behind in the index, at the place of the time that is over. While somebody keeps an old
snapshot these can't be removed: once that makes looking slow, a look begins where the last one has found nothing any more, and
only now and then at the beginning, as claims do.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aioqueue.postgres._claim_throttle import Throttle
from aioqueue.postgres._rows import moment
from aioqueue.postgres._schedules_rows import SCHEDULE, stored_schedule
from aioqueue.vocabulary._schedules import DueSchedules

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._options_schema import Schema

__all__ = ["NEXT_TICK", "TickFloor", "due_statements", "read_due"]

NEXT_TICK = f"""(SELECT true FROM @schema@.schedule s
        WHERE @floor@::timestamptz IS NULL AND NOT s.paused AND s.next_at IS NULL LIMIT 1),
       (SELECT {moment("s.next_at")} FROM @schema@.schedule s
        WHERE NOT s.paused AND s.next_at >= coalesce(@floor@::timestamptz, '-infinity') AND s.next_at < 'infinity'
        ORDER BY s.next_at NULLS FIRST LIMIT 1)"""
"""Two columns: whether there's a schedule whose next tick isn't known, if it's looked from the beginning; and the first next
tick from the floor on.
"""

# In the order of the index, which is of no use for another one.
_LOOKED_FOR = "NOT s.paused AND ($2::boolean OR s.cron IS NULL) AND s.name <> ALL($3::text[])"
_DUE = f"""WITH due AS MATERIALIZED (
    (SELECT {SCHEDULE}, {moment("s.since")} AS due_at FROM @schema@.schedule s
     WHERE s.next_at IS NULL AND {_LOOKED_FOR}
     ORDER BY s.next_at NULLS FIRST, s.name LIMIT $1::integer)
    UNION ALL
    (SELECT {SCHEDULE}, {moment("s.next_at")} FROM @schema@.schedule s
     WHERE s.next_at >= coalesce($4::timestamptz, '-infinity') AND s.next_at <= now() AND {_LOOKED_FOR}
     ORDER BY s.next_at NULLS FIRST, s.name LIMIT $1::integer)
)
SELECT now(), (SELECT extract(epoch FROM s.next_at - now())::float8 FROM @schema@.schedule s
               WHERE s.next_at > now() AND s.next_at < 'infinity' AND {_LOOKED_FOR}
               ORDER BY s.next_at NULLS FIRST LIMIT 1), due.*
FROM (SELECT) AS once LEFT JOIN due ON true ORDER BY due.due_at, due.name LIMIT $1::integer"""


class TickFloor:
    """Up to where there are no ticks left to decide, as this process has seen it."""

    def __init__(self) -> None:
        self._at: datetime | None = None
        self._looks = Throttle()

    def begin(self) -> datetime | None:
        """From where the next look may begin; None for the beginning."""
        return self._at if self._looks.pause else None

    def seen(
        self, floor: datetime | None, began: float, *, unknown: bool, first: datetime | None, now: datetime
    ) -> float | None:
        """Note a look; returns in how many seconds the next tick is.

        Arguments:
            floor: From where it began.
            began: When, by the monotonic clock.
            unknown: Whether there's a schedule whose next tick isn't known: that one may turn out to be anywhere.
            first: The first tick that it has found.
            now: The database's clock.
        """
        if floor is None:
            self._looks.done(began, time.monotonic())
        if not unknown:
            # A tick is only moved on to a later time.
            self._at = now if first is None else min(first, now)
        if unknown:
            return 0.0
        return None if first is None else max(0.0, (first - now).total_seconds())


def due_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {"schedules_due": schema.render(_DUE)}


async def read_due(
    pool: Pool, statements: dict[str, str], floor: TickFloor, limit: int, *, cron: bool, without: Collection[str]
) -> DueSchedules:
    """See what there is to decide, as `aioqueue.abc.SupportsSchedules.due_schedules` says.

    Arguments:
        pool: For the client's own operations.
        statements: Those of this module, and maybe others.
        floor: The store's.
        limit, cron, without: What is looked for.
    """
    rows = await pool.read(statements["schedules_due"], limit, cron, list(without), floor.begin())
    return DueSchedules(
        now=rows[0][0],
        next_in=rows[0][1],
        schedules=tuple(stored_schedule(row[2:]) for row in rows if row[2] is not None),
    )
