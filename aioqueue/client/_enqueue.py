"""Enqueues calls, with those that they wait for: as rows, through the middlewares. It makes no handles."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue.client._chunks import insert_chunks, missing_of, with_stored
from aioqueue.client._conflicts import left_out, report_conflict, report_unique
from aioqueue.client._in_flight import InFlight
from aioqueue.client._insert import Inserter
from aioqueue.definitions._call import Call
from aioqueue.definitions._context import runs_dry
from aioqueue.definitions._continuation import Done
from aioqueue.definitions._gate_options import refuse_sequences
from aioqueue.definitions._graph import graph_of, rows_of
from aioqueue.definitions._middleware import fold_enqueue
from aioqueue.errors import ConfigurationError, NotSupported
from aioqueue.events import JobBlocked, JobEnqueued
from aioqueue.vocabulary._abilities_telling import SupportsWebhooks
from aioqueue.vocabulary._codec import CodecError, check_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioqueue.abc import Store
    from aioqueue.client._phase import TransactionState
    from aioqueue.client._tries import Tries
    from aioqueue.client._unclear import UnclearIds
    from aioqueue.definitions._middleware import EnqueueMiddleware, EnqueueNext
    from aioqueue.definitions._observers import Observers
    from aioqueue.telemetry._counters import Counters
    from aioqueue.telemetry._tracing import SendSpan, Tracing
    from aioqueue.vocabulary._job import Inserted, NewJob
    from aioqueue.vocabulary._store_parts import StoreTransaction

__all__ = ["Enqueuer", "check_call", "check_sizes", "read_calls", "refuse_unsupported", "traced_rows"]

R = TypeVar("R")


class Enqueuer:
    """What one opening of a client enqueues with. Each of its verbs tells what became of the calls, in order.

    A call whose enqueueing fails may be enqueued again.

    Arguments:
        store: Open.
        middlewares: Around each enqueueing, the first listed outermost.
        tries: Repeats what couldn't be written outside of a user's transaction.
        counters: What is counted: also what a transaction of the user's may still roll back.
        tracing: Makes the spans: one for each call of a verb.
        observers: Told of what is stored, but for what is in a transaction of which the user's own driver sees the commit.
        webhook: The URL that is told of the ends of jobs whose calls name none.
    """

    def __init__(
        self,
        store: Store,
        middlewares: Sequence[EnqueueMiddleware],
        tries: Tries,
        counters: Counters,
        tracing: Tracing,
        observers: Observers,
        webhook: str | None,
    ) -> None:
        self._store = store
        self._observers = observers
        self._middlewares = middlewares
        self._counters = counters
        self._tracing = tracing
        self._webhook = webhook
        self._inserter = Inserter(store, tries)
        self._in_flight = InFlight()

    async def enqueue_one(self, call: Call[Any]) -> Inserted:
        """Outside a transaction, gathered with concurrent callers; returns after the commit."""
        if call.waits:
            return (await self._enqueue_alone((call,), self._inserter.insert_gathered))[0]
        calls = (call,)
        return (await self._enqueue(calls, calls, self._inserter.insert_gathered, in_flight=self._in_flight))[0]

    async def enqueue_many(self, calls: Sequence[Call[Any]]) -> Sequence[Inserted]:
        """All or none, in a transaction of their own; returns after the commit."""
        return await self._enqueue_alone(calls, self._inserter.insert_many)

    async def enqueue_with_connection(self, calls: Sequence[Call[Any]], connection: object) -> Sequence[Inserted]:
        """In the transaction that is open on a connection or session of the user's."""

        async def insert(jobs: Sequence[NewJob]) -> Sequence[Inserted]:
            async def insert_chunk(chunk: Sequence[NewJob]) -> Sequence[Inserted]:
                repeated = self._inserter.unclear.has_any(chunk)
                return await self._store.insert(chunk, tx=connection, repeated=repeated)

            return await insert_chunks(jobs, insert_chunk) if jobs else ()

        graph = graph_of(calls)
        return _answers(calls, graph, await self._enqueue(calls, graph, insert))

    async def enqueue_in_transaction(
        self, calls: Sequence[Call[Any]], transaction: StoreTransaction, state: TransactionState
    ) -> Sequence[Inserted]:
        """In a transaction of the client's; `state` keeps the calls, to let go of them if it's rolled back."""

        async def insert(jobs: Sequence[NewJob]) -> Sequence[Inserted]:
            unclear = self._inserter.unclear.among(jobs)
            stored = await self._inserter.find(unclear) if unclear else ()
            missing = missing_of(jobs, stored)
            inserted = await insert_chunks(missing, transaction.insert) if missing else ()
            return with_stored(jobs, stored, inserted)

        graph = graph_of(calls)
        return _answers(calls, graph, await self._enqueue(calls, graph, insert, state=state))

    @property
    def unclear(self) -> UnclearIds:
        """The jobs that may have been stored although nobody was told."""
        return self._inserter.unclear

    def remember_unclear(self, calls: Iterable[Call[Any]]) -> None:
        """Say that calls may have been stored: their transaction ended without telling whether it was committed."""
        self._inserter.unclear.add(call.id for call in calls)

    async def aclose(self, patience: float) -> None:
        """Wait for what is being written for `patience` seconds; what isn't by then fails as unclear."""
        await self._inserter.aclose(patience)

    async def _enqueue_alone(self, calls: Sequence[Call[Any]], insert: EnqueueNext) -> Sequence[Inserted]:
        """Outside of a user's transaction: what others enqueue at the moment is waited for."""
        graph = await self._in_flight.graph_of(calls)
        return _answers(calls, graph, await self._enqueue(calls, graph, insert, in_flight=self._in_flight))

    async def _enqueue(
        self,
        calls: Sequence[Call[Any]],
        graph: Sequence[Call[Any]],
        insert: EnqueueNext,
        *,
        state: TransactionState | None = None,
        in_flight: InFlight | None = None,
    ) -> Sequence[Inserted]:
        span = _begin_span(self._tracing, graph)
        trace = None if span is None else span.trace
        marked: list[Call[Any]] = []
        jobs: Sequence[NewJob] = ()
        try:
            for call in graph:
                call.mark_enqueueing()
                marked.append(call)
            if in_flight is not None:
                in_flight.begin(marked)
            jobs = rows_of(graph, calls, trace, self._webhook, dry_run=runs_dry())
            refuse_unsupported(self._store, jobs)
            results = await (self._insert_through_middlewares(jobs, insert) if self._middlewares else insert(jobs))
        except BaseException as error:
            for call in marked:
                call.mark_failed()
            report_conflict(jobs, error, self._counters, span)
            if span is not None:
                span.failed(error)
            raise
        finally:
            if in_flight is not None:
                in_flight.end(marked)
        self._hear(graph, jobs, results, span, state)
        if self._observers.active and (state is not None or in_flight is not None):
            self._tell(jobs, results, state)
        return results

    def _tell(self, jobs: Sequence[NewJob], results: Sequence[Inserted], state: TransactionState | None) -> None:
        at = datetime.now(UTC)
        for job, result in zip(jobs, results, strict=True):
            if result.created or result.replaced:
                made = (JobBlocked if job.blockers else JobEnqueued)(
                    at=at, job_id=result.id, chain_id=result.id, job_type=job.type
                )
                if state is None:
                    self._observers.tell(made)
                else:
                    state.happened.append(made)

    def _hear(
        self,
        graph: Sequence[Call[Any]],
        jobs: Sequence[NewJob],
        results: Sequence[Inserted],
        span: SendSpan | None,
        state: TransactionState | None,
    ) -> None:
        """Tell the calls, and whoever counts and traces, what became of them."""
        stored = list(zip(graph, jobs, results, strict=False))
        if len(jobs) > 1 and (places := left_out(jobs, results)):
            for place in places:
                graph[place].mark_failed()
            stored = [each for place, each in enumerate(stored) if place not in places]
        unusual = False
        for call, job, result in stored:
            if result.created:
                self._counters.count_enqueued(job.type)
            else:
                call.mark_stored(result.id)
            unusual = unusual or job.unique is not None or job.chosen_id
        if unusual:
            report_unique(stored, self._counters, span)
        if span is not None:
            if len(results) == 1:
                span.stored_as(results[0].id)
            if state is None:
                span.sent()
            else:
                state.spans.append(span)
        if state is not None:
            state.calls.extend([call for call, _, _ in stored])

    async def _insert_through_middlewares(self, jobs: Sequence[NewJob], insert: EnqueueNext) -> Sequence[Inserted]:
        ids = [job.id for job in jobs]
        stored = False

        async def insert_checked(passed_on: Sequence[NewJob]) -> Sequence[Inserted]:
            nonlocal stored
            if [job.id for job in passed_on] != ids:
                raise ConfigurationError("an enqueue middleware has to pass on as many jobs, in order, and with the same ids")
            for job in passed_on:
                check_sizes(job)
            results = await insert(passed_on)
            stored = True
            return results

        try:
            inserted = await fold_enqueue(self._middlewares, insert_checked)(jobs)
            if len(inserted) != len(ids):
                raise ConfigurationError("an enqueue middleware has to return what call_next() has returned")
        except BaseException:
            if stored:  # a middleware has failed, or was cancelled, after the jobs were stored
                self._inserter.unclear.add(ids)
            raise
        return inserted


def _answers(calls: Sequence[Call[Any]], graph: Sequence[Call[Any]], results: Sequence[Inserted]) -> Sequence[Inserted]:
    """What became of the calls that were given, in order, without those that were enqueued with them."""
    if graph is calls:
        return results
    stored_as = dict(zip((call.identity for call in graph), results, strict=True))
    return [stored_as[call.identity] for call in calls]


def _begin_span(tracing: Tracing, calls: Sequence[Call[Any]]) -> SendSpan | None:
    tracer = tracing.tracer()
    if tracer is None or not calls:
        return None
    types = list(dict.fromkeys(call.job_type.name for call in calls))
    return tracing.send(tracer, types, count=None if len(calls) == 1 else len(calls))


def refuse_unsupported(store: Store, jobs: Sequence[NewJob]) -> None:
    """Refuse jobs that ask for what the store hasn't got: to tell somebody of their ends, or to wait for their turn.

    Raises:
        NotSupported: There is one.
    """
    refuse_sequences(store, jobs)
    for job in jobs:
        if job.webhook is not None and not isinstance(store, SupportsWebhooks):
            raise NotSupported(f"{store.description} keeps no deliveries of webhooks: use webhook=False", ability="webhooks")


def traced_rows(graph: Sequence[Call[Any]], calls: Sequence[Call[Any]], tracing: Tracing, webhook: str | None) -> list[NewJob]:
    """Make the rows of calls that somebody else inserts: their span ends at once, since nothing is seen of the commit.

    Arguments:
        graph: All of them, in order.
        calls: Those that were given.
        tracing: Makes the span.
        webhook: As of `Enqueuer`.
    """
    span = _begin_span(tracing, graph)
    jobs = rows_of(graph, calls, None if span is None else span.trace, webhook, dry_run=runs_dry())
    if span is not None:
        if len(jobs) == 1:
            span.stored_as(jobs[0].id)
        span.sent()
    return jobs


def check_call(call: Call[Any]) -> None:
    """Take a call from the user: whatever becomes of it, it wasn't dropped without any use.

    Raises:
        TypeError: It isn't a call.
        CallError: It's a finished value, which `done` has made.
    """
    if not isinstance(call, Call):
        name = getattr(call, "name", None)
        example = f"{name if isinstance(name, str) else 'job_type'}(...)"
        raise TypeError(f"enqueue takes a call, such as {example}, not {type(call).__qualname__}")
    if isinstance(call, Done):
        call.mark_enqueueing()  # which it refuses
    call.mark_used()


def read_calls(calls: Iterable[Call[R]]) -> list[Call[R]]:
    """Take calls from the user, each as `check_call` does."""
    taken = list(calls)
    for call in taken:
        check_call(call)
    return taken


def check_sizes(job: NewJob) -> None:
    """Look whether a middleware has made too much of a job.

    Raises:
        ConfigurationError: It has.
    """
    try:
        check_size(job.payload, "arguments")
        check_size(job.metadata, "metadata")
    except CodecError as error:
        raise ConfigurationError(f"an enqueue middleware has made too much of job {job.id}: {error}") from None
