"""What stands for the end of a job that hasn't run: `output` and `settled`, of calls and of handles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import orjson

from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._blockers import NewBlocker
from aioqueue.vocabulary._placeholders import Placeholder, is_settled, source_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from aioqueue.vocabulary._codec import Placed
    from aioqueue.vocabulary._ends import Completed, Failed

__all__ = ["HasOutput", "blockers_of", "placed_key", "read_after", "sources_of"]

R_co = TypeVar("R_co", covariant=True)


class HasOutput(Generic[R_co]):
    """What other jobs can wait for: a call, or the handle of a job.

    Attributes:
        id: The job's.
        job_type: Its type.
    """

    __slots__ = ()

    id: UUID
    job_type: Any

    not_storable_hint: ClassVar = ": pass on its .output, which stands for what it will return"
    """What is said to whoever passes the call or handle itself as an argument."""

    @property
    def output(self) -> R_co:
        """What stands for its output, as an argument of another call: that job waits for it, and fails if there won't be one.

        It can stand anywhere in the arguments: within lists, dictionaries and dataclasses too. Whatever else is done with it
        raises `OutputNotReady`, since there is nothing yet.
        """
        return cast("R_co", self._placeholder("output", settled=False))

    @property
    def settled(self) -> Completed[R_co] | Failed:
        """What stands for its end, as an argument of another call: that job runs however this one ends, and sees how.

        As `output` it can stand anywhere, and can't be used before.
        """
        return cast("Completed[R_co] | Failed", self._placeholder("end", settled=True))

    @property
    def blocker_id(self) -> UUID:
        """A step's id of the chain whose end is waited for."""
        return self.id

    def _placeholder(self, what: str, *, settled: bool) -> Placeholder:
        return Placeholder(self, f"the {what} of {self.job_type.name} {self.id}", settled=settled)


def read_after(value: Iterable[HasOutput[Any]]) -> tuple[HasOutput[Any], ...]:
    """Check what `after=` was given.

    Raises:
        ConfigurationError: It isn't several calls or handles.
    """
    if isinstance(value, (HasOutput, Placeholder)):
        raise ConfigurationError(f"after= takes several calls or handles, such as [{value!r:.100}], not one")
    taken = tuple(value)
    for each in taken:
        if isinstance(each, Placeholder):
            raise ConfigurationError(f"after= takes the calls or handles themselves, not {each!r}")
        if not isinstance(each, HasOutput) or not hasattr(each, "id"):  # `done(...)` has none
            raise ConfigurationError(f"after= takes calls and handles, not {each!r:.100}")
    return taken


def sources_of(placed: Sequence[Placed], after: Sequence[HasOutput[Any]]) -> dict[int, HasOutput[Any]]:
    """What a call waits for: each object once, by its Python identity, in order."""
    sources = [cast("HasOutput[Any]", source_of(placeholder)) for placeholder, _ in placed]
    return {id(each): each for each in (*sources, *after)}


def blockers_of(placed: Sequence[Placed], after: Sequence[HasOutput[Any]]) -> tuple[NewBlocker, ...]:
    """What the store is told of what a call waits for: each chain once."""
    places: dict[UUID, list[list[str | int]]] = {}
    needed: set[UUID] = set()
    for placeholder, path in placed:
        blocker_id = cast("HasOutput[Any]", source_of(placeholder)).blocker_id
        settled = is_settled(placeholder)
        places.setdefault(blocker_id, []).append(["settled" if settled else "output", *path])
        if not settled:
            needed.add(blocker_id)
    for each in after:
        places.setdefault(each.blocker_id, [])
        needed.add(each.blocker_id)
    return tuple(
        NewBlocker(blocker_id, blocker_id not in needed, orjson.dumps(where) if where else b"[]")
        for blocker_id, where in places.items()
    )


def placed_key(placed: Sequence[Placed], after: Sequence[HasOutput[Any]]) -> tuple[object, ...]:
    """What a call waits for, as a value: two calls are equal only if it is."""
    outputs = [
        (cast("HasOutput[Any]", source_of(placeholder)).id, is_settled(placeholder), path) for placeholder, path in placed
    ]
    return (*outputs, *(each.id for each in after))
