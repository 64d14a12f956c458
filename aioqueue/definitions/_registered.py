"""What is in a registry, by name: its own, and what is in those that it includes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from aioqueue.definitions._job_type import JobType
from aioqueue.errors import RegistrationError

if TYPE_CHECKING:
    from collections.abc import Collection

    from aioqueue.definitions._middleware import CompletionMiddleware, Middleware
    from aioqueue.vocabulary._schedules import NewSchedule

__all__ = ["Around", "Registered"]

AnyJobType = JobType[..., Any, Any]


class Around(NamedTuple):
    """What a registry puts around the attempts of its types, and around their completing transactions."""

    attempts: tuple[Middleware, ...] = ()
    completions: tuple[CompletionMiddleware, ...] = ()

    def of(self, inner: Around) -> Around:
        """With another registry's within."""
        return Around((*self.attempts, *inner.attempts), (*self.completions, *inner.completions))


class Registered:
    """What is in one registry.

    Arguments:
        name: To whom its schedules belong; None for nobody.
        around: What it puts around its types.
        replace: Whether a later definition takes the place of an earlier one of the same name.

    Attributes:
        name: As given.
        types: Every job type by its name, and by each of its aliases; included ones too.
        around: What is around each of them, by the same names.
    """

    def __init__(self, name: str | None, around: Around, *, replace: bool) -> None:
        self.name = name
        self.types: dict[str, AnyJobType] = {}
        self.around: dict[str, Around] = {}
        self._own_around = around
        self._replace = replace
        self._own: dict[str, AnyJobType] = {}  # defined here, not included
        self._schedules: dict[str, NewSchedule] = {}
        self._included: list[Registered] = []
        self._parents: list[Registered] = []

    # -- putting together ------------------------------------------------------------------------------------------

    def include(self, other: Registered) -> None:
        """Take in what another one has, and will get.

        Raises:
            RegistrationError: A name is taken, or they would include each other.
        """
        if other is self or self in other._all_included():
            raise RegistrationError("a registry can't include itself, or one that includes it")
        if other in self._included:
            return
        for job_type in dict.fromkeys(other.types.values()):
            self._refuse_taken(job_type)
        for each in other._all_included():
            for name in each._schedules:
                self._refuse_taken_schedule(name, {other, *other._all_included()})
        for job_type in dict.fromkeys(other.types.values()):
            self._put(job_type, other.around[job_type.name])
        self._included.append(other)
        other._parents.append(self)

    def _all_included(self) -> set[Registered]:
        return {self}.union(*(each._all_included() for each in self._included))

    # -- job types --------------------------------------------------------------------------------------------------

    def add(self, job_type: AnyJobType) -> None:
        """Take in a job type that is defined here, or again here.

        Raises:
            RegistrationError: Its name is taken.
        """
        again = self._own.get(job_type.name)
        if again is not None and not (self._replace or again.defines_the_same(job_type)):
            again = None
        self._refuse_taken(job_type, again)
        if again is not None:
            self._forget(again)
        self._own[job_type.name] = job_type
        self._put(job_type, Around())

    def _forget(self, job_type: AnyJobType) -> None:
        """Take out what is defined again."""
        for registered in (self, *self._parents):
            for name in [name for name, present in registered.types.items() if present is job_type]:
                del registered.types[name], registered.around[name]
        for parent in self._parents:
            parent._forget(job_type)

    def _refuse_taken(self, job_type: AnyJobType, again: AnyJobType | None = None) -> None:
        """Refuse a name that another type has; `again` is the earlier definition of this one, if there is one."""
        for name in (job_type.name, *job_type.aliases):
            taken = self.types.get(name)
            if taken not in (None, job_type, job_type.implements, again) and taken.implements is not job_type:
                raise RegistrationError(
                    f"the name {name!r} is taken by {taken.place}, so {job_type.place} can't have it: give one of them "
                    "another with name=. (A module that is imported under two names registers twice; in a notebook, "
                    "Registry(replace=True) lets a changed cell take the place of what it was.)"
                )
        for parent in self._parents:
            parent._refuse_taken(job_type, again)

    def _put(self, job_type: AnyJobType, within: Around) -> None:
        around = self._own_around.of(within)
        for name in (job_type.name, *job_type.aliases):
            present = self.types.get(name)
            if present is None or present.implements is not job_type:  # a handler counts, not its declaration
                self.types[name] = job_type
                self.around[name] = around
        for parent in self._parents:
            parent._put(job_type, around)

    # -- schedules --------------------------------------------------------------------------------------------------

    def add_schedule(self, schedule: NewSchedule) -> None:
        """Take in a schedule that is defined here, or again here; its name is its own, without an owner's.

        Raises:
            RegistrationError: Its name is taken, or this registry has no name.
        """
        if self.name is None:
            raise RegistrationError(
                "a registry with schedules needs a name, by which workers know them again after a deploy: "
                'Registry(name="shop"), or a prefix'
            )
        again = self._schedules.get(schedule.name)
        if again is not None and again != schedule and not self._replace:
            raise _taken(schedule.name)
        if again is None:
            self._refuse_taken_schedule(schedule.name)
        self._schedules[schedule.name] = schedule

    def _refuse_taken_schedule(self, name: str, besides: Collection[Registered] = ()) -> None:
        if any(name in each._schedules for each in self._all_included().difference(besides)):
            raise _taken(name)
        for parent in self._parents:
            parent._refuse_taken_schedule(name, besides)

    def schedules(self) -> list[NewSchedule]:
        """All, included ones too, as they are stored: under this one's name. By name.

        Raises:
            RegistrationError: There are some, and it has no name.
        """
        schedules = [schedule for each in self._all_included() for schedule in each._schedules.values()]
        if schedules and self.name is None:
            raise RegistrationError(
                f"this registry includes one with schedules, such as {schedules[0].name!r}, and has no name by which a worker "
                'knows them again as its own: give it one with Registry(name="shop"), which stays'
            )
        named = [replace(each, name=f"{self.name}/{each.name}", owner=self.name) for each in schedules]
        return sorted(named, key=lambda each: each.name)


def _taken(name: str) -> RegistrationError:
    return RegistrationError(
        f"there is a schedule {name!r} already: give one of them another name with registry.schedule(..., name=). (In a "
        "notebook, Registry(replace=True) lets a changed cell take the place of what it was.)"
    )
