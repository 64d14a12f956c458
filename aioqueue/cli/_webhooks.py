"""`aioqueue webhooks`: what was sent of ends of jobs, or wasn't; to send it once more; and a secret to sign with."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING
from uuid import UUID

import click

from aioqueue.cli._ids import find_ids, read_given
from aioqueue.cli._json import json_option, print_json
from aioqueue.cli._options import JobsFailed, WrongUsage, log_level_option, looking_at, run, url_option
from aioqueue.cli._tables import show_table
from aioqueue.vocabulary._webhook_url import webhook_host
from aioqueue.vocabulary._webhooks import DeliveryState

if TYPE_CHECKING:
    from aioqueue.client import Client
    from aioqueue.vocabulary._webhooks import Delivery

__all__ = ["describe_delivery", "webhooks"]

_SECRET_BYTES = 32
_PAGE = 1_000


@click.group()
def webhooks() -> None:
    """Look at what is sent when jobs have ended, and send it once more."""


@webhooks.command("list")
@url_option
@click.option("--job", "job_id", metavar="ID", help="Of this job's chain; the first digits of its id are enough.")
@click.option("--state", type=click.Choice([each.value for each in DeliveryState]), help="In this state.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="On a page.")
@click.option("--cursor", help="Go on where the page before ended.")
@json_option()
@log_level_option("warning")
def list_(url: str | None, job_id: str | None, *, state: str | None, limit: int, cursor: str | None, as_json: bool) -> None:
    """Show deliveries, the newest first. Of URLs only the host is shown: there may be secrets in the rest."""

    async def look() -> None:
        async with looking_at(url) as client:
            job = None if job_id is None else (await find_ids(client, [job_id]))[0]
            try:
                page = await client.deliveries(job, state=state, limit=limit, cursor=cursor)
            except ValueError as error:
                raise WrongUsage(str(error)) from None
        if as_json:
            print_json({"deliveries": [describe_delivery(each) for each in page.deliveries], "cursor": page.cursor})
            return
        if page.deliveries:
            header = ("id", "state", "tries", "status", "when", "event", "host", "type", "job", "answer")
            show_table(header, [_row(each) for each in page.deliveries])
        elif cursor is None:
            click.echo("no deliveries")
        if page.cursor is not None:
            click.echo(f"more: --cursor {page.cursor}", err=True)

    run(look)


def describe_delivery(delivery: Delivery) -> dict[str, object]:
    """A delivery for programs: without its body, and without all of the URL but the host."""
    return {
        "id": str(delivery.id),
        "state": delivery.state.value,
        "event": delivery.event,
        "host": webhook_host(delivery.url),
        "job": str(delivery.job_id),
        "chain": str(delivery.chain_id),
        "type": delivery.job_type,
        "tries": delivery.tries,
        "status": delivery.status,
        "response": delivery.response,
        "created_at": delivery.created_at,
        "next_at": delivery.next_at,
        "finished_at": delivery.finished_at,
    }


_ANSWER_CHARACTERS = 60
"""Of a receiver's answer, or of what went wrong, in the table; `--json` has all that is kept."""


def _row(delivery: Delivery) -> tuple[str, ...]:
    at = delivery.finished_at or delivery.next_at or delivery.created_at
    return (
        str(delivery.id),
        delivery.state.value,
        str(delivery.tries),
        "" if delivery.status is None else str(delivery.status),
        f"{at:%Y-%m-%d %H:%M:%S}",
        delivery.event,
        webhook_host(delivery.url),
        delivery.job_type,
        str(delivery.job_id),
        delivery.response[:_ANSWER_CHARACTERS],
    )


@webhooks.command()
@url_option
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--failed", is_flag=True, help="All that were given up.")
@json_option()
@log_level_option("warning")
def replay(url: str | None, ids: tuple[str, ...], *, failed: bool, as_json: bool) -> None:
    """Send deliveries once more, with the same ids and bodies, whatever became of them; a worker with a secret does it.

    ID is a delivery's, as `webhooks list` shows it; - reads ids from standard input, one a line.
    """
    given = _read_ids(read_given(ids))
    if bool(given) == failed:
        raise WrongUsage("replay takes ids, or --failed")

    async def send() -> tuple[list[UUID], list[UUID]]:
        async with looking_at(url) as client:
            wanted = await _all_failed(client) if failed else given
            answers = await client.replay_deliveries(*wanted)
        found = [each for each, there in zip(wanted, answers, strict=True) if there]
        return found, [each for each, there in zip(wanted, answers, strict=True) if not there]

    found, missing = run(send)
    if as_json:
        print_json({"replayed": [str(each) for each in found], "not_found": [str(each) for each in missing]})
    else:
        click.echo(f"{len(found):,} to be sent")
        for each in missing:
            click.echo(f"there is no delivery {each}", err=True)
    if missing:
        raise JobsFailed(f"{len(missing):,} weren't there")


def _read_ids(texts: list[str]) -> list[UUID]:
    try:
        return list(dict.fromkeys(UUID(each) for each in texts))
    except ValueError:
        raise WrongUsage("a delivery's id is a UUID, as `aioqueue webhooks list` shows it") from None


async def _all_failed(client: Client) -> list[UUID]:
    found: list[UUID] = []
    cursor: str | None = None
    while True:
        page = await client.deliveries(state=DeliveryState.FAILED, limit=_PAGE, cursor=cursor)
        found += [each.id for each in page.deliveries]
        if (cursor := page.cursor) is None:
            return found


@webhooks.command()
def secret() -> None:
    """Print a new secret, for AIOQUEUE_WEBHOOK_SECRET and for receivers. It's kept nowhere."""
    click.echo(f"whsec_{base64.b64encode(os.urandom(_SECRET_BYTES)).decode()}")
