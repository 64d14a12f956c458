"""Which job types a worker claims."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from aioqueue.errors import ConfigurationError

if TYPE_CHECKING:
    from aioqueue.definitions._job_type import JobType
    from aioqueue.definitions._registry import Registry

__all__ = ["claimed_types", "names_of"]


def names_of(types: Iterable[JobType[..., Any, Any] | str] | None) -> Iterable[str] | None:
    """The names of job types. What isn't several is left to be refused."""
    if isinstance(types, Iterable) and not isinstance(types, str):
        return [each if isinstance(each, str) else each.name for each in types]
    return types


def claimed_types(registry: Registry, types: Iterable[str] | None) -> list[str]:
    """The names under which jobs are stored that a worker claims: of these types, or of all that have a handler.

    Raises:
        RegistrationError: An annotation of one can't be resolved.
        ConfigurationError: One has no handler, or none has.
    """
    registry.check()
    runnable = registry.runnable
    if types is None:
        names = set(runnable)
    else:
        if missing := [each for each in types if each not in runnable]:
            raise ConfigurationError(
                f"types= (or AIOQUEUE_TYPES) names what has no handler in the registry: {', '.join(missing)}"
            )
        wanted = {runnable[each].name for each in types}
        names = {name for name, job_type in runnable.items() if job_type.name in wanted}
    if not names:
        raise ConfigurationError("the registry has no handlers: nothing could ever run")
    return sorted(names)
