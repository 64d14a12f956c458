"""`aioqueue chains`: which chains there are, and one of them as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aioqueue.cli._ids import find_ids
from aioqueue.cli._job_text import asked_to_end, describe, describe_blocker
from aioqueue.cli._json import json_option, print_json
from aioqueue.cli._listing import listing_command
from aioqueue.cli._options import Problem, WrongUsage, log_level_option, looking_at, run, url_option
from aioqueue.cli._text import one_line
from aioqueue.cli._tree import chain_tree, draw
from aioqueue.errors import JobNotFound

if TYPE_CHECKING:
    from aioqueue.client import Client
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._listing import Page

__all__ = ["chains"]

_MOST_EDGES = 100


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
    """Show a chain as a tree: its steps from the first, what each waits for, and who waits for the chain's end.

    ID is that of any step, or its first digits. A job alone is a chain of one. A chain that is met twice is shown once.
    """

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
                print_json(await _as_json(client, end, page))
                return
            steps, waiting = await chain_tree(client, end.chain_id, page.jobs)
        asked = asked_to_end(end)
        where = f"at step {end.position}, {end.type}, {end.state.value}{f', {asked}' if asked else ''}"
        click.echo(one_line(f"chain {end.chain_id}: {where}"))
        if cursor is None and page.jobs and (gone := page.jobs[0].position):
            click.echo(f"its first {'step has' if gone == 1 else f'{gone} steps have'} been removed")
        for line in draw(steps):
            click.echo(line)
        if waiting:
            click.echo("these wait for its end")
        for line in draw(waiting):
            click.echo(line)
        if page.cursor is not None:
            click.echo(f"more: --cursor {page.cursor}", err=True)

    run(look)


async def _as_json(client: Client, end: Job, page: Page) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    for step in page.jobs:
        blockers = await client.store.list_blockers(step.id, _MOST_EDGES)
        described = describe(step) | {"position": step.position}
        steps.append(described | {"blockers": [describe_blocker(each) for each in blockers]})
    dependents = await client.store.list_dependents(end.chain_id, _MOST_EDGES)
    waiting = list(dict.fromkeys(str(each.job_id) for each in dependents))
    return {"id": str(end.chain_id), "end": describe(end), "steps": steps, "dependents": waiting, "cursor": page.cursor}
