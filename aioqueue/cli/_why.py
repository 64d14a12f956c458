"""`aioqueue jobs why`: why a job isn't running."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aioqueue.cli._ids import find_ids
from aioqueue.cli._job_text import scheduled_by
from aioqueue.cli._json import json_option, print_json
from aioqueue.cli._options import log_level_option, looking_at, run, url_option
from aioqueue.cli._text import one_line

if TYPE_CHECKING:
    from aioqueue.client import Why

__all__ = ["why"]


@click.command()
@url_option
@click.argument("job_id", metavar="ID")
@json_option()
@log_level_option("warning")
def why(url: str | None, job_id: str, *, as_json: bool) -> None:
    """Say why a job isn't running, and what to do about it. Exits with 1 if there is no such job."""

    async def look() -> Why:
        async with looking_at(url) as client:
            (wanted,) = await find_ids(client, [job_id])
            return await client.why(wanted)

    answer = run(look)
    if as_json:
        reasons = [{"code": each.code.value, "text": each.text, "advice": each.advice or None} for each in answer.reasons]
        state = None if answer.state is None else answer.state.value
        job_type = None if answer.job is None else answer.job.type
        end = answer.chain_end
        standing = None if end is None else {"id": str(end.id), "type": end.type, "state": end.state.value}
        about: dict[str, object] = {"id": str(answer.id), "type": job_type, "state": state}
        if answer.job is not None and answer.job.origin is not None:
            about |= {"schedule": answer.job.origin.schedule, "nominal_time": answer.job.nominal_time}
        print_json({**about, "reasons": reasons, "chain_end": standing})
    else:
        if answer.job is not None:
            click.echo(one_line(f"{answer.id}  {answer.job.type}  {answer.job.state.value}{scheduled_by(answer.job)}"))
        for reason in answer.reasons:
            click.echo(one_line(f"{reason.code.value}: {reason.text}"))
            if reason.advice:
                click.echo(one_line(f"    {reason.advice}"))
    if answer.state is None:
        raise click.exceptions.Exit(1)
