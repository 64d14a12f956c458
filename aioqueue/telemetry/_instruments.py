"""The same metrics on OpenTelemetry's meter provider, for programs that have set one.

Counters and gauges are observable instruments over what is counted anyway. OpenTelemetry has no observable histograms, and to
record a value costs some microseconds: that's done only if there is a provider other than the API's own when a worker starts.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from opentelemetry.metrics import Observation

from aioqueue.telemetry._counters import DELAY_BOUNDS_SECONDS, DURATION_BOUNDS_SECONDS
from aioqueue.telemetry._metrics import DELAY, DURATION, METRICS, TICK_DELAY, Kind, Metric, read
from aioqueue.telemetry._providers import log_broken_meter, meter_provider
from aioqueue.telemetry._views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opentelemetry.metrics import CallbackOptions, MeterProvider

    from aioqueue.telemetry._counters import Recorder, Recorders

__all__ = ["instrument", "recorders"]


@functools.cache
def instrument() -> None:
    """Make the observable instruments, once in the process: a provider that is set later gets them too."""
    if (provider := meter_provider()) is None:
        return
    try:
        _instrument(provider)
    except Exception as error:  # noqa: BLE001 - logged: a provider of the user's may raise
        log_broken_meter(error)


def _instrument(provider: MeterProvider) -> None:
    meter = provider.get_meter("aioqueue")
    for metric in METRICS:
        callbacks = [functools.partial(_observe, metric)]
        if metric.kind is Kind.COUNTER:
            meter.create_observable_counter(metric.name, callbacks, metric.unit, metric.help)
        elif metric.kind is Kind.GAUGE:
            meter.create_observable_gauge(metric.name, callbacks, metric.unit, metric.help)


def recorders() -> Recorders | None:
    """What records durations and delays of a type, and delays of ticks; nothing where nobody has set a meter provider."""
    provider = meter_provider()
    if provider is None or type(provider).__module__.startswith("opentelemetry.metrics"):  # the API's own, which does nothing
        return None
    try:
        return (
            _recorder(provider, DURATION, DURATION_BOUNDS_SECONDS),
            _recorder(provider, DELAY, DELAY_BOUNDS_SECONDS),
            _recorder(provider, TICK_DELAY, DELAY_BOUNDS_SECONDS),
        )
    except Exception as error:  # noqa: BLE001 - logged, as above
        log_broken_meter(error)
        return None


def _recorder(provider: MeterProvider, metric: Metric, bounds: tuple[float, ...]) -> Recorder:
    histogram = provider.get_meter("aioqueue").create_histogram(
        metric.name, metric.unit, metric.help, explicit_bucket_boundaries_advisory=bounds
    )

    def record(label: str, value: float) -> None:
        try:
            histogram.record(value, {"type": label} if metric.labels else {})
        except Exception as error:  # noqa: BLE001 - logged: a reader or view of the user's may raise; it costs no job
            log_broken_meter(error)

    return record


def _observe(metric: Metric, _: CallbackOptions) -> Iterable[Observation]:
    for view in VIEWS.all():
        view.want_figures()
        view.watch.ask()
    for labels, value in read()[metric].items():
        if isinstance(value, (int, float)):
            yield Observation(value, dict(zip(metric.labels, labels, strict=True)))
