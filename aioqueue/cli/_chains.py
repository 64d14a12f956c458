"""`aioqueue chains`: a chain's steps, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aioqueue.cli._ids import find_ids
from aioqueue.cli._job_text import attempts, describe, end_and_duration, last_error, shown_time
from aioqueue.cli._json import json_option, print_json
from aioqueue.cli._listing import listing_command
from aioqueue.cli._options import Problem, WrongUsage, log_level_option, looking_at, run, url_option
from aioqueue.cli._tables import show_table
from aioqueue.cli._text import one_line
from aioqueue.errors import JobNotFound

if TYPE_CHECKING:
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._listing import Page

__all__ = ["chains"]


@click.group()
def chains() -> None:
    """Look at chains: a first job, and the steps that were continued from it."""


chains.add_command(listing_command(chains=True))


@chains.command()
@url_option
@click.argument("job_id", metavar="ID")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Steps.")
@click.option("--cursor", help="Go on where the page before ended.")
@json_option()
@log_level_option("warning")
def show(url: str | None, job_id: str, *, limit: int, cursor: str | None, as_json: bool) -> None:
    """Show a chain's steps from the first, and where it stands. ID is that of any step. A job alone is a chain of one."""

    async def look() -> None:
        async with looking_at(url) as client:
            (wanted,) = await find_ids(client, [job_id])
            try:
                page = await client.chain_jobs(wanted, limit=limit, cursor=cursor)
                # Looked at last: it's never behind what is shown of the steps.
                end = await client.chain(wanted)
            except JobNotFound:
                raise Problem(f"there is no job {job_id}") from None
            except ValueError as error:
                raise WrongUsage(str(error)) from None
        if as_json:
            steps = [describe(step) | {"position": step.position} for step in page.jobs]
            print_json({"id": str(end.chain_id), "end": describe(end), "steps": steps, "cursor": page.cursor})
            return
        _show(end, page, first_page=cursor is None)
        if page.cursor is not None:
            click.echo(f"more: --cursor {page.cursor}", err=True)

    run(look)


def _show(end: Job, page: Page, *, first_page: bool) -> None:
    click.echo(one_line(f"chain {end.chain_id}: at step {end.position}, {end.type}, {end.state.value}"))
    if first_page and page.jobs and (gone := page.jobs[0].position):
        click.echo(f"its first {'step has' if gone == 1 else f'{gone} steps have'} been removed")
    rows = [
        (
            str(step.position),
            str(step.id),
            step.type,
            step.state.value,
            attempts(step),
            shown_time(step.run_at),
            *end_and_duration(step),
            last_error(step),
        )
        for step in page.jobs
    ]
    show_table(("step", "id", "type", "state", "attempts", "due (UTC)", "finished (UTC)", "took", "last error"), rows)
