"""Looking at jobs: by id, and in pages of bounded cost. The functions run in a reader's thread, or within a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from aioqueue.sqlite._listing_lanes import merged_page
from aioqueue.sqlite._listing_sources import lanes_of
from aioqueue.sqlite._progress_read import LIFE_OF_ARCHIVED, LIFE_OF_LIVE, with_life
from aioqueue.sqlite._rows import SELECT_ARCHIVED, SELECT_LIVE, dump, job_snapshot
from aioqueue.sqlite._rows_ids import ANY_ID, RowId, any_id
from aioqueue.sqlite._rows_places import AFTER_ALL, BEFORE_ALL, NO_VALUE, Place
from aioqueue.sqlite._rows_times import NOW
from aioqueue.store_rules._cursors import BY_TIME, OddValue, read_any_cursor, write_cursor
from aioqueue.vocabulary._listing import IdPage, ListOrder, Page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._listing import JobFilter

__all__ = ["fetch", "list_ids", "list_jobs"]

_OF_THESE = "WHERE id IN (SELECT value FROM json_each(:ids))"

_FETCH = f"""
{SELECT_ARCHIVED}, {LIFE_OF_ARCHIVED}, {NOW} FROM archive {_OF_THESE}
UNION ALL {SELECT_LIVE}, {LIFE_OF_LIVE}, {NOW} FROM job {_OF_THESE}
"""
"""Live ones last: they count where somebody has copied a job back from the archive."""

_LIVE_PAGE = f"{SELECT_LIVE}, {ANY_ID} FROM job {_OF_THESE}"
_ARCHIVED_PAGE = f"{SELECT_ARCHIVED}, {ANY_ID} FROM archive {_OF_THESE}"
_LIVE_ROW = f"{SELECT_LIVE} FROM job WHERE id = {any_id('row')}"
_ARCHIVED_ROW = f"{SELECT_ARCHIVED} FROM archive WHERE id = {any_id('row')}"


def fetch(connection: Statements, ids: Sequence[UUID]) -> list[Job | None]:
    """Snapshots in the order of the ids, as `aioqueue.abc.Store.fetch` promises."""
    rows = connection.execute(_FETCH, {"ids": dump([str(each) for each in ids])}).fetchall()
    found = {row[0]: with_life(job_snapshot(row, row[-1]), *row[-3:-1]) for row in rows}
    return [found.get(str(each)) for each in ids]


def list_jobs(connection: Statements, where: JobFilter, limit: int, cursor: str | None, order: ListOrder) -> Page:
    """One page of jobs, as `aioqueue.abc.Store.list` promises.

    Raises:
        ValueError: The cursor isn't one of ours in this order, or the limit isn't positive.
    """
    now = connection.execute(f"SELECT {NOW}").fetchone()[0]
    places, following = _page(connection, where, limit, cursor, order, now)
    jobs = {archived: _snapshots(connection, places, now, archived=archived) for archived in (False, True)}
    return Page(tuple(jobs[archived][place.id] for place, archived in places if place.id in jobs[archived]), following)


def list_ids(connection: Statements, where: JobFilter, limit: int, cursor: str | None) -> IdPage:
    """One page of ids, as `aioqueue.abc.Store.list_ids` promises.

    Raises:
        ValueError: As of `list_jobs`.
    """
    now = connection.execute(f"SELECT {NOW}").fetchone()[0]
    places, following = _page(connection, where, limit, cursor, ListOrder.NEWEST, now)
    return IdPage(tuple(place.id.shown for place, _ in places), following)


def _page(
    connection: Statements, where: JobFilter, limit: int, cursor: str | None, order: ListOrder, now: int
) -> tuple[list[tuple[Place, bool]], str | None]:
    if limit < 1:
        raise ValueError(f"limit must be positive, not {limit!r}")
    first = AFTER_ALL if order in (ListOrder.NEWEST, ListOrder.FINISHED) else BEFORE_ALL
    after = first if cursor is None else _read_cursor(order, cursor)
    places, following = merged_page(connection, order, lanes_of(connection, where, order, now), after, limit)
    return places, None if following is None else _cursor(order, following)


def _snapshots(connection: Statements, places: Sequence[tuple[Place, bool]], now: int, *, archived: bool) -> dict[RowId, Job]:
    """The jobs of a page that are in one of the tables, by their ids."""
    ids = [place.id for place, is_archived in places if is_archived is archived]
    if not ids:
        return {}
    several, single = (_ARCHIVED_PAGE, _ARCHIVED_ROW) if archived else (_LIVE_PAGE, _LIVE_ROW)
    rows = connection.execute(several, {"ids": dump([each.text for each in ids if not each.blob])}).fetchall()
    jobs = {RowId.read(*row[-2:]): job_snapshot(row, now) for row in rows}
    for row_id in ids:
        if row_id not in jobs and (row := connection.execute(single, row_id.parameters("row")).fetchone()) is not None:
            # An id that isn't text as JSON has it.
            jobs[row_id] = job_snapshot(row, now)
    return jobs


def _cursor(order: ListOrder, place: Place) -> str:
    at: Any = None
    if order in BY_TIME:
        at = OddValue(place.odd.blob, place.odd.raw) if place.is_odd else place.number
    try:
        text = place.id.raw.decode()
        job_id = UUID(text)
        if not place.id.blob and str(job_id) == text:
            return write_cursor(order, job_id, at)
    except ValueError:
        pass
    return write_cursor(order, OddValue(place.id.blob, place.id.raw), at)


def _read_cursor(order: ListOrder, cursor: str) -> Place:
    last, at = read_any_cursor(order, cursor)
    row_id = RowId(last.blob, last.raw) if isinstance(last, OddValue) else RowId(blob=False, raw=str(last).encode())
    if isinstance(at, OddValue):
        return Place(is_odd=True, number=0, odd=RowId(at.blob, at.raw), id=row_id)
    return Place(is_odd=False, number=0 if at is None else at, odd=NO_VALUE, id=row_id)
