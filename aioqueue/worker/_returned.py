"""What a handler has returned, and what that says: its job is completed, or its chain goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from aioqueue.definitions._call import Call
from aioqueue.definitions._continuation import Done, next_job
from aioqueue.definitions._gate_options import refuse_sequences
from aioqueue.definitions._graph import graph_of
from aioqueue.errors import CallError, ConflictingOptions, DryRunRefused, NotSupported
from aioqueue.vocabulary._codec import CodecError
from aioqueue.vocabulary._safe_text import type_name
from aioqueue.worker._outcome import Unreadable, completed, continued

if TYPE_CHECKING:
    from aioqueue.worker._outcome import Outcome
    from aioqueue.worker._slot_attempt import SlotAttempt

__all__ = ["is_call", "marked", "outcome_of"]


def outcome_of(attempt: SlotAttempt, returned: object) -> Outcome:
    """Make of what a handler has returned what that says. What the attempt has enqueued goes along.

    Raises:
        Unreadable: It can't be stored, or isn't what the handler is annotated to return.
        CallAlreadyEnqueued: It's a call that was enqueued, or returned, before.
    """
    if attempt.job_type.continues:
        outcome = _step(attempt, returned)
        attempt.slot.told_late = outcome.may_be_refused
        return outcome
    output = _encode(attempt, returned)
    children = attempt.close()
    attempt.slot.told_late = bool(children)
    return completed(output, attempt.outcome, children)


def marked(returned: object) -> object:
    """Say of a returned call that it was used, whatever becomes of the attempt: it doesn't warn when it's dropped."""
    if is_call(returned):
        returned.mark_used()
    return returned


def _step(attempt: SlotAttempt, returned: object) -> Outcome:
    """Make of what a handler has returned that may continue its chain what that says: the chain's end, or its next job.

    Raises:
        Unreadable: It isn't a call, the value can't be stored, the call has a key or a chosen id, one that it waits for is to
            raise where it isn't unique, it's to run in a sequence and the store knows none, or its tags or metadata are too
            much, with those of the job; or the job is run dry, and one of them isn't of a type that is declared for that.
        CallAlreadyEnqueued: The call was enqueued, or returned, before. That isn't taken back if the outcome can't be written:
            it may be there all the same.
    """
    job = attempt.job
    if not is_call(returned):
        error = CallError(
            f"the handler of {job.type} is annotated to return a Call, and it, or a middleware, has returned a value "
            f"({type_name(returned)}): return done(value) to end the chain, or a call of a job type to continue it"
        )
        raise Unreadable(error, "CallError")
    if isinstance(returned, Done):
        return completed(_encode(attempt, returned.value), attempt.outcome, attempt.close())
    span = attempt.slot.span
    trace = job.trace if span is None else span.next_trace(job, returned.job_type.name)
    try:
        if returned.waits:  # most don't
            attempt.put(graph_of([returned])[:-1], (), trace)
        following = next_job(returned, job, trace)
        refuse_sequences(attempt.client.store, (following,))
    except (ConflictingOptions, CodecError, DryRunRefused, NotSupported) as error:
        raise Unreadable(error, type(error).__name__) from None
    return continued(following, attempt.outcome, attempt.close())


def is_call(returned: object) -> TypeGuard[Call[Any]]:
    """As `isinstance`, without asking the value: its `__class__` may lie, or raise."""
    return issubclass(type(returned), Call)


def _encode(attempt: SlotAttempt, output: object) -> bytes:
    """Make JSON of what the handler has returned.

    Raises:
        Unreadable: It can't be stored.
    """
    try:
        return attempt.job_type.encode_output(output)
    except Exception as error:  # noqa: BLE001 - classified: looking at an output runs its own code, which may raise anything
        if is_call(output):
            output.mark_used()
            raise Unreadable(_misplaced(attempt), "CallError") from None
        raise Unreadable(error, "OutputError") from None


def _misplaced(attempt: SlotAttempt) -> CallError:
    """What is wrong where a call stands in the place of a value."""
    if attempt.job_type.continues:
        return CallError(
            f"the handler of {attempt.job.type} has returned done(…) with a Call in it: return the call itself to continue the "
            "chain, or done(value) to end it"
        )
    return CallError(
        f"the handler of {attempt.job.type} has returned a Call, and isn't annotated to: -> Call[R] lets it continue its "
        "chain, where R is the type of the chain's result, and done(value) ends it"
    )
