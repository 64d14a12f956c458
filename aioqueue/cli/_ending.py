"""`aioqueue jobs complete | fail`: jobs that are ended by hand, in place of a worker."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from aioqueue.cli._asking import ask, check_somebody_answers, yes_option
from aioqueue.cli._bulk import counted
from aioqueue.cli._ids import find_ids, read_given
from aioqueue.cli._imports import load_registry
from aioqueue.cli._json import json_option, print_json, read_json
from aioqueue.cli._options import Problem, WrongUsage, app_dir_option, log_level_option, looking_at, run, url_option
from aioqueue.cli._text import one_line
from aioqueue.errors import AlreadyFinished, ArgumentsError, JobNotFound, WrongJobType
from aioqueue.vocabulary._codec import CodecError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from aioqueue.client import Client
    from aioqueue.definitions._job_type import JobType
    from aioqueue.vocabulary._job import Job

__all__ = ["complete", "fail"]

_MOST_SHOWN_JOBS = 20


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

    _end(url, [job_id], "completed", end, yes=yes, as_json=as_json)


@click.command()
@url_option
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--reason", required=True, help="Why: it's stored with each job.")
@yes_option
@json_option("One JSON object per job that was failed.")
@log_level_option("warning")
def fail(url: str | None, job_ids: tuple[str, ...], *, reason: str, yes: bool, as_json: bool) -> None:
    """Fail jobs that aren't finished, for good, whatever their states are. An ID of any step means its chain's live one.

    ID is one, or its first digits; - stands for those on standard input, one a line. One that can't be failed stops no other.
    """
    if not reason:
        raise WrongUsage("the reason is empty")
    _end(url, job_ids, "failed", lambda client, job: client.fail(job.id, reason), yes=yes, as_json=as_json)


def _typed(job_type: JobType[..., Any, Any], output: str) -> Any:
    try:
        return job_type.decode_output(output.encode(errors="surrogateescape"))
    except CodecError as error:
        raise WrongUsage(f"it isn't what {job_type.name} declares: {error}") from None


def _end(
    url: str | None,
    texts: Sequence[str],
    done: str,
    end: Callable[[Client, Job], Awaitable[None]],
    *,
    yes: bool,
    as_json: bool,
) -> None:
    check_somebody_answers(yes=yes)
    given = read_given(texts)
    wrong: list[Problem] = []

    async def act() -> None:
        async with looking_at(url) as client:
            jobs: list[Job] = []
            for wanted in await find_ids(client, given):
                with _collected(wrong):
                    jobs.append(await client.chain(wanted))
            if not yes and any(job.finished_at is None for job in jobs):
                _show(jobs)
                ask(f"{counted(len(jobs))} in {client.store.description} will be {done}.", yes=False)
            for job in jobs:
                with _collected(wrong):
                    await end(client, job)
                    _tell(job, done, as_json=as_json)

    run(act)
    for each in wrong[:-1]:
        each.show()
    if wrong:
        raise wrong[-1]


def _show(jobs: Sequence[Job]) -> None:
    for job in jobs[:_MOST_SHOWN_JOBS]:
        click.echo(f"{job.id}  {one_line(f'{job.type}  {job.state.value}')}", err=True)
    if len(jobs) > _MOST_SHOWN_JOBS:
        click.echo(f"and {len(jobs) - _MOST_SHOWN_JOBS} more", err=True)


def _tell(job: Job, done: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"id": str(job.id), "chain": str(job.chain_id), "type": job.type, "became": done})
    else:
        click.echo(f"{job.id}  {done}")


@contextmanager
def _collected(wrong: list[Problem]) -> Generator[None]:
    """Put what is wrong with one job on the list, so that it stops no other."""
    try:
        yield
    except (AlreadyFinished, WrongJobType, JobNotFound) as error:
        wrong.append(Problem(str(error)))
    except ArgumentsError as error:
        wrong.append(WrongUsage(str(error)))
