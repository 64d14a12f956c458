"""`aioqueue migrate`, `enqueue` and `stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aioqueue.cli._calls import call_options, read_arguments, read_options, typed_call
from aioqueue.cli._json import json_option, print_json, to_json
from aioqueue.cli._options import (
    DURATION,
    JobsFailed,
    Problem,
    WrongUsage,
    app_dir_option,
    explained,
    log_level_option,
    looking_at,
    run,
    setting_option,
    url_option,
)
from aioqueue.cli._pauses import describe_pause, known_pauses, what_is_paused
from aioqueue.cli._tables import show_table
from aioqueue.cli._text import one_line
from aioqueue.client import Client
from aioqueue.definitions._setting_table import RETRY_FOR
from aioqueue.errors import JobCancelled, JobFailed, ResultTimeout
from aioqueue.vocabulary._abilities import SupportsMigrationSQL, SupportsPendingMigrations
from aioqueue.vocabulary._job import JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.client import JobHandle
    from aioqueue.vocabulary._pauses import Pause
    from aioqueue.vocabulary._stats import Stats

__all__ = ["enqueue", "migrate", "stats"]

# -- migrate ----------------------------------------------------------------------------------------------------------


@click.command()
@url_option
@click.option("--check", is_flag=True, help="Change nothing; exit with 1 if the schema doesn't fit this version.")
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would be run.")
@click.option("--sql", is_flag=True, help="Change nothing; print the statements, for those who run them by hand.")
@json_option("As one JSON object: `migrated`, `pending` or `sql`.")
@log_level_option("warning")
def migrate(url: str | None, *, check: bool, dry_run: bool, sql: bool, as_json: bool) -> None:
    """Bring the database's schema up to date. Several may do so at once."""
    if check + dry_run + sql > 1:
        raise WrongUsage("--check, --dry-run and --sql exclude each other")
    if sql:
        statements = run(_statements, url)
        if as_json:
            print_json({"sql": statements})
        else:
            click.echo(statements)
    elif check:
        _tell_whether_up_to_date(run(_pending, url), as_json=as_json)
    else:
        names = run(_would_migrate if dry_run else _migrate, url)
        if as_json:
            print_json({"pending" if dry_run else "migrated": names})
            return
        for name in names:
            click.echo(name)
        if not names:
            click.echo("nothing to do")


async def _migrate(url: str | None) -> list[str]:
    return list(await Client(url).migrate())


async def _would_migrate(url: str | None) -> list[str]:
    names = await _pending(url)
    if names is None:
        raise WrongUsage("this store migrates by itself when it's opened, and doesn't say beforehand what it would run")
    return names


async def _pending(url: str | None) -> list[str] | None:
    """What `migrate` would run; None for a store that migrates by itself."""
    store = Client(url).store
    return list(await store.pending_migrations()) if isinstance(store, SupportsPendingMigrations) else None


def _tell_whether_up_to_date(pending: list[str] | None, *, as_json: bool) -> None:
    if as_json:
        print_json({"pending": pending})
    elif pending is None:
        click.echo("this store migrates by itself when it's opened")
    elif not pending:
        click.echo("up to date")
    if pending:
        raise Problem(f"not up to date: {', '.join(pending)}")


async def _statements(url: str | None) -> str:
    store = Client(url).store
    if not isinstance(store, SupportsMigrationSQL):
        raise WrongUsage("this store migrates by itself, and prints no statements")
    return store.migration_sql()


# -- enqueue ----------------------------------------------------------------------------------------------------------


@click.command()
@url_option
@app_dir_option
@click.argument("name")
@click.argument("arguments", nargs=-1)
@call_options()
@click.option("--wait", type=DURATION, metavar="DURATION", help="Wait for its end and print its output; 3 if it failed.")
@setting_option(RETRY_FOR)
@json_option("One JSON object with the id; with --wait a second one with the state and the output.")
@log_level_option("warning")
def enqueue(
    url: str | None,
    name: str,
    arguments: tuple[str, ...],
    *,
    wait: float | None,
    retry_for: float | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Enqueue a job and print its id.

    ARGUMENTS are name=text, name:=json, or one JSON object: aioqueue enqueue greet name=world shout:=true
    """
    app, app_dir = given["app"], given["app_dir"]
    values = read_arguments(arguments)
    with explained():
        options = read_options(given)

    async def put() -> None:
        async with Client(url, retry_for=retry_for) as client:
            handle: JobHandle[Any]
            if app is None:
                handle = await client.enqueue_by_name(name, values, **options)
            else:
                handle = await client.enqueue(typed_call(app, app_dir, name, values, options))
            if as_json:
                print_json({"id": str(handle.id), "type": name, "created": handle.created})
            else:
                click.echo(f"{handle.id}{'' if handle.created else '  (was there already)'}")
            if wait is not None:
                await _wait(client, handle, wait, as_json=as_json)

    run(put)


async def _wait(client: Client, handle: JobHandle[Any], seconds: float, *, as_json: bool) -> None:
    """Wait for the job's end, and print its output; with `as_json` also the state in which it is if there is none."""
    try:
        output = await handle.result(timeout=seconds)
    except (JobFailed, JobCancelled, ResultTimeout) as error:
        if as_json:
            print_json({"id": str(handle.id), "state": (await client.chain(handle)).state.value})
        raise (Problem if isinstance(error, ResultTimeout) else JobsFailed)(str(error)) from None
    if as_json:
        print_json({"id": str(handle.id), "state": JobState.COMPLETED.value, "output": output})
    else:
        click.echo(to_json(output))


# -- stats ------------------------------------------------------------------------------------------------------------


@click.command()
@url_option
@json_option()
@log_level_option("warning")
def stats(url: str | None, *, as_json: bool) -> None:
    """Count jobs by type and state, exactly up to 10,000 each, and name what is paused, and the workers that are alive."""

    async def look() -> tuple[Stats, Sequence[Pause], str]:
        async with looking_at(url) as client:
            return await client.stats(), await known_pauses(client), client.store.description

    numbers, pauses, description = run(look)
    if as_json:
        types = {
            name: {
                "counts": {state.value: count for state, count in each.counts.items()},
                "capped": sorted(state.value for state in each.capped),
                "oldest_ready": each.oldest_ready,
            }
            for name, each in numbers.types.items()
        }
        paused = [describe_pause(each) for each in pauses]
        print_json({"types": types, "workers": list(numbers.workers), "pauses": paused})
        return
    if not numbers.types:
        click.echo(f"no jobs in {description}")
    shown = [state for state in JobState if any(each.counts.get(state) for each in numbers.types.values())]
    rows = [
        (
            name,
            *(f"{each.counts.get(state, 0):,}{'+' if state in each.capped else ''}" for state in shown),
            "" if each.oldest_ready is None else f"{each.oldest_ready:.1f} s",
        )
        for name, each in sorted(numbers.types.items())
    ]
    if rows:
        show_table(("type", *(state.value for state in shown), "oldest ready"), rows)
    if pauses:
        names = dict.fromkeys(what_is_paused(each) for each in pauses)
        click.echo(one_line(f"paused: {', '.join(names)}"))
    click.echo(one_line(f"workers: {', '.join(numbers.workers) or 'none'}"))
