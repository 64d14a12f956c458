"""What the statement for a page is put together from: its parameters, its named parts, and ranges of indexes in an order."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aioqueue.store_rules._cursors import BY_TIME, read_cursor
from aioqueue.vocabulary._listing import ListOrder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._listing import JobFilter

__all__ = ["FEW", "LOOK", "WALK", "Parts", "Way"]

WALK = 3_000
"""Rows that a page looks at, at most, one by one in an order: what isn't found among them is left to the next page."""

FEW = 2_500
"""Rows that are found by what they have, and not in an order: if there are more, a page walks."""

LOOK = 1_200
"""Rows that a page looks at in its order before it looks for the few that there may be."""

_LEAST_OF_A_RANGE = 51
"""Rows of each of many ranges: so an ordinary page is full, however many they are."""
_LEAST_FILTERED = 10

_PLACEHOLDER = re.compile(r"<<(\d+)>>")
_SMALLEST, _GREATEST = UUID(int=0), UUID(int=2**128 - 1)
_MICROSECONDS_OF_A_DAY = 86_400_000_000


class Parts:
    """The parameters of a statement, and the parts of its `WITH`."""

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._named: dict[str, str] = {}

    def add(self, value: Any, sql_type: str) -> str:
        """Take a value that may become a parameter; returns what stands for it."""
        self._values.append(value)
        return f"<<{len(self._values) - 1}>>::{sql_type}"

    def finish(self, sql: str) -> tuple[str, list[Any]]:
        """Put the parts and numbered parameters into a statement: those that it has a use for; returns them too."""
        numbers: dict[str, int] = {}

        def number(found: re.Match[str]) -> str:
            return f"${numbers.setdefault(found[1], len(numbers) + 1)}"

        parts = ",\n".join(f"{name} AS MATERIALIZED ({text})" for name, text in self._named.items())
        sql = _PLACEHOLDER.sub(number, f"WITH RECURSIVE {parts}\n{sql}")
        return sql, [self._values[int(each)] for each in numbers]

    def name(self, name: str, sql: str) -> str:
        """Name a part; returns the name."""
        self._named[name] = sql
        return name

    def choose(self, name: str, way: Way, *, first: str | None, few: str | None, otherwise: str) -> str:
        """A source: whatever is cheapest.

        Arguments:
            name: For the parts.
            way: The page's order.
            first: A short walk: it will do if it fills the page.
            few: Rows that may fit (id, at, live, passes), in no order: they will do if they're few.
            otherwise: A long walk.
        """
        done, sources = "false", list[str]()
        if first is not None:
            self.name(f"{name}_first", first)
            enough = f"count(*) FILTER (WHERE passes) > {way.limit} OR NOT coalesce(bool_or(last), false)"
            self.name(f"{name}_enough", f"SELECT {enough} AS yes FROM {name}_first")
            done = f"(SELECT yes FROM {name}_enough)"
            sources.append(f"SELECT * FROM {name}_first WHERE {done}")
        if few is not None:
            self.name(f"{name}_few", f"SELECT * FROM ({few}) AS each WHERE NOT {done} LIMIT {FEW + 1}")
            self.name(f"{name}_all", f"SELECT NOT {done} AND count(*) <= {FEW} AS yes FROM {name}_few")
            are_all = f"(SELECT yes FROM {name}_all)"
            sources.append(
                f"SELECT id, at, live, passes AND {way.behind} AS passes, false AS last FROM {name}_few WHERE {are_all}"
            )
            done = f"{done} AND NOT {are_all}"
        sources.append(f"SELECT * FROM ({otherwise}) AS walk WHERE NOT {done}")
        return " UNION ALL ".join(sources)


class Way:
    """An order, and where a page begins in it.

    Arguments:
        parts: Of the statement.
        where: The filter: of orders by id its range of ids bounds each range of an index.
        order: The order.
        cursor: Where the page begins.
        limit: Rows of the page.

    Attributes:
        limit: Rows of the page.
        by_time: Whether a time comes before the id.
        at: The column of that time, or nothing, called `at`.

    Raises:
        ValueError: The cursor isn't one of ours, or is of another order.
    """

    def __init__(self, parts: Parts, where: JobFilter, order: ListOrder, cursor: str | None, limit: int) -> None:
        self.limit = limit
        self.by_time = order in BY_TIME
        self._descending = order in (ListOrder.NEWEST, ListOrder.FINISHED)
        self._column = {ListOrder.DUE: "j.run_at", ListOrder.FINISHED: "j.finished_at"}.get(order)
        self.at = f"{self._column or 'NULL::timestamptz'} AS at"
        last, at = (None, None) if cursor is None else read_cursor(order, cursor)
        first_id, last_id = where.first_id or _SMALLEST, where.last_id or _GREATEST
        begin, end = (last_id, first_id) if self._descending else (first_id, last_id)
        if self.by_time:
            begin = _GREATEST if self._descending else _SMALLEST
        # The range of ids may begin behind the cursor.
        is_behind = last is not None and (self.by_time or (last <= begin if self._descending else last >= begin))
        self._operator = ("<" if self._descending else ">") + ("" if is_behind else "=")
        self._begin = parts.add(last if is_behind else begin, "uuid")
        self._begins_at_a_horizon = last == _SMALLEST
        self._end = "" if self.by_time else parts.add(end, "uuid")
        if self.by_time:
            self._begin_at = _moment(parts, (math.inf if self._descending else -math.inf) if at is None else at)

    @property
    def direction(self) -> str:
        """How each column is sorted."""
        return "DESC" if self._descending else "ASC"

    @property
    def keys(self) -> tuple[str, ...]:
        """What a page's rows are sorted by, where they're called `id` and `at`."""
        return ("at", "id") if self.by_time else ("id",)

    def sorted_by(self, keys: Sequence[str]) -> str:
        """An `ORDER BY`'s list."""
        return ", ".join(f"{key} {self.direction}" for key in keys)

    @property
    def not_beyond(self) -> str:
        """The operator that says that a row comes no later than another."""
        return ">=" if self._descending else "<="

    @property
    def behind(self) -> str:
        """The condition that a row with `id` and `at` belongs to this page or a later one."""
        if self.by_time:
            return f"(at, id) {self._operator} ({self._begin_at}, {self._begin})"
        return f"id {self._operator} {self._begin} AND id {self.not_beyond} {self._end}"

    def bound(self, total: int, ranges: str | int = 1, *, filtered: bool = False) -> str:
        """How many rows are read of each of several ranges, at most.

        Arguments:
            total: Of all together.
            ranges: How many ranges there are; or a part of the statement, whose `n` says it.
            filtered: Whether some of them may not fit.
        """
        # Of large pages as many as they have, unless there are very many ranges.
        least = min(self.limit + 1, _LEAST_FILTERED if filtered else _LEAST_OF_A_RANGE)
        if isinstance(ranges, int):
            return str(max(total // ranges, min(self.limit + 1, 8 * total // ranges), least))
        of_each = f"{total} / greatest(n, 1)"
        if not filtered:
            of_each += f", least({self.limit + 1}, {8 * total} / greatest(n, 1))"
        return f"(SELECT greatest({of_each}, {least}) FROM {ranges})"

    def range(
        self,
        table: str,
        columns: Sequence[str] = (),
        values: Sequence[str] = (),
        *,
        bound: str,
        passes: Sequence[str] = (),
        given: str = "",
        before: str = "",
        since: str | None = None,
        until: str | None = None,
    ) -> str:
        """A source: a range of an index on these columns and the order's own, from where the page begins.

        The range is a comparison of rows, and the order names all columns: no other index can give that, so that the
        planner doesn't come to think that walking along the ids and filtering is cheaper.

        Arguments:
            table: `job` or `archive`.
            columns, values: What the rows have in common.
            bound: How many rows are read at most.
            passes: Conditions that are looked at row by row.
            given: The condition of a partial index.
            before: A column of the index that comes before these, and is the same in all rows.
            since: Of an order by time: where it begins if the page begins before.
            until: Of an order by time: where it ends.
        """
        keys = [*columns, *([self._column] if self._column else []), "j.id"]
        begin = [*values, self._begin]
        end_columns, end = [*columns], [*values]
        if self.by_time:
            begin[-1:] = [self._begin_at, self._begin] if since is None else self._since(since)
            if until is not None:
                end_columns.append(self._column or "")
                end.append(until)
        else:
            end_columns.append("j.id")
            end.append(self._end)
        conditions = [*([given] if given else []), f"({', '.join(keys)}) {self._operator} ({', '.join(begin)})"]
        if end:
            conditions.append(f"({', '.join(end_columns)}) {self.not_beyond} ({', '.join(end)})")
        sorted_by = self.sorted_by([before, *keys] if before else keys)
        # Counted as they come out of the index, which is left as soon as there are enough for the page.
        return f"""(SELECT * FROM (
    SELECT id, at, {str(table == "job").lower()} AS live, passes, row_number() OVER () = {bound} AS last
    FROM (SELECT j.id, {self.at}, {" AND ".join(passes) or "true"} AS passes FROM @schema@.{table} j
          WHERE {" AND ".join(conditions)} ORDER BY {sorted_by} LIMIT {bound}) AS found
) AS counted WHERE passes OR last LIMIT {self.limit + 1})"""

    def horizon(self, table: str, column: str, value: str, rows: int) -> str:
        """The time of the row that is so many rows behind the page's beginning, of those with this value."""
        keys = [column, self._column or ""]
        # Behind an end of a page that was such a time, everything is of another one.
        operator = self._operator if self._begins_at_a_horizon else f"{self._operator[0]}="
        return f"""SELECT {self._column} AS at FROM @schema@.{table} j
    WHERE ({", ".join(keys)}) {operator} ({value}, {self._begin_at}) AND ({column}) {self.not_beyond} ({value})
    ORDER BY {self.sorted_by(keys)} OFFSET {rows} LIMIT 1"""

    def _since(self, since: str) -> list[str]:
        # Earlier, or later, than that.
        later, sign, beyond = ("least", "<", _SMALLEST) if self._descending else ("greatest", ">", _GREATEST)
        begin = self._begin_at
        return [f"{later}({begin}, {since})", f"CASE WHEN {begin} {sign} {since} THEN {self._begin} ELSE '{beyond}' END"]

    def all_of(self, table: str, *, given: str, passes: Sequence[str] = ()) -> str:
        """Rows that may fit, in no order: of the few."""
        return f"{self.rows_of(table, given=given, passes=passes)} LIMIT {FEW + 1}"

    def rows_of(self, table: str, *, given: str, passes: Sequence[str] = ()) -> str:
        """The same, however many they are."""
        return f"""SELECT j.id, {self.at}, {str(table == "job").lower()} AS live, {" AND ".join(passes) or "true"} AS passes
    FROM @schema@.{table} j WHERE {given}"""


def _moment(parts: Parts, at: float) -> str:
    """A time in microseconds since 1970, exactly, also beyond what Python knows."""
    if math.isinf(at):
        return parts.add("infinity" if at > 0 else "-infinity", "text") + "::timestamptz"
    days, rest = divmod(int(at), _MICROSECONDS_OF_A_DAY)
    # Hours: how long a day is depends on the time zone.
    return (
        f"('1970-01-01 00:00:00+00'::timestamptz + interval '24 hours' * {parts.add(days, 'integer')} "
        f"+ interval '1 microsecond' * {parts.add(rest, 'bigint')})"
    )
