"""Changing many jobs, and pruning, a thousand in each commit: with a count and a question before, and with progress."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from aioqueue.cli._asking import ask, check_somebody_answers, yes_option
from aioqueue.cli._json import json_option
from aioqueue.cli._options import DURATION, log_level_option, looking_at, run, url_option
from aioqueue.cli._report import Report
from aioqueue.cli._tables import show_progress, shows_progress
from aioqueue.cli._text import one_line
from aioqueue.client import Changes
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import JobState

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from uuid import UUID

    from aioqueue.client import Client
    from aioqueue.vocabulary._answers import Cancellation
    from aioqueue.vocabulary._listing import JobFilter

    Portion = Changes | dict[UUID, Cancellation]
    OnPortion = Callable[[Portion, Counter[Any]], object]
    ChangeAll = Callable[[Client, JobFilter, OnPortion], Awaitable[object]]

__all__ = ["OnPortion", "Portion", "change_all", "counted", "holders_of", "prune"]

_PAGE_JOBS = 1_000
_MOST_COUNTED_JOBS = 100_000
FINISHED = tuple(each.value for each in JobState if each.finished)


@dataclass(frozen=True, slots=True)
class Count:
    """How many jobs fit.

    Attributes:
        number: So many were counted.
        more: Whether there are more than those.
    """

    number: int
    more: bool

    def __str__(self) -> str:
        return counted(self.number, more=self.more)

    @property
    def total(self) -> int | None:
        """All of them, if they were counted."""
        return None if self.more else self.number


def counted(number: int, *, more: bool = False) -> str:
    """A number of jobs, for people."""
    return f"{'more than ' if more else ''}{number:,} job{'' if number == 1 else 's'}"


async def change_all(client: Client, done: str, change: ChangeAll, where: JobFilter, report: Report, *, yes: bool) -> None:
    """Change all jobs that fit, in portions with commits of their own, and tell how many there were.

    What has been changed stays so if it's interrupted, and is told: it can be called again.

    Arguments:
        client: Open.
        done: What becomes of them, such as `deleted`.
        change: Changes them.
        where: Which.
        report: Counts and tells them.
        yes: Whether not to ask before.
    """
    nothing = f"no jobs that fit in {client.store.description}"
    total: int | None = None
    if not yes or shows_progress(beside_output=report.as_json):
        count = await _count(client, where)
        if not count.number:  # whoever fits from now on was never asked about
            with report.ended(nothing):
                return
        ask(f"{count} in {client.store.description} will be {done}.", yes=yes)
        total = count.total
    # They're listed again: the answer may have taken minutes, and whoever was retried meanwhile doesn't fit any more.
    with report.ended(nothing), show_progress(total=total, beside_output=report.as_json) as show:

        def tell(portion: Portion, _total: Counter[Any]) -> None:
            report.add(portion, holders_of(portion))
            show(f"{report.seen:,} looked at, {report.done:,} {done}", report.seen)

        await change(client, where, tell)


def holders_of(portion: Portion) -> Mapping[UUID, UUID]:
    """The chains that hold the unique keys of those that weren't changed for that."""
    return portion.holders if isinstance(portion, Changes) else {}


async def _count(client: Client, where: JobFilter) -> Count:
    """Count them, up to a bound."""
    number, cursor = 0, None
    while True:
        page = await client.store.list_ids(where, _PAGE_JOBS, cursor)
        number += len(page.ids)
        if (cursor := page.cursor) is None:
            return Count(number, more=False)
        if number >= _MOST_COUNTED_JOBS:
            return Count(number, more=True)


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
            nothing = f"no jobs that fit in {client.store.description}"
            with report.ended(nothing), show_progress(beside_output=as_json) as show:

                def tell(ids: Sequence[UUID]) -> None:
                    report.add(dict.fromkeys(ids, Changed.DONE))
                    show(f"{report.done:,} deleted", report.done)

                await client.prune(older_than=older_than, states=states, types=types, on_portion=tell)

    run(remove)
