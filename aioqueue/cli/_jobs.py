"""`aioqueue jobs`: look at jobs, and change them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
import orjson

from aioqueue.cli._bulk import change_all
from aioqueue.cli._ids import find_ids
from aioqueue.cli._options import Problem, WrongUsage, log_level_option, looking_at, run, url_option
from aioqueue.cli._text import one_line
from aioqueue.client import Client
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import JobState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.vocabulary._job import Job

__all__ = ["jobs", "table"]

_WIDEST_CELL_CHARACTERS = 60
_NARROWING_OPTIONS = frozenset({"states", "types", "key", "tag", "cursor"})
_EXPLAINED = {
    Changed.NOT_FOUND: "there is no such job",
    Changed.RUNNING: "it is running",
}


@click.group()
def jobs() -> None:
    """Look at jobs, and change them."""


@jobs.command("list")
@url_option
@click.option("--state", "states", multiple=True, type=click.Choice([each.value for each in JobState]), help="Any of these.")
@click.option("--type", "types", multiple=True, metavar="NAME", help="Any of these job types.")
@click.option("--key", help="Exactly this key.")
@click.option("--tag", help="Among the tags.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--cursor", help="Go on where the page before ended.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@log_level_option("warning")
def list_jobs(url: str | None, *, as_json: bool, **filters: Any) -> None:
    """List jobs, live and finished, the newest first."""

    async def look() -> None:
        async with looking_at(url) as client:
            description = client.store.description
            try:
                page = await client.list_jobs(**filters)
            except ValueError as error:
                raise WrongUsage(str(error)) from None
        if as_json:
            for job in page.jobs:
                click.echo(json.dumps(_describe(job)))
        elif not page.jobs:
            some = " that fit" if any(value for name, value in filters.items() if name in _NARROWING_OPTIONS) else ""
            click.echo(f"no jobs{some} in {description}")
        else:
            rows = [
                (
                    str(job.id),
                    job.type,
                    job.state.value,
                    _attempts(job),
                    _shown_time(job.run_at),
                    *_end_and_duration(job),
                    _last_error(job),
                )
                for job in page.jobs
            ]
            header = ("id", "type", "state", "attempts", "due (UTC)", "finished (UTC)", "took", "last error")
            click.echo(table(header, rows))
        if page.cursor is not None:
            click.echo(f"more: --cursor {page.cursor}", err=True)

    run(look)


@jobs.command()
@url_option
@click.argument("job_id", metavar="ID")
@click.option("--arguments", is_flag=True, help="Show its arguments and metadata, too; they may hold secrets.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@log_level_option("warning")
def show(url: str | None, job_id: str, *, arguments: bool, as_json: bool) -> None:
    """Show all that is known about a job."""

    async def look() -> None:
        async with looking_at(url) as client:
            (wanted,) = await find_ids(client, [job_id])
            (job,) = await client.store.fetch([wanted])
        if job is None:
            raise Problem(f"there is no job {job_id}")
        described = _describe(job, arguments=arguments) | {"timeline": _timeline(job)}
        if as_json:
            click.echo(json.dumps(described))
            return
        if took := _end_and_duration(job)[1]:
            described["took"] = took
        errors, timeline = described.pop("errors"), described.pop("timeline")
        width = max(map(len, described))
        for name, value in described.items():
            click.echo(f"{name:{width}}  {one_line(value if isinstance(value, str) else json.dumps(value))}")
        click.echo()
        for entry in timeline:
            click.echo(f"{entry['at']}  {one_line(entry['what'])}")
        for error in errors:
            click.echo(f"\nattempt {error['attempt']}, {error['at']}: {one_line(error['type'])}: {one_line(error['message'])}")
            for line in error["traceback"].splitlines():
                click.echo(f"    {one_line(line)}")

    run(look)


def _add_changing_command(
    name: str,
    text: str,
    change: Callable[[Client, Sequence[UUID]], Awaitable[dict[UUID, Changed]]],
    wrong: str,
    *,
    done: str,
    states: tuple[str, ...],
) -> None:
    """Make one of the commands that change jobs: those whose ids are given, or all that fit a filter.

    Arguments:
        name, text: The command's.
        change: What does it.
        wrong: Said of a job that isn't in the right state.
        done: What becomes of jobs, such as `deleted`.
        states: Those of the jobs that it can change.
    """

    @jobs.command(name, help=text)
    @url_option
    @click.argument("job_ids", metavar="[ID]...", nargs=-1)
    @click.option("--state", "states_given", multiple=True, type=click.Choice(states), help="All in any of these states.")
    @click.option("--type", "types", multiple=True, metavar="NAME", help="All of any of these job types.")
    @click.option("--key", help="All with exactly this key.")
    @click.option("--tag", help="All with this tag.")
    @click.option("--yes", is_flag=True, help="Don't ask before changing all that fit.")
    @log_level_option("warning")
    def command(url: str | None, job_ids: tuple[str, ...], *, states_given: tuple[str, ...], yes: bool, **filters: Any) -> None:
        filtered = bool(states_given) or any(filters.values())
        if filtered == bool(job_ids):
            raise WrongUsage("give either ids, or at least one of --state, --type, --key and --tag")

        async def apply() -> dict[UUID, Changed]:
            async with Client(url) as client:
                if filtered:
                    wanted = {**filters, "states": states_given or states}
                    await change_all(client, done, change, wanted, yes=yes)
                    return {}
                return await change(client, await find_ids(client, job_ids))

        changed = run(apply)
        for job_id, became in changed.items():
            click.echo(f"{job_id}  {'done' if became is Changed.DONE else _EXPLAINED.get(became, wrong)}")
        if any(became is not Changed.DONE for became in changed.values()):
            raise click.exceptions.Exit(1)


_add_changing_command(
    "retry",
    "Make failed or cancelled jobs pending again, with all their attempts.",
    lambda client, ids: client.retry(*ids),
    "it isn't failed or cancelled, or another unfinished job has its unique key",
    done="made pending",
    states=("failed", "cancelled"),
)
_add_changing_command(
    "run-now",
    "Make pending jobs due now.",
    lambda client, ids: client.run_now(*ids),
    "it isn't pending",
    done="made due",
    states=("scheduled",),
)
_add_changing_command(
    "delete",
    "Remove jobs that aren't running, finished or not.",
    lambda client, ids: client.delete(*ids),
    "it can't be deleted",
    done="deleted",
    states=tuple(each.value for each in JobState if each is not JobState.RUNNING),
)


def _describe(job: Job, *, arguments: bool = False) -> dict[str, Any]:
    """A job as JSON values.

    Arguments:
        job: A snapshot.
        arguments: Whether the arguments and the metadata are shown.

    Returns:
        What is set, by name.
    """
    values: dict[str, Any] = {
        "id": str(job.id),
        "type": job.type,
        "state": job.state.value,
        "priority": job.priority,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "created_at": job.created_at.isoformat(),
        "run_at": job.run_at.isoformat(),
        "started_at": job.started_at.isoformat() if job.started_at else None,
        "finished_at": job.finished_at.isoformat() if job.finished_at else None,
        "expires_at": job.expires_at.isoformat() if job.expires_at else None,
        "worker": job.worker,
        "key": job.key,
        "tags": list(job.tags) or None,
        "timeout": job.timeout,
        "reschedules": job.reschedules or None,
        "outcome": job.outcome,
        "output": _json_or_text(job.output_json),
        "arguments": _json_or_text(job.payload) if arguments else None,
        "metadata": _json_or_text(job.metadata_json) if arguments else None,
    }
    described = {name: value for name, value in values.items() if value is not None}
    described["errors"] = [
        {
            "attempt": error.attempt,
            "at": error.at.isoformat(),
            "type": error.type,
            "message": error.message,
            "traceback": error.traceback,
        }
        for error in job.errors
    ]
    return described


def _timeline(job: Job) -> list[dict[str, str]]:
    """What happened to it and when, as far as that is kept: its newest errors, and its newest start."""
    entries = [(job.created_at, "created"), (job.run_at, "due")]
    entries += [(error.at, f"attempt {error.attempt} failed: {error}" if error.attempt else str(error)) for error in job.errors]
    if job.started_at is not None:
        entries.append((job.started_at, f"started{f' by {job.worker}' if job.worker else ''}: attempt {job.attempt}"))
    if job.finished_at is not None:
        entries.append((job.finished_at, f"finished: {job.state.value}{f' ({job.outcome})' if job.outcome else ''}"))
    return [{"at": at.isoformat(), "what": what} for at, what in sorted(entries, key=lambda entry: entry[0])]


def _json_or_text(value: bytes | None) -> Any:
    """What was stored, as JSON values; a row that somebody broke is shown as text."""
    if value is None:
        return None
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value.decode(errors="replace")


def _shown_time(value: datetime | None) -> str:
    return "" if value is None else value.strftime("%Y-%m-%d %H:%M:%S")


def _attempts(job: Job) -> str:
    """How many have run, and of how many while that matters. One that was discarded, too late to start, has not run."""
    ran = 0 if any(error.type == "Expired" for error in job.errors) else job.attempt
    return f"{ran}" if job.state.finished else f"{ran}/{job.max_attempts or '∞'}"


def _end_and_duration(job: Job) -> tuple[str, str]:
    """When it finished, and how long its last attempt took."""
    if job.finished_at is None or job.started_at is None:
        return _shown_time(job.finished_at), ""
    return _shown_time(job.finished_at), f"{(job.finished_at - job.started_at).total_seconds():.3g} s"


def _last_error(job: Job) -> str:
    text = "" if job.last_error is None else str(job.last_error)
    return text if len(text) <= _WIDEST_CELL_CHARACTERS else f"{text[: _WIDEST_CELL_CHARACTERS - 1]}…"


def _shortened(cell: str) -> str:
    """Shorten a cell, so that the others keep their place, whatever somebody has called something."""
    return cell if len(cell) <= _WIDEST_CELL_CHARACTERS else f"{cell[: _WIDEST_CELL_CHARACTERS - 1]}…"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text, as wide as they have to be.

    Arguments:
        header: Their names.
        rows: What they hold; control characters are made visible.
    """
    cells = [header, *([_shortened(one_line(cell)) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)
