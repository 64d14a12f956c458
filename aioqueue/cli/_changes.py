"""`aioqueue jobs retry | run-now | delete`: the jobs whose ids are given, or all that fit a filter."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aioqueue.cli._asking import ask, check_somebody_answers, yes_option
from aioqueue.cli._bulk import change_all
from aioqueue.cli._ids import find_ids
from aioqueue.cli._json import json_option
from aioqueue.cli._options import WrongUsage, log_level_option, looking_at, run, url_option
from aioqueue.cli._report import Report
from aioqueue.cli._text import one_line
from aioqueue.errors import BlockerReference, StoreError
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import JobState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from uuid import UUID

    from aioqueue.client import Client
    from aioqueue.vocabulary._job import Job

    _Apply = Callable[[Client, Sequence[UUID]], Awaitable[dict[UUID, Changed]]]

__all__ = ["changing_commands"]

T = TypeVar("T")

_MOST_SHOWN_JOBS = 20


@dataclass(frozen=True, slots=True)
class _Change:
    """One of the commands.

    Attributes:
        name, text: The command's.
        apply: What does it.
        done: What becomes of jobs, such as `deleted`.
        wrong: Said of a job that isn't in the right state.
        states: Those of the jobs that it can change.
        removes: Whether it can't be undone: it asks, whatever jobs are meant.
        cascade: What `--cascade` does, for its help; empty where there is none.
    """

    name: str
    text: str
    apply: Callable[..., Awaitable[dict[UUID, Changed]]]
    done: str
    wrong: str
    states: tuple[str, ...]
    removes: bool = False
    cascade: str = ""


async def _retry(client: Client, ids: Sequence[UUID], *, cascade: bool) -> dict[UUID, Changed]:
    return await client.retry(*ids, cascade=cascade)


async def _run_now(client: Client, ids: Sequence[UUID], *, cascade: bool) -> dict[UUID, Changed]:
    del cascade  # there is none
    return await client.run_now(*ids)


async def _delete(client: Client, ids: Sequence[UUID], *, cascade: bool) -> dict[UUID, Changed]:
    """Delete, and tell of those that others wait for as of any that couldn't be changed."""
    try:
        return await client.delete(*ids, cascade=cascade)
    except BlockerReference as error:
        return {job_id: each for job_id, each in error.changed.items() if isinstance(each, Changed)}


_CHANGES = (
    _Change(
        "retry",
        "Make failed or cancelled jobs pending again, with all their attempts. An ID of any step means its chain's last one.",
        _retry,
        done="made pending",
        wrong="it isn't failed or cancelled, or another unfinished job has its unique key",
        states=("failed", "cancelled"),
        cascade="Those too that have failed since one of them had failed.",
    ),
    _Change(
        "run-now",
        "Make pending jobs due now. An ID of any step means its chain's live one.",
        _run_now,
        done="made due",
        wrong="it isn't pending",
        states=("scheduled",),
    ),
    _Change(
        "delete",
        "Remove jobs, finished or not. An ID of any step means its whole chain.",
        _delete,
        done="deleted",
        wrong="it can't be deleted",
        # A chain goes with its last step: who names its earlier ones by their state may not mean the one that lives.
        states=tuple(each.value for each in JobState if each not in (JobState.RUNNING, JobState.CONTINUED)),
        removes=True,
        cascade="Unfinished jobs that wait for them, too.",
    ),
)


def changing_commands() -> list[click.Command]:
    """Make the commands, for the group `aioqueue jobs`."""
    return [_command(change) for change in _CHANGES]


def _command(change: _Change) -> click.Command:
    cascade_option = click.option("--cascade", is_flag=True, help=change.cascade)

    @click.command(change.name, help=change.text)
    @url_option
    @click.argument("job_ids", metavar="[ID]...", nargs=-1)
    @(cascade_option if change.cascade else _no_option)
    @click.option("--state", "states", multiple=True, type=click.Choice(change.states), help="All in any of these states.")
    @click.option("--type", "types", multiple=True, metavar="NAME", help="All of any of these job types.")
    @click.option("--key", help="All with exactly this key.")
    @click.option("--tag", help="All with this tag.")
    @yes_option
    @json_option("One JSON object per job, and a last one with their numbers.")
    @log_level_option("warning")
    def command(
        url: str | None, job_ids: tuple[str, ...], *, yes: bool, as_json: bool, cascade: bool = False, **filters: Any
    ) -> None:
        apply = functools.partial(change.apply, cascade=cascade)
        filtered = any(filters.values())
        if filtered == bool(job_ids):
            raise WrongUsage("give either ids, or at least one of --state, --type, --key and --tag")
        report = Report(change.done, as_json=as_json)
        if filtered:
            check_somebody_answers(yes=yes)
            wanted = {**filters, "states": filters["states"] or change.states}
            run(lambda: _change_all(url, change.done, apply, wanted, report, yes=yes))
            return
        asked = yes or not change.removes
        check_somebody_answers(yes=asked)
        run(lambda: _change_given(url, change, apply, job_ids, report, asked=asked))
        if report.others:
            raise click.exceptions.Exit(1)

    return command


def _no_option(command: T) -> T:
    return command


async def _change_all(
    url: str | None,
    done: str,
    apply: _Apply,
    wanted: dict[str, Any],
    report: Report,
    *,
    yes: bool,
) -> None:
    async with looking_at(url) as client:
        await change_all(client, done, apply, wanted, report, yes=yes)


async def _change_given(
    url: str | None,
    change: _Change,
    apply: _Apply,
    texts: Sequence[str],
    report: Report,
    *,
    asked: bool,
) -> None:
    async with looking_at(url) as client:
        ids = await find_ids(client, texts)
        if not asked:
            await _show(client, ids)
            count = "1 job" if len(ids) == 1 else f"{len(ids)} jobs"
            ask(f"{count} in {client.store.description} will be {change.done}.", yes=False)
        try:
            became = await apply(client, ids)
        except StoreError as error:
            if before := {job_id: each for job_id, each in error.changed.items() if isinstance(each, Changed)}:
                report.tell_each(before, change.wrong)
            raise
        report.tell_each(became, change.wrong)


async def _show(client: Client, ids: Sequence[UUID]) -> None:
    """Show which jobs are meant, where only the first digits of their ids may have been given."""
    shown = ids[:_MOST_SHOWN_JOBS]
    for job_id, job in zip(shown, await client.store.fetch_ends(shown), strict=True):
        what = "there is no such job" if job is None else one_line(f"{job.type}  {job.state.value}{_chain(job)}")
        click.echo(f"{job_id}  {what}", err=True)
    if len(ids) > _MOST_SHOWN_JOBS:
        click.echo(f"and {len(ids) - _MOST_SHOWN_JOBS} more", err=True)


def _chain(end: Job) -> str:
    return f"  at step {end.position} of the chain {end.chain_id}, which goes as a whole" if end.position else ""
