"""A call: a job type with arguments, options and an id, before it is enqueued. A value."""

from __future__ import annotations

import copy
import sys
import warnings
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import orjson

from aioqueue.definitions._call_options import read_options, shortened, shown_option
from aioqueue.definitions._gate_options import member_of
from aioqueue.definitions._output import HasOutput, blockers_of, placed_key, sources_of
from aioqueue.definitions._unique_key import argument_key, check_unique
from aioqueue.errors import CallAlreadyEnqueued, CallNeverEnqueued, ConflictingOptions, OutputNotReady
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob, Priority
from aioqueue.vocabulary._retry import Retry
from aioqueue.vocabulary._time import seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Unpack
    from uuid import UUID

    from aioqueue.definitions._call_options import CallOptions
    from aioqueue.definitions._gates import InSequence
    from aioqueue.vocabulary._codec import Converter, Placed
    from aioqueue.vocabulary._gates import GateRules, SequenceMember
    from aioqueue.vocabulary._placeholders import Placeholder
    from aioqueue.vocabulary._unique import Unique

__all__ = ["Call", "JobDefinition"]

R_co = TypeVar("R_co", covariant=True)


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
    def keep(self) -> float | None: ...
    @property
    def tags(self) -> tuple[str, ...]: ...
    @property
    def phases(self) -> tuple[str, ...]: ...
    @property
    def dry_run(self) -> bool: ...
    @property
    def gate_rules(self) -> GateRules | None: ...
    @property
    def converters(self) -> Mapping[type, Converter]: ...

    def read_default(self, parameter: str) -> object: ...

    def has_set(self, parameter: str, payload: bytes) -> bool: ...
    def decode_arguments(self, payload: bytes) -> dict[str, Any]: ...
    def decode_output(self, stored: bytes) -> Any: ...


class _EnqueueState(Enum):
    """Whether a call, or a copy with its id, was enqueued."""

    NEW = "new"
    ENQUEUED = "enqueued"


class _SharedByCopies:
    """What a call and its copies with the same id have in common: at most one of them is enqueued."""

    __slots__ = ("chain_id", "state")

    def __init__(self) -> None:
        self.state = _EnqueueState.NEW
        self.chain_id: UUID | None = None
        """Of the chain that was there already with its unique key."""


class Call(HasOutput[R_co]):
    """One call of a job type: its arguments, copied when it was made, its options, and the id of its job to be.

    Job types make them: `fetch(url)`. A call isn't awaitable and does nothing by itself: enqueue it, or use
    `job_type.fn` to run the plain function. One that is dropped without any use warns (`CallNeverEnqueued`).
    Two calls are equal if their job type, arguments and options are; the id doesn't count.

    Attributes:
        id: The id that the job will have: a UUID of version 7, or the one given with `options(id=...)`.
        id_chosen: Whether it was given.
        job_type: What is called.
        payload: The arguments as stored: a JSON object of those that were passed, by name. Outputs of other calls are null.
        placed: Those outputs, with the ways to them.
    """

    __slots__ = (
        "_argument_key",
        "_made_at",
        "_options",
        "_shared",
        "_used",
        "id",
        "id_chosen",
        "job_type",
        "payload",
        "placed",
    )

    id: UUID
    job_type: JobDefinition
    payload: bytes

    def __init__(
        self,
        job_type: JobDefinition,
        payload: bytes,
        made_at: tuple[str, int] = ("<unknown>", 1),
        placed: Sequence[Placed] = (),
    ) -> None:
        self.id = new_id()
        self.id_chosen = False
        self.job_type = job_type
        self.payload = payload
        self.placed = placed
        self._options: CallOptions = {}
        self._argument_key: str | None = None
        self._shared = _SharedByCopies()
        self._used = False
        self._made_at = made_at

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that were passed, by name: a fresh copy each time.

        Raises:
            OutputNotReady: Some are outputs of other calls, so they're there only when the job runs.
        """
        if self.placed:
            raise OutputNotReady(f"{self!r} waits for outputs of other calls: its arguments are there when it runs")
        return self.job_type.decode_arguments(self.payload)

    @property
    def key(self) -> str | None:
        """The label to find the job by: as given with `key=`, or as arguments make it (`Unique.by`); None without one."""
        return self._argument_key or self._options.get("key")

    def options(self, **options: Unpack[CallOptions]) -> Call[R_co]:
        """Make a copy with the same id and other options. Those not given stay; None takes one back.

        Arguments:
            id: The id that the job is to have, a UUID or its text, which makes enqueueing idempotent: where a job has it
                already, live or finished, the handle is that one's, with `created` False, whatever its arguments.
            delay: Seconds or timedelta, from the enqueueing, until it is due. Not together with `at`.
            max_delay: Seconds or timedelta, from when a job was created that others replace by calls with a `delay`, after
                which it's due all the same. Needs `delay`, and a `unique` whose `on_conflict` is `"replace"`.
            at: When it is due: a timezone-aware time. One in the past means now.
            key: A label to find the job by; at most 1,024 bytes.
            unique: At most one unfinished job of this type may have the key; a `Unique(...)` says until when, and what becomes
                of another one. Needs `key`, or `Unique.by`, which makes a key of arguments.
            priority: 1 (most urgent) to 4.
            tags: Short labels, in addition to those of the job type.
            metadata: A JSON object, for middlewares; at most 64 MiB.
            retry: Instead of the job type's policy. Without `retry_on` and `fail_on`, which are code.
            timeout: Seconds or timedelta for one attempt, instead of the job type's.
            expires: Seconds or timedelta, after it is due, within which it must start, or it is discarded.
            keep: Seconds or timedelta that it's kept after the end of its chain, instead of the job type's. A chain's next job
                takes it over, unless that has its own.
            webhook: A URL that is told when its chain has ended, in place of the client's; False for nobody. A chain's next job
                takes it over, unless that has its own.
            after: Calls or handles: it waits until their jobs, and the chains that these begin, have completed, and fails if
                one doesn't. Those that haven't been enqueued are enqueued with it.
            sequence: The name of a sequence, or an `InSequence`, instead of what the job type's `sequence_by` says: its chain
                and those of others with the same name run one at a time, in the order of their inserts.

        Returns:
            The copy. Either of the two can be enqueued, not both; with `id` both can.

        Raises:
            ConflictingOptions: They contradict each other.
            ConfigurationError: A value is out of its range.
            ArgumentsError: `Unique.by` names an argument with a set in it, which has no order.
        """
        self._used = True
        read = read_options(options)
        chosen = cast("UUID | None", read.pop("id", None))
        given = {**self._options, **read}
        merged = cast("CallOptions", {name: value for name, value in given.items() if value is not None})
        if merged.get("delay") is not None and merged.get("at") is not None:
            raise ConflictingOptions("a call can have a delay or a time (at=), not both: take one back with None")
        unique = cast("Unique | None", merged.get("unique"))
        check_unique(unique, merged, waits=bool(self.placed) or "after" in merged)
        key = None if unique is None or not unique.by else self._argument_key
        if unique is not None and unique.by and "unique" in options:
            key = argument_key(self.job_type, self.payload, [str(path[0]) for _, path in self.placed], unique.by)
        made = self._clone()
        made._options, made._argument_key = merged, key
        if "after" in options:
            for each in made.waits_for:
                if isinstance(each, Call):
                    each.mark_used()
        if chosen is not None:
            made.id, made.id_chosen = chosen, True
        else:
            made.id, made.id_chosen, made._shared = self.id, self.id_chosen, self._shared
        return made

    def copy(self) -> Call[R_co]:
        """Make another call with the same arguments and options, and an id of its own."""
        self._used = True
        return self._clone()

    def _clone(self) -> Call[R_co]:
        made: Call[R_co] = Call(self.job_type, self.payload, self._made_at, self.placed)
        made._options = self._options
        made._argument_key = self._argument_key
        return made

    def to_new_job(self, trace: str | None = None, *, implied: bool = False, webhook: str | None = None) -> NewJob:
        """Make the row that a store inserts. Counts as a use of the call.

        Arguments:
            trace: The trace context of whoever enqueues it.
            implied: Whether it's only enqueued since others wait for it.
            webhook: The URL that is told of its end, unless the call says something else.
        """
        self._used = True
        given, job_type = self._options, self.job_type
        retry = given.get("retry") or job_type.retry
        delay, timeout, expires = given.get("delay"), given.get("timeout"), given.get("expires")
        max_delay, keep = given.get("max_delay"), given.get("keep")
        metadata = given.get("metadata")
        written = b"{}" if metadata is None else orjson.dumps(metadata)
        return NewJob(
            id=self.id,
            type=job_type.name,
            payload=self.payload,
            priority=given.get("priority") or job_type.priority,
            delay=None if delay is None else seconds(delay, "delay"),
            run_at=given.get("at"),
            expires=job_type.expires if expires is None else seconds(expires, "expires"),
            keep=job_type.keep if keep is None else seconds(keep, "keep"),
            max_attempts=(retry or _DEFAULT_RETRY).max_attempts,
            retry=None if retry is None else retry.encode(),
            timeout=None if timeout is None else seconds(timeout, "timeout"),
            key=self._argument_key or given.get("key"),
            unique=cast("Unique | None", given.get("unique")),
            max_delay=None if max_delay is None else seconds(max_delay, "max_delay"),
            chosen_id=self.id_chosen,
            implied=implied,
            aliases=job_type.aliases,
            tags=tuple(dict.fromkeys((*job_type.tags, *given.get("tags", ())))),
            metadata=written,
            trace=trace,
            webhook=given.get("webhook", webhook) or None,
            blockers=blockers_of(self.placed, self._after) if self.placed or "after" in given else (),
            sequence=self.sequence_with(self.payload, written),
        )

    def sequence_with(self, payload: bytes, metadata: bytes) -> SequenceMember | None:
        """The sequence of its job, where these are stored in place of the call's own."""
        return member_of(cast("InSequence | None", self._options.get("sequence")), self.job_type.gate_rules, payload, metadata)

    @property
    def tells_nobody(self) -> bool:
        """Whether `webhook=False` was said: as a chain's next job it doesn't take over who is told, either."""
        return self._options.get("webhook") is False

    @property
    def waits(self) -> bool:
        """Whether it waits for other calls or handles."""
        return bool(self.placed) or "after" in self._options

    @property
    def _after(self) -> tuple[HasOutput[Any], ...]:
        return cast("tuple[HasOutput[Any], ...]", self._options.get("after", ()))

    @property
    def waits_for(self) -> Iterable[HasOutput[Any]]:
        """The calls and handles that it waits for, each once."""
        return sources_of(self.placed, self._after).values() if self.waits else ()

    @property
    def blocker_id(self) -> UUID:
        """A step's id of the chain whose end is waited for by those that have its output."""
        return self._shared.chain_id or self.id

    @property
    def identity(self) -> object:
        """What it has in common with the copies of which only one can be enqueued. Each `options(id=...)` makes another."""
        return self._shared

    @property
    def enqueued(self) -> bool:
        """Whether it was enqueued, or is being so: then those that have its output wait for it, and don't enqueue it."""
        return self._shared.state is _EnqueueState.ENQUEUED

    def _placeholder(self, what: str, *, settled: bool) -> Placeholder:
        self._used = True
        return super()._placeholder(what, settled=settled)

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

    def mark_stored(self, job_id: UUID) -> None:
        """Say which job stands for it: its own, or that of the chain that was there already with its unique key."""
        if job_id != self.id:
            self._shared.chain_id = job_id

    def mark_failed(self) -> None:
        """Say that enqueueing has failed, so that it may be tried again."""
        self._shared.state = _EnqueueState.NEW
        self._shared.chain_id = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Call):
            return NotImplemented
        self._used = other._used = True
        return self._value() == other._value()

    def _value(self) -> tuple[object, ...]:
        """All that it is but its id. What it waits for counts by its ids, since equal calls are different jobs."""
        if not self.waits:
            return self.job_type.name, self.payload, self._options
        options = {name: value for name, value in self._options.items() if name != "after"}
        return self.job_type.name, self.payload, options, placed_key(self.placed, self._after)

    def __hash__(self) -> int:
        return hash((self.job_type.name, self.payload, placed_key(self.placed, ())))

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={shortened(value)}" for name, value in self._shown_arguments().items())
        given = self._options if self._argument_key is None else {"key": self._argument_key, **self._options}
        options = ", ".join(f"{name}={shown_option(name, value)}" for name, value in given.items())
        state = "enqueued" if self._shared.state is _EnqueueState.ENQUEUED else "not enqueued"
        return f"<Call {self.job_type.name}({arguments}){f'.options({options})' if options else ''} {self.id} {state}>"

    def _shown_arguments(self) -> dict[str, object]:
        """The arguments as JSON values, with the outputs in their places."""
        shown: dict[str, Any] = orjson.loads(self.payload)
        for placeholder, (*way, last) in self.placed:
            container: Any = shown
            for step in way:
                container = container[step]
            container[last] = placeholder
        return shown

    def __copy__(self) -> Call[R_co]:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Call[R_co]:
        made = self.copy()
        memo[id(self._after)] = self._after  # it waits for the same jobs
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
