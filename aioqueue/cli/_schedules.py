"""`aioqueue schedules`: what is enqueued again and again: looked at, put, paused, removed, run by hand, and previewed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import click

from aioqueue.cli._asking import ask, check_somebody_answers, yes_option
from aioqueue.cli._calls import call_options, read_arguments, read_options, typed_call
from aioqueue.cli._job_text import shown_time
from aioqueue.cli._json import json_option, print_json
from aioqueue.cli._options import (
    DURATION,
    WrongUsage,
    app_dir_option,
    explained,
    log_level_option,
    looking_at,
    read_time,
    run,
    url_option,
)
from aioqueue.cli._pauses import user_name
from aioqueue.cli._schedule_text import describe_schedule, print_schedule, schedule_row, timing_text
from aioqueue.cli._tables import show_table
from aioqueue.cli._text import one_line
from aioqueue.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from aioqueue.client import JobHandle, ListedSchedules, Schedule

__all__ = ["schedules"]

_OVERLAPS = click.Choice(["allow", "skip"])
_CATCH_UPS = click.Choice(["latest", "none", "all"])


@click.group()
def schedules() -> None:
    """Look at schedules, and change them. Those that code defines are changed there, and may be paused here."""


def _timing_options(*, also: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    options = [
        click.option("--cron", metavar="EXPRESSION", help=f"When: five fields, six with seconds first, or as @daily{also}."),
        click.option("--every", type=DURATION, help="In place of that: between two ticks."),
        click.option("--timezone", default="UTC", show_default=True, metavar="NAME", help="Of the expression."),
    ]

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@schedules.command("list")
@url_option
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="On a page.")
@click.option("--cursor", help="Go on where the page before ended.")
@json_option()
@log_level_option("warning")
def list_(url: str | None, *, limit: int, cursor: str | None, as_json: bool) -> None:
    """Show schedules by name: when they tick, what became of the last tick, and what is paused."""

    async def look() -> tuple[ListedSchedules, str]:
        async with looking_at(url) as client:
            return await client.schedules.list(limit=limit, cursor=cursor), client.store.description

    page, description = run(look)
    if as_json:
        print_json({"schedules": [describe_schedule(each) for each in page.schedules], "cursor": page.cursor})
        return
    if page.schedules:
        header = ("name", "type", "when", "next (UTC)", "last (UTC)", "became", "paused")
        show_table(header, [schedule_row(each) for each in page.schedules])
    elif cursor is None:
        click.echo(f"no schedules in {description}")
    if page.cursor is not None:
        click.echo(f"more: --cursor {page.cursor}", err=True)


@schedules.command()
@url_option
@click.argument("name")
@click.option("--arguments", is_flag=True, help="Show its arguments, too; they may hold secrets.")
@json_option()
@log_level_option("warning")
def show(url: str | None, name: str, *, arguments: bool, as_json: bool) -> None:
    """Show all that is known about a schedule, with what became of its newest ticks."""

    async def look() -> Schedule:
        async with looking_at(url) as client:
            return await client.schedules.get(name)

    found = run(look)
    if as_json:
        print_json(describe_schedule(found, arguments=arguments))
    else:
        print_schedule(found, arguments=arguments)


@schedules.command()
@url_option
@app_dir_option
@click.argument("name")
@click.argument("job_type", metavar="TYPE")
@click.argument("arguments", nargs=-1)
@_timing_options(also="; needs the extra cron")
@click.option("--catch-up", type=_CATCH_UPS, default="latest", show_default=True, help="What becomes of missed ticks.")
@click.option("--grace", type=DURATION, default=3600.0, show_default="1h", help="How late the newest missed one may be.")
@click.option("--catch-up-limit", type=click.IntRange(min=1), default=100, show_default=True, help="How many, with all.")
@click.option("--overlap", type=_OVERLAPS, default="allow", show_default=True, help="While the tick before goes on.")
@call_options(at=False)
@json_option()
@log_level_option("warning")
def put(
    url: str | None,
    name: str,
    job_type: str,
    arguments: tuple[str, ...],
    *,
    cron: str | None,
    every: float | None,
    timezone: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Enqueue a job again and again. The same once more changes nothing.

    ARGUMENTS are name=text, name:=json, or one JSON object, as of `aioqueue enqueue`.
    """
    values = read_arguments(arguments)
    with explained():
        options = read_options(given)
    how = {each: given[each] for each in ("catch_up", "grace", "catch_up_limit", "overlap")}

    async def define() -> Schedule:
        timing: dict[str, Any] = {"cron": cron, "every": every, "timezone": timezone, **how}
        app = given["app"]
        async with Client(url) as client:
            if app is None:
                return await client.schedules.put_by_name(name, job_type, values, call_options=options, **timing)
            return await client.schedules.put(name, typed_call(app, given["app_dir"], job_type, values, options), **timing)

    made = run(define)
    if as_json:
        print_json(describe_schedule(made))
    else:
        click.echo(one_line(f"{made.name}: {made.job_type}, {timing_text(made)}; next {shown_time(made.next_tick) or '?'} UTC"))


@schedules.command()
@url_option
@click.argument("name")
@click.option("--reason", default="", help="Why, for people.")
@click.option("--by", help="Who asks, for people.  [default: your name on this machine]")
@json_option()
@log_level_option("warning")
def pause(url: str | None, name: str, *, reason: str, by: str | None, as_json: bool) -> None:
    """Decide no ticks of a schedule until it's resumed, through deploys, too."""

    async def stop() -> None:
        async with looking_at(url) as client:
            await client.schedules.pause(name, reason=reason, by=user_name() if by is None else by)

    run(stop)
    _tell({"paused": name}, f"{name}: paused", as_json=as_json)


@schedules.command()
@url_option
@click.argument("name")
@json_option()
@log_level_option("warning")
def resume(url: str | None, name: str, *, as_json: bool) -> None:
    """Decide ticks again; those that were due meanwhile aren't caught up on."""

    async def go_on() -> None:
        async with looking_at(url) as client:
            await client.schedules.resume(name)

    run(go_on)
    _tell({"resumed": name}, f"{name}: resumed", as_json=as_json)


@schedules.command()
@url_option
@click.argument("name")
@yes_option
@json_option()
@log_level_option("warning")
def delete(url: str | None, name: str, *, yes: bool, as_json: bool) -> None:
    """Remove a schedule; jobs that it has enqueued stay. One that code of live workers defines is refused."""
    check_somebody_answers(yes=yes)

    async def remove() -> None:
        async with looking_at(url) as client:
            found = await client.schedules.get(name)
            what = one_line(f"{name} ({found.job_type}, {timing_text(found)})")
            ask(f"The schedule {what} in {client.store.description} will be deleted.", yes=yes)
            await client.schedules.delete(name)

    run(remove)
    _tell({"deleted": name}, f"{name}: deleted", as_json=as_json)


@schedules.command("run-now")
@url_option
@click.argument("name")
@click.option("--overlap", type=_OVERLAPS, help="While an earlier one goes on.  [default: the schedule's own]")
@json_option()
@log_level_option("warning")
def run_now(url: str | None, name: str, *, overlap: Any, as_json: bool) -> None:
    """Enqueue a job of a schedule now, beside its own ticks, and print its id; also of one that is paused."""

    async def enqueue() -> JobHandle[Any]:
        async with looking_at(url) as client:
            return await client.schedules.run_now(name, overlap=overlap)

    handle = run(enqueue)
    _tell(
        {"id": str(handle.id), "schedule": name, "created": handle.created},
        f"{handle.id}{'' if handle.created else '  (was there already)'}",
        as_json=as_json,
    )


@schedules.command()
@url_option
@click.argument("name", required=False, metavar="[NAME]")
@_timing_options(also="; in place of NAME")
@click.option("--count", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many ticks.")
@click.option("--after", metavar="TIME", help="From when on, in ISO 8601 with an offset; by default now.")
@json_option()
@log_level_option("warning")
def preview(
    url: str | None,
    name: str | None,
    *,
    cron: str | None,
    every: float | None,
    timezone: str,
    count: int,
    after: str | None,
    as_json: bool,
) -> None:
    """Show the next ticks: of a schedule by its NAME, or of --cron or --every. Neither is anything changed."""
    if (name is None) == (cron is None and every is None):
        raise WrongUsage("say which: a NAME, or --cron, or --every")
    begin = None if after is None else read_time(after, "--after")

    async def look() -> tuple[Sequence[datetime], str]:
        if name is None:
            interval = None if every is None else timedelta(seconds=every)
            timing: dict[str, Any] = {"cron": cron, "every": interval, "timezone": timezone}
            return await Client(url).schedules.preview(count=count, after=begin, **timing), timezone
        async with looking_at(url) as client:
            zone = (await client.schedules.get(name)).timezone
            return await client.schedules.preview(name, count=count, after=begin), zone

    ticks, zone = run(look)
    local = ZoneInfo(zone)
    if as_json:
        print_json({"timezone": zone, "ticks": ticks, "local": [each.astimezone(local) for each in ticks]})
    elif ticks:
        show_table(("tick (UTC)", f"in {zone}"), [(shown_time(each), _local(each, local)) for each in ticks])
    else:
        click.echo("no ticks in the next 50 years")


def _local(tick: datetime, zone: ZoneInfo) -> str:
    return f"{tick.astimezone(zone):%a %Y-%m-%d %H:%M:%S %z}"


def _tell(values: dict[str, object], text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(values)
    else:
        click.echo(one_line(text))
