"""`aioqueue jobs retry | run-now | reschedule | cancel | delete`: jobs whose ids are given, piped, or all that fit a filter."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from aioqueue.cli._asking import ask, check_somebody_answers, yes_option
from aioqueue.cli._bulk import change_all, counted, holders_of
from aioqueue.cli._filter_options import FILTER_OPTIONS, filter_options, is_filtered, read_filter
from aioqueue.cli._gate_notes import note_of_closed
from aioqueue.cli._ids import find_ids, read_given
from aioqueue.cli._json import json_option
from aioqueue.cli._options import DURATION, WrongUsage, log_level_option, looking_at, read_time, run, url_option
from aioqueue.cli._report import Report
from aioqueue.cli._tables import show_progress
from aioqueue.cli._text import one_line
from aioqueue.client import Changes
from aioqueue.errors import BlockerReference, StoreError
from aioqueue.vocabulary._answers import Cancellation, Changed
from aioqueue.vocabulary._job import JobState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.cli._bulk import OnPortion, Portion
    from aioqueue.client import Client
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._listing import JobFilter

__all__ = ["changing_commands"]

T = TypeVar("T")

_MOST_SHOWN_JOBS = 20
_PORTION_JOBS = 1_000


@dataclass(frozen=True, slots=True)
class _How:
    """What was said beside which jobs are meant.

    Attributes:
        cascade: As of `Client.retry` and `Client.delete`.
        from_start: As of `Client.retry`.
        reason: As of `Client.cancel`.
        delay, at: As of `Client.reschedule`.
    """

    cascade: bool = False
    from_start: bool = False
    reason: str = ""
    delay: float | None = None
    at: datetime | None = None


class _Apply(Protocol):
    """Changes the jobs with these ids."""

    def __call__(self, client: Client, ids: Sequence[UUID], how: _How) -> Awaitable[Portion]: ...


class _ApplyToAll(Protocol):
    """Changes all that fit."""

    def __call__(self, client: Client, where: JobFilter, on_portion: OnPortion, *, how: _How) -> Awaitable[object]: ...


@dataclass(frozen=True, slots=True)
class _Change:
    """One of the commands.

    Attributes:
        name, text: The command's.
        apply, apply_to_all: What does it.
        done: What becomes of jobs, such as `deleted`.
        wrong: Said of a job that isn't in the right state.
        states: Those of the jobs that it changes by filter.
        named: Those, too, if `--state` names them.
        asks: Whether it can't be undone, or stops what runs: it asks, whatever jobs are meant.
        cascade: What `--cascade` does, for its help; empty where there is none.
        from_start: Whether there is `--from-start`.
        reason: Whether there is `--reason`.
        when: Whether there are `--delay` and `--at`, of which one is given.
        starts: Whether it's meant to have jobs started: then it's said which limits of 0 keep them.
    """

    name: str
    text: str
    apply: _Apply
    apply_to_all: _ApplyToAll
    done: str
    wrong: str
    states: tuple[str, ...]
    named: tuple[str, ...] = ()
    asks: bool = False
    cascade: str = ""
    from_start: bool = False
    reason: bool = False
    when: bool = False
    starts: bool = False


async def _retry(client: Client, ids: Sequence[UUID], how: _How) -> Portion:
    return await client.retry(*ids, cascade=how.cascade, from_start=how.from_start)


async def _retry_all(client: Client, where: JobFilter, on_portion: OnPortion, *, how: _How) -> None:
    await client.retry(where=where, on_portion=on_portion, cascade=how.cascade, from_start=how.from_start)


async def _run_now(client: Client, ids: Sequence[UUID], how: _How) -> Portion:
    del how  # nothing is to be said
    return await client.run_now(*ids)


async def _run_all_now(client: Client, where: JobFilter, on_portion: OnPortion, *, how: _How) -> None:
    del how  # nothing is to be said
    await client.run_now(where=where, on_portion=on_portion)


async def _reschedule(client: Client, ids: Sequence[UUID], how: _How) -> Portion:
    return await client.reschedule(*ids, delay=how.delay, at=how.at)


async def _reschedule_all(client: Client, where: JobFilter, on_portion: OnPortion, *, how: _How) -> None:
    await client.reschedule(where=where, on_portion=on_portion, delay=how.delay, at=how.at)


async def _cancel(client: Client, ids: Sequence[UUID], how: _How) -> Portion:
    return await client.cancel(*ids, reason=how.reason)


async def _cancel_all(client: Client, where: JobFilter, on_portion: OnPortion, *, how: _How) -> None:
    await client.cancel(where=where, on_portion=on_portion, reason=how.reason)


async def _delete(client: Client, ids: Sequence[UUID], how: _How) -> Portion:
    """Delete, and tell of those that others wait for as of any that couldn't be changed."""
    try:
        return await client.delete(*ids, cascade=how.cascade)
    except BlockerReference as error:
        return Changes(_told(error, Changed).items())


async def _delete_all(client: Client, where: JobFilter, on_portion: OnPortion, *, how: _How) -> None:
    await client.delete(where=where, on_portion=on_portion, cascade=how.cascade)


def _told(error: BlockerReference | StoreError, answers: type[T]) -> dict[UUID, T]:
    """What an error says of those that were changed all the same."""
    return {job_id: each for job_id, each in error.changed.items() if isinstance(each, answers)}


_CHANGES = (
    _Change(
        "retry",
        "Make failed or cancelled jobs pending again, with all their attempts. An ID of any step means its chain's last one.",
        _retry,
        _retry_all,
        done="made pending",
        wrong="it isn't failed or cancelled",
        states=("failed", "cancelled"),
        cascade="Those too that have failed since one of them had failed.",
        from_start=True,
    ),
    _Change(
        "run-now",
        "Make pending jobs due now. An ID of any step means its chain's live one.",
        _run_now,
        _run_all_now,
        done="made due",
        wrong="it isn't pending",
        states=("scheduled",),
        starts=True,
    ),
    _Change(
        "reschedule",
        "Change when pending jobs are due. An ID of any step means its chain's live one.",
        _reschedule,
        _reschedule_all,
        done="rescheduled",
        wrong="it isn't pending",
        states=("scheduled",),
        named=("ready", "held"),
        when=True,
    ),
    _Change(
        "cancel",
        "Ask jobs to end. What isn't running never starts; of what is, the worker is told. An ID of any step means its chain.",
        _cancel,
        _cancel_all,
        done="cancelled",
        wrong="it has finished before",
        states=tuple(each.value for each in JobState if not each.finished),
        asks=True,
        reason=True,
    ),
    _Change(
        "delete",
        "Remove jobs, finished or not. An ID of any step means its whole chain.",
        _delete,
        _delete_all,
        done="deleted",
        wrong="it can't be deleted",
        # A chain goes with its last step: who names its earlier ones by their state may not mean the one that lives.
        states=tuple(each.value for each in JobState if each not in (JobState.RUNNING, JobState.CONTINUED)),
        named=(JobState.RUNNING.value,),
        asks=True,
        cascade="Unfinished jobs that wait for them, too.",
    ),
)

_IDS_TEXT = "ID is one, or its first digits; - stands for those on standard input, one a line. Or give filters: all that fit."


def changing_commands() -> list[click.Command]:
    """Make the commands, for the group `aioqueue jobs`."""
    return [_command(change) for change in _CHANGES]


def _command(change: _Change) -> click.Command:
    @click.command(change.name, help=f"{change.text}\n\n{_IDS_TEXT}")
    @url_option
    @click.argument("job_ids", metavar="[ID]...", nargs=-1)
    @_how_options(change)
    @filter_options((*change.states, *change.named))
    @yes_option
    @json_option("One JSON object per job, and a last one with their numbers.")
    @log_level_option("warning")
    def command(url: str | None, job_ids: tuple[str, ...], *, yes: bool, as_json: bool, **given: Any) -> None:
        if is_filtered(given) == bool(job_ids):
            raise WrongUsage(f"give either ids, or at least one of {FILTER_OPTIONS}")
        report, how = Report(change.done, as_json=as_json), _read_how(change, given)
        if job_ids:
            asked = yes or not change.asks
            check_somebody_answers(yes=asked)
            run(lambda: _change_given(url, change, read_given(job_ids), report, how, asked=asked))
            if report.others:
                raise click.exceptions.Exit(1)
        else:
            check_somebody_answers(yes=yes)
            run(lambda: _change_all(url, change, given, report, how, yes=yes))
            if report.refused:
                raise click.exceptions.Exit(1)

    return command


def _how_options(change: _Change) -> Callable[[T], T]:
    """Add the options that only some of the commands have."""
    options: list[Callable[[Any], Any]] = []
    if change.cascade:
        options.append(click.option("--cascade", is_flag=True, help=change.cascade))
    if change.from_start:
        text = "Forget the results of their phases: by default the next attempt goes on behind what is completed."
        options.append(click.option("--from-start", is_flag=True, help=text))
    if change.reason:
        options.append(click.option("--reason", default="", help="Why: it's stored with each job."))
    if change.when:
        options.append(click.option("--delay", type=DURATION, help="Due when this has passed, from now."))
        options.append(click.option("--at", help="Due at this time, in ISO 8601 with an offset; one in the past means now."))

    def add(command: T) -> T:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _read_how(change: _Change, given: Mapping[str, Any]) -> _How:
    delay, at = given.get("delay"), given.get("at")
    if change.when and (delay is None) == (at is None):
        raise WrongUsage("say when they're due: either --delay or --at")
    return _How(
        cascade=given.get("cascade", False),
        from_start=given.get("from_start", False),
        reason=given.get("reason", ""),
        delay=delay,
        at=None if at is None else read_time(at, "--at"),
    )


async def _change_all(
    url: str | None, change: _Change, given: Mapping[str, Any], report: Report, how: _How, *, yes: bool
) -> None:
    async with looking_at(url) as client:
        where = await read_filter(client, given, states=change.states, ends=True)
        apply = functools.partial(change.apply_to_all, how=how)
        await change_all(client, change.done, apply, where, report, yes=yes)
        if change.starts and report.done:
            _tell_notes(await note_of_closed(client, (), where.types))


async def _change_given(
    url: str | None, change: _Change, texts: Sequence[str], report: Report, how: _How, *, asked: bool
) -> None:
    async with looking_at(url) as client:
        ids = await find_ids(client, texts)
        if not ids:
            with report.ended("no ids on standard input"):
                return
        if not asked:
            await _show(client, ids)
            ask(f"{counted(len(ids))} in {client.store.description} will be {change.done}.", yes=False)
        try:
            with show_progress(total=len(ids), beside_output=True) as show:
                for start in range(0, len(ids), _PORTION_JOBS):
                    await _change_portion(client, change, ids[start : start + _PORTION_JOBS], report, how)
                    show(f"{report.done:,} {change.done}", report.seen)
        finally:
            if report.as_json and report.seen:
                report.end()


async def _change_portion(client: Client, change: _Change, ids: Sequence[UUID], report: Report, how: _How) -> None:
    before = await client.store.fetch_ends(ids) if change.starts else ()
    try:
        became = await change.apply(client, ids, how)
    except StoreError as error:
        report.tell_each(_told(error, Cancellation if change.reason else Changed), change.wrong)
        raise
    report.tell_each(became, change.wrong, holders_of(became))
    if change.starts:
        done = [job for job_id, job in zip(ids, before, strict=True) if became.get(job_id) is Changed.DONE]
        _tell_notes(await note_of_closed(client, done))


def _tell_notes(notes: Sequence[str]) -> None:
    for note in notes:
        click.echo(one_line(note), err=True)


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
