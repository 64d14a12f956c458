"""What may stand in a job's `trace`: a short text. Whatever else somebody has written there is none, and harms nothing."""

from __future__ import annotations

__all__ = ["LONGEST_TRACE", "stored_trace"]

LONGEST_TRACE = 1024
"""Characters: a W3C trace context has at most 55 in `traceparent`, and should have at most 512 in `tracestate`."""


def stored_trace(value: object) -> str | None:
    """What counts of a trace context, when it's written and when it's read.

    Arguments:
        value: What is to be stored, or what was found.

    Returns:
        The text; None where it's something else, longer, or has letters that no W3C header has.
    """
    if isinstance(value, str) and 0 < len(value) <= LONGEST_TRACE and value.isascii() and value.isprintable():
        return value
    return None
