"""Reading a page out of lanes: ranges of indexes, each of which has its rows in the order of the listing."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioqueue.sqlite._rows_ids import ANY_ID, RowId, any_id
from aioqueue.sqlite._rows_places import NO_VALUE, Place, any_place, place_columns
from aioqueue.vocabulary._listing import ListOrder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["Lane", "merged_page"]

WALK_ROWS = 5_000
"""How many rows of a table one page looks at, at most, where a filter leaves rows out and no index knows which."""

FOUND_ROW_COST = 5
"""As how many of those a row counts that is found by an index."""

_LEAST_ROWS = 4
"""That a lane looks at in one go."""

_COLUMNS = {ListOrder.DUE: "run_at", ListOrder.FINISHED: "finished_at"}
_DOWNWARDS = frozenset({ListOrder.NEWEST, ListOrder.FINISHED})


@dataclass(frozen=True, slots=True)
class Lane:
    """A range of one index.

    Attributes:
        source: What stands behind FROM: the table, its index, and the range.
        parameters: What the source and the conditions want.
        conditions: What else is asked of each row.
        archived: Whether it's of the archive.
        few: Whether it has few rows, so that all of them are looked at, and sorted; they needn't be in order.
        cost: What looking at one of its rows costs.
        begin: Where it begins, as if a page had ended there. It's no condition of the source: SQLite would walk from one of two
            bounds on the same side, maybe the wrong one.
        end: The last place in it.
    """

    source: str
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    conditions: Sequence[str] = ()
    archived: bool = False
    few: bool = False
    cost: int = FOUND_ROW_COST
    begin: Place | None = None
    end: Place | None = None


class _Order:
    """How places are read and compared in an order."""

    def __init__(self, order: ListOrder) -> None:
        column = _COLUMNS.get(order)
        self._by_id = column is None
        self.down = order in _DOWNWARDS
        self.columns = ANY_ID if column is None else place_columns(column)
        self._left = "id" if column is None else f"({column}, id)"
        way = "DESC" if self.down else "ASC"
        self.by = f"ORDER BY id {way}" if column is None else f"ORDER BY {column} {way}, id {way}"
        self.behind = f"{self._left} {'<' if self.down else '>'} {self._right('after')}"
        self.up_to = f"{self._left} {'>=' if self.down else '<='} {self._right('end')}"

    def _right(self, name: str) -> str:
        return any_id(name) if self._by_id else any_place(name)

    def later(self, one: Place, other: Place) -> Place:
        """That of two places to which the listing comes later."""
        return min(one, other) if self.down else max(one, other)

    def read(self, row: Sequence[Any]) -> Place:
        if self._by_id:
            return Place(is_odd=False, number=0, odd=NO_VALUE, id=RowId.read(*row))
        return Place.read(*row)

    def parameters(self, place: Place, name: str) -> dict[str, Any]:
        return place.id.parameters(name) if self._by_id else place.parameters(name)


class _Reading:
    """How far a lane has been read.

    Arguments:
        connection: Where.
        order: Of the listing.
        lane: Which.
        after: Where the page begins.
        wanted: Rows to find in one go: at first, and at most.
    """

    def __init__(self, connection: Statements, order: _Order, lane: Lane, after: Place, wanted: tuple[int, int]) -> None:
        self._connection = connection
        self._order = order
        self.lane = lane
        self.found: deque[Place] = deque()
        """Fitting rows that have been read, and not taken."""
        self.read_to: Place | None = after if lane.begin is None else order.later(after, lane.begin)
        """Behind the found ones: up to where there are no others. None at the lane's end."""
        self._wanted, self._most = wanted

    @property
    def walks(self) -> bool:
        """Whether rows are looked at that don't fit."""
        return bool(self.lane.conditions) and not self.lane.few

    def read_on(self, cost: int) -> int:
        """Read the next portion, at about this cost at most; gives what it has cost."""
        assert self.read_to is not None
        rows_looked_at = max(_LEAST_ROWS, cost // self.lane.cost)
        portion_end = self._end_of_portion(rows_looked_at) if self.walks else None
        wanted = self._most if self.lane.few else self._wanted
        rows = self._select(portion_end or self.lane.end, self.lane.conditions, f"LIMIT {wanted}")
        self.found.extend(rows)
        self.read_to = portion_end if len(rows) < wanted else rows[-1]
        self._wanted = min(2 * self._wanted, self._most)
        return self.lane.cost * rows_looked_at if self.walks else len(rows)

    def _end_of_portion(self, rows_looked_at: int) -> Place | None:
        found = self._select(self.lane.end, (), f"LIMIT 1 OFFSET {rows_looked_at - 1}")
        return found[0] if found else None

    def _select(self, end: Place | None, conditions: Sequence[str], limit: str) -> list[Place]:
        assert self.read_to is not None
        order = self._order
        parameters = {**self.lane.parameters, **order.parameters(self.read_to, "after")}
        asked = [order.behind, *conditions]
        if end is not None:
            asked.append(order.up_to)
            parameters |= order.parameters(end, "end")
        statement = f"SELECT {order.columns} FROM {self.lane.source} AND {' AND '.join(asked)} {order.by} {limit}"
        return [order.read(row) for row in self._connection.execute(statement, parameters).fetchall()]

    @property
    def next(self) -> Place | None:
        """The next row, or else the place up to which there is none; None at the lane's end."""
        return self.found[0] if self.found else self.read_to


class _Turn:
    """A lane's place in the line, for a heap: the live one first, of two with the same."""

    __slots__ = ("_down", "place", "reading")

    def __init__(self, place: Place, reading: _Reading, *, down: bool) -> None:
        self.place = place
        self.reading = reading
        self._down = down

    def __lt__(self, other: _Turn) -> bool:
        if self.place == other.place:
            # A row is there before the place up to which there is none.
            return (not self.reading.found, self.reading.lane.archived) < (not other.reading.found, other.reading.lane.archived)
        return (self.place > other.place) if self._down else (self.place < other.place)


def merged_page(
    connection: Statements, order: ListOrder, lanes: Sequence[Lane], after: Place, limit: int
) -> tuple[list[tuple[Place, bool]], Place | None]:
    """Read the next rows of all lanes.

    No lane is read further than needed. Where filters leave out more rows than one page may look at, it ends there.

    Arguments:
        connection: Where.
        order: The order of the page, and of each lane.
        lanes: Where a row is in several of them, it counts once, and as a live one.
        after: Where the page begins.
        limit: Rows of the page.

    Returns:
        The rows, each with whether it's archived; and where the next page begins, None at the end.
    """
    how = _Order(order)
    wanted = limit + 1 if len(lanes) <= 4 else min(limit + 1, max(4, 2 * limit // len(lanes)))
    readings = [_Reading(connection, how, each, after, (wanted, limit + 1)) for each in lanes]
    left = WALK_ROWS
    for each in readings:
        left -= each.read_on(WALK_ROWS // len(readings))
    line = [_Turn(each.next, each, down=how.down) for each in readings if each.next is not None]
    heapq.heapify(line)
    page: list[tuple[Place, bool]] = []
    while line:
        reading = line[0].reading
        if reading.found:
            place = reading.found.popleft()
            if not page or page[-1][0] != place:
                if len(page) == limit:
                    return page, page[-1][0]
                page.append((place, reading.lane.archived))
        elif left > 0 or not reading.walks:
            left -= reading.read_on(max(left, 0))
        else:
            return page, line[0].place
        if reading.next is None:
            heapq.heappop(line)
        else:
            heapq.heapreplace(line, _Turn(reading.next, reading, down=how.down))
    return page, None
