"""Ends jobs from outside, without a worker: completes them with a value, continues their chains, or fails them."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, cast

from aioqueue.client._finished import already_finished
from aioqueue.client._waiters import step_that_counts
from aioqueue.definitions._call import Call
from aioqueue.definitions._continuation import Done, step_after
from aioqueue.definitions._dry_runs import is_dry
from aioqueue.definitions._gate_options import refuse_sequences
from aioqueue.definitions._graph import graph_of, refuse_raising, rows_of
from aioqueue.definitions._job_type import JobType
from aioqueue.definitions._names import check_name
from aioqueue.errors import ArgumentsError, CallError, JobNotFound, StoreContended, WrongJobType
from aioqueue.runtime._log import event
from aioqueue.vocabulary._attempt_error import AttemptError
from aioqueue.vocabulary._codec import CodecError, ValueCodec
from aioqueue.vocabulary._job import Ending, JobState, SettlementKind
from aioqueue.vocabulary._safe_text import visible

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.client._tries import Tries
    from aioqueue.client._unclear import UnclearIds
    from aioqueue.vocabulary._job import Job, NewJob
    from aioqueue.vocabulary._store_operating import Operable

__all__ = ["Ender", "FailurePlan", "Plan", "completion", "completion_by_name"]

logger = logging.getLogger("aioqueue")

_MOST_STEPS = 10
"""That a chain may go on by while it's being ended, before that is tried again from the beginning, after a pause."""

_LONGEST_REASON_CHARACTERS = 10_000

_any_value = ValueCodec(Any, {})


class Plan(Protocol):
    """How a job is to be ended.

    Attributes:
        calls: Those that are stored with it.
    """

    calls: Sequence[Call[Any]]

    def ending(self, step: Job) -> Ending:
        """What is written of the live step."""
        ...

    def is_done(self, end: Job | None, following: Job | None) -> bool:
        """Whether an earlier try has written it: `end` is its chain's last step, `following` the job that continues it."""
        ...


class CompletionPlan:
    """Completing a job with a value, or continuing its chain with a call.

    Arguments:
        names: Those of the job's type: it may have been enqueued under any.
        output: Its output as JSON.
        following: What continues its chain in place of an output.

    Raises:
        BlockerCycle: The call waits for itself.
        ConflictingOptions: One that it waits for is to raise where it isn't unique.
    """

    def __init__(self, names: Sequence[str], output: bytes | None, following: Call[Any] | None = None) -> None:
        self._names = names
        self._output = output
        self._next = following
        self.calls: Sequence[Call[Any]] = () if following is None else graph_of([following])
        refuse_raising(rows_of(self.calls[:-1], ()), "enqueue it before, with `client.enqueue` or `tx.enqueue`")

    def ending(self, step: Job) -> Ending:
        """What is written of the live step.

        Raises:
            WrongJobType: It's of another type.
            ConflictingOptions: The call has a key, or an id that was chosen.
            ArgumentsError: Its metadata or tags are too much, with those of the chain.
            DryRunRefused: The chain is run dry, and the call, or one that it waits for, isn't of a type that is declared for
                that.
        """
        if step.type not in self._names:
            raise WrongJobType(
                f"the job {step.id} is of {step.type}, and was to be completed as {self._names[0]}: nothing was written",
                job_id=step.id,
                job_type=step.type,
                chain_id=step.chain_id,
            )
        if self._next is None:
            return Ending(id=step.id, kind=SettlementKind.COMPLETED, output=self._output)
        try:
            following = step_after(self._next, step, step.metadata_json, step.trace)
        except CodecError as error:
            raise ArgumentsError(str(error), path=error.path) from None
        children = tuple(rows_of(self.calls[:-1], (), step.trace, dry_run=is_dry(step.origin)))
        return Ending(id=step.id, kind=SettlementKind.CONTINUED, next=following, children=children)

    def is_done(self, end: Job | None, following: Job | None) -> bool:
        """Whether an earlier try has written it."""
        if self._next is not None:
            return following is not None
        return end is not None and end.state is JobState.COMPLETED and end.output_json == self._output


def completion(job_type: JobType[..., Any, Any], result: object) -> CompletionPlan:
    """Read how a job is to be completed.

    Arguments:
        job_type: The job's.
        result: A value of its result's type; a call, if its handler may continue the chain; or `done(value)`.

    Raises:
        CallError: The result is a call, and the job type isn't annotated to continue; or it waits for itself.
        ArgumentsError: The value isn't of the annotated type, or can't be stored exactly.
    """
    if not isinstance(job_type, JobType):
        raise TypeError(f"complete takes the job's type first, what @registry.job has made, not {job_type!r:.100}")
    job_type.check()
    names = (job_type.name, *job_type.aliases)
    value = result
    if isinstance(result, Done):
        value = cast("Done[object]", result).value
    elif _is_call(result):
        if not job_type.continues:
            raise CallError(
                f"{job_type.name} isn't annotated to continue its chain, and can't be completed with a Call: pass its "
                "result, or annotate it -> Call[R]"
            )
        return CompletionPlan(names, None, result)
    try:
        return CompletionPlan(names, job_type.encode_output(value))
    except CodecError as error:
        raise ArgumentsError(str(error), path=error.path) from None


def _is_call(result: object) -> TypeGuard[Call[Any]]:
    return isinstance(result, Call)


def completion_by_name(name: str, result: object) -> CompletionPlan:
    """Read how a job is to be completed of whose type only the name is known.

    Raises:
        ArgumentsError: The result can't be stored exactly as JSON.
    """
    try:
        return CompletionPlan((check_name(name),), _any_value.encode(result, "output"))
    except CodecError as error:
        raise ArgumentsError(str(error), path=error.path) from None


class FailurePlan:
    """Failing a job for good.

    Arguments:
        reason: Why, for people.
    """

    def __init__(self, reason: str) -> None:
        if not isinstance(reason, str) or not reason:
            raise TypeError(f"the reason must be a text that says why, not {reason!r:.100}")
        lines = reason[:_LONGEST_REASON_CHARACTERS].split("\n")
        self.calls: Sequence[Call[Any]] = ()
        self._reason = "\n".join(map(visible, lines))
        self._at = datetime.now(UTC)

    def ending(self, step: Job) -> Ending:
        """What is written of the live step."""
        attempt = step.attempt if step.state is JobState.RUNNING else 0  # none of its own attempts has failed so
        error = AttemptError(attempt=attempt, at=self._at, type="Fail", message=self._reason)
        return Ending(id=step.id, kind=SettlementKind.FAILED, error=error)

    def is_done(self, end: Job | None, following: Job | None) -> bool:  # noqa: ARG002 - as a plan's
        """Whether an earlier try has written it."""
        if end is None or end.state is not JobState.FAILED or end.last_error is None:
            return False
        return (end.last_error.at, end.last_error.message) == (self._at, self._reason)


class Ender:
    """What one opening of a client ends jobs with. Any step's id stands for its chain, whose live step is ended.

    Arguments:
        store: Open.
        tries: Repeats what couldn't be written outside of a user's transaction.
        unclear: The jobs that may have been stored already.
    """

    def __init__(self, store: Store, tries: Tries, unclear: UnclearIds) -> None:
        self._store = store
        self._tries = tries
        self._unclear = unclear

    async def end(self, job_id: UUID, plan: Plan) -> None:
        """End a job in a transaction of its own; returns after the commit.

        Raises:
            JobNotFound: There is no such job.
            AlreadyFinished: It has ended before.
            StoreUnavailable: The database can't be reached, and couldn't be for `retry_for` seconds.
            AioqueueError: What the plan raises about the live step; what its calls wait for isn't there, or waits for them.
        """

        async def write(again: bool) -> None:  # noqa: FBT001 - `until_written` calls it, nobody else
            await self._end(job_id, plan, self._store, self._store.end, repeated=again)

        def log() -> None:
            logger.warning(
                "the job %s couldn't be ended in %s, trying again",
                job_id,
                self._store.description,
                extra=event("client.end_retried", job_id=str(job_id)),
            )

        await self._with_calls(plan, lambda: self._tries.until_written(write, log))

    async def end_with(
        self, job_id: UUID, plan: Plan, within: Operable, write: Callable[[Sequence[Ending]], Awaitable[Sequence[bool]]]
    ) -> None:
        """End a job in a transaction that somebody else commits: with what looks, and what writes, in it. Raises as `end`."""
        await self._with_calls(plan, lambda: self._end(job_id, plan, within, write, repeated=False))

    async def _with_calls(self, plan: Plan, end: Callable[[], Awaitable[None]]) -> None:
        marked: list[Call[Any]] = []
        try:
            for call in plan.calls:
                call.mark_enqueueing()
                marked.append(call)
            await end()
        except BaseException:
            for call in marked:
                call.mark_failed()
            raise

    async def _end(
        self,
        job_id: UUID,
        plan: Plan,
        store: Operable,
        write: Callable[[Sequence[Ending]], Awaitable[Sequence[bool]]],
        *,
        repeated: bool,
    ) -> None:
        """Look for the live step, and end it, until it's that.

        Arguments:
            job_id, plan, write: As of `end_with`.
            store: What looks.
            repeated: Whether an earlier try may have written it.
        """
        for _ in range(_MOST_STEPS):
            (end,) = await store.fetch_ends([job_id])
            if (repeated or self._is_unclear(plan)) and plan.is_done(end, await self._following(plan)):
                return
            step = _live(job_id, end)
            ending = plan.ending(step)
            rows: list[NewJob] = [*ending.children, *(() if ending.next is None else (ending.next,))]
            refuse_sequences(self._store, rows)
            with self._unclear.settled_by(rows):
                (ended,) = await write([ending])
            if ended:
                return
        raise StoreContended(f"the chain of job {job_id} went on {_MOST_STEPS} times while it was to be ended")

    def _is_unclear(self, plan: Plan) -> bool:
        return bool(plan.calls) and self._unclear.has_any_of(call.id for call in plan.calls)

    async def _following(self, plan: Plan) -> Job | None:
        if not plan.calls:
            return None
        (found,) = await self._store.fetch([plan.calls[-1].id])
        return found


def _live(job_id: UUID, end: Job | None) -> Job:
    step = step_that_counts(end)
    if step is None:
        raise JobNotFound(f"there is no job {job_id}: it was never committed, or has been deleted", job_id=job_id)
    if step.state.finished:
        raise already_finished(step)
    return step
