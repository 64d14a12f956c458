"""Changing all jobs that fit a filter, page by page: with a question before, and with progress."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from aioqueue.cli._options import DURATION, log_level_option, run, url_option
from aioqueue.client import Client
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import JobState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from uuid import UUID

    from aioqueue.vocabulary._job import Job

__all__ = ["change_all", "prune"]

_PAGE_JOBS = 1_000
FINISHED = tuple(each.value for each in JobState if each.finished)


async def change_all(
    client: Client,
    done: str,
    change: Callable[[Client, Sequence[UUID]], Awaitable[dict[UUID, Changed]]],
    filters: dict[str, Any],
    *,
    yes: bool,
    fits: Callable[[Job], bool] = lambda _: True,
) -> None:
    """Change all jobs that fit, each page with commits of its own, and say how many there were.

    What has been changed stays so if it's interrupted: it can be called again.

    Arguments:
        client: Open.
        done: What becomes of them, such as `deleted`.
        change: Changes a page of them.
        filters: As `Client.list_jobs` takes them.
        yes: Whether not to ask before.
        fits: Whether a job that was listed is meant.
    """
    became: Counter[Changed] = Counter()
    asked, cursor, looked_at = yes, None, 0
    while True:
        page = await client.list_jobs(**filters, limit=_PAGE_JOBS, cursor=cursor)
        ids = [job.id for job in page.jobs if fits(job)]
        if ids and not asked:
            count = f"{len(ids)} or more jobs" if page.cursor is not None else f"{len(ids)} job{'s' if len(ids) > 1 else ''}"
            click.confirm(f"{count} in {client.store.description} will be {done}. Go on?", abort=True, err=True)
            asked = True
            continue  # the answer may have taken minutes: whoever was retried meanwhile doesn't fit any more
        looked_at += len(page.jobs)
        cursor = page.cursor
        if ids:
            became.update((await change(client, ids)).values())
        if sys.stderr.isatty():
            click.echo(f"\r{looked_at:,} looked at, {became[Changed.DONE]:,} {done}", err=True, nl=cursor is None)
        if cursor is None:
            break
    others = became.total() - became[Changed.DONE]
    click.echo(f"{became[Changed.DONE]} {done}{f', {others} not: they have changed meanwhile' if others else ''}")


@click.command()
@url_option
@click.option("--older-than", type=DURATION, required=True, help="Those that finished longer ago than this, such as 30d.")
@click.option("--state", "states", multiple=True, type=click.Choice(FINISHED), help="Any of these; by default all.")
@click.option("--type", "types", multiple=True, metavar="NAME", help="Any of these job types.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@log_level_option("warning")
def prune(url: str | None, *, older_than: float, states: tuple[str, ...], types: tuple[str, ...], yes: bool) -> None:
    """Remove jobs that finished long ago, a thousand in each commit."""
    before = datetime.now(UTC) - timedelta(seconds=older_than)

    async def remove() -> None:
        async with Client(url) as client:
            await change_all(
                client,
                "deleted",
                lambda client, ids: client.delete(*ids),
                {"states": states or FINISHED, "types": types},
                yes=yes,
                fits=lambda job: job.finished_at is not None and job.finished_at < before,
            )

    run(remove)
