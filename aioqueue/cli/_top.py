"""`aioqueue top`: the queue as it is now, again and again."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import anyio
import click

from aioqueue.cli._gate_notes import known_limits
from aioqueue.cli._json import json_option, print_json
from aioqueue.cli._options import DURATION, WrongUsage, log_level_option, looking_at, run, url_option
from aioqueue.cli._pauses import known_pauses
from aioqueue.cli._tables import is_terminal, plain_table
from aioqueue.cli._text import one_line
from aioqueue.cli._top_frame import MOST_RUNNING_SHOWN, as_json, make_frame, summary, tables
from aioqueue.cli._top_screen import pressed, screen
from aioqueue.errors import StoreError, StoreUnavailable
from aioqueue.vocabulary._job import JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

    from anyio.abc import TaskStatus

    from aioqueue.cli._top_frame import Frame
    from aioqueue.client import Client

    Show = Callable[[Frame | None, str], None]
    """Shows the newest frame, and what is wrong since; empty if nothing is."""
    Showing = Callable[[asyncio.Event], AbstractContextManager[Show]]
    """Gives what shows for as long as the context lasts; it may set the event, which ends it."""

__all__ = ["top"]

_SHORTEST_INTERVAL_SECONDS = 0.1
_ANSWER_SECONDS = 10.0


@click.command()
@url_option
@click.option("--interval", type=DURATION, default=2.0, show_default="2s", help="Between two looks.")
@click.option("--once", is_flag=True, help="Look once, and end.")
@json_option("One JSON object for each look, a line each.")
@log_level_option("critical")
def top(url: str | None, *, interval: float, once: bool, as_json: bool) -> None:
    """Show the queue live: counts by type and state, throughput, limits, workers, and what they run. `q` or Ctrl-C ends it.

    Where standard output is no terminal it looks once, unless --json is given.
    """
    if sys.stdout is None:  # type: ignore[redundant-expr, unused-ignore] # so it is in a process that was started without
        raise WrongUsage("standard output is closed: there is nothing to show the queue on")
    if interval < _SHORTEST_INTERVAL_SECONDS:
        raise WrongUsage(f"--interval: at least {_SHORTEST_INTERVAL_SECONDS:g} s")
    looks = Looks(url)
    if once or not (as_json or is_terminal(sys.stdout)):
        run(looks.once, _print_json if as_json else _print)
    elif as_json:
        run(_in_lines, looks, interval)
    else:
        run(_on_a_screen, looks, interval)


class Looks:
    """Looks at the queue, one statement at a time, and tells what became of it.

    Arguments:
        url: The database's; None for the variable or the default.
    """

    def __init__(self, url: str | None) -> None:
        self._url = url
        self._client: Client | None = None
        self._frame: Frame | None = None

    @property
    def description(self) -> str:
        """The database that is looked at, for the title."""
        return (self._client or looking_at(self._url)).store.description

    async def once(self, show: Show) -> None:
        """Show what there is now, without another try.

        Raises:
            AioqueueError: It can't be looked at.
        """
        try:
            show(await self._look(), "")
        finally:
            await self._close()

    async def forever(self, showing: Showing, interval: float) -> None:
        """Look until the context that shows has set the event, or a signal comes. What goes wrong is shown, and tried again.

        Raises:
            AioqueueError: The very first look went wrong for something else than that the database can't be reached.
        """
        ended = asyncio.Event()
        failure: Exception | None = None
        async with anyio.create_task_group() as group:
            await group.start(_end_by_a_signal, ended)  # before the terminal is touched: the default would leave it so
            group.start_soon(_cancel_at_the_end, group.cancel_scope, ended)
            try:
                with showing(ended) as show:
                    await self._repeat(show, interval)
            except Exception as error:  # noqa: BLE001 - raised below: the group would put it into another
                failure = error
            finally:
                with anyio.CancelScope(shield=True):  # the client has a bound of its own
                    await self._close()
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _repeat(self, show: Show, interval: float) -> None:
        while True:
            try:
                show(await self._look(), "")
            except StoreError as error:
                if self._frame is None and not isinstance(error, StoreUnavailable):
                    raise
                show(self._frame, f"{type(error).__name__}: {error}")
                # What a server that was restarted, or a file that was replaced, has left of the old connections is of no use.
                await self._close()
            await anyio.sleep(interval)

    async def _look(self) -> Frame:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                if self._client is None:
                    self._client = await looking_at(self._url).open()
                stats, leases = await self._client.stats(), await self._client.leases()
                page = await self._client.list_jobs(states=[JobState.RUNNING], limit=MOST_RUNNING_SHOWN)
                pauses, limits = await known_pauses(self._client), await known_limits(self._client)
        except TimeoutError:
            raise StoreUnavailable(f"no answer within {_ANSWER_SECONDS:g} s") from None
        self._frame = make_frame(datetime.now(UTC), stats, leases, page.jobs, self._frame, pauses, limits)
        return self._frame

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


async def _end_by_a_signal(ended: asyncio.Event, *, task_status: TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            ended.set()


async def _cancel_at_the_end(scope: anyio.CancelScope, ended: asyncio.Event) -> None:
    await ended.wait()
    scope.cancel()


async def _in_lines(looks: Looks, interval: float) -> None:
    await looks.forever(lambda _: nullcontext(_print_json), interval)


async def _on_a_screen(looks: Looks, interval: float) -> None:
    @contextmanager
    def showing(ended: asyncio.Event) -> Generator[Show]:
        with screen(sys.stdout) as draw, pressed(ended):

            def show(frame: Frame | None, trouble: str) -> None:
                at = datetime.now(UTC)
                title = f"{looks.description}  {at:%Y-%m-%d %H:%M:%S} UTC, every {interval:g} s; q ends"
                if trouble:
                    old = "" if frame is None else f" (below: {frame.at:%H:%M:%S})"
                    trouble = f"trying again{old}: {trouble}"
                draw(title, trouble, "" if frame is None else summary(frame), [] if frame is None else tables(frame))

            yield show

    await looks.forever(showing, interval)


def _print(frame: Frame | None, _trouble: str) -> None:
    assert frame is not None
    click.echo(one_line(summary(frame)))
    for header, rows in tables(frame):
        click.echo(f"\n{plain_table(header, rows, shorten=sys.stdout.isatty())}")


def _print_json(frame: Frame | None, trouble: str) -> None:
    print_json({"at": datetime.now(UTC).isoformat(), "error": trouble} if trouble or frame is None else as_json(frame))
