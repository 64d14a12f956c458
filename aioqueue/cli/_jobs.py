"""`aioqueue jobs`: the group, and the commands that look at jobs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from aioqueue.cli._ids import find_ids
from aioqueue.cli._job_life import describe_life, describe_log, log_lines, phase_lines, progress_line, timeline
from aioqueue.cli._job_text import describe, describe_blocker, end_and_duration
from aioqueue.cli._json import json_option, print_json
from aioqueue.cli._listing import listing_command
from aioqueue.cli._options import Problem, log_level_option, looking_at, run, url_option
from aioqueue.cli._text import one_line
from aioqueue.cli._webhooks import describe_delivery
from aioqueue.errors import JobNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioqueue.vocabulary._job import Job

__all__ = ["jobs"]

_MOST_BLOCKERS = 100
_MOST_DELIVERIES = 20


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
            try:
                job = await client.job(wanted)
            except JobNotFound:
                raise Problem(f"there is no job {job_id}") from None
            blockers = await client.store.list_blockers(wanted, _MOST_BLOCKERS)
            dependents = await client.store.list_dependents(job.chain_id, _MOST_BLOCKERS)
            sent = await client.deliveries(wanted, limit=_MOST_DELIVERIES) if job.webhook is not None else None
        described = describe(job, arguments=arguments) | describe_life(job) | {"timeline": timeline(job)}
        if sent is not None:
            described["deliveries"] = [describe_delivery(each) for each in sent.deliveries]
        if dependents:
            described["dependents"] = list(dict.fromkeys(str(each.job_id) for each in dependents))
        described["blockers"] = [describe_blocker(each) for each in blockers]
        if as_json:
            print_json(described)
        else:
            _print(job, described)

    run(look)


def _print(job: Job, described: dict[str, Any]) -> None:
    """Show it to people."""
    if described.pop("cancel_reason", None) is not None:
        described["asked_to_end"] = job.cancel_reason or "no reason was given"
    if took := end_and_duration(job)[1]:
        described["took"] = took
    if "progress" in described:
        described["progress"] = progress_line(described["progress"])
    errors, entries, waits_for = (described.pop(name) for name in ("errors", "timeline", "blockers"))
    if sent := described.pop("deliveries", ()):
        described["webhook"] = f"{described['webhook']}: {_sent(sent[0])}"
    for name in ("phases", "attempts"):  # the timeline has the attempts
        described.pop(name, None)
    width = max(map(len, described))
    for name, value in described.items():
        click.echo(f"{name:{width}}  {one_line(value if isinstance(value, str) else json.dumps(value))}")
    if job.phases:
        click.echo("\nphases")
    for line in phase_lines(job.phases):
        click.echo(line)
    _print_blockers(waits_for)
    click.echo()
    for entry in entries:
        click.echo(f"{entry['at']}  {one_line(entry['what'])}")
    for error in errors:
        number = f"attempt {error['attempt']}, " if error["attempt"] else ""  # what ends a job needn't be an attempt
        click.echo(f"\n{number}{error['at']}: {one_line(error['type'])}: {one_line(error['message'])}")
        for line in error["traceback"].splitlines():
            click.echo(f"    {one_line(line)}")


def _sent(delivery: dict[str, Any]) -> str:
    """What became of the newest message about its end."""
    answer = "" if delivery["status"] is None else f", status {delivery['status']}"
    return f"{delivery['state']}, tries: {delivery['tries']}{answer}"


def _print_blockers(waits_for: Iterable[dict[str, Any]]) -> None:
    shown = list(waits_for)
    if shown:
        click.echo("\nwaits for")
    for blocker in shown:
        state = blocker["state"] or "gone"
        click.echo(one_line(f"{blocker['chain']}  {blocker['type'] or '?'}  {state}{_how(blocker)}"))
    if len(shown) == _MOST_BLOCKERS:
        click.echo("and perhaps more")


def _how(blocker: dict[str, Any]) -> str:
    return f"{'' if blocker['needed'] else ', however it ends'}{', told' if blocker['told'] else ''}"


@jobs.command()
@url_option
@click.argument("job_id", metavar="ID")
@json_option()
@log_level_option("warning")
def logs(url: str | None, job_id: str, *, as_json: bool) -> None:
    """Show what a job's attempts have logged, the newest ten: of job types with `capture_logs=True`.

    They're kept with the outcome of the attempt: of one that runs, or was lost, there are none.
    """

    async def look() -> None:
        async with looking_at(url) as client:
            (wanted,) = await find_ids(client, [job_id])
            try:
                kept = await client.logs(wanted)
            except JobNotFound:
                raise Problem(f"there is no job {job_id}") from None
        if as_json:
            print_json({"id": str(wanted), "logs": [describe_log(each) for each in kept]})
            return
        for number, log in enumerate(kept):
            click.echo(f"{chr(10) if number else ''}attempt {log.attempt}")
            for line in log_lines(log):
                click.echo(line)
        if not kept:
            click.echo("nothing that it has logged was kept")

    run(look)
