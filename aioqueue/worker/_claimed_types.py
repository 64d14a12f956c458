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


def claimed_types(registry: Registry, types: Iterable[str] | None, *, dry_run: bool = False) -> list[str]:
    """The names under which jobs are stored that a worker claims: of these types, or of all that have a handler.

    Arguments:
        registry: With the handlers.
        types: Names of the only ones; None for all.
        dry_run: Whether only those count that are declared for dry runs.

    Raises:
        RegistrationError: An annotation of one can't be resolved.
        ConfigurationError: One has no handler, or isn't declared for dry runs; or none has, or is.
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
    if dry_run:
        dry = {name for name in names if runnable[name].dry_run}
        if types is not None and (others := {runnable[name].name for name in names - dry}):
            raise ConfigurationError(
                f"types= (or AIOQUEUE_TYPES) names what isn't declared dry_run=True, and dry_run=True runs nothing else: "
                f"{', '.join(sorted(others))}"
            )
        if names and not dry:
            raise ConfigurationError("the registry has no handlers that are declared dry_run=True: a dry run could run nothing")
        names = dry
    if not names:
        raise ConfigurationError("the registry has no handlers: nothing could ever run")
    return sorted(names)
