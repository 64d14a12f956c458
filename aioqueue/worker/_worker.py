"""A worker's life: start, run, stop."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from aioqueue.definitions._settings import WorkerSettings
from aioqueue.errors import AioqueueError, ClientClosed, ConfigurationError
from aioqueue.runtime._left_behind import forget_dead
from aioqueue.runtime._log import event
from aioqueue.runtime._shield import finish
from aioqueue.telemetry._server import serving
from aioqueue.vocabulary._job import SettlementKind
from aioqueue.worker._claimed_types import claimed_types, names_of
from aioqueue.worker._event_loop_end import WatchfulTask, hook_exception_handler
from aioqueue.worker._health import Health, OnceResult, Troubles, shown_ends
from aioqueue.worker._retention import checked_on_purge
from aioqueue.worker._run import Run
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType
    from typing import Unpack

    from aioqueue.client import Client
    from aioqueue.definitions._job_type import JobType
    from aioqueue.definitions._registry import Registry
    from aioqueue.definitions._resources import Resource
    from aioqueue.definitions._settings import WorkerOptions
    from aioqueue.worker._retention import OnPurge

__all__ = ["Worker"]

logger = logging.getLogger("aioqueue.worker")


class Worker:
    """Runs jobs: `await Worker(client, registry).run()`, or `async with worker:` inside another program.

    What isn't given comes from its `AIOQUEUE_*` variable, else it's the default. It can be started again after it
    has ended. Several may run in one process and loop, also with the same name.

    A `def` handler runs in a thread, which can't be stopped: its slot and its claim are kept until it returns, whatever
    its timeout or a lost lease say, and until 5 s after the grace when the worker stops; `current_attempt().cancelled`
    tells it to stop. A handler that returns a value after its timeout has completed all the same: its work is done, and
    doing it twice would be worse.

    Arguments:
        client: Open while the worker runs.
        registry: The handlers.
        concurrency: Jobs that run at once; 10.
        name: For logs and listings; by default made of the machine and the process.
        types: Only these job types (or names); all that have a handler, by default.
        lease: Seconds for which a claim is valid without renewal; 60.
        renew_every: Seconds between renewals; a third of the lease.
        poll_interval: Seconds between looks when nothing wakes it; 5.
        grace: Seconds that running jobs get when it stops; 30.
        max_reschedules: How often a job may put itself off; 1,000.
        release: The number of this version of the code: of several that live workers have, the schedules of the highest count.
        pause_between: Seconds that a slot rests after each job, for workers that must be gentle; 0.
        dry_run: Only tries jobs out: of types that are declared `dry_run=True`, whose handlers see `current_attempt().dry_run`.
            It fires no schedules, removes nothing and sends no webhooks.
        singleton: Of all workers with this name one works at a time. If another has it, `run` raises SingletonHeld.
        wait, standby: First wait for one lease; or wait for as long as another has it, and take over then.
        blocked_after: Seconds for which a job may block the event loop, until the log names it and its code; 5. 0 for never.
        max_attempts: For jobs whose type and call have no policy; 10, with exponential waits.
        default_retry: A whole policy in place of that: its attempts and its waits.
        retention_completed, retention_failed: Seconds that jobs are kept after the end of their chain which don't say so
            themselves (`keep=`): 7 days if that has completed, else 30. 0 for ever.
        retention_interval: Seconds between looks for jobs that are old enough; 60. 0 for never.
        on_purge: Called with jobs before they're removed, at least once for each: of a chain the step that ended it. While a
            worker has it, those without remove nothing. What it raises keeps these jobs for now.
        tracing: False makes no spans. By default they're made where an SDK for OpenTelemetry is configured.
        trace_links: Whether the span of a first attempt is linked to the one that has enqueued the job, in a trace of its own,
            in place of being its child.
        metrics_port, metrics_host: Where `serve_metrics` serves while it runs; nowhere, by default, and then at 127.0.0.1.
        webhook_secret: What webhooks are signed with, one or several, the newest first: with it, this worker sends those of all
            jobs. It needs the extra `webhooks`.
        webhook_allow: Networks and hosts that webhooks may reach though their addresses aren't public.
        resources: Values in place of resources, for tests.

    Raises:
        ConfigurationError: A setting can't be used, or contradicts another.
    """

    def __init__(
        self,
        client: Client,
        registry: Registry,
        *,
        types: Iterable[JobType[..., Any, Any] | str] | None = None,
        on_purge: OnPurge | None = None,
        resources: Mapping[Resource[Any], Any] | None = None,
        **settings: Unpack[WorkerOptions],
    ) -> None:
        settings["name"] = settings.get("name") or None
        self.settings = WorkerSettings.resolve(**settings, types=names_of(types))
        self.name = self.settings.name or f"{socket.gethostname()}-{os.getpid()}"
        self._client = client
        self._registry = registry
        self._resources, self._on_purge = resources, checked_on_purge(on_purge)
        self._run: Run | None = None
        self._task: asyncio.Task[None] | None = None
        self._started: asyncio.Future[None] | None = None
        self._troubles = Troubles(self.name)
        self._stop_asked = self._force_asked = False
        self._left_behind = 0
        self._had_name = False

    # -- life ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run jobs until `stop` is called. Cancelling it stops the worker within about a second.

        It ends within a bounded time after a stop, whatever handlers and the database do: see the deployment guide.

        Raises:
            ConfigurationError: It runs already, or has nothing to run.
            ClientClosed: The client isn't open, or was closed.
            SingletonHeld: Another worker has the name that only one may have (`singleton=`), also after a while.
            StoreIncompatible: The database's schema doesn't fit this code.
        """
        await self._live(once=False)

    async def run_once(self) -> OnceResult:
        """Run what is due, and what becomes due at once through that; then return.

        Returns:
            How many attempts ended in which way.

        Raises:
            AioqueueError: As `run`.
        """
        written = await self._live(once=True)
        return OnceResult(
            completed=written.get(SettlementKind.COMPLETED, 0),
            continued=written.get(SettlementKind.CONTINUED, 0),
            failed=written.get(SettlementKind.FAILED, 0),
            retried=written.get(SettlementKind.RETRIED, 0),
            cancelled=written.get(SettlementKind.CANCELLED, 0),
            rescheduled=written.get(SettlementKind.RESCHEDULED, 0),
        )

    def stop(self, *, force: bool = False) -> None:
        """Claim nothing more, let running jobs finish within the grace, then cancel them and give them back.

        May be called at any time in the event loop, and again; also before `run`, which ends at once then. What is given
        back has used no attempt. What doesn't stop within 5 s after it was cancelled is named in the log and left behind,
        still running: its claim is neither written nor given back, so that another worker runs the job when the lease has
        lapsed.

        Arguments:
            force: Cancel and give back at once, and leave behind what doesn't stop within half a second.
        """
        self._stop_asked = True
        self._force_asked |= force
        if self._run is not None:
            self._run.stop(force=force)

    async def __aenter__(self) -> Self:
        self._refuse_running()
        self._started = asyncio.get_running_loop().create_future()
        # From an empty context: whoever starts the worker, such as a request, would live on in it and in its jobs.
        context = contextvars.Context()
        self._task = asyncio.get_running_loop().create_task(self.run(), name=f"aioqueue worker {self.name}", context=context)
        self._task.add_done_callback(self._crashed, context=contextvars.Context())
        try:
            await asyncio.wait([self._started, self._task], return_when=asyncio.FIRST_COMPLETED)
            if self._task.done():
                self._task.result()
        except BaseException:
            self._task.cancel()
            with suppress(AioqueueError):
                await finish(self._task)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        assert task is not None
        try:
            if not task.done():
                self.stop()
                await asyncio.wait([task])
        except asyncio.CancelledError:
            self.stop(force=True)
            await finish(task)
            raise
        finally:
            self._stop_asked = self._force_asked = False  # was meant for this run
        if not task.cancelled():
            task.result()

    def _crashed(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error(
                "worker %s has ended: %s",
                one_line(self.name),
                one_line(repr(error)),
                extra=event("worker.crashed", worker=self.name),
            )

    def health(self) -> Health:
        """What it is doing at the moment. May be called from any thread."""
        run = self._run
        if run is None:
            return Health(
                running=False,
                stopping=self._stop_asked,
                lease_valid=False,
                busy=0,
                concurrency=self.settings.concurrency,
                troubles=dict(self._troubles.current),
            )
        last = run.loop.last_claim
        return Health(
            running=True,
            stopping=run.loop.stopping,
            lease_valid=run.leases.valid,
            standing_by=run.standby.told,
            busy=len(run.holdings.running),
            concurrency=self.settings.concurrency,
            unwritten=run.holdings.unwritten,
            last_claim=None if last is None else time.monotonic() - last,
            troubles={**self._client.store.troubles, **self._troubles.current},
            late=run.holdings.late_attempts(),
        )

    # -- one run ------------------------------------------------------------------------------------------------------

    def _refuse_running(self) -> None:
        if self._run is not None or (self._task is not None and not self._task.done()):
            raise ConfigurationError(f"the worker {self.name} runs already: make another to have two")

    async def _live(self, *, once: bool) -> dict[SettlementKind, int]:
        if self._run is not None:
            raise ConfigurationError(f"the worker {self.name} runs already: make another to have two")
        if once and self.settings.standby:
            raise ConfigurationError(
                "standby waits for as long as it takes, and once runs what is due now: choose one, or wait"
            )
        run: Run | None = None
        try:
            run = self._run = self._made()
            if self._stop_asked:
                run.stop(force=self._force_asked)
            with serving(self.settings.metrics_port, self.settings.metrics_host), run.view.shown(), run.subscribed():
                working = WatchfulTask(
                    self._work(run, once=once),
                    name="aioqueue worker's loop",
                    context=contextvars.Context(),
                    cancelled=run.interruptions.look_for_an_exit,
                )
                await self._until_ended(run, working)
            if working.done() and not working.cancelled():
                working.result()
            return run.writer.written
        finally:
            if run is not None:
                run.shutdown.let_go()
                self._left_behind, self._had_name = run.shutdown.left_behind, run.standby.had_it
                self._log_end(run)
            self._run = None
            self._stop_asked = self._force_asked = False

    def _log_end(self, run: Run) -> None:
        level = logging.WARNING if self._left_behind else logging.INFO
        logger.log(
            level,
            "worker %s has ended: %s",
            one_line(self.name),
            shown_ends(run.writer.written, run.writer.interrupted, self._left_behind),
            extra=event("worker.ended", worker=self.name, left_behind=self._left_behind),
        )

    def _made(self) -> Run:
        self._client.check_open()
        forget_dead()
        hook_exception_handler(asyncio.get_running_loop())
        self._troubles = Troubles(self.name, self._client.observers)
        self._left_behind = 0
        return Run(
            self._client,
            self._registry,
            claimed_types(self._registry, self.settings.types, dry_run=self.settings.dry_run),
            self.settings,
            self.name,
            self._troubles,
            self._resources,
            self.health,
            self._on_purge,
        )

    async def _until_ended(self, run: Run, working: asyncio.Task[None]) -> None:
        try:
            await run.shutdown.loop_ended(working)
            if working.done() and not working.cancelled() and isinstance(working.exception(), ClientClosed):
                run.stop(force=True)  # nothing that still runs could be written
        except asyncio.CancelledError:
            run.stop(force=True)
            raise
        finally:
            await self._close(run, working)

    async def _work(self, run: Run, *, once: bool) -> None:
        await run.start(self._began)
        await run.work(once=once)

    async def _close(self, run: Run, working: asyncio.Task[None]) -> None:
        """Shut down to the end, whatever is cancelled: the event loop's end cancels every task, also the one that does it."""
        cancelled: asyncio.CancelledError | None = None
        while not run.shutdown.over:
            closing = asyncio.get_running_loop().create_task(
                run.close(working), name="aioqueue worker's end", context=contextvars.Context()
            )
            try:
                await asyncio.wait([closing])
            except asyncio.CancelledError as error:
                cancelled = error
            if cancelled is not None or closing.cancelled():
                run.stop(force=True)
            try:
                await finish(closing)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def _began(self) -> None:
        if self._started is not None and not self._started.done():
            self._started.set_result(None)
