"""`aioqueue worker`: run jobs until a signal, or until nothing is due."""

from __future__ import annotations

import asyncio
import difflib
import importlib
import importlib.util
import logging
import random
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from aioqueue.cli._imports import load_registry
from aioqueue.cli._options import (
    SettingsCommand,
    WrongUsage,
    explained,
    log_level_option,
    set_up_logging,
    setting_option,
)
from aioqueue.cli._reload import follow_reloader, run_reloading
from aioqueue.cli._text import one_line
from aioqueue.client import Client
from aioqueue.definitions._environment import Environment
from aioqueue.definitions._setting_table import CLOSE_TIMEOUT, GRACE, LOG_FORMAT, LOG_LEVEL, SETTINGS, SINGLETON, TYPES, WAIT
from aioqueue.errors import StoreUnavailable
from aioqueue.runtime._left_behind import leave
from aioqueue.runtime._log import event
from aioqueue.runtime._process import END_SECONDS, LEFT_BEHIND, Stopped, process
from aioqueue.telemetry._server import serving
from aioqueue.telemetry._tracing import flush_telemetry
from aioqueue.worker import Worker
from aioqueue.worker._own_event_loop import run_in_own_event_loop
from aioqueue.worker._shutdown import longest_stop
from aioqueue.worker._signals import exit_code

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from aioqueue.definitions._registry import Registry

__all__ = ["worker"]

logger = logging.getLogger("aioqueue.worker")

_LONGEST_PAUSE_SECONDS = 10.0
_CLOSE_SECONDS = 5.0
"""For closing the client, after the worker has ended: shorter than elsewhere, as somebody waits for the process's end."""
_FLUSH_SECONDS = 2.0
"""For sending what was recorded for OpenTelemetry, at the end."""
_UNSENT_SECONDS = 0.5
"""Until the process ends where that takes longer: the SDK would wait at exit."""
_OPENING_SECONDS = 1.0
"""For connections that were being opened when the process was told to stop."""


def longest_end(grace: float, close_timeout: float = _CLOSE_SECONDS) -> float:
    """Give the seconds within which the process ends after SIGTERM, whatever jobs, threads and the database do.

    Arguments:
        grace: The worker's.
        close_timeout: The client's.
    """
    return longest_stop(grace) + close_timeout + END_SECONDS


def _settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for every setting; those of the log are added by `log_level_option`."""
    for setting in reversed(SETTINGS):
        if setting not in (LOG_LEVEL, LOG_FORMAT) and setting.option:
            own = {"shown": CLOSE_TIMEOUT.kind.written(_CLOSE_SECONDS)} if setting is CLOSE_TIMEOUT else {}
            command = setting_option(setting, **own)(command)
    return log_level_option(LOG_LEVEL.default)(command)


@click.command(cls=SettingsCommand)
@click.argument("app", metavar="MODULE:REGISTRY")
@_settings
def worker(
    app: str,
    app_dir: str | None,
    types: tuple[tuple[str, ...], ...],
    *,
    once: bool,
    reload: bool,
    uvloop: bool | None,
    **settings: Any,
) -> None:
    """Run jobs until SIGINT or SIGTERM.

    app:registry is an attribute of a module, or a function that returns a registry. Signals let running jobs finish
    within the grace, then give them back; a second one does so at once, and ends the process within a second.

    A DURATION is a number of seconds, or one with a unit: 500ms, 30s, 5m, 1h, 2d. What isn't given as an option comes from
    the variable in brackets, else it's the default.
    """
    code = 0
    try:
        with process.command(), explained():
            reloaded = reload and follow_reloader()
            if reload and not reloaded:
                code = process.exit_code = _reload(app_dir, once=once, settings=settings)
            else:
                if reloaded and _is_single(settings):
                    settings["standby"] = True  # the one before may have been killed, and has the name for a while
                code = _work(load_registry(app, app_dir), app, types, once=once, uvloop=uvloop, settings=settings)
    except Stopped:
        logger.info("stopped before the worker has begun", extra=event("worker.stopped_early"))
    raise click.exceptions.Exit(code)


def _reload(app_dir: str | None, *, once: bool, settings: Mapping[str, Any]) -> int:
    """Run the worker in a process of its own, anew after each change. Returns the exit code."""
    if once:
        raise WrongUsage("--reload runs until a signal, and --once until nothing is due: choose one")
    if importlib.util.find_spec("watchfiles") is None:
        raise WrongUsage("--reload: watchfiles isn't installed: pip install watchfiles, or the extra `reload`")
    set_up_logging()
    return run_reloading(app_dir, longest_end(GRACE.read(settings["grace"], Environment()), _close_timeout(settings)))


def _work(
    registry: Registry,
    app: str,
    types: Sequence[tuple[str, ...]],
    *,
    once: bool,
    uvloop: bool | None,
    settings: Mapping[str, Any],
) -> int:
    """Run the worker in this process. Returns the exit code."""
    set_up_logging()
    wanted = _read_types(types, registry, app)
    loop_factory = _loop_factory(wanted=uvloop)
    process.hold_back()
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        code = run_in_own_event_loop(runner, _serve(registry, wanted, once=once, settings=settings))
    if not flush_telemetry(_FLUSH_SECONDS):
        logger.warning(
            "what was recorded for OpenTelemetry couldn't be sent within %g s",
            _FLUSH_SECONDS,
            extra=event("telemetry.not_sent"),
        )
        process.end_within(_UNSENT_SECONDS)
    return code


def _is_single(settings: Mapping[str, Any]) -> bool:
    """Whether the worker has a name that only one may have, and waiting for it is left to us."""
    read = Environment()
    return SINGLETON.read(settings["singleton"], read) is not None and not WAIT.read(settings["wait"], read)


def _close_timeout(settings: Mapping[str, Any]) -> float:
    return CLOSE_TIMEOUT.read(settings["close_timeout"], Environment(), default=_CLOSE_SECONDS)


async def _serve(registry: Registry, types: Sequence[str] | None, *, once: bool, settings: Mapping[str, Any]) -> int:
    """Run a worker until a signal comes, or, once, until nothing is due. Returns the exit code."""
    code = 1
    client = Client(**_of("Client", {**settings, "close_timeout": _close_timeout(settings)}))
    worker = Worker(client, registry, **_of("Worker", {**settings, "types": types}))
    if once and worker.settings.standby:
        raise WrongUsage("--once runs what is due now, and --standby waits for as long as it takes: choose one, or --wait")
    asked = asyncio.Event()
    # Before the first connection: that the database can't be reached is to be seen.
    with serving(worker.settings.metrics_port, worker.settings.metrics_host), _stopped_by_signals(worker, asked):
        try:
            if not await _open(client, asked, patient=not once):
                code = 0
                process.end_within(_OPENING_SECONDS)
                return code
            process.exit_code = LEFT_BEHIND
            try:
                code = await exit_code(worker, once=once)
            finally:
                await client.close()
        finally:
            process.exit_code = code
    return code


def _of(owner: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of the settings those that are the client's, or the worker's."""
    return {each.name: settings[each.name] for each in SETTINGS if owner in each.of and each.name in settings}


@contextmanager
def _stopped_by_signals(worker: Worker, asked: asyncio.Event) -> Generator[None]:
    """Within the block, stop the worker when the process gets a signal; `asked` says so to who opens the client."""
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        name, how = signal.Signals(number).name, " at once" if process.received > 1 else ""
        logger.info(
            "worker %s: %s: stopping%s",
            one_line(worker.name),
            name,
            how,
            extra=event("worker.stopping", worker=worker.name, signal=name),
        )
        asked.set()
        worker.stop(force=process.received > 1)

    def tell(number: int) -> None:
        loop.call_soon_threadsafe(stop, number)

    with process.telling(tell):
        yield


def _read_types(given: Sequence[tuple[str, ...]], registry: Registry, app: str) -> Sequence[str] | None:
    names = TYPES.read([name for names in given for name in names] or None, Environment())
    known = sorted(registry.runnable)
    for name in names or ():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3) or known[:10]
            hint = f": did you mean {' or '.join(close)}?" if close else ""
            raise WrongUsage(f"{TYPES.flag if given else TYPES.variable}: {app} has no handler for {name!r}{hint}")
    return names


def _loop_factory(*, wanted: bool | None) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if wanted is False:
        return None
    if importlib.util.find_spec("uvloop") is None:
        if wanted:
            raise WrongUsage("--uvloop: it isn't installed: pip install uvloop")
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    return factory


async def _open(client: Client, asked: asyncio.Event, *, patient: bool) -> bool:
    """Open the client, unless a stop is asked for meanwhile. Returns whether it's open."""
    opening = asyncio.get_running_loop().create_task(_reached(client, patient=patient))
    waiting = asyncio.get_running_loop().create_task(asked.wait())
    await asyncio.wait([opening, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not opening.done():
        opening.cancel()
        await asyncio.wait([opening], timeout=_OPENING_SECONDS / 2)
        leave(opening)
        if not opening.done() or opening.cancelled() or opening.exception() is not None:
            return False
    opening.result()
    return True


async def _reached(client: Client, *, patient: bool) -> None:
    """Open the client; if patient, wait until the database can be reached."""
    pause = 0.5
    while True:
        try:
            await client.open()
        except StoreUnavailable as error:
            if not patient:
                raise
            logger.warning(
                "the database can't be reached, trying again: %s", one_line(str(error)), extra=event("client.database_away")
            )
            await asyncio.sleep(random.uniform(0.5, 1.0) * pause)  # noqa: S311 - keeps processes apart
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        else:
            return
