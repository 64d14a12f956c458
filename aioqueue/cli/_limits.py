"""`aioqueue limits` and `aioqueue sequences`: how many jobs run at once, or start in a time, and which sequences are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aioqueue.cli._gate_notes import known_limits, note_of_new
from aioqueue.cli._json import json_option, print_json
from aioqueue.cli._options import DURATION, WrongUsage, log_level_option, looking_at, run, url_option
from aioqueue.cli._tables import show_table
from aioqueue.cli._text import one_line
from aioqueue.vocabulary._gates import RATE, LimitKind
from aioqueue.vocabulary._time import duration_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._gates import KeptSequence, StoredLimit

__all__ = ["LIMITS_HEADER", "describe_limit", "limit_row", "limits", "sequences"]

LIMITS_HEADER = ("limit", "at once, or in a time", "running", "waiting", "by")

_COUNTED_JOBS = 10_000


@click.group()
def limits() -> None:
    """Look at how many jobs run at once, or start in a time, in all workers together, and change it."""


@limits.command("list")
@url_option
@json_option()
@log_level_option("warning")
def list_(url: str | None, *, as_json: bool) -> None:
    """Show limits and rates by name: how many run, how many wait, and who has said so."""

    async def look() -> tuple[Sequence[StoredLimit], str]:
        async with looking_at(url) as client:
            return await client.limits.list(), client.store.description

    found, description = run(look)
    if as_json:
        print_json({"limits": [describe_limit(each) for each in found]})
    elif found:
        show_table(LIMITS_HEADER, [limit_row(each) for each in found])
    else:
        click.echo(f"no limits in {description}")


@limits.command()
@url_option
@click.argument("name")
@click.argument("places", type=int)
@click.option("--per", type=DURATION, help="Of a rate, rate:TYPE: how many start in that time.")
@click.option("--burst", type=int, help="Of a rate: how many at once after a while without any.  [default: PLACES]")
@json_option()
@log_level_option("warning")
def put(url: str | None, name: str, places: int, *, per: float | None, burst: int | None, as_json: bool) -> None:
    """Let PLACES jobs run at once at a limit; 0 for none.

    NAME is that of a shared limit; or job:TYPE, the limit of a job type; or rate:TYPE, its rate, with --per. Workers take it
    up at once: more lets in those that wait; less lets nobody in until fewer run. It's said of one that is new if nobody is
    known to ask for it.
    """
    rate = name.startswith(RATE)
    if rate and per is None:
        raise WrongUsage(f"{name} is a rate: say in which time so many start, with --per")
    if not rate and (per is not None or burst is not None):
        raise WrongUsage(f"--per and --burst are of a rate, whose name begins with {RATE}")

    async def change() -> str:
        async with looking_at(url) as client:
            before = {each.name for each in await known_limits(client)}
            if per is None:
                await client.limits.put(name, places)
            else:
                await client.limits.put_rate(name, places, per=per, burst=burst)
            return await note_of_new(client, name, before)

    note = run(change)
    if as_json:
        print_json({"put": name, "places": places, "per": per, "burst": burst, "note": note or None})
        return
    click.echo(one_line(f"{name}: {_counted(places, per)}"))
    if note:
        click.echo(one_line(note), err=True)


@limits.command()
@url_option
@click.argument("name")
@json_option()
@log_level_option("warning")
def remove(url: str | None, name: str, *, as_json: bool) -> None:
    """Limit nothing by NAME any more: those that wait there are let in. Exits with 1 if there is no such limit.

    One that code defines is there again when a worker of that code starts: put a high number in its place, or change the code.
    """

    async def end() -> bool:
        async with looking_at(url) as client:
            return await client.limits.remove(name)

    there = run(end)
    if as_json:
        print_json({"removed": name if there else None})
    else:
        click.echo(one_line(f"{name}: removed" if there else f"there is no limit {name}"), err=not there)
    if not there:
        raise click.exceptions.Exit(1)


@click.group()
def sequences() -> None:
    """Look at sequences of jobs, which run one at a time, that a failed one keeps, and let them go on."""


@sequences.command("list")
@url_option
@json_option()
@log_level_option("warning")
def list_kept(url: str | None, *, as_json: bool) -> None:
    """Show the sequences by name that a failed job keeps (on_failure="block"): that job, and how many wait behind it."""

    async def look() -> tuple[Sequence[KeptSequence], str]:
        async with looking_at(url) as client:
            return await client.sequences.list(), client.store.description

    found, description = run(look)
    if as_json:
        kept = [{"name": each.name, "blocked_by": str(each.blocked_by), "waiting": each.waiting} for each in found]
        print_json({"sequences": kept})
    elif found:
        rows = [(each.name, str(each.blocked_by), _most(each.waiting)) for each in found]
        show_table(("sequence", "kept by", "waiting"), rows)
    else:
        click.echo(f"no failed job keeps a sequence in {description}")


@sequences.command()
@url_option
@click.argument("name")
@json_option()
@log_level_option("warning")
def resume(url: str | None, name: str, *, as_json: bool) -> None:
    """Let the jobs go on that wait behind a failed one in the sequence NAME. Exits with 1 if none was kept.

    That is so with on_failure="block" alone. The failed job stays as it is; to retry or delete it lets them go on, too.
    """

    async def go_on() -> bool:
        async with looking_at(url) as client:
            return await client.sequences.resume(name)

    kept = run(go_on)
    if as_json:
        print_json({"resumed": name if kept else None})
    else:
        click.echo(one_line(f"{name}: resumed" if kept else f"no failed job keeps the sequence {name}"), err=not kept)
    if not kept:
        raise click.exceptions.Exit(1)


def describe_limit(each: StoredLimit) -> dict[str, object]:
    """A limit for programs."""
    return {
        "name": each.name,
        "kind": each.kind.value,
        "places": each.places,
        "per": each.per,
        "burst": each.burst,
        "running": each.running if each.kind is LimitKind.PLACES else None,
        "waiting": each.waiting,
        "defined": each.defined,
        "changed": each.changed,
    }


def limit_row(each: StoredLimit) -> tuple[str, ...]:
    """A limit in a table with `LIMITS_HEADER`."""
    burst = "" if each.burst is None or each.burst == max(each.places, 1) else f", {each.burst:,} at once"
    by = "code" if each.defined and not each.changed else "code, changed at run time" if each.defined else "run time"
    running = _most(each.running) if each.kind is LimitKind.PLACES else ""
    return each.name, f"{_counted(each.places, each.per)}{burst}", running, _most(each.waiting), by


def _counted(places: int, per: float | None) -> str:
    return f"{places:,} at once" if per is None else f"{places:,} in {duration_text(per)}"


def _most(number: int) -> str:
    return f"{number:,}{'+' if number >= _COUNTED_JOBS else ''}"
