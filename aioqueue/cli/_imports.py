"""Finds the registry that a command line names: `app:registry`, `package.tasks:queues.main`, `app:make_registry`."""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import click

from aioqueue.definitions._registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType, TracebackType

__all__ = ["ImportProblem", "load_registry"]

_NO_SUCH_ATTRIBUTE = object()
_FRAMES_NOT_SHOWN = ("<frozen importlib", os.path.join("importlib", "__init__.py"), __file__)


class ImportProblem(click.ClickException):
    """The registry can't be had; the message says what to write instead. The exit code is that of wrong usage."""

    exit_code = 2


def load_registry(path: str, folder: str | None = None) -> Registry:
    """Import a registry.

    The folder is appended to the import path: what is installed isn't shadowed by files in it.

    Arguments:
        path: `module:attribute`; the attribute may be dotted, and may be a function that returns the registry. The
            module alone will do when it has exactly one registry.
        folder: Where the module may lie; by default the working folder.

    Returns:
        The registry.

    Raises:
        ImportProblem: There is no such module or attribute, it isn't a registry, or the module raises; in the last
            case its own traceback has been written to standard error.
    """
    module_name, colon, attribute = path.partition(":")
    _check_form(path, module_name, attribute, colon)
    where = Path(folder or ".").resolve()
    if not where.is_dir():
        raise ImportProblem(f"--app-dir: there is no folder {where}")
    if str(where) not in (os.path.realpath(each or ".") for each in sys.path):
        sys.path.append(str(where))
    module = _import(module_name, where)
    if not colon:
        return _only_registry(module, module_name)
    return _as_registry(_read_attribute(module, module_name, attribute, where), path)


def _check_form(path: str, module_name: str, attribute: str, colon: str) -> None:
    if module_name.endswith(".py") or "/" in module_name:
        dotted = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise ImportProblem(f"{path!r} is a file's name: give the module as it's imported, such as {dotted}:registry")
    names = [*module_name.split("."), *(attribute.split(".") if colon else [])]
    if not all(name.isidentifier() for name in names):
        raise ImportProblem(f"{path!r} isn't of the form module:attribute, such as app:registry")


def _import(name: str, where: Path) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            _explain_missing(name, error.name, where)
        _fail_with_traceback(error, f"{name} can't be imported")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's module raises; it's shown as it is
        _fail_with_traceback(error, f"{name} can't be imported")


def _explain_missing(name: str, missing: str, where: Path) -> NoReturn:
    parent, _, last = missing.rpartition(".")
    message = f"there is no module {missing!r}"
    if missing != name:
        message += f", so {name!r} can't be imported"
    package = sys.modules.get(parent) if parent else None
    if package is not None and not hasattr(package, "__path__"):
        message += f": {parent} is a module, not a package ({package.__file__}){_shadowing(parent, where)}"
    else:
        folders = [Path(each) for each in package.__path__] if package is not None else [where]
        prefix = f"{parent}." if parent else ""
        message += f" in {', '.join(str(each) for each in folders)} or among the installed packages"
        message += _similar(last, _modules_in(folders), prefix)
        if package is None:
            message += f"{'' if message.endswith('?') else '.'} Run it in the project's folder, or name that with --app-dir"
        else:
            shadowed = _shadowing(parent, where)
            message += shadowed.removeprefix(".") if message.endswith("?") else shadowed
    raise ImportProblem(message)


def _modules_in(folders: Iterable[Path]) -> list[str]:
    found: set[str] = set()
    for folder in folders:
        for entry in folder.iterdir() if folder.is_dir() else ():
            name = entry.name.removesuffix(".py")
            if name.isidentifier() and (entry.suffix == ".py" or (entry / "__init__.py").exists()):
                found.add(name)
    return sorted(found)


def _shadowing(name: str, where: Path) -> str:
    """Says so when the module that was imported isn't the one that lies in the folder."""
    top = name.partition(".")[0]
    module = sys.modules.get(top)
    origin = getattr(module, "__file__", None)
    for own in (where / f"{top}.py", where / top / "__init__.py"):
        if own.exists() and (origin is None or not Path(origin).resolve().is_relative_to(where)):
            return (
                f". Note that {top!r} is {origin or 'built into Python'}, which comes before {own}: "
                "installed packages aren't shadowed, so that file needs another name"
            )
    return ""


def _read_attribute(module: ModuleType, module_name: str, attribute: str, where: Path) -> object:
    value: object = module
    reached = module_name
    for name in attribute.split("."):
        try:
            found = getattr(value, name, _NO_SUCH_ATTRIBUTE)
        except Exception as error:  # noqa: BLE001 - a property or module __getattr__ of the user's; it's shown as it is
            _fail_with_traceback(error, f"{reached}.{name} can't be read")
        if found is _NO_SUCH_ATTRIBUTE:
            registries = [each for each, item in vars(module).items() if isinstance(item, Registry)] if value is module else []
            hint = _similar(name, registries or [each for each in dir(value) if not each.startswith("_")], "", known=registries)
            shadowed = _shadowing(module_name, where)
            raise ImportProblem(f"{reached} has no attribute {name!r}{hint}{shadowed.removeprefix('.') if hint else shadowed}")
        value = found
        reached = f"{reached}.{name}"
    return value


def _similar(name: str, candidates: Iterable[str], prefix: str, *, known: Iterable[str] = ()) -> str:
    close = difflib.get_close_matches(name, list(candidates), n=3, cutoff=0.6) or list(known)[:3]
    return f". Did you mean {' or '.join(f'{prefix}{each}' for each in close)}?" if close else ""


def _only_registry(module: ModuleType, name: str) -> Registry:
    found = {each: item for each, item in vars(module).items() if isinstance(item, Registry)}
    if len({id(item) for item in found.values()}) == 1:
        return next(iter(found.values()))
    if not found:
        raise ImportProblem(f"{name} has no Registry: give it as {name}:attribute")
    raise ImportProblem(f"{name} has several registries: give {' or '.join(f'{name}:{each}' for each in sorted(found))}")


def _as_registry(value: object, path: str) -> Registry:
    if isinstance(value, Registry):
        return value
    if not inspect.isroutine(value) and not inspect.isclass(value):
        raise ImportProblem(f"{path} is {_kind_of(value)}, not a Registry or a function that returns one")
    factory = cast("Callable[..., Any]", value)
    try:
        inspect.signature(factory).bind()
    except TypeError:
        raise ImportProblem(f"{path} takes parameters: a function that makes the registry is called without any") from None
    except ValueError:
        pass  # some built-in functions have no signature: the call will tell
    try:
        made = factory()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's function raises; it's shown as it is
        _fail_with_traceback(error, f"{path}() failed")
    if inspect.iscoroutine(made):
        made.close()
        raise ImportProblem(f"{path} is an async function: the registry has to be there before the event loop is")
    if not isinstance(made, Registry):
        raise ImportProblem(f"{path}() returned {_kind_of(made)}, not a Registry")
    return made


def _kind_of(value: object) -> str:
    name = type(value).__qualname__
    return "None" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _fail_with_traceback(error: BaseException, summary: str) -> NoReturn:
    """Write the user's own traceback, without the import system's frames and ours."""
    frames: TracebackType | None = error.__traceback__
    while frames is not None and any(part in frames.tb_frame.f_code.co_filename for part in _FRAMES_NOT_SHOWN):
        frames = frames.tb_next
    click.echo("".join(traceback.format_exception(type(error), error, frames)), err=True, nl=False)
    raise ImportProblem(summary) from None
