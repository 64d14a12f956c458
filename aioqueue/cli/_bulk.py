"""Changing all jobs that fit a filter, and pruning, a thousand in each commit: with a question before, and with progress."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from aioqueue.cli._asking import ask, check_somebody_answers, yes_option
from aioqueue.cli._json import json_option
from aioqueue.cli._options import DURATION, log_level_option, looking_at, run, url_option
from aioqueue.cli._report import Report
from aioqueue.cli._tables import show_progress
from aioqueue.cli._text import one_line
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import JobState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from uuid import UUID

    from aioqueue.client import Client

__all__ = ["change_all", "prune"]

_PAGE_JOBS = 1_000
FINISHED = tuple(each.value for each in JobState if each.finished)


async def change_all(
    client: Client,
    done: str,
    change: Callable[[Client, Sequence[UUID]], Awaitable[dict[UUID, Changed]]],
    filters: dict[str, Any],
    report: Report,
    *,
    yes: bool,
) -> None:
    """Change all jobs that fit, each page with commits of its own, and tell how many there were.

    What has been changed stays so if it's interrupted, and is told: it can be called again.

    Arguments:
        client: Open.
        done: What becomes of them, such as `deleted`.
        change: Changes a page of them.
        filters: As `Client.list_jobs` takes them.
        report: Counts and tells them.
        yes: Whether not to ask before.
    """
    if not yes:
        page = await client.list_jobs(**filters, limit=_PAGE_JOBS)
        if not page.jobs:  # whoever fits from now on was never asked about
            with report.ended(client.store.description):
                return
        number = len(page.jobs)
        count = f"{number} or more jobs" if page.cursor is not None else f"{number} job{'s' if number > 1 else ''}"
        ask(f"{count} in {client.store.description} will be {done}.", yes=False)
    # Listed again: the answer may have taken minutes, and whoever was retried meanwhile doesn't fit any more.
    cursor, looked_at = None, 0
    with report.ended(client.store.description), show_progress(beside_output=report.as_json) as show:
        while True:
            page = await client.list_jobs(**filters, limit=_PAGE_JOBS, cursor=cursor)
            if ids := [job.id for job in page.jobs]:
                report.add(await change(client, ids))
            looked_at += len(page.jobs)
            show(f"{looked_at:,} looked at, {report.done:,} {done}")
            if (cursor := page.cursor) is None:
                break


@click.command()
@url_option
@click.option("--older-than", type=DURATION, required=True, help="Those that finished longer ago than this, such as 30d.")
@click.option("--state", "states", multiple=True, type=click.Choice(FINISHED), help="Any of these; by default all.")
@click.option("--type", "types", multiple=True, metavar="NAME", help="Any of these job types.")
@yes_option
@json_option("One JSON object per job, and a last one with their numbers.")
@log_level_option("warning")
def prune(
    url: str | None, *, older_than: float, states: tuple[str, ...], types: tuple[str, ...], yes: bool, as_json: bool
) -> None:
    """Remove jobs that finished long ago, by the database's clock, a thousand in each commit."""
    check_somebody_answers(yes=yes)
    report = Report("deleted", as_json=as_json)

    async def remove() -> None:
        async with looking_at(url) as client:
            which = f"{' or '.join(states) or 'finished'} jobs" + (f" of {one_line(', '.join(types))}" if types else "")
            age = timedelta(seconds=older_than)
            ask(f"All {which} in {client.store.description} that ended {age} ago or earlier will be deleted.", yes=yes)
            with report.ended(client.store.description), show_progress(beside_output=as_json) as show:

                def tell(ids: Sequence[UUID]) -> None:
                    report.add(dict.fromkeys(ids, Changed.DONE))
                    show(f"{report.done:,} deleted")

                await client.prune(older_than=older_than, states=states, types=types, on_portion=tell)

    run(remove)
