"""`aioqueue jobs`: the group, and the commands that look at jobs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from aioqueue.cli._ids import find_ids
from aioqueue.cli._job_text import describe, describe_blocker, end_and_duration
from aioqueue.cli._json import json_option, print_json
from aioqueue.cli._listing import listing_command
from aioqueue.cli._options import Problem, log_level_option, looking_at, run, url_option
from aioqueue.cli._text import one_line
from aioqueue.vocabulary._job import was_discarded

if TYPE_CHECKING:
    from aioqueue.vocabulary._job import Job

__all__ = ["jobs"]

_MOST_BLOCKERS = 100


@click.group()
def jobs() -> None:
    """Look at jobs, and change them."""


jobs.add_command(listing_command(chains=False))


@jobs.command()
@url_option
@click.argument("job_id", metavar="ID")
@click.option("--arguments", is_flag=True, help="Show its arguments and metadata, too; they may hold secrets.")
@json_option()
@log_level_option("warning")
def show(url: str | None, job_id: str, *, arguments: bool, as_json: bool) -> None:
    """Show all that is known about a job."""

    async def look() -> None:
        async with looking_at(url) as client:
            (wanted,) = await find_ids(client, [job_id])
            (job,) = await client.store.fetch([wanted])
            blockers = await client.store.list_blockers(wanted, _MOST_BLOCKERS)
            dependents = await client.store.list_dependents(wanted if job is None else job.chain_id, _MOST_BLOCKERS)
        if job is None:
            raise Problem(f"there is no job {job_id}")
        described = describe(job, arguments=arguments) | {"timeline": _timeline(job)}
        if dependents:
            described["dependents"] = list(dict.fromkeys(str(each.job_id) for each in dependents))
        described["blockers"] = [describe_blocker(each) for each in blockers]
        if as_json:
            print_json(described)
            return
        if described.pop("cancel_reason", None) is not None:
            described["asked_to_end"] = job.cancel_reason or "no reason was given"
        if took := end_and_duration(job)[1]:
            described["took"] = took
        errors, timeline, waits_for = (described.pop(name) for name in ("errors", "timeline", "blockers"))
        width = max(map(len, described))
        for name, value in described.items():
            click.echo(f"{name:{width}}  {one_line(value if isinstance(value, str) else json.dumps(value))}")
        if waits_for:
            click.echo("\nwaits for")
        for blocker in waits_for:
            state = blocker["state"] or "gone"
            click.echo(one_line(f"{blocker['chain']}  {blocker['type'] or '?'}  {state}{_how(blocker)}"))
        if len(waits_for) == _MOST_BLOCKERS:
            click.echo("and perhaps more")
        click.echo()
        for entry in timeline:
            click.echo(f"{entry['at']}  {one_line(entry['what'])}")
        for error in errors:
            click.echo(f"\nattempt {error['attempt']}, {error['at']}: {one_line(error['type'])}: {one_line(error['message'])}")
            for line in error["traceback"].splitlines():
                click.echo(f"    {one_line(line)}")

    run(look)


def _how(blocker: dict[str, Any]) -> str:
    return f"{'' if blocker['needed'] else ', however it ends'}{', told' if blocker['told'] else ''}"


def _timeline(job: Job) -> list[dict[str, str]]:
    """What happened to it and when, as far as that is kept: its newest errors, and its newest start."""
    entries = [(job.created_at, "created"), (job.run_at, "due")]
    entries += [(error.at, f"attempt {error.attempt} failed: {error}" if error.attempt else str(error)) for error in job.errors]
    if job.started_at is not None and not was_discarded(job):
        entries.append((job.started_at, f"started{f' by {job.worker}' if job.worker else ''}: attempt {job.attempt}"))
    if job.finished_at is not None:
        entries.append((job.finished_at, f"finished: {job.state.value}{f' ({job.outcome})' if job.outcome else ''}"))
    return [{"at": at.isoformat(), "what": what} for at, what in sorted(entries, key=lambda entry: entry[0])]
