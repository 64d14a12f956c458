"""The options of a call: which there are, and what may stand in each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

import orjson

from aioqueue.definitions._gates import InSequence
from aioqueue.definitions._output import read_after
from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._codec import CodecError, ValueCodec
from aioqueue.vocabulary._identifiers import read_id
from aioqueue.vocabulary._retry import Retry
from aioqueue.vocabulary._time import aware, seconds
from aioqueue.vocabulary._unique import Unique
from aioqueue.vocabulary._webhook_url import read_webhook_url, webhook_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime, timedelta
    from uuid import UUID

    from aioqueue.definitions._output import HasOutput
    from aioqueue.vocabulary._job import Priority

__all__ = ["LONGEST_LABEL_BYTES", "CallOptions", "read_options", "read_priority", "read_tags", "shortened", "shown_option"]

LONGEST_LABEL_BYTES = 1024
"""Of a key or a tag."""

_metadata_codec = ValueCodec(dict[str, Any], {})


class CallOptions(TypedDict, total=False):
    """The options of one call; None takes one back."""

    id: UUID | str
    delay: float | timedelta | None
    max_delay: float | timedelta | None
    at: datetime | None
    key: str | None
    unique: bool | Unique | None
    priority: Priority | None
    tags: Iterable[str]
    metadata: Mapping[str, object]
    retry: Retry | None
    timeout: float | timedelta | None
    expires: float | timedelta | None
    keep: float | timedelta | None
    webhook: str | Literal[False] | None
    after: Iterable[HasOutput[Any]] | None
    sequence: str | InSequence | None


def read_options(given: CallOptions) -> dict[str, object]:
    """Check options.

    Raises:
        TypeError: There is no such option.
        ConfigurationError: A value is out of its range.
    """
    read: dict[str, object] = dict(given)
    if unknown := read.keys() - CallOptions.__annotations__.keys():
        raise TypeError(f"options() has no {', '.join(sorted(unknown))}")
    if "id" in given:
        read["id"] = _read_id(given["id"])
    for name in ("delay", "max_delay", "timeout", "expires", "keep"):
        if (duration := given.get(name)) is not None:
            read[name] = seconds(cast("float", duration), name, positive=name == "timeout")
    if (at := given.get("at")) is not None:
        read["at"] = aware(at, "at")
    if (key := given.get("key")) is not None:
        read["key"] = _read_label(key, "key")
    if (unique := given.get("unique")) is not None:
        if not isinstance(unique, bool | Unique):
            raise ConfigurationError(f"unique must be True, False or a Unique(...), not {unique!r}")
        read["unique"] = (Unique() if unique is True else unique) or None
    if (priority := given.get("priority")) is not None:
        read["priority"] = read_priority(priority)
    if "tags" in given:
        read["tags"] = read_tags(given["tags"])
    if (after := given.get("after")) is not None:
        read["after"] = read_after(after) or None
    if "metadata" in given:
        read["metadata"] = _read_metadata(given["metadata"])
    if (webhook := given.get("webhook")) is not None and webhook is not False:
        read["webhook"] = _read_webhook(webhook)
    if (sequence := given.get("sequence")) is not None:
        read["sequence"] = sequence if isinstance(sequence, InSequence) else InSequence(sequence)
    if (retry := given.get("retry")) is not None:
        _check_retry(retry)
    return read


def _read_id(value: UUID | str) -> UUID:
    try:
        return read_id(value)
    except ValueError as error:
        raise ConfigurationError(f"id: {error}; copy() makes a call with another id of its own") from None


def _read_webhook(url: object) -> str:
    try:
        return read_webhook_url(url)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(str(error)) from None


def _check_retry(retry: object) -> None:
    if not isinstance(retry, Retry):
        raise ConfigurationError(f"retry must be a Retry(...), not {retry!r}")
    if retry.retry_on or retry.fail_on:
        raise ConfigurationError("retry_on and fail_on are code and aren't stored with a call: give them to the job type")


def _read_metadata(metadata: object) -> dict[str, object]:
    try:
        return cast("dict[str, object]", orjson.loads(_metadata_codec.encode(metadata, "metadata")))
    except CodecError as error:
        raise ConfigurationError(str(error)) from None


def _read_label(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} must be a str, not {value!r}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ConfigurationError(f"{name} has a lone surrogate, which isn't a character: {value!r}") from None
    if not 0 < size <= LONGEST_LABEL_BYTES or "\0" in value:
        raise ConfigurationError(f"{name} must have 1 to {LONGEST_LABEL_BYTES} bytes and no NUL, not {shortened(value)}")
    return value


def read_priority(value: object) -> Priority:
    """Check a priority.

    Raises:
        ConfigurationError: It isn't 1, 2, 3 or 4.
    """
    if value not in (1, 2, 3, 4) or not isinstance(value, int) or isinstance(value, bool):
        raise ConfigurationError(f"priority must be 1 (most urgent), 2, 3 or 4, not {value!r}")
    return cast("Priority", int(value))


def read_tags(value: Iterable[str]) -> tuple[str, ...]:
    """Check tags.

    Raises:
        ConfigurationError: It is one text, or one of them isn't a short one.
    """
    if isinstance(value, str):
        raise ConfigurationError(f"tags must be several texts, such as ({value!r},), not one")
    return tuple(dict.fromkeys(_read_label(each, "a tag") for each in value))


def shortened(value: object) -> str:
    """A value as text, cut."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def shown_option(name: str, value: object) -> str:
    """An option as text, cut. The path and the query of a receiver's URL may be what keeps others out."""
    return f"{webhook_host(value)}…" if name == "webhook" and isinstance(value, str) else shortened(value)
