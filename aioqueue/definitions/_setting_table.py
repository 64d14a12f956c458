"""Every setting, defined once.

Keyword arguments and variables are read by it, the command line's options are made of it, and so is the table in
docs/configuration.md (`python -m tests.docs.settings_page` writes it there).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.definitions._environment import DEFAULT_URL
from aioqueue.definitions._setting_kinds import Choice, Duration, Names, Setting, Text, Visible, WholeNumber, YesNo
from aioqueue.definitions._webhook_kinds import Receivers, Secrets, WebhookURL
from aioqueue.vocabulary._retry import MOST_ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "APP_DIR",
    "BLOCKED_AFTER",
    "CLOSE_TIMEOUT",
    "CONCURRENCY",
    "DRY_RUN",
    "GRACE",
    "LEASE",
    "LOG_FORMAT",
    "LOG_LEVEL",
    "MAX_ATTEMPTS",
    "MAX_RESCHEDULES",
    "METRICS_HOST",
    "METRICS_PORT",
    "NAME",
    "ONCE",
    "PAUSE_BETWEEN",
    "POLL_INTERVAL",
    "RELEASE",
    "RELOAD",
    "RENEW_EVERY",
    "RETENTION_COMPLETED",
    "RETENTION_FAILED",
    "RETENTION_INTERVAL",
    "RETRY_FOR",
    "SETTINGS",
    "SHORTEST_LEASE_SECONDS",
    "SINGLETON",
    "STANDBY",
    "TRACE_LINKS",
    "TRACING",
    "TYPES",
    "UNCOMMITTED_GRACE",
    "URL",
    "UVLOOP",
    "WAIT",
    "WEBHOOK",
    "WEBHOOK_ALLOW",
    "WEBHOOK_SECRET",
]

SHORTEST_LEASE_SECONDS = 1.0
"""Seconds: renewals of a shorter one would be late whenever the machine is busy."""

_SHORTEST_POLL_SECONDS = 0.01
_MOST_CONCURRENT_JOBS = 10_000
_MOST_RESCHEDULES = 2**31 - 1
_LONGEST_NAME_CHARACTERS = 200
_LATEST_RELEASE = 2**63 - 1

_WORKER, _BOTH, _CLIENT, _COMMAND_LINE = ("Worker",), ("Worker", "Client"), ("Client",), ()

_WHERE, _WHAT, _ENDS = "Where things are", "What runs, and how often", "When a worker stops or dies"
_KEPT, _SINGLE = "What is kept", "One worker at a time"
_SEEN, _CLIENTS, _PROCESS = "What is seen of it", "Enqueueing and results", "The process"
_WEBHOOKS = "Webhooks"

URL = Setting(
    "url",
    Text(),
    DEFAULT_URL,
    "The database. A password is better given by the variable.",
    _CLIENT,
    _WHERE,
    more="`Client(url)` is the same; a pool or a store may stand there, too.",
)
APP_DIR: Setting[str | None] = Setting(
    "app_dir",
    Text("FOLDER"),
    None,
    "Where the module with the registry lies; it's appended to the import path.",
    _COMMAND_LINE,
    _WHERE,
    "the working folder",
)
TYPES: Setting[tuple[str, ...] | None] = Setting(
    "types",
    Names(),
    None,
    "Only these job types, separated by commas. The option may be repeated.",
    _WORKER,
    _WHAT,
    "all of the registry",
)
ONCE = Setting(
    "once",
    YesNo(pair=False),
    default=False,
    what="Work off what is due, and exit: 0, or 3 if some failed.",
    of=_COMMAND_LINE,
    group=_WHAT,
    more="In a program: `run_once()`.",
)
CONCURRENCY = Setting("concurrency", WholeNumber(1, _MOST_CONCURRENT_JOBS), 10, "Jobs at once.", _WORKER, _WHAT)
POLL_INTERVAL = Setting(
    "poll_interval",
    Duration(least=_SHORTEST_POLL_SECONDS),
    5.0,
    "How often the database is asked when no notification comes: for jobs by a worker, for results by who waits for them.",
    _BOTH,
    _WHAT,
    more="A worker varies it by ±10 %.",
)
MAX_ATTEMPTS = Setting(
    "max_attempts",
    WholeNumber(1, MOST_ATTEMPTS),
    10,
    "For jobs without a retry policy of their own.",
    _WORKER,
    _WHAT,
    more="`default_retry=` gives a whole policy in place of it.",
)
MAX_RESCHEDULES = Setting(
    "max_reschedules", WholeNumber(0, _MOST_RESCHEDULES), 1000, "How often one job may put itself off.", _WORKER, _WHAT
)
RELEASE: Setting[int | None] = Setting(
    "release",
    WholeNumber(0, _LATEST_RELEASE, metavar="NUMBER"),
    None,
    "The number of this version of the code: of several that live workers have, the schedules of the highest one count.",
    _WORKER,
    _WHAT,
    "none: the newest definitions that live workers have",
)
PAUSE_BETWEEN = Setting(
    "pause_between", Duration(), 0.0, "How long a slot rests after each job: to be gentle.", _WORKER, _WHAT, "none"
)
DRY_RUN = Setting(
    "dry_run",
    YesNo(pair=False),
    default=False,
    what="Only try jobs out: those of types that are declared dry_run=True.",
    of=_WORKER,
    group=_WHAT,
    more="See [dry runs](how-to/dry-runs.md).",
)
SINGLETON: Setting[str | None] = Setting(
    "singleton",
    Visible("NAME", _LONGEST_NAME_CHARACTERS),
    None,
    "Of all workers with this name one works at a time, on whichever machine.",
    _WORKER,
    _SINGLE,
    "none",
    "See [single workers](how-to/single-workers.md).",
)
_IF_HELD = "If another worker has the name"
WAIT = Setting(
    "wait", YesNo(pair=False), default=False, what=f"{_IF_HELD}, first wait for one lease.", of=_WORKER, group=_SINGLE
)
STANDBY = Setting(
    "standby", YesNo(pair=False), default=False, what=f"{_IF_HELD}, take over when it ends or dies.", of=_WORKER, group=_SINGLE
)
GRACE = Setting("grace", Duration(), 30.0, "For running jobs at shutdown, until they're cancelled.", _WORKER, _ENDS)
LEASE = Setting(
    "lease",
    Duration(least=SHORTEST_LEASE_SECONDS),
    60.0,
    "How long a lease lives without being renewed, and so how long a killed worker's jobs wait.",
    _WORKER,
    _ENDS,
    more="At least 1 s.",
)
RENEW_EVERY: Setting[float | None] = Setting(
    "renew_every",
    Duration(),
    None,
    "How often leases are renewed; at most half of the lease.",
    _WORKER,
    _ENDS,
    "a third of the lease",
    "See below.",
)
RETENTION_COMPLETED = Setting(
    "retention_completed",
    Duration(),
    7 * 86_400.0,
    "How long completed jobs are kept that don't say so themselves (keep=); 0 for ever.",
    _WORKER,
    _KEPT,
    "7 days",
    "See [retention](how-to/retention.md).",
)
RETENTION_FAILED = Setting(
    "retention_failed",
    Duration(),
    30 * 86_400.0,
    "The same for failed and cancelled jobs.",
    _WORKER,
    _KEPT,
    "30 days",
)
RETENTION_INTERVAL = Setting(
    "retention_interval",
    Duration(),
    60.0,
    "How often old jobs are looked for; 0 for never: then this worker removes nothing.",
    _WORKER,
    _KEPT,
)
NAME: Setting[str | None] = Setting(
    "name", Text(), None, "The worker's, in logs and listings.", _WORKER, _SEEN, "host and process id"
)
BLOCKED_AFTER = Setting(
    "blocked_after",
    Duration(),
    5.0,
    "The log names the job that blocks the event loop for longer, and its code; 0 for never.",
    _WORKER,
    _SEEN,
)
METRICS_PORT: Setting[int | None] = Setting(
    "metrics_port",
    WholeNumber(0, 65_535, metavar="PORT"),
    None,
    "Where /metrics, /healthz and /readyz are served; 0 for a port that is free.",
    _WORKER,
    _SEEN,
    "none",
    "See [metrics and health](how-to/metrics.md).",
)
METRICS_HOST = Setting(
    "metrics_host",
    Text("ADDRESS"),
    "127.0.0.1",
    "The address for that; 0.0.0.0 in a container.",
    _WORKER,
    _SEEN,
)
TRACING = Setting(
    "tracing",
    YesNo(),
    default=True,
    what="Spans, where an SDK for OpenTelemetry is configured.",
    of=_BOTH,
    group=_SEEN,
    more="See [observability](how-to/observability.md).",
)
TRACE_LINKS = Setting(
    "trace_links",
    YesNo(),
    default=False,
    what="Link the spans of first attempts to their producers', in place of making them children.",
    of=_WORKER,
    group=_SEEN,
)
LOG_LEVEL = Setting(
    "log_level",
    Choice("debug", "info", "warning", "error", "critical", metavar="LEVEL"),
    "info",
    "What is logged at least: debug, info, warning, error or critical.",
    _COMMAND_LINE,
    _SEEN,
    "info, for other commands warning or critical",
)
LOG_FORMAT = Setting(
    "log_format",
    Choice("text", "json", metavar="FORMAT"),
    "text",
    "Either text, for people, or json: one object a line.",
    _COMMAND_LINE,
    _SEEN,
    more="See [logging](how-to/logging.md).",
)
RETRY_FOR = Setting(
    "retry_for",
    Duration(),
    10.0,
    "How long an enqueue goes on trying while the database is away, or an open transaction holds its unique key.",
    _CLIENT,
    _CLIENTS,
    more="Outside of transactions.",
)
UNCOMMITTED_GRACE = Setting(
    "uncommitted_grace",
    Duration(),
    30.0,
    "How long a result is waited for before a job that was enqueued in a transaction must be there.",
    _CLIENT,
    _CLIENTS,
)
CLOSE_TIMEOUT = Setting(
    "close_timeout",
    Duration(positive=True),
    10.0,
    "How long closing the client may take.",
    _CLIENT,
    _CLIENTS,
    "10 s; 5 s in aioqueue worker",
)
WEBHOOK: Setting[str | None] = Setting(
    "webhook",
    WebhookURL(),
    None,
    "The URL that is told when a job that is enqueued has ended, if its call names none.",
    _CLIENT,
    _WEBHOOKS,
    "none",
    "See [webhooks](how-to/webhooks.md).",
)
WEBHOOK_SECRET: Setting[tuple[str, ...] | None] = Setting(
    "webhook_secret",
    Secrets(),
    None,
    "What webhooks are signed with: a worker that has one sends them. Several are separated by spaces, the newest first.",
    _WORKER,
    _WEBHOOKS,
    "none: it sends none",
    "`aioqueue webhooks secret` makes one.",
    option=False,
)
WEBHOOK_ALLOW: Setting[tuple[str, ...]] = Setting(
    "webhook_allow",
    Receivers(),
    (),
    "Networks and hosts that webhooks may reach though their addresses aren't public, separated by commas.",
    _WORKER,
    _WEBHOOKS,
    "none",
)
RELOAD = Setting(
    "reload",
    YesNo(pair=False),
    default=False,
    what="For development: start anew when Python files in the app's folder change.",
    of=_COMMAND_LINE,
    group=_PROCESS,
    more="See [reload](cli.md#-reload).",
)
UVLOOP: Setting[bool | None] = Setting(
    "uvloop", YesNo(), None, "Whether the event loop is uvloop's.", _COMMAND_LINE, _PROCESS, "on, if it's installed"
)

SETTINGS: Sequence[Setting[Any]] = (
    URL,
    APP_DIR,
    TYPES,
    ONCE,
    CONCURRENCY,
    POLL_INTERVAL,
    MAX_ATTEMPTS,
    MAX_RESCHEDULES,
    RELEASE,
    PAUSE_BETWEEN,
    DRY_RUN,
    SINGLETON,
    WAIT,
    STANDBY,
    GRACE,
    LEASE,
    RENEW_EVERY,
    RETENTION_COMPLETED,
    RETENTION_FAILED,
    RETENTION_INTERVAL,
    NAME,
    BLOCKED_AFTER,
    METRICS_PORT,
    METRICS_HOST,
    TRACING,
    TRACE_LINKS,
    LOG_LEVEL,
    LOG_FORMAT,
    RETRY_FOR,
    UNCOMMITTED_GRACE,
    CLOSE_TIMEOUT,
    WEBHOOK,
    WEBHOOK_SECRET,
    WEBHOOK_ALLOW,
    RELOAD,
    UVLOOP,
)
"""All of them, in the order in which the page and the help have them."""
