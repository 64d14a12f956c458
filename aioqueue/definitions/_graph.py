"""Calls that wait for each other: which are enqueued together, and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.definitions._call import Call
from aioqueue.definitions._dry_runs import dry_rows
from aioqueue.errors import BlockerCycle, CallAlreadyEnqueued, ConflictingOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from uuid import UUID

    from aioqueue.definitions._output import HasOutput
    from aioqueue.vocabulary._job import NewJob

__all__ = ["graph_of", "refuse_raising", "rows_of"]

_MOST_NAMED = 10


def graph_of(calls: Sequence[Call[Any]]) -> Sequence[Call[Any]]:
    """Find the calls that are enqueued with some: all that they wait for, and so on, each once, and before those that wait.

    What has been enqueued before is left out: it's waited for by its id. A handle that has the id of one of the calls, as
    `client.handle` can make it, stands for that call.

    Arguments:
        calls: In the order in which they are to be stored, as far as they don't wait for each other.

    Returns:
        All of them; those that were given as they are, if none of them waits. A single one that was given comes last.

    Raises:
        BlockerCycle: Some would wait for each other for ever.
        CallAlreadyEnqueued: A call is given twice.
        ConflictingOptions: Two copies of one call, with different options, are waited for.
    """
    for call in calls:
        if call.waits:
            break
    else:
        return calls
    known = _Known(calls)
    while True:
        ordered: dict[object, Call[Any]] = {}
        unknown: set[UUID] = set()
        for call in calls:
            if call.identity not in ordered:
                _visit(call, known, ordered, unknown)
        if unknown.isdisjoint(known.by_id):
            return list(ordered.values())
        # A handle stands for a call that was met only after it. All are known now, so the second time is the last.


def rows_of(
    graph: Sequence[Call[Any]],
    calls: Iterable[Call[Any]],
    trace: str | None = None,
    webhook: str | None = None,
    *,
    dry_run: bool = False,
) -> list[NewJob]:
    """Make the rows of calls that are enqueued together, in order.

    Arguments:
        graph: All of them, as `graph_of` gives them.
        calls: Those that were given: the others are stored only if somebody needs them.
        trace: The trace context of whoever enqueues them.
        webhook: The URL that is told of their ends, as far as the calls don't say something else.
        dry_run: Whether it's a dry run that enqueues them.

    Raises:
        DryRunRefused: One can't be part of that.
    """
    if graph is calls:
        rows = [call.to_new_job(trace, webhook=webhook) for call in graph]
        return dry_rows(graph, rows) if dry_run else rows
    given = {call.identity for call in calls}
    rows = [call.to_new_job(trace, implied=call.identity not in given, webhook=webhook) for call in graph]
    return dry_rows(graph, rows) if dry_run else rows


def refuse_raising(rows: Iterable[NewJob], instead: str) -> None:
    """Refuse jobs with `on_conflict="raise"` where nobody would hear of it.

    Arguments:
        rows: The jobs.
        instead: What else could be done with such a call.

    Raises:
        ConflictingOptions: There is one.
    """
    for row in rows:
        if row.unique is not None and row.unique.on_conflict == "raise":
            raise ConflictingOptions(
                f'this call of {row.type} has on_conflict="raise", and is stored with an outcome, when nobody is there any '
                f'more to be told: use "return" or "replace", or {instead}'
            )


class _Known:
    """The calls of a graph, as far as they are known.

    Several may have one id, which was chosen for them: they're different calls, and a handle with it stands for the first.

    Arguments:
        calls: Those that are enqueued in any case.

    Raises:
        CallAlreadyEnqueued: A call is given twice.

    Attributes:
        given: By identity.
        met: Others that are enqueued with them, by identity.
        by_id: The first of both that has an id.
    """

    def __init__(self, calls: Iterable[Call[Any]]) -> None:
        self.given: dict[object, Call[Any]] = {}
        self.met: dict[object, Call[Any]] = {}
        self.by_id: dict[UUID, Call[Any]] = {}
        for call in calls:
            if call.identity in self.given:
                raise CallAlreadyEnqueued(
                    f"the same call of {call.job_type.name}, {call.id}, is given twice; copy() makes another"
                )
            self.given[call.identity] = call
            self.by_id.setdefault(call.id, call)

    def find(self, source: HasOutput[Any]) -> Call[Any] | None:
        """The call that is enqueued with the others for what one of them waits for; None for what is stored already."""
        if not isinstance(source, Call):
            return self.by_id.get(source.id)
        found = self.given.get(source.identity) or self.met.get(source.identity)
        if found is None and not source.enqueued:
            found = self.met[source.identity] = source
            self.by_id.setdefault(source.id, source)
        return found

    def refuse_other_copy(self, source: HasOutput[Any], found: Call[Any]) -> None:
        """Refuse that a call is waited for of which another copy, with other options, is enqueued for the same reason.

        Raises:
            ConflictingOptions: It's so.
        """
        if isinstance(source, Call) and found is not source and source.identity not in self.given and found != source:
            raise ConflictingOptions(
                f"two copies of one call of {source.job_type.name}, {source.id}, are waited for, which differ in their "
                "options: use the output of one of them, or of copy(), which makes another job"
            )


def _visit(root: Call[Any], known: _Known, ordered: dict[object, Call[Any]], unknown: set[UUID]) -> None:
    """Put a call behind all that it waits for. Without recursion, since a line of calls may be long.

    Arguments:
        root: The call.
        known: Those that are enqueued together; adds to it.
        ordered: Those that have their place; adds to it.
        unknown: Where the ids of handles are added that aren't those of calls which are known.
    """
    path: dict[object, tuple[Call[Any], Iterator[HasOutput[Any]]]] = {root.identity: (root, iter(root.waits_for))}
    while path:
        call, left = next(reversed(path.values()))
        source = next(left, None)
        if source is None:
            ordered[call.identity] = call
            del path[call.identity]
            continue
        found = known.find(source)
        if found is None:
            if not isinstance(source, Call):
                unknown.add(source.id)
        elif found.identity in path:
            raise _cycle([each for each, _ in path.values()], found)
        else:
            known.refuse_other_copy(source, found)
            if found.identity not in ordered:
                path[found.identity] = found, iter(found.waits_for)


def _cycle(path: Sequence[Call[Any]], again: Call[Any]) -> BlockerCycle:
    identities = [each.identity for each in path]
    around = [*path[identities.index(again.identity) :], again]
    names = [f"{each.job_type.name} {each.id}" for each in around]
    if len(names) > _MOST_NAMED:
        names[_MOST_NAMED - 1 : -1] = [f"({len(names) - _MOST_NAMED} more)"]
    return BlockerCycle(f"these calls would wait for each other for ever: {' -> '.join(names)}")
