"""In which order several jobs live again that may wait for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

__all__ = ["blockers_first"]

_Id = TypeVar("_Id", UUID, int)


def blockers_first(waits: Mapping[_Id, Collection[_Id]]) -> list[list[_Id]]:
    """Put chains into levels, each of which waits for those before it only; of a cycle one edge is left out.

    Arguments:
        waits: For what each of them waits. What isn't among them doesn't count.
    """
    levels: dict[_Id, int] = {}
    for start in sorted(waits):
        path: list[tuple[_Id, Iterator[_Id]]] = [] if start in levels else [(start, iter(sorted(waits[start])))]
        under_way = {each for each, _ in path}
        while path:
            top, left = path[-1]
            below = next((each for each in left if each in waits and each not in levels and each not in under_way), None)
            if below is not None:
                path.append((below, iter(sorted(waits[below]))))
                under_way.add(below)
                continue
            path.pop()
            under_way.discard(top)
            levels[top] = 1 + max((levels.get(each, -1) for each in waits[top]), default=-1)
    ordered: list[list[_Id]] = [[] for _ in range(1 + max(levels.values(), default=-1))]
    for each, level in sorted(levels.items()):
        ordered[level].append(each)
    return ordered
