"""`aioqueue worker`: run jobs until a signal, or until nothing is due."""

from __future__ import annotations

import asyncio
import difflib
import importlib
import importlib.util
import logging
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from aioqueue.cli._imports import load_registry
from aioqueue.cli._options import DURATION, WrongUsage, app_dir_option, explained, log_level_option, set_up_logging, url_option
from aioqueue.cli._text import one_line
from aioqueue.client import Client
from aioqueue.errors import StoreUnavailable
from aioqueue.worker import Worker, run_until_signalled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from aioqueue._registry import Registry

__all__ = ["worker"]

logger = logging.getLogger("aioqueue.worker")

_LONGEST_PAUSE = 10.0


@click.command()
@click.argument("app", metavar="MODULE:REGISTRY")
@url_option
@app_dir_option
@click.option(
    "--concurrency", type=click.IntRange(1, 10_000), envvar="AIOQUEUE_CONCURRENCY", show_envvar=True, help="Jobs at once: 10."
)
@click.option(
    "--types", multiple=True, envvar="AIOQUEUE_TYPES", show_envvar=True, help="Only these job types, separated by commas."
)
@click.option(
    "--once", is_flag=True, envvar="AIOQUEUE_ONCE", show_envvar=True, help="Work off what is due, and exit: 3 if some failed."
)
@click.option(
    "--poll-interval",
    type=DURATION,
    envvar="AIOQUEUE_POLL_INTERVAL",
    show_envvar=True,
    help="Between looks for jobs when nothing wakes it: 5 s.",
)
@click.option("--grace", type=DURATION, envvar="AIOQUEUE_GRACE", show_envvar=True, help="For running jobs at shutdown: 30 s.")
@click.option(
    "--lease", type=DURATION, envvar="AIOQUEUE_LEASE", show_envvar=True, help="How long a killed worker's jobs wait: 60 s."
)
@click.option("--name", envvar="AIOQUEUE_NAME", show_envvar=True, help="The worker's: by default host and process id.")
@click.option(
    "--uvloop/--no-uvloop", default=None, envvar="AIOQUEUE_UVLOOP", show_envvar=True, help="By default if it's installed."
)
@log_level_option("info")
def worker(
    app: str, url: str, app_dir: str | None, types: tuple[str, ...], *, once: bool, uvloop: bool | None, **settings: Any
) -> None:
    """Run jobs until SIGINT or SIGTERM.

    app:registry is an attribute of a module, or a function that returns a registry. Signals let running jobs finish
    within the grace, then give them back; a second one does so at once.
    """
    registry = load_registry(app, app_dir)
    set_up_logging()
    wanted = _read_types(types, registry, app)
    loop_factory = _loop_factory(wanted=uvloop)

    async def serve() -> int:
        async with _open(url, patient=not once) as client:
            return await run_until_signalled(Worker(client, registry, types=wanted, **settings), once=once)

    with explained(), asyncio.Runner(loop_factory=loop_factory) as runner:
        code = runner.run(serve())
    raise click.exceptions.Exit(code)


def _read_types(given: Sequence[str], registry: Registry, app: str) -> list[str] | None:
    names = [name.strip() for each in given for name in each.split(",") if name.strip()]
    known = sorted(registry.runnable)
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3) or known[:10]
            hint = f": did you mean {' or '.join(close)}?" if close else ""
            raise WrongUsage(f"--types: {app} has no handler for {name!r}{hint}")
    return names or None


def _loop_factory(*, wanted: bool | None) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if wanted is False:
        return None
    if importlib.util.find_spec("uvloop") is None:
        if wanted:
            raise WrongUsage("--uvloop: it isn't installed: pip install 'aioqueue[uvloop]'")
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    return factory


@asynccontextmanager
async def _open(url: str, *, patient: bool) -> AsyncGenerator[Client]:
    """Open a client; a patient one waits until the database can be reached."""
    client = Client(url)
    pause = 0.5
    while True:
        try:
            await client.open()
        except StoreUnavailable as error:
            if not patient:
                raise
            logger.warning("the database can't be reached, trying again: %s", one_line(str(error)))
            await asyncio.sleep(random.uniform(0.5, 1.0) * pause)  # noqa: S311 - keeps processes apart
            pause = min(2 * pause, _LONGEST_PAUSE)
        else:
            break
    try:
        yield client
    finally:
        await client.close()
