"""The import names of handlers that run in processes of their own, where nothing else leads to them."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from aioqueue.errors import RegistrationError
from aioqueue.vocabulary._safe_text import safe_repr

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["Executor", "found_in", "refuse_unreachable", "refuse_without_import_name"]

Executor: TypeAlias = Literal["thread", "process"]
"""Where a plain function runs: in a thread of the worker's process, or in a process of its own."""


def refuse_without_import_name(function: Any, name: str) -> None:
    """Refuse what can't run in a process of its own, when it's registered.

    Raises:
        RegistrationError: It's `async def`, or nothing can be imported under its name; with the way out.
    """
    if inspect.iscoroutinefunction(function):
        raise RegistrationError(
            f'{name}: executor="process" is for `def` handlers, and this one is `async def`: make it a `def`, in which '
            "asyncio.run(...) runs what is async, or leave the option out"
        )
    qualified = str(getattr(function, "__qualname__", ""))
    if not getattr(function, "__module__", None) or "<lambda>" in qualified or "<locals>" in qualified or not qualified:
        raise RegistrationError(
            f'{name}: with executor="process" a handler is imported by its name in another process, and {safe_repr(function)} '
            "has none there: define it at module level, with def, and pass what it needs as arguments"
        )


def found_in(module: ModuleType, qualified_name: str) -> object:
    """What a module has under a function's qualified name.

    Raises:
        AttributeError: Nothing.
    """
    found: object = module
    for each in qualified_name.split("."):
        found = getattr(found, each)
    return found


def refuse_unreachable(job_type: object, function: Any, name: str) -> None:
    """Refuse a handler whose import name doesn't lead to its job type: its process wouldn't find it.

    Raises:
        RegistrationError: It doesn't; with the way out.
    """
    module = sys.modules.get(function.__module__)
    if function.__module__ == "__main__" and not _can_be_imported(module):
        raise RegistrationError(
            f'{name}: executor="process" needs handlers that can be imported, and this one is in an interactive session, or in '
            "a package's __main__.py: put it into another module"
        )
    try:
        found = None if module is None else found_in(module, function.__qualname__)
    except AttributeError:
        found = None
    if found is not job_type:
        raise RegistrationError(
            f'{name}: with executor="process" a handler is imported by its name in another process, and '
            f"{function.__module__}.{function.__qualname__} isn't its job type here, but {safe_repr(found)}: define it at "
            "module level with the decorator, @registry.job(executor=...), and leave the name as it is"
        )


def _can_be_imported(main: ModuleType | None) -> bool:
    """Whether the main module can be imported by another process: it's a file, or a module of a name of its own."""
    if main is None or getattr(main, "__file__", None) is None:
        return False
    spec = getattr(main, "__spec__", None)
    return spec is None or not str(spec.name).endswith("__main__")
