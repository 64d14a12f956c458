"""What `/healthz` and `/readyz` answer, and what is understood of a request; the port's threads call it."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from aioqueue.errors import ConfigurationError
from aioqueue.telemetry._views import VIEWS
from aioqueue.vocabulary._numbers import read_duration

__all__ = ["HEALTHY_WITHIN_SECONDS", "RefusedRequest", "health", "read_target", "readiness", "within_of"]

HEALTHY_WITHIN_SECONDS = 330.0
"""Within which an event loop has to have turned, for `/healthz`. Handlers may block it for 300 s until leases are left to
lapse: a process that is killed sooner would lose what it could still finish."""

_ANSWER_SECONDS = 0.25
"""That an event loop gets to show that it turns."""


class RefusedRequest(Exception):
    """The request isn't understood; the text says why."""


def read_target(target: str) -> tuple[str, dict[str, list[str]]]:
    """The path and the parameters; those of `/metrics` may be any, since Prometheus can be set to send some.

    Raises:
        RefusedRequest: It isn't a target, or has a parameter that there isn't: a typo would silently mean something else.
    """
    try:
        parts = urlsplit(target)
    except ValueError as error:
        raise RefusedRequest(str(error)) from None
    query = parse_qs(parts.query, keep_blank_values=True)
    unknown = query.keys() - ({"within"} if parts.path == "/healthz" else ())
    if unknown and parts.path in {"/healthz", "/readyz"}:
        raise RefusedRequest(f"{parts.path} has no parameter {min(unknown)!r}")
    return parts.path, query


def within_of(query: dict[str, list[str]]) -> float:
    """Seconds from `/healthz?within=`, or how many it is without it.

    Raises:
        RefusedRequest: It isn't a duration, or there are several.
    """
    match query.get("within", ()):
        case ():
            return HEALTHY_WITHIN_SECONDS
        case [text]:
            try:
                return read_duration(text, "within")
            except ConfigurationError as error:
                raise RefusedRequest(str(error)) from None
        case _:
            raise RefusedRequest("within is there more than once")


def health(within: float) -> tuple[int, object]:
    """Whether each worker's event loop has turned within so many seconds: without a worker there is none that is stuck.

    The clock begins with the first question that isn't answered, so it's to be asked now and then.
    """
    views = VIEWS.all()
    for view in views:
        view.watch.ask()
    longest = 0.0
    for view in views:
        view.watch.wait(_ANSWER_SECONDS)
        longest = max(longest, view.watch.lag())
    alive = longest <= within
    return 200 if alive else 503, {"alive": alive, "event_loop_lag_seconds": round(longest, 3), "within_seconds": within}


def readiness() -> tuple[int, object]:
    """Whether there is a worker, and each does its work."""
    found = [view.readiness() for view in VIEWS.all()]
    ready = bool(found) and not any(each.reasons for each in found)
    answer: dict[str, object] = {
        "ready": ready,
        "workers": [
            {"name": each.name, "ready": not each.reasons, "reasons": list(each.reasons), "notes": list(each.notes)}
            for each in found
        ],
    }
    if not found:
        answer["reasons"] = ["no worker runs in this process: it hasn't reached its database yet, or has ended"]
    return 200 if ready else 503, answer
