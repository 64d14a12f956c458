"""The statement for one page of a listing.

A page is merged from sources, each a range of one index that is read in the page's order, with a bound. Where a source was
cut by its bound, nothing beyond its last row is shown: the page ends there, and the next one goes on from there. So a page may
have fewer rows than asked for, or none, and still have a successor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from aioqueue.postgres._listing_archived import archived_sources
from aioqueue.postgres._listing_conditions import Conditions
from aioqueue.postgres._listing_live import live_sources
from aioqueue.postgres._listing_parts import Parts, Way
from aioqueue.postgres._rows import ARCHIVED_COLUMNS, LIVE_COLUMNS, job_snapshot
from aioqueue.store_rules._cursors import write_cursor
from aioqueue.vocabulary._listing import IdPage, ListOrder, Page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.postgres._connections_driver import Row
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._listing import JobFilter

__all__ = ["PageQuery"]

# Times are read in microseconds since 1970, as cursors have them: exactly, and also those that Python doesn't know.
_MICROSECONDS = "round(extract(epoch FROM {at}) * 1000000)"
_LAST_MICROSECOND = 2**63 - 1
_NOTHING = "SELECT NULL::uuid AS id, NULL::timestamptz AS at, false AS live, false AS passes, false AS last WHERE false"


class PageQuery:
    """The statement for one page.

    Arguments:
        schema: Where the tables are.
        where: The filter.
        limit: Rows of the page.
        cursor: Where it begins.
        order: How it's sorted.
        only_ids: Whether nothing else is asked for.

    Attributes:
        sql: The statement.
        arguments: Its parameters.

    Raises:
        ValueError: The cursor isn't one of ours, or is of another order.
    """

    def __init__(
        self,
        schema: Schema,
        where: JobFilter,
        limit: int,
        cursor: str | None,
        *,
        order: ListOrder = ListOrder.NEWEST,
        only_ids: bool = False,
    ) -> None:
        self._limit = limit
        self._order = order
        parts = Parts()
        way = Way(parts, where, order, cursor, limit)
        conditions = Conditions(parts, way, where)
        sources: list[str] = []
        if order is not ListOrder.FINISHED:
            sources += live_sources(parts, way, where, conditions)
        if order is not ListOrder.DUE:
            sources += archived_sources(parts, way, where, conditions)
        keys = ", ".join(way.keys)
        parts.name("sources", " UNION ALL ".join(sources) or _NOTHING)
        parts.name("edge", f"SELECT id, at FROM sources WHERE last ORDER BY {way.sorted_by(way.keys)} LIMIT 1")
        within = f"coalesce(({keys}) {way.not_beyond} (SELECT {keys} FROM edge), true)"
        parts.name(
            "chosen",
            f"SELECT id, at, live FROM sources WHERE passes AND {within} ORDER BY {way.sorted_by(way.keys)} LIMIT {limit + 1}",
        )
        sql, self.arguments = parts.finish(_ids(way) if only_ids else _jobs(way))
        self.sql = schema.render(sql)

    def read(self, rows: Sequence[Row]) -> Page:
        """Make the page of the statement's rows."""
        found = [row for row in rows if row[2] is not None]
        jobs = tuple(job_snapshot(row[4:-1]) for row in found[: self._limit])
        return Page(jobs, self._cursor(rows, found))

    def read_ids(self, rows: Sequence[Row]) -> IdPage:
        """Make the page of ids of the statement's rows."""
        found = [row for row in rows if row[2] is not None]
        return IdPage(tuple(UUID(int=row[2].int) for row in found[: self._limit]), self._cursor(rows, found))

    def _cursor(self, rows: Sequence[Row], found: Sequence[Row]) -> str | None:
        if len(found) > self._limit:
            last, at = found[self._limit - 1][2:4]
        elif rows[0][0] is not None:
            last, at = rows[0][:2]
        else:
            return None
        # The driver's own kind of UUID is another class.
        return write_cursor(self._order, UUID(int=last.int), _time(at))


def _time(text: Any) -> float | None:
    if text is None:
        return None
    return float(text) if "Inf" in text else min(int(text), _LAST_MICROSECOND)


def _ids(way: Way) -> str:
    return f"""SELECT (SELECT id FROM edge), NULL, page.id, NULL
FROM (SELECT) AS once LEFT JOIN chosen AS page ON true ORDER BY {way.sorted_by(["page.id"])}"""


def _jobs(way: Way) -> str:
    edge_at = live = archived = "NULL::numeric"
    sorted_by = ["page.id"]
    if way.by_time:
        edge_at = f"(SELECT {_MICROSECONDS.format(at='at')} FROM edge)"
        live, archived = (_MICROSECONDS.format(at=column) for column in ("j.run_at", "j.finished_at"))
        sorted_by.insert(0, "page.sorted_at")
    return f"""SELECT (SELECT id FROM edge), {edge_at}::text, page.id, page.sorted_at::text, page.*
FROM (SELECT) AS once LEFT JOIN (
    SELECT {LIVE_COLUMNS}, {live} AS sorted_at FROM @schema@.job j WHERE j.id = ANY(ARRAY(SELECT id FROM chosen WHERE live))
    UNION ALL
    SELECT {ARCHIVED_COLUMNS}, {archived} FROM @schema@.archive j WHERE j.id = ANY(ARRAY(SELECT id FROM chosen WHERE NOT live))
) AS page ON true
ORDER BY {way.sorted_by(sorted_by)}"""
