"""OpenTelemetry's providers, asked so that nothing is raised, and the log's line about an SDK that has failed."""

from __future__ import annotations

import logging
import threading
import time

from opentelemetry import metrics, trace

from aioqueue.runtime._log import event

__all__ = ["log_broken", "log_broken_meter", "meter_provider", "tracer_provider"]

logger = logging.getLogger("aioqueue.telemetry")

_TELL_EVERY_SECONDS = 60.0


class _Seldom:
    """Whether something may be told again: once a minute. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0.0

    def may_tell(self) -> bool:
        if not self._lock.acquire(blocking=False):
            return False  # somebody tells it just now
        try:
            now = time.monotonic()
            if now < self._next:
                return False
            self._next = now + _TELL_EVERY_SECONDS
            return True
        finally:
            self._lock.release()


_spans, _metrics = _Seldom(), _Seldom()


def tracer_provider() -> trace.TracerProvider | None:
    """The process's; None where it can't be made."""
    try:
        return trace.get_tracer_provider()
    except Exception as error:  # noqa: BLE001 - logged: a variable may name a provider that can't be made
        log_broken(error)
        return None


def meter_provider() -> metrics.MeterProvider | None:
    """The process's; None where it can't be made."""
    try:
        return metrics.get_meter_provider()
    except Exception as error:  # noqa: BLE001 - logged, as above
        log_broken_meter(error)
        return None


def log_broken(error: Exception) -> None:
    """Say that a span is lost, at most once a minute: an SDK that fails may fail at each job."""
    if _spans.may_tell():
        what = type(error).__name__
        logger.warning(
            "a span is lost, since the SDK for OpenTelemetry has failed: %s", what, extra=event("telemetry.span_lost")
        )


def log_broken_meter(error: Exception) -> None:
    """Say that metrics are lost, at most once a minute: a recorder that fails does so twice for each job."""
    if _metrics.may_tell():
        what = type(error).__name__
        logger.warning(
            "metrics are lost, since the SDK for OpenTelemetry has failed: %s", what, extra=event("telemetry.metrics_lost")
        )
