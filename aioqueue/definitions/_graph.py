"""Calls that wait for each other: which are enqueued together, and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.definitions._call import Call
from aioqueue.errors import BlockerCycle, CallAlreadyEnqueued, ConflictingOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from aioqueue.definitions._output import HasOutput

__all__ = ["graph_of"]

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
    given: dict[UUID, Call[Any]] = {}
    for call in calls:
        if call.id in given:
            raise CallAlreadyEnqueued(f"the same call of {call.job_type.name}, {call.id}, is given twice; copy() makes another")
        given[call.id] = call
    met: dict[UUID, Call[Any]] = {}
    while True:
        ordered: dict[UUID, Call[Any]] = {}
        unknown: set[UUID] = set()
        for call in calls:
            if call.id not in ordered:
                _visit(call, given, met, ordered, unknown)
        if unknown.isdisjoint(ordered):
            return list(ordered.values())
        # A handle stands for a call that was met only after it. All are known now, so the second time is the last.


def _visit(
    root: Call[Any],
    given: dict[UUID, Call[Any]],
    met: dict[UUID, Call[Any]],
    ordered: dict[UUID, Call[Any]],
    unknown: set[UUID],
) -> None:
    """Put a call behind all that it waits for. Without recursion, since a line of calls may be long.

    Arguments:
        root: The call.
        given: Those that are enqueued in any case.
        met: Others that are enqueued with them, as far as they are known; adds to it.
        ordered: Those that have their place; adds to it.
        unknown: Where the ids of handles are added that aren't those of calls which are known.
    """
    path: dict[UUID, tuple[Call[Any], Iterator[HasOutput[Any]]]] = {root.id: (root, iter(root.waits_for))}
    while path:
        call, left = next(reversed(path.values()))
        source = next(left, None)
        if source is None:
            ordered[call.id] = call
            del path[call.id]
            continue
        found = given.get(source.id) or met.get(source.id)
        if isinstance(source, Call) and found is None and not source.enqueued:
            found = met[source.id] = source
        if found is None:
            unknown.add(source.id)
        elif source.id in path:
            raise _cycle([each for each, _ in path.values()], found)
        else:
            if isinstance(source, Call) and found is not source and source.id not in given and found != source:
                raise ConflictingOptions(
                    f"two copies of one call of {source.job_type.name}, {source.id}, are waited for, which differ in their "
                    "options: use the output of one of them, or of copy(), which makes another job"
                )
            if found.id not in ordered:
                path[found.id] = found, iter(found.waits_for)


def _cycle(path: Sequence[Call[Any]], again: Call[Any]) -> BlockerCycle:
    ids = [each.id for each in path]
    around = [*path[ids.index(again.id) :], again]
    names = [f"{each.job_type.name} {each.id}" for each in around]
    if len(names) > _MOST_NAMED:
        names[_MOST_NAMED - 1 : -1] = [f"({len(names) - _MOST_NAMED} more)"]
    return BlockerCycle(f"these calls would wait for each other for ever: {' -> '.join(names)}")
