"""The spans of one client or worker: `send {type}`, `process {type}` and `settle`, by OpenTelemetry's messaging conventions.

They're made only where an SDK is configured. Nothing of this raises: what a sampler, a processor or an exporter does wrong
costs its span, and no job. No span is made current with a token that would have to be given back: a coroutine may be ended in
another context than the one in which it began, and OpenTelemetry would log that it failed to detach.
"""

from __future__ import annotations

import logging
import os
import threading
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from opentelemetry import context, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from aioqueue.runtime._log import event
from aioqueue.telemetry._providers import log_broken, meter_provider, tracer_provider
from aioqueue.telemetry._trace_context import read_trace, write_trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from opentelemetry.trace import Span, Tracer
    from opentelemetry.util.types import AttributeValue

    from aioqueue.telemetry._counters import UniqueOutcome
    from aioqueue.vocabulary._job import AttemptError, ClaimedJob
    from aioqueue.vocabulary._webhooks import Delivery

__all__ = ["ProcessSpan", "SendSpan", "SettleSpan", "Tracing", "WebhookSpan", "flush_telemetry"]

logger = logging.getLogger("aioqueue.telemetry")

# Literal, since the conventions' module for messaging is an incubating one, whose names may change.
_SYSTEM = {"messaging.system": "aioqueue"}
_SEND: dict[str, AttributeValue] = {**_SYSTEM, "messaging.operation.name": "send", "messaging.operation.type": "send"}
_PROCESS: dict[str, AttributeValue] = {**_SYSTEM, "messaging.operation.name": "process", "messaging.operation.type": "process"}
_SETTLE: dict[str, AttributeValue] = {**_SYSTEM, "messaging.operation.name": "settle", "messaging.operation.type": "settle"}

_MOST_STEPS_IN_A_TRACE = 50
"""A chain can go on for ever, and a trace has to end."""

_MOST_BLOCKERS_NAMED = 20
"""Of the chains that a job has waited for."""

_NO_CONTEXT = context.Context()
_UNKNOWN = object()
_NONE = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)


def _version() -> str | None:
    try:
        return version("aioqueue-jobs")
    except PackageNotFoundError:  # run from its source, without being installed
        return None


class Tracing:
    """Makes spans, if there is somebody who takes them. Each client and each worker has one.

    Arguments:
        on: False never makes any. Nor does `OTEL_SDK_DISABLED=true`.
        client_id: The worker's name, for its spans.
        links: Whether a first attempt is linked to its producer's span, in place of being its child.
    """

    def __init__(self, *, on: bool, client_id: str | None = None, links: bool = False) -> None:
        self._on = on and os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() != "true"
        self._links = links
        own: dict[str, AttributeValue] = {} if client_id is None else {"messaging.client.id": client_id}
        self._process = {**_PROCESS, **own}
        self._settle = {**_SETTLE, **own}
        if self._on:
            tracer_provider()  # one that a variable names is made at its first use
        self._seen: object = None
        self._tracer: Tracer | None = None

    def tracer(self) -> Tracer | None:
        """What makes spans now; None where nobody would take them. Asked once for each call or batch: it's cheap."""
        if not self._on:
            return None
        # By the public function, which looks into the environment, each call would cost 1.5 µs where there's no SDK.
        found: object = getattr(trace, "_TRACER_PROVIDER", _UNKNOWN)
        if found is None:
            return None
        if found is _UNKNOWN:  # an API that has no such variable
            found = tracer_provider()
        if found is not self._seen:
            self._seen = found
            self._tracer = _made(tracer_provider())
        return self._tracer

    def send(self, tracer: Tracer, types: Sequence[str], *, count: int | None = None) -> SendSpan | None:
        """Begin the span of one call of `enqueue` or `enqueue_many`, within whatever the caller's task is in.

        Arguments:
            tracer: From `tracer`.
            types: Of the jobs, each once.
            count: How many they are, for `enqueue_many`.
        """
        attributes = dict(_SEND)
        name = "send"
        if len(types) == 1:
            name = f"send {types[0]}"
            attributes["messaging.destination.name"] = types[0]
        if count is not None:
            attributes["messaging.batch.message_count"] = count
        span = _started(tracer, name, SpanKind.PRODUCER, attributes)
        return None if span is None else SendSpan(span)

    def send_jobs(self, types: Sequence[str]) -> SendSpan | None:
        """Begin the span of enqueueing jobs of these types, one name for each, if somebody takes it."""
        if (tracer := self.tracer()) is None:
            return None
        return self.send(tracer, list(dict.fromkeys(types)), count=None if len(types) == 1 else len(types))

    def process(self, tracer: Tracer, job: ClaimedJob) -> ProcessSpan | None:
        """Begin the span of one attempt, in the attempt's own task, whose context it's current in from now on.

        A first attempt is a child of the span that has enqueued the job, or of the attempt that its chain goes on from, unless
        what is stored says that it's only linked to that. Whatever comes later has a trace of its own, with a
        link: a job may be tried again days later, and a trace has to end.

        Arguments:
            tracer: From `tracer`.
            job: The attempt's.
        """
        attributes: dict[str, AttributeValue] = {
            **self._process,
            "messaging.destination.name": job.type,
            "messaging.message.id": str(job.id),
            "messaging.message.conversation_id": str(job.chain_id),
            "aioqueue.attempt": job.attempt,
            "aioqueue.delay": max(0.0, (job.started_at - job.run_at).total_seconds()),
        }
        if job.blockers:
            attributes["aioqueue.blockers"] = [str(each.chain_id) for each in job.blockers[:_MOST_BLOCKERS_NAMED]]
        if (origin := job.origin) is not None:
            attributes |= {f"aioqueue.{name}": str(value) for name, value in origin.fields.items() if name != "dry_run"}
            if origin.dry_run:
                attributes["aioqueue.dry_run"] = True
        parent, links = _NO_CONTEXT, list[Link]()
        producer = read_trace(job.trace)
        if producer is not None:
            if job.claims == 1 and not (self._links or producer.link):
                parent = trace.set_span_in_context(trace.NonRecordingSpan(producer.context), _NO_CONTEXT)
            else:
                links.append(Link(producer.context))
        span = _started(tracer, f"process {job.type}", SpanKind.CONSUMER, attributes, parent, links)
        if span is None:
            return None
        # Each attempt's task has a fresh context, which ends with it.
        context.attach(trace.set_span_in_context(span))
        return ProcessSpan(span)

    def settle(self, count: int) -> SettleSpan | None:
        """Begin the span of writing outcomes, as many as there are."""
        if (tracer := self.tracer()) is None:
            return None
        attributes = {**self._settle, "messaging.batch.message_count": count}
        span = _started(tracer, "settle", SpanKind.CLIENT, attributes, _NO_CONTEXT)
        return None if span is None else SettleSpan(span)

    def webhook(self, delivery: Delivery, host: str) -> WebhookSpan | None:
        """Begin the span of one try to send a webhook: a trace of its own, with nothing of the URL but the host."""
        if (tracer := self.tracer()) is None:
            return None
        attributes: dict[str, AttributeValue] = {
            "http.request.method": "POST",
            "server.address": host,
            "messaging.message.id": str(delivery.job_id),
            "messaging.message.conversation_id": str(delivery.chain_id),
            "aioqueue.webhook.id": str(delivery.id),
            "aioqueue.webhook.event": delivery.event,
            "http.request.resend_count": delivery.tries - 1,
        }
        span = _started(tracer, "webhook", SpanKind.CLIENT, attributes, _NO_CONTEXT)
        return None if span is None else WebhookSpan(span)


class _OpenSpan:
    """A span that is ended once, whoever says so first."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span: Span | None = span

    def _end(self, attributes: Mapping[str, AttributeValue], failed: tuple[str, str] | None) -> None:
        """End it: with these attributes, and, if something has failed, its type and description."""
        span, self._span = self._span, None
        if span is None:
            return
        try:
            span.set_attributes(attributes)
            if failed is not None:
                span.set_attribute("error.type", failed[0])
                span.set_status(Status(StatusCode.ERROR, failed[1]))
            span.end()
        except Exception as error:  # noqa: BLE001 - logged: a processor of the user's may raise
            log_broken(error)

    def _trace(self, *, link: bool = False) -> str | None:
        """What is stored with jobs that come from it."""
        if self._span is None:
            return None
        try:
            return write_trace(self._span, link=link)
        except Exception as error:  # noqa: BLE001 - logged: a span of the user's SDK may raise
            log_broken(error)
            return None


class SendSpan(_OpenSpan):
    """The span of one enqueueing, from its call until its commit."""

    __slots__ = ()

    @property
    def trace(self) -> str | None:
        """What is stored with its jobs."""
        return self._trace()

    def stored_as(self, chain_id: UUID) -> None:
        """Say which job it is, if it's one, and so its chain: the unfinished one, where a unique key is taken."""
        if self._span is None:
            return
        shown = str(chain_id)
        try:
            self._span.set_attributes({"messaging.message.id": shown, "messaging.message.conversation_id": shown})
        except Exception as error:  # noqa: BLE001 - logged, as above
            log_broken(error)

    def unique(self, outcomes: Mapping[UniqueOutcome, int], *, one: bool) -> None:
        """Say what became of calls with a unique key or a chosen id.

        Arguments:
            outcomes: How many there are of each.
            one: Whether it's the span of one call, and not of several.
        """
        if self._span is None:
            return
        attributes: dict[str, AttributeValue] = {}
        for outcome, count in outcomes.items():
            if one:
                attributes["aioqueue.unique.outcome"] = outcome.value
            else:
                attributes[f"aioqueue.unique.{outcome.value}"] = count
        try:
            self._span.set_attributes(attributes)
        except Exception as error:  # noqa: BLE001 - logged, as above
            log_broken(error)

    def sent(self) -> None:
        """The jobs are stored, and committed if the transaction is ours."""
        self._end({}, None)

    def failed(self, error: BaseException) -> None:
        """Nothing was stored, or nobody knows: the error says so."""
        self._end({}, (type(error).__qualname__, ""))

    def not_committed(self, why: str) -> None:
        """The transaction was rolled back (`rolled_back`), or its commit is unclear (`unclear`)."""
        self._end({}, (why, ""))


class ProcessSpan(_OpenSpan):
    """The span of one attempt."""

    __slots__ = ()

    def next_trace(self, job: ClaimedJob, next_type: str) -> str | None:
        """What is stored with the job with which the attempt's chain goes on: it's a child of this attempt.

        A job type that loops, and a chain that has become long, begins a trace of its own there, with a link.

        Arguments:
            job: The attempt's.
            next_type: The name of the next job's type.
        """
        return self._trace(link=next_type == job.type or (job.position + 1) % _MOST_STEPS_IN_A_TRACE == 0)

    def event(self, name: str, attributes: Mapping[str, AttributeValue]) -> None:
        """Note that something has happened in the attempt."""
        if self._span is not None:
            try:
                self._span.add_event(name, attributes)
            except Exception as wrong:  # noqa: BLE001 - logged: a span of the user's SDK may raise
                log_broken(wrong)

    def end(self, outcome: str, error: AttemptError | None = None, *, succeeded: bool, reason: str = "") -> None:
        """End it.

        Arguments:
            outcome: What became of the attempt.
            error: As the job's history has it, if something was raised: it's recorded here once, as it's stored.
            succeeded: Whether the attempt did what it was to do; otherwise the span's status is an error.
            reason: Why it didn't, where nothing was raised.
        """
        span = self._span
        if span is None:
            return
        if error is not None:
            exception: dict[str, Any] = {"exception.type": error.type}
            if error.message:
                exception["exception.message"] = error.message
            if error.traceback:
                exception["exception.stacktrace"] = error.traceback
            try:
                span.add_event("exception", exception)
            except Exception as wrong:  # noqa: BLE001 - logged, as above
                log_broken(wrong)
        failed = None if succeeded else (outcome, reason) if error is None else (error.type, str(error))
        self._end({"aioqueue.outcome": outcome}, failed)


class SettleSpan(_OpenSpan):
    """The span of one batch of outcomes that is written."""

    __slots__ = ()

    def end(self, error: BaseException | None = None) -> None:
        """End it: with what was raised, if something was."""
        self._end({}, None if error is None else (type(error).__qualname__, ""))


class WebhookSpan(_OpenSpan):
    """The span of one try to send a webhook."""

    __slots__ = ()

    def end(self, status: int | None, *, delivered: bool) -> None:
        """End it: with the receiver's status, if there is one."""
        answer: dict[str, AttributeValue] = {} if status is None else {"http.response.status_code": status}
        self._end(answer, None if delivered else ("no_answer" if status is None else str(status), ""))


def _made(provider: trace.TracerProvider | None) -> Tracer | None:
    if provider is None or isinstance(provider, _NONE):
        return None
    try:
        return provider.get_tracer("aioqueue", _version())
    except Exception as error:  # noqa: BLE001 - logged: a provider of the user's may raise
        log_broken(error)
        return None


def _started(
    tracer: Tracer,
    name: str,
    kind: SpanKind,
    attributes: Mapping[str, AttributeValue],
    parent: context.Context | None = None,
    links: Sequence[Link] = (),
) -> Span | None:
    try:
        return tracer.start_span(
            name, parent, kind=kind, attributes=attributes, links=links, record_exception=False, set_status_on_exception=False
        )
    except Exception as error:  # noqa: BLE001 - logged: a sampler or processor of the user's may raise
        log_broken(error)
        return None


def flush_telemetry(seconds: float) -> bool:
    """Have what was recorded sent, before the process ends, for at most so long: an SDK's own limits aren't always kept.

    The thread in which it's done is left behind if it takes longer.

    Returns:
        Whether it was done in time.
    """
    providers = [tracer_provider(), meter_provider()]
    flushes = [flush for each in providers if callable(flush := getattr(each, "force_flush", None))]
    if not flushes:
        return True

    def flush_all() -> None:
        for flush in flushes:
            try:
                flush(int(seconds * 1000))
            except Exception as error:  # noqa: BLE001 - logged: an exporter of the user's may raise
                what = type(error).__name__
                logger.warning("what was recorded couldn't be sent: %s", what, extra=event("telemetry.not_sent"))

    thread = threading.Thread(target=flush_all, name="aioqueue flush of telemetry", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()
