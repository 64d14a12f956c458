"""`aioqueue pause`, `resume` and `pauses`: what isn't to be started for now."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aioqueue.cli._job_text import shown_time
from aioqueue.cli._json import json_option, print_json
from aioqueue.cli._options import WrongUsage, log_level_option, looking_at, read_time, run, url_option
from aioqueue.cli._tables import show_table
from aioqueue.cli._text import one_line
from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._abilities import SupportsPauses
from aioqueue.vocabulary._numbers import read_duration
from aioqueue.vocabulary._pauses import PauseTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioqueue.client import Client
    from aioqueue.vocabulary._pauses import Pause

__all__ = [
    "PAUSES_HEADER",
    "describe_pause",
    "known_pauses",
    "pause",
    "pause_row",
    "pauses",
    "resume",
    "unknown_types",
    "user_name",
    "what_is_paused",
]

Command = TypeVar("Command", bound="Callable[..., Any]")

_COUNTED_JOBS = 10_000
PAUSES_HEADER = ("paused", "by", "since (UTC)", "until (UTC)", "waiting", "reason")


def user_name() -> str:
    """Who asks, as this machine knows them; empty where it doesn't."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # an id without a name, as in many containers; which it says depends on Python
        return ""


def _target_options(command: Command) -> Command:
    for add in (
        click.option("--all", "everything", is_flag=True, help="All jobs."),
        click.option("--key", help="Jobs of any type with this key."),
        click.argument("types", nargs=-1, metavar="[TYPE]..."),
    ):
        command = add(command)
    return command


@click.command()
@url_option
@_target_options
@click.option("--until", metavar="TIME", help="Ends by itself: ISO 8601 with an offset, or in how long, such as 90m.")
@click.option("--reason", default="", help="Why, for people.")
@click.option("--by", help="Who asks, for people.  [default: your name on this machine]")
@json_option()
@log_level_option("warning")
def pause(
    url: str | None,
    types: tuple[str, ...],
    *,
    key: str | None,
    everything: bool,
    until: str | None,
    reason: str,
    by: str | None,
    as_json: bool,
) -> None:
    """Start no more of these jobs, in any worker, until they're resumed; those that run go on.

    TYPE is the name of a job type, as `aioqueue stats` shows it; one that was renamed has its older names beside it.
    """
    _check_target(types, key, everything=everything)
    given: dict[str, Any] = {
        "until": None if until is None else _read_until(until),
        "reason": reason,
        "by": user_name() if by is None else by,
    }

    async def stop() -> tuple[Sequence[Pause], Sequence[str]]:
        async with looking_at(url) as client:
            if everything:
                await client.pause(all=True, **given)
            elif key is not None:
                await client.pause(key=key, **given)
            else:
                await client.pause(*types, **given)
            made = [each for each in await client.pauses() if _is_meant(each, types, key) and each.by == given["by"]]
            return made, await unknown_types(client, types)

    made, unknown = run(stop)
    if as_json:
        print_json({"paused": [describe_pause(each) for each in made], "unknown": list(unknown)})
    else:
        for each in made:
            end = "until it's resumed" if each.until is None else f"until {shown_time(each.until)} UTC"
            jobs = "job waits" if each.waiting == 1 else "jobs wait"
            click.echo(one_line(f"{what_is_paused(each)}: paused {end}; {_waiting(each)} due {jobs}"))
    for name in unknown:
        click.echo(one_line(f"there is no job of the type {name}, and no live worker runs it: is that its name?"), err=True)


@click.command()
@url_option
@_target_options
@click.option("--by", help="Only what this one has paused.  [default: everybody's pauses]")
@json_option()
@log_level_option("warning")
def resume(
    url: str | None, types: tuple[str, ...], *, key: str | None, everything: bool, by: str | None, as_json: bool
) -> None:
    """Lift pauses of just these: --all lifts those of all jobs, and leaves those of types and keys."""
    _check_target(types, key, everything=everything)

    async def go_on() -> tuple[int, Sequence[Pause]]:
        async with looking_at(url) as client:
            if everything:
                lifted = await client.resume(all=True, by=by)
            elif key is not None:
                lifted = await client.resume(key=key, by=by)
            else:
                lifted = await client.resume(*types, by=by)
            return lifted, await client.pauses()

    lifted, left = run(go_on)
    if as_json:
        print_json({"lifted": lifted, "left": [describe_pause(each) for each in left]})
        return
    click.echo(f"{lifted:,} pause{'' if lifted == 1 else 's'} lifted" if lifted else "nothing of that was paused")
    if left:
        click.echo("still paused:")
        show_table(PAUSES_HEADER, [pause_row(each) for each in left])


@click.command()
@url_option
@json_option()
@log_level_option("warning")
def pauses(url: str | None, *, as_json: bool) -> None:
    """Show what is paused: by whom, why, until when, and how many due jobs wait for its end."""

    async def look() -> Sequence[Pause]:
        async with looking_at(url) as client:
            return await client.pauses()

    found = run(look)
    if as_json:
        print_json({"pauses": [describe_pause(each) for each in found]})
    elif found:
        show_table(PAUSES_HEADER, [pause_row(each) for each in found])
    else:
        click.echo("nothing is paused")


async def known_pauses(client: Client) -> Sequence[Pause]:
    """What is paused; nothing where the store knows no pauses."""
    return await client.pauses() if isinstance(client.store, SupportsPauses) else ()


def describe_pause(each: Pause) -> dict[str, object]:
    """A pause for programs."""
    return {
        "target": each.target.value,
        "value": each.value or None,
        "by": each.by,
        "reason": each.reason,
        "since": each.at,
        "until": each.until,
        "waiting": each.waiting,
    }


def pause_row(each: Pause) -> tuple[str, ...]:
    """A pause in a table with `PAUSES_HEADER`."""
    return what_is_paused(each), each.by, shown_time(each.at), shown_time(each.until), _waiting(each), each.reason


def what_is_paused(each: Pause) -> str:
    """What a pause is about."""
    return "all jobs" if each.target is PauseTarget.ALL else f"{each.target.value} {each.value}"


def _waiting(each: Pause) -> str:
    return f"{each.waiting:,}{'+' if each.waiting >= _COUNTED_JOBS else ''}"


def _check_target(types: Sequence[str], key: str | None, *, everything: bool) -> None:
    if (len(types) > 0) + (key is not None) + everything != 1:
        raise WrongUsage("say what is meant: job types, --key, or --all")


def _is_meant(each: Pause, types: Sequence[str], key: str | None) -> bool:
    if types:
        return each.target is PauseTarget.TYPE and each.value in types
    if key is not None:
        return each.target is PauseTarget.KEY and each.value == key
    return each.target is PauseTarget.ALL


def _read_until(text: str) -> datetime:
    try:
        return datetime.now(UTC) + timedelta(seconds=read_duration(text, "until"))
    except ConfigurationError:
        return read_time(text, "--until", ", nor in how long, such as 90m")
    except OverflowError:
        raise WrongUsage(f"--until: {text!r} is too far away") from None


async def unknown_types(client: Client, types: Sequence[str]) -> list[str]:
    """The names that neither a job nor a live worker has."""
    if not types:
        return []
    served = {name for each in await client.leases() if each.ends_in > 0 for name in each.types or ()}
    known = served | set((await client.stats()).types)
    return [name for name in types if name not in known]
