"""The metrics as Prometheus reads them: its text format, version 0.0.4.

Written here, and not by a library, since it's a page: so `/metrics` needs nothing else installed, and neither the program's own
meter provider nor `OTEL_SDK_DISABLED` can empty it.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from aioqueue.telemetry._counters import Histogram
from aioqueue.telemetry._metrics import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioqueue.telemetry._metrics import Metric, Values

__all__ = ["CONTENT_TYPE", "exposition"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def exposition() -> bytes:
    """All metrics at the moment. Each is announced, also one that has no number yet."""
    lines = itertools.chain.from_iterable(_lines(metric, values) for metric, values in read().items())
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _lines(metric: Metric, values: Values) -> Iterator[str]:
    name = metric.prometheus_name
    yield f"# HELP {name} {metric.help}"
    yield f"# TYPE {name} {metric.kind.value}"
    for labels, value in values.items():
        pairs = [f'{label}="{text.translate(_ESCAPES)}"' for label, text in zip(metric.labels, labels, strict=True)]
        if isinstance(value, Histogram):
            yield from _buckets(name, pairs, value)
        else:
            yield f"{name}{_braces(pairs)} {value!r}"


def _buckets(name: str, pairs: list[str], histogram: Histogram) -> Iterator[str]:
    counts = list(histogram.counts)
    bounds = [*(repr(float(bound)) for bound in histogram.bounds), "+Inf"]
    for bound, count in zip(bounds, itertools.accumulate(counts), strict=True):
        le = f'le="{bound}"'
        yield f"{name}_bucket{_braces([*pairs, le])} {count}"
    yield f"{name}_sum{_braces(pairs)} {histogram.sum!r}"
    yield f"{name}_count{_braces(pairs)} {sum(counts)}"


def _braces(pairs: list[str]) -> str:
    return f"{{{','.join(pairs)}}}" if pairs else ""
