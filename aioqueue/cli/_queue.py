"""`aioqueue migrate`, `enqueue` and `stats`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import click

from aioqueue.cli._imports import load_registry
from aioqueue.cli._json import json_option, print_json, read_json, to_json
from aioqueue.cli._options import (
    DURATION,
    JobsFailed,
    Problem,
    WrongUsage,
    app_dir_option,
    explained,
    log_level_option,
    looking_at,
    read_time,
    run,
    setting_option,
    url_option,
)
from aioqueue.cli._tables import show_table
from aioqueue.cli._text import one_line
from aioqueue.client import Client
from aioqueue.definitions._setting_table import RETRY_FOR
from aioqueue.errors import ArgumentsError, JobCancelled, JobFailed, ResultTimeout
from aioqueue.vocabulary._abilities import SupportsMigrationSQL, SupportsPendingMigrations
from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._retry import Retry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.client import JobHandle
    from aioqueue.definitions._call import Call
    from aioqueue.definitions._call_options import CallOptions
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
@click.option("--app", metavar="MODULE:REGISTRY", help="Check the arguments against the job type that it has.")
@click.option("--delay", type=DURATION, help="Not before this has passed.")
@click.option("--at", help="Not before this time, in ISO 8601 with an offset.")
@click.option("--key", help="A label to find it by.")
@click.option("--unique", is_flag=True, help="At most one unfinished job of the type with this key.")
@click.option("--priority", type=click.IntRange(1, 4), help="1 is the most urgent; 2 is the default.")
@click.option("--tag", "tags", multiple=True, help="A label; may be repeated.")
@click.option("--max-attempts", type=click.IntRange(min=1), help="Of this job.")
@click.option("--timeout", type=DURATION, help="For each attempt.")
@click.option("--expires", type=DURATION, help="Discard it if it hasn't started this long after it was due.")
@click.option("--keep", type=DURATION, help="Keep it this long after its end, whatever workers' retention says.")
@click.option("--webhook", metavar="URL", help="Tell this URL of its end, once it has ended.")
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
    app, app_dir = given.pop("app"), given.pop("app_dir")
    values = _read_arguments(arguments)
    with explained():
        options = _read_options(given)

    async def put() -> None:
        async with Client(url, retry_for=retry_for) as client:
            handle: JobHandle[Any]
            if app is None:
                handle = await client.enqueue_by_name(name, values, **options)
            else:
                handle = await client.enqueue(_typed_call(app, app_dir, name, values, options))
            if as_json:
                print_json({"id": str(handle.id), "type": name, "created": handle.created})
            else:
                click.echo(f"{handle.id}{'' if handle.created else '  (was there already)'}")
            if wait is not None:
                await _wait(client, handle, wait, as_json=as_json)

    run(put)


def _typed_call(app: str, app_dir: str | None, name: str, values: dict[str, Any], options: CallOptions) -> Call[Any]:
    registry = load_registry(app, app_dir)
    job_type = registry.types.get(name)
    if job_type is None:
        raise WrongUsage(f"{app} has no job type {name!r}; it has {', '.join(sorted(registry.types)) or 'none'}")
    try:
        return job_type(**values).options(**options)
    except ArgumentsError as error:
        name = re.split(r"[.\[]", error.path, maxsplit=1)[0]
        if isinstance(values.get(name), str):
            raise WrongUsage(f"{error}. A value that isn't text is given as JSON: {name}:={values[name]}") from None
        raise


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


def _read_arguments(texts: Sequence[str]) -> dict[str, Any]:
    if len(texts) == 1 and texts[0].lstrip().startswith("{"):
        return cast("dict[str, Any]", _json(texts[0], "ARGUMENTS"))
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        raw = name.endswith(":")
        name = name.removesuffix(":")
        if not equals or not name.isidentifier():
            raise WrongUsage(f"{text!r} is neither name=text nor name:=json")
        if name in values:
            raise WrongUsage(f"the argument {name} is given twice")
        values[name] = _json(value, name) if raw else value
    return values


def _json(text: str, name: str) -> Any:
    try:
        return read_json(text)
    except ValueError as error:
        raise WrongUsage(f"{name}: that isn't JSON: {error}") from None


def _read_options(given: dict[str, Any]) -> CallOptions:
    at, attempts = given.pop("at"), given.pop("max_attempts")
    options = {name: value for name, value in given.items() if value is not None and value is not False and value != ()}
    if at is not None:
        options["at"] = read_time(at, "--at")
    if attempts is not None:
        options["retry"] = Retry(max_attempts=attempts)
    return cast("CallOptions", options)


# -- stats ------------------------------------------------------------------------------------------------------------


@click.command()
@url_option
@json_option()
@log_level_option("warning")
def stats(url: str | None, *, as_json: bool) -> None:
    """Count jobs by type and state, exactly up to 10,000 each, and name the workers that are alive."""

    async def look() -> tuple[Stats, str]:
        async with looking_at(url) as client:
            return await client.stats(), client.store.description

    numbers, description = run(look)
    if as_json:
        types = {
            name: {
                "counts": {state.value: count for state, count in each.counts.items()},
                "capped": sorted(state.value for state in each.capped),
                "oldest_ready": each.oldest_ready,
            }
            for name, each in numbers.types.items()
        }
        print_json({"types": types, "workers": list(numbers.workers)})
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
    click.echo(one_line(f"workers: {', '.join(numbers.workers) or 'none'}"))
