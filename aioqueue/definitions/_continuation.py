"""How a handler that is annotated `-> Call[R]` ends its chain, or continues it: what it returns, and the row made of that."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar, cast

import msgspec

from aioqueue.definitions._call import Call
from aioqueue.definitions._dry_runs import is_dry, refuse_in_dry_run
from aioqueue.errors import CallError, ConflictingOptions
from aioqueue.vocabulary._codec import CodecError, check_size
from aioqueue.vocabulary._safe_text import safe_repr

if TYPE_CHECKING:
    from typing import Unpack
    from uuid import UUID

    from aioqueue.definitions._call_options import CallOptions
    from aioqueue.vocabulary._job import ClaimedJob, NewJob
    from aioqueue.vocabulary._origin import Origin

__all__ = ["Done", "done", "next_job", "step_after"]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_MOST_TAGS = 100
"""That a chain may gather: each of its steps stores them all, and a loop would add one per round without end."""

_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Done(Call[R_co]):
    """A finished value in the shape of a call: what `done` makes. It stands for no job, so it has no id and no options.

    Two are equal if their values are.

    Attributes:
        value: As given: it isn't copied.
    """

    __slots__ = ("value",)

    value: R_co

    def __init__(self, value: R_co) -> None:  # not the call's own: there is no job
        self.value = value

    def options(self, **options: Unpack[CallOptions]) -> NoReturn:
        """Refuse: there is no job that could have them.

        Raises:
            CallError: Always.
        """
        raise CallError(f"{self!r} is a finished value, and no job: it takes no options ({', '.join(options) or 'none'})")

    @property
    def output(self) -> NoReturn:
        """Refuse: there is no job whose output it could be.

        Raises:
            CallError: Always.
        """
        raise self._no_end()

    @property
    def settled(self) -> NoReturn:
        """Refuse, as `output` does."""
        raise self._no_end()

    def _no_end(self) -> CallError:
        return CallError(f"{self!r} is a finished value, and no job: pass on the value itself")

    def copy(self) -> Done[R_co]:
        """Make another with the same value."""
        return Done(self.value)

    def to_new_job(
        self,
        trace: str | None = None,
        *,
        implied: bool = False,
        webhook: str | None = None,
    ) -> NoReturn:
        """Refuse, as `mark_enqueueing` does.

        Raises:
            CallError: Always.
        """
        del trace, implied, webhook
        raise self._refusal()

    def mark_used(self) -> None:
        """Do nothing: dropping a value is no mistake."""

    def mark_enqueueing(self) -> NoReturn:
        """Refuse: it isn't a job.

        Raises:
            CallError: Always.
        """
        raise self._refusal()

    def _refusal(self) -> CallError:
        return CallError(f"{self!r} is a finished value, and can't be enqueued: return it from a handler, which ends its chain")

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"done(...) is a finished value, and no job: it has no {name}")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Call):
            other.mark_used()
        return isinstance(other, Done) and self.value == cast("Done[object]", other).value

    def __hash__(self) -> int:
        return hash((Done, self.value))

    def __repr__(self) -> str:
        return f"done({safe_repr(self.value)})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Done[R_co]:
        return Done(copy.deepcopy(self.value, memo))

    def __del__(self) -> None:
        """Don't warn, as a call does: dropping a value is no mistake."""


def done(value: R) -> Call[R]:
    """End a chain: the value is its result. For handlers that are annotated `-> Call[R]`, which else continue with a call.

    Arguments:
        value: Of the type R. It's checked and stored, as the result of any handler, when the attempt has ended, by the job type
            whose handler returns it; until then it isn't copied.

    Returns:
        A call that stands for no job. It has no id, can't be enqueued (`CallError`), and equals another one with an equal
        value, so that a test can say `assert await poll.fn(7) == done("ready")`.
    """
    return Done(value)


class Step(Protocol):
    """A step of a chain that is finished now."""

    @property
    def id(self) -> UUID: ...
    @property
    def tags(self) -> tuple[str, ...]: ...
    @property
    def origin(self) -> Origin | None: ...


def next_job(call: Call[Any], finished: ClaimedJob, trace: str | None) -> NewJob:
    """Make the row of the step that follows a finished one. From here on the call counts as enqueued, whatever comes of it.

    Arguments and errors are those of `step_after`; also:

    Raises:
        CallAlreadyEnqueued: It was enqueued, or returned, before.
    """
    new = step_after(call, finished, finished.metadata, trace)
    call.mark_enqueueing()
    return new


def step_after(call: Call[Any], finished: Step, metadata: bytes, trace: str | None) -> NewJob:
    """Make the row of the step that follows a finished one.

    It has the tags and the metadata of the finished step, and its own, which win. What belongs to its chain (its id, the step's
    place, key and unique key) is the store's to fill in.

    Arguments:
        call: What the handler has returned.
        finished: The step whose handler it is.
        metadata: That step's, as JSON.
        trace: The trace context that the next step gets.

    Raises:
        ConflictingOptions: The call has a key, and the chain keeps the one that it began with; or an id was chosen for it.
        CodecError: A ValueError: the metadata of both is too large, or their tags are too many.
        DryRunRefused: The chain is run dry, and the call's type isn't declared for that.
    """
    new = call.to_new_job(trace)
    if is_dry(finished.origin):
        refuse_in_dry_run(call)
    if new.key is not None:
        raise ConflictingOptions(
            f"this call of {new.type} continues the chain of job {finished.id}, which keeps the key that it began with: leave "
            "out key= and unique=, or enqueue the call as a chain of its own"
        )
    if new.chosen_id:
        raise ConflictingOptions(
            f"this call of {new.type} continues the chain of job {finished.id}, and can't have an id of your choice (id=), "
            "with which a job may be there already: leave it out, or enqueue the call as a chain of its own"
        )
    if call.tells_nobody:
        new = replace(new, webhook="")
    if finished.tags or metadata != b"{}":  # most have neither, and needn't pay for a copy
        merged = _merged(metadata, new.metadata)
        check_size(merged, "the metadata, with that of the step before")
        sequence = call.sequence_with(new.payload, merged)
        new = replace(new, tags=_added(finished.tags, new.tags), metadata=merged, sequence=sequence)
    return new


def _added(before: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...]:
    """Tags of two steps, each once. As many as either has had alone are always right."""
    tags = tuple(dict.fromkeys((*before, *own)))
    if len(tags) > max(_MOST_TAGS, len(before), len(own)):
        raise CodecError(
            f"{len(tags)} are more than the {_MOST_TAGS} that a chain can gather: what differs from step to step belongs in "
            "arguments or metadata",
            "the tags, with those of the steps before",
        )
    return tags


def _merged(before: bytes, own: bytes) -> bytes:
    """Metadata of two steps, by its names: each value stays written as it was."""
    try:
        return msgspec.json.encode({**_objects.decode(before), **_objects.decode(own)})
    except (msgspec.MsgspecError, ValueError, RecursionError):  # somebody has stored what is no JSON object: it isn't passed on
        return own
