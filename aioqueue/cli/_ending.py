"""`aioqueue jobs complete | fail`: one job, ended by hand in place of a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aioqueue.cli._asking import ask, check_somebody_answers, yes_option
from aioqueue.cli._ids import find_ids
from aioqueue.cli._imports import load_registry
from aioqueue.cli._json import json_option, print_json, read_json
from aioqueue.cli._options import Problem, WrongUsage, app_dir_option, log_level_option, looking_at, run, url_option
from aioqueue.cli._text import one_line
from aioqueue.errors import AlreadyFinished, ArgumentsError, JobNotFound, WrongJobType
from aioqueue.vocabulary._codec import CodecError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioqueue.client import Client
    from aioqueue.definitions._job_type import JobType
    from aioqueue.vocabulary._job import Job

__all__ = ["complete", "fail"]


@click.command()
@url_option
@app_dir_option
@click.argument("job_id", metavar="ID")
@click.argument("output")
@click.option("--app", metavar="MODULE:REGISTRY", help="Check the output against the job type that it has.")
@yes_option
@json_option()
@log_level_option("warning")
def complete(
    url: str | None, app_dir: str | None, job_id: str, output: str, *, app: str | None, yes: bool, as_json: bool
) -> None:
    """Complete a job that isn't finished, whatever its state is. OUTPUT is its result as JSON, such as null.

    An ID of any step means its chain's live one, with which the chain ends.
    """
    try:
        value = read_json(output)
    except ValueError as error:
        raise WrongUsage(f"the output isn't JSON: {error}. A text needs its quotes: '\"text\"'") from None
    types = None if app is None else load_registry(app, app_dir).types

    async def end(client: Client, job: Job) -> None:
        if types is None:
            await client.complete_by_name(job.type, job.id, value)
            return
        if (job_type := types.get(job.type)) is None:
            raise WrongUsage(f"{app} has no job type {job.type!r}")
        await client.complete(job_type, job.id, _typed(job_type, output))

    _end(url, job_id, "completed", end, yes=yes, as_json=as_json)


@click.command()
@url_option
@click.argument("job_id", metavar="ID")
@click.option("--reason", required=True, help="Why: it's stored with the job.")
@yes_option
@json_option()
@log_level_option("warning")
def fail(url: str | None, job_id: str, *, reason: str, yes: bool, as_json: bool) -> None:
    """Fail a job that isn't finished, for good, whatever its state is. An ID of any step means its chain's live one."""
    if not reason:
        raise WrongUsage("the reason is empty")
    _end(url, job_id, "failed", lambda client, job: client.fail(job.id, reason), yes=yes, as_json=as_json)


def _typed(job_type: JobType[..., Any, Any], output: str) -> Any:
    try:
        return job_type.decode_output(output.encode(errors="surrogateescape"))
    except CodecError as error:
        raise WrongUsage(f"it isn't what {job_type.name} declares: {error}") from None


def _end(
    url: str | None, text: str, done: str, end: Callable[[Client, Job], Awaitable[None]], *, yes: bool, as_json: bool
) -> None:
    check_somebody_answers(yes=yes)

    async def act() -> Job:
        async with looking_at(url) as client:
            (wanted,) = await find_ids(client, [text])
            try:
                job = await client.chain(wanted)
                if not yes and job.finished_at is None:
                    click.echo(f"{job.id}  {one_line(f'{job.type}  {job.state.value}')}", err=True)
                    ask(f"1 job in {client.store.description} will be {done}.", yes=False)
                await end(client, job)
            except (AlreadyFinished, WrongJobType, JobNotFound) as error:
                raise Problem(str(error)) from None
            except ArgumentsError as error:
                raise WrongUsage(str(error)) from None
            return job

    job = run(act)
    if as_json:
        print_json({"id": str(job.id), "chain": str(job.chain_id), "type": job.type, "became": done})
    else:
        click.echo(f"{job.id}  {done}")
