"""Reads what a job type is given when it's defined: its options."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from aioqueue.definitions._call_options import read_priority, read_tags
from aioqueue.definitions._gate_options import GATE_OPTIONS, read_gate_options
from aioqueue.definitions._job_type import TypeOptions
from aioqueue.definitions._names import LONGEST_NAME_CHARACTERS, check_name
from aioqueue.definitions._setting_table import SHORTEST_LEASE_SECONDS
from aioqueue.errors import ConfigurationError, RegistrationError
from aioqueue.vocabulary._retry import Retry
from aioqueue.vocabulary._safe_text import safe_repr, visible
from aioqueue.vocabulary._time import seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from aioqueue.definitions._import_names import Executor
    from aioqueue.definitions._job_type import JobType
    from aioqueue.definitions._middleware import CompletionMiddleware, Middleware
    from aioqueue.vocabulary._codec import Converter

__all__ = ["declared_options", "read_completion_middlewares", "read_middlewares", "read_type_options"]

_MOST_PHASES = 100

_OPTIONS_OF_DECLARED = GATE_OPTIONS | {
    "name",
    "aliases",
    "retry",
    "timeout",
    "priority",
    "expires",
    "keep",
    "tags",
    "dry_run",
}
_OPTIONS = _OPTIONS_OF_DECLARED | {
    "middlewares",
    "max_reschedules",
    "concurrency",
    "lease",
    "phases",
    "capture_logs",
    "executor",
}


def declared_options(declared: JobType[..., Any, Any]) -> dict[str, Any]:
    """The options of a declared type, which its handler has where nothing else is said."""
    shared = _OPTIONS_OF_DECLARED - {"name"}
    return {name: getattr(declared, name) for name in shared}


def read_type_options(
    name: str,
    given: Mapping[str, Any],
    *,
    converters: Mapping[type, Converter],
    declared_only: bool,
    implements: JobType[..., Any, Any] | None,
) -> TypeOptions:
    """Read the options of `registry.job`, `declare` or `implement`, and check the name.

    Arguments:
        name: The full name.
        given: As given; what is missing is the default.
        converters: The registry's.
        declared_only: Whether there is no handler.
        implements: The declared type of which this is the handler.

    Raises:
        RegistrationError: The name or an alias can't be one.
        ConfigurationError: An option is out of its range.
        TypeError: There is no such option.
    """
    known = _OPTIONS_OF_DECLARED if declared_only else _OPTIONS
    if unknown := given.keys() - known:
        raise TypeError(f"{name}: there is no option {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    check_name(name)
    try:
        return TypeOptions(
            aliases=_read_aliases(given.get("aliases", ())),
            retry=_read_retry(given.get("retry")),
            timeout=_read_duration(given.get("timeout"), "timeout", positive=True),
            priority=read_priority(given.get("priority", 2)),
            expires=_read_duration(given.get("expires"), "expires", positive=False),
            keep=_read_duration(given.get("keep"), "keep", positive=False),
            tags=read_tags(given.get("tags", ())),
            middlewares=read_middlewares(given.get("middlewares", ())),
            max_reschedules=_read_reschedules(given.get("max_reschedules")),
            concurrency=_read_concurrency(given.get("concurrency")),
            lease=_read_lease(given.get("lease")),
            phases=_read_phases(given.get("phases", ())),
            capture_logs=_read_yes_no(given.get("capture_logs", False), "capture_logs"),
            executor=_read_executor(given.get("executor", "thread")),
            dry_run=_read_yes_no(given.get("dry_run", False), "dry_run"),
            gates=read_gate_options(given),
            declared_only=declared_only,
            implements=implements,
            converters=converters,
        )
    except RegistrationError:
        raise
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from None


def read_completion_middlewares(middlewares: Sequence[CompletionMiddleware]) -> tuple[CompletionMiddleware, ...]:
    """Check that completion middlewares can be called.

    Raises:
        RegistrationError: One can't.
    """
    for each in middlewares:
        if not callable(each):
            raise RegistrationError(f"{each!r} isn't a completion middleware: @asynccontextmanager async def m(attempt, tx)")
    return tuple(middlewares)


def read_middlewares(middlewares: Sequence[Middleware]) -> tuple[Middleware, ...]:
    """Check that middlewares can be called.

    Raises:
        RegistrationError: One can't.
    """
    for each in middlewares:
        if not callable(each):
            raise RegistrationError(f"{each!r} isn't a middleware: async def m(attempt, call_next) -> object")
    return tuple(middlewares)


def _read_aliases(aliases: Iterable[str]) -> tuple[str, ...]:
    if isinstance(aliases, str):
        raise RegistrationError(f"aliases must be several names, such as ({aliases!r},), not one text")
    return tuple(dict.fromkeys(check_name(each) for each in aliases))


def _read_retry(value: object) -> Retry | None:
    if value is not None and not isinstance(value, Retry):
        raise ConfigurationError(f"retry must be a Retry(...), not {value!r}")
    return value


def _read_reschedules(value: object) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise ConfigurationError(f"max_reschedules must be zero or more, not {value!r}")
    return value


def _read_concurrency(value: object) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ConfigurationError(
            f"concurrency must be a whole number from 1 on, not {safe_repr(value)}: to run none of them, pause the type"
        )
    return value


def _read_phases(phases: Any) -> tuple[str, ...]:
    if isinstance(phases, str):
        raise ConfigurationError(f"phases must be several names, such as ({phases!r},), not one text")
    if not _has_order(phases):
        raise ConfigurationError(
            f'phases must be names in their order, such as ("download", "process"), not {safe_repr(phases)}'
        )
    names: tuple[str, ...] = tuple(phases)
    for name in names:
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME_CHARACTERS or visible(name) != name:
            raise ConfigurationError(
                f"a phase's name is a text of 1 to {LONGEST_NAME_CHARACTERS} characters, in one line, not {safe_repr(name)}"
            )
    if len(set(names)) < len(names):
        raise ConfigurationError(f"phases must be different names, not {names!r}")
    if len(names) > _MOST_PHASES:
        raise ConfigurationError(f"a job has {_MOST_PHASES} phases at most, not {len(names)}")
    return names


def _has_order(names: Any) -> bool:
    """Whether these are several things in an order: a set has none, or another one in each process."""
    return isinstance(names, Iterable) and not isinstance(names, (set, frozenset))


def _read_yes_no(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be True or False, not {safe_repr(value)}")
    return value


def _read_executor(value: object) -> Executor:
    if value == "thread":
        return "thread"
    if value == "process":
        return "process"
    raise ConfigurationError(f'executor must be "thread" or "process", not {safe_repr(value)}')


def _read_duration(value: float | timedelta | None, name: str, *, positive: bool) -> float | None:
    return None if value is None else seconds(value, name, positive=positive)


def _read_lease(value: float | timedelta | None) -> float | None:
    lease = _read_duration(value, "lease", positive=True)
    if lease is not None and lease < SHORTEST_LEASE_SECONDS:
        raise ConfigurationError(f"lease must be at least {SHORTEST_LEASE_SECONDS:g} second, not {lease:g}")
    return lease
