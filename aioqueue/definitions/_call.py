"""A call: a job type with arguments, options and an id, before it is enqueued. A value."""

from __future__ import annotations

import copy
import sys
import warnings
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypedDict, TypeVar, cast

import orjson

from aioqueue.errors import CallAlreadyEnqueued, CallNeverEnqueued, ConfigurationError, ConflictingOptions
from aioqueue.vocabulary._codec import CodecError, ValueCodec
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob, Priority
from aioqueue.vocabulary._retry import Retry
from aioqueue.vocabulary._time import aware, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime, timedelta
    from typing import Unpack
    from uuid import UUID

__all__ = ["Call", "CallOptions", "JobDefinition", "read_priority", "read_tags"]

R_co = TypeVar("R_co", covariant=True)

_LONGEST_LABEL_BYTES = 1024
_metadata_codec = ValueCodec(dict[str, Any], {})


class CallOptions(TypedDict, total=False):
    """The options of one call; None takes one back."""

    delay: float | timedelta | None
    at: datetime | None
    key: str | None
    unique: bool
    priority: Priority | None
    tags: Iterable[str]
    metadata: Mapping[str, object]
    retry: Retry | None
    timeout: float | timedelta | None
    expires: float | timedelta | None


class JobDefinition(Protocol):
    """What a call knows of its job type."""

    @property
    def name(self) -> str: ...
    @property
    def aliases(self) -> tuple[str, ...]: ...
    @property
    def retry(self) -> Retry | None: ...
    @property
    def timeout(self) -> float | None: ...
    @property
    def priority(self) -> Priority: ...
    @property
    def expires(self) -> float | None: ...
    @property
    def tags(self) -> tuple[str, ...]: ...

    def decode_arguments(self, payload: bytes) -> dict[str, Any]: ...
    def decode_output(self, stored: bytes) -> Any: ...


class _EnqueueState(Enum):
    """Whether a call, or a copy with its id, was enqueued."""

    NEW = "new"
    ENQUEUED = "enqueued"


class _SharedByCopies:
    """What a call and its copies with the same id have in common: at most one of them is enqueued."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state = _EnqueueState.NEW


class Call(Generic[R_co]):
    """One call of a job type: its arguments, copied when it was made, its options, and the id of its job to be.

    Job types make them: `fetch(url)`. A call isn't awaitable and does nothing by itself: enqueue it, or use
    `job_type.fn` to run the plain function. One that is dropped without any use warns (`CallNeverEnqueued`).
    Two calls are equal if their job type, arguments and options are; the id doesn't count.

    Attributes:
        id: The id that the job will have: a UUID of version 7.
        job_type: What is called.
        payload: The arguments as stored: a JSON object of those that were passed, by name.
    """

    __slots__ = ("_made_at", "_options", "_shared", "_used", "id", "job_type", "payload")

    id: UUID
    job_type: JobDefinition
    payload: bytes

    def __init__(self, job_type: JobDefinition, payload: bytes, made_at: tuple[str, int] = ("<unknown>", 1)) -> None:
        self.id = new_id()
        self.job_type = job_type
        self.payload = payload
        self._options: CallOptions = {}
        self._shared = _SharedByCopies()
        self._used = False
        self._made_at = made_at

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that were passed, by name: a fresh copy each time."""
        return self.job_type.decode_arguments(self.payload)

    def options(self, **options: Unpack[CallOptions]) -> Call[R_co]:
        """Make a copy with the same id and other options. Those not given stay; None takes one back.

        Arguments:
            delay: Seconds or timedelta, from the enqueueing, until it is due. Not together with `at`.
            at: When it is due: a timezone-aware time. One in the past means now.
            key: A label to find the job by; at most 1,024 bytes.
            unique: At most one unfinished job of this type may have the key. Needs `key`.
            priority: 1 (most urgent) to 4.
            tags: Short labels, in addition to those of the job type.
            metadata: A JSON object, for middlewares; at most 64 MiB.
            retry: Instead of the job type's policy. Without `retry_on` and `fail_on`, which are code.
            timeout: Seconds or timedelta for one attempt, instead of the job type's.
            expires: Seconds or timedelta, after it is due, within which it must start, or it is discarded.

        Returns:
            The copy. Either of the two can be enqueued, not both.

        Raises:
            ConflictingOptions: They contradict each other.
            ConfigurationError: A value is out of its range.
        """
        self._used = True
        given = {**self._options, **_read_options(options)}
        merged = cast("CallOptions", {name: value for name, value in given.items() if value is not None})
        if merged.get("delay") is not None and merged.get("at") is not None:
            raise ConflictingOptions("a call can have a delay or a time (at=), not both: take one back with None")
        if merged.get("unique") and merged.get("key") is None:
            raise ConflictingOptions("unique=True needs a key: at most one unfinished job of the type may have it")
        made = self._clone()
        made.id = self.id
        made._options = merged
        made._shared = self._shared
        return made

    def copy(self) -> Call[R_co]:
        """Make another call with the same arguments and options, and an id of its own."""
        self._used = True
        return self._clone()

    def _clone(self) -> Call[R_co]:
        made: Call[R_co] = Call(self.job_type, self.payload, self._made_at)
        made._options = self._options
        return made

    def to_new_job(self, trace: str | None = None) -> NewJob:
        """Make the row that a store inserts. Counts as a use of the call.

        Arguments:
            trace: The trace context of whoever enqueues it.
        """
        self._used = True
        given, job_type = self._options, self.job_type
        retry = given.get("retry") or job_type.retry
        delay, timeout, expires = given.get("delay"), given.get("timeout"), given.get("expires")
        metadata = given.get("metadata")
        return NewJob(
            id=self.id,
            type=job_type.name,
            payload=self.payload,
            priority=given.get("priority") or job_type.priority,
            delay=None if delay is None else seconds(delay, "delay"),
            run_at=given.get("at"),
            expires=job_type.expires if expires is None else seconds(expires, "expires"),
            max_attempts=(retry or _DEFAULT_RETRY).max_attempts,
            retry=None if retry is None else retry.encode(),
            timeout=None if timeout is None else seconds(timeout, "timeout"),
            key=given.get("key"),
            unique=given.get("unique", False),
            aliases=job_type.aliases,
            tags=tuple(dict.fromkeys((*job_type.tags, *given.get("tags", ())))),
            metadata=b"{}" if metadata is None else orjson.dumps(metadata),
            trace=trace,
        )

    def mark_used(self) -> None:
        """Say that the call was used, so that it doesn't warn when it is dropped."""
        self._used = True

    def mark_enqueueing(self) -> None:
        """Say that the call is being enqueued now.

        Raises:
            CallAlreadyEnqueued: It was, or is being so.
        """
        self._used = True
        if self._shared.state is _EnqueueState.ENQUEUED:
            raise CallAlreadyEnqueued(
                f"this call of {self.job_type.name} has been enqueued already, as job {self.id}; "
                "call.copy() makes another with an id of its own"
            )
        self._shared.state = _EnqueueState.ENQUEUED

    def mark_failed(self) -> None:
        """Say that enqueueing has failed, so that it may be tried again."""
        self._shared.state = _EnqueueState.NEW

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Call):
            return NotImplemented
        self._used = other._used = True
        return (self.job_type.name, self.payload, self._options) == (other.job_type.name, other.payload, other._options)

    def __hash__(self) -> int:
        return hash((self.job_type.name, self.payload))

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={_shortened(value)}" for name, value in orjson.loads(self.payload).items())
        options = ", ".join(f"{name}={_shortened(value)}" for name, value in self._options.items())
        state = "enqueued" if self._shared.state is _EnqueueState.ENQUEUED else "not enqueued"
        return f"<Call {self.job_type.name}({arguments}){f'.options({options})' if options else ''} {self.id} {state}>"

    def __copy__(self) -> Call[R_co]:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Call[R_co]:
        made = self.copy()
        made._options = copy.deepcopy(self._options, memo)
        return made

    def __del__(self) -> None:
        # At the interpreter's end everything is dropped; a half-made call has no attributes.
        if getattr(self, "_used", True) or sys.is_finalizing() or self._shared.state is _EnqueueState.ENQUEUED:
            return
        filename, line = self._made_at
        warnings.warn_explicit(
            f"a call of {self.job_type.name} was made and dropped without being enqueued: calling a job type doesn't run "
            "it. Enqueue it (await client.enqueue(...)), or run the plain function (job_type.fn(...))",
            CallNeverEnqueued,
            filename,
            line,
        )


_DEFAULT_RETRY = Retry()


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _read_options(given: CallOptions) -> dict[str, object]:
    read: dict[str, object] = dict(given)
    if unknown := read.keys() - CallOptions.__annotations__.keys():
        raise TypeError(f"options() has no {', '.join(sorted(unknown))}")
    for name in ("delay", "timeout", "expires"):
        if (duration := given.get(name)) is not None:
            read[name] = seconds(cast("float", duration), name, positive=name == "timeout")
    if (at := given.get("at")) is not None:
        read["at"] = aware(at, "at")
    if (key := given.get("key")) is not None:
        read["key"] = _read_label(key, "key")
    if "unique" in given and not isinstance(given["unique"], bool):
        raise ConfigurationError(f"unique must be True or False, not {given['unique']!r}")
    if (priority := given.get("priority")) is not None:
        read["priority"] = read_priority(priority)
    if "tags" in given:
        read["tags"] = read_tags(given["tags"])
    if "metadata" in given:
        read["metadata"] = _read_metadata(given["metadata"])
    if (retry := given.get("retry")) is not None:
        _check_retry(retry)
    return read


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
    if not 0 < size <= _LONGEST_LABEL_BYTES or "\0" in value:
        raise ConfigurationError(f"{name} must have 1 to {_LONGEST_LABEL_BYTES} bytes and no NUL, not {_shortened(value)}")
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
