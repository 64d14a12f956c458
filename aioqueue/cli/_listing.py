"""`aioqueue jobs list` and `aioqueue chains list`: which jobs, or chains, there are; or nothing but their ids, for a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aioqueue.cli._filter_options import filter_options, is_filtered, read_filter
from aioqueue.cli._job_text import attempts, describe, end_and_duration, is_dry, last_error, shown_time, waits_for
from aioqueue.cli._json import json_option, print_json
from aioqueue.cli._options import WrongUsage, log_level_option, looking_at, run, url_option
from aioqueue.cli._tables import show_table
from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._listing import ListOrder, Page

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.client import Client
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._listing import JobFilter

__all__ = ["listing_command"]

_LARGEST_PAGE_JOBS = 1_000
_USUAL_LIMIT = 50
_ORDERS = "due: unfinished ones, the first due first; finished: finished ones, the newest end first."
_COLUMNS = ("type", "state", "attempts", "due (UTC)", "finished (UTC)", "took", "last error")
_SCHEDULE_COLUMNS = ("schedule", "tick (UTC)")


def listing_command(*, chains: bool) -> click.Command:
    """Make the command `list` of jobs, or of chains: each as its live or last step."""
    what = "chains" if chains else "jobs"
    states = [each.value for each in JobState if not chains or each is not JobState.CONTINUED]
    text = "List chains, each as its live or last step." if chains else "List jobs, live and finished."

    @click.command("list", help=f"{text} The newest are first, unless --order says otherwise.")
    @url_option
    @filter_options(states)
    @click.option("--order", type=click.Choice([each.value for each in ListOrder]), default="newest", help=_ORDERS)
    @click.option("--ids-only", is_flag=True, help="Print their ids, one a line: all, unless --limit is given.")
    @click.option("--limit", type=click.IntRange(min=1), help=f"At most so many.  [default: {_USUAL_LIMIT}]")
    @click.option("--cursor", help="Go on where the page before ended.")
    @json_option("One JSON object per line.")
    @log_level_option("warning")
    def command(url: str | None, *, as_json: bool, ids_only: bool, limit: int | None, order: str, **given: Any) -> None:
        if ids_only and as_json:
            raise WrongUsage("--ids-only and --json exclude each other")
        if not ids_only and (limit or 0) > _LARGEST_PAGE_JOBS:
            raise WrongUsage(f"--limit: {_LARGEST_PAGE_JOBS} at most, but with --ids-only")

        async def look() -> None:
            async with looking_at(url) as client:
                description = client.store.description
                where = await read_filter(client, given, ends=chains)
                try:
                    if ids_only:
                        await _print_ids(client, where, order, limit, given["cursor"], chains=chains)
                        return
                    page = await _page(client, where, order, limit or _USUAL_LIMIT, given["cursor"])
                except ValueError as error:
                    raise WrongUsage(str(error)) from None
            if as_json:
                for job in page.jobs:
                    print_json({"id": str(job.chain_id), "end": describe(job)} if chains else describe(job))
            elif not page.jobs:
                some = " that fit" if is_filtered(given) or given["cursor"] is not None else ""
                click.echo(f"no {what}{some} in {description}")
            else:
                _show(page.jobs, chains=chains)
            if page.cursor is not None:
                click.echo(f"more: --cursor {page.cursor}", err=True)

        run(look)

    return command


def _show(jobs: Sequence[Job], *, chains: bool) -> None:
    header = (*(("chain", "step") if chains else ("id",)), *_COLUMNS)
    rows = [(*((str(job.chain_id), str(job.position)) if chains else (str(job.id),)), *_row(job)) for job in jobs]
    if any(job.origin is not None and job.origin.schedule is not None for job in jobs):  # as most queues have none of those
        header = (*header, *_SCHEDULE_COLUMNS)
        rows = [(*row, *_schedule_cells(job)) for row, job in zip(rows, jobs, strict=True)]
    if any(job.held_by for job in jobs):
        header = (*header, "waits for")
        rows = [(*row, waits_for(job)) for row, job in zip(rows, jobs, strict=True)]
    if any(map(is_dry, jobs)):
        header = (*header, "dry run")
        rows = [(*row, "yes" if is_dry(job) else "") for row, job in zip(rows, jobs, strict=True)]
    show_table(header, rows)


def _row(job: Job) -> tuple[str, ...]:
    return job.type, job.state.value, attempts(job), shown_time(job.run_at), *end_and_duration(job), last_error(job)


def _schedule_cells(job: Job) -> tuple[str, str]:
    name = None if job.origin is None else job.origin.schedule
    return ("", "") if name is None else (name, shown_time(job.nominal_time))


async def _page(client: Client, where: JobFilter, order: str, limit: int, cursor: str | None) -> Page:
    """So many jobs, if there are: where few of very many fit, a store's own pages may have fewer."""
    found: list[Job] = []
    while True:
        page = await client.list_jobs(where=where, order=order, limit=limit - len(found), cursor=cursor)
        found += page.jobs
        cursor = page.cursor
        if cursor is None or len(found) >= limit:
            return Page(tuple(found), cursor)


async def _print_ids(
    client: Client, where: JobFilter, order: str, limit: int | None, cursor: str | None, *, chains: bool
) -> None:
    """Print the ids, page by page as they're found; of chains their own."""
    left = limit
    while True:
        most = _LARGEST_PAGE_JOBS if left is None else min(left, _LARGEST_PAGE_JOBS)
        ids, cursor = await _page_of_ids(client, where, order, most, cursor, chains=chains)
        for each in ids:
            click.echo(str(each))
        left = None if left is None else left - len(ids)
        if cursor is None or left == 0:
            return


async def _page_of_ids(
    client: Client, where: JobFilter, order: str, limit: int, cursor: str | None, *, chains: bool
) -> tuple[Sequence[UUID], str | None]:
    if order == ListOrder.NEWEST and not chains:
        found = await client.store.list_ids(where, limit, cursor)
        return found.ids, found.cursor
    page = await client.list_jobs(where=where, order=order, limit=limit, cursor=cursor)
    return [job.chain_id if chains else job.id for job in page.jobs], page.cursor
