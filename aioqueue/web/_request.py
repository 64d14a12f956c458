"""Who asks for a stream, and for which events."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._identifiers import read_id
from aioqueue.vocabulary._listing import JobFilter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

__all__ = ["Asked", "StreamRequest", "read_request"]

_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """A request, whatever framework it came through: what `authorise` and `choose` get.

    Attributes:
        headers: By their names in lower case; of a repeated one the last.
        query: The values of each name in the query, in order.
        raw: The framework's own: the ASGI scope, or aiohttp's `Request`.
    """

    headers: Mapping[str, str]
    query: Mapping[str, Sequence[str]]
    raw: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for.

    Attributes:
        types: Names of job types; none for all.
        job_id, chain_id: Of one job, or one chain.
        after: The id of the newest event that was seen; 0 for one that can't be one, None without any.
    """

    types: tuple[str, ...]
    job_id: UUID | None
    chain_id: UUID | None
    after: int | None


def read_request(request: StreamRequest) -> Asked:
    """Read `?type=…&type=…`, `?job=…`, `?chain=…`, and the header `Last-Event-ID`.

    Raises:
        ValueError: An id isn't one, or there can be no such type.
    """
    last = request.headers.get("last-event-id", "")
    after = None if not last else int(last) if _NUMBER.fullmatch(last) else 0
    return Asked(_types(request), _id(request, "job"), _id(request, "chain"), after)


def _types(request: StreamRequest) -> tuple[str, ...]:
    given = tuple(request.query.get("type", ()))
    try:
        JobFilter(types=given)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return given


def _id(request: StreamRequest, name: str) -> UUID | None:
    given = request.query.get(name, ())
    return read_id(given[-1]) if given else None
