"""Reading a handler's signature: what can be a job, with which parameters and types."""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, ParamSpec, TypeVar, TypeVarTuple

from aioqueue.definitions._call import Call
from aioqueue.errors import ArgumentsError, RegistrationError
from aioqueue.vocabulary._codec import Converter, ValueCodec

__all__ = [
    "Parameters",
    "is_async_function",
    "output_codec",
    "read_hints",
    "read_name",
    "read_parameters",
    "read_result",
    "read_return_hint",
    "refuse_function",
    "refuse_hints",
    "resolved",
    "result_of",
    "shown",
]

_DEEPEST_ANNOTATION_LEVELS = 50


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a handler takes.

    Attributes:
        type_name: The job type's, for errors.
        names: All, in order.
        positional: Those that may be given by position, in order.
        required: Those without a default.
        defaults: Of the others, by name.
    """

    type_name: str
    names: tuple[str, ...]
    positional: tuple[str, ...]
    required: frozenset[str]
    defaults: Mapping[str, object]

    def bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Mapping[str, object]:
        """Give each argument its name. Only what was passed, in the order of the signature.

        Raises:
            ArgumentsError: They don't fit.
        """
        if len(args) > len(self.positional):
            self._refuse(f"takes {len(self.positional)} positional arguments, and {len(args)} were given")
        given = dict(zip(self.positional, args, strict=False))
        for name, value in kwargs.items():
            if name in given:
                self._refuse(f"got {name!r} twice", name)
            if name not in self.names:
                self._refuse(f"has no parameter {name!r}; it takes {', '.join(self.names) or 'none'}", str(name))
            given[name] = value
        if not self.required <= given.keys():
            missing = [name for name in self.names if name in self.required and name not in given]
            self._refuse(f"misses {', '.join(map(repr, missing))}", missing[0])
        return given if not kwargs else {name: given[name] for name in self.names if name in given}

    def _refuse(self, problem: str, path: str = "") -> NoReturn:
        raise ArgumentsError(f"{self.type_name}() {problem}", path=path)


def read_name(function: Callable[..., Any]) -> str:
    """The function's own name.

    Raises:
        RegistrationError: It has none, as a lambda or a partial.
    """
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise RegistrationError(
            f"{function!r} has no name that would be the same in another process: give it one, registry.job(name='...'), or "
            "use def"
        )
    return name


def refuse_function(function: Any) -> None:
    """Refuse what can't be a handler.

    Raises:
        RegistrationError: With the way out.
    """
    label = _label(function)
    if isinstance(function, (staticmethod, classmethod)) or inspect.ismethod(function) or _in_class_body(function):
        raise RegistrationError(
            f"{label} is a method: a job has no `self`, since it runs in another process. Define a function at "
            "module level, and pass what it needs as arguments or as a resource"
        )
    if isinstance(function, type) or not callable(function):
        raise RegistrationError(f"{function!r} can't be a job: use a function, async def or def")
    plain = _plain(function)
    if not inspect.isroutine(plain):
        raise RegistrationError(f"{function!r} can't be a job: wrap the object's call in a function, async def or def")
    if inspect.isasyncgenfunction(plain) or inspect.isgeneratorfunction(plain):
        raise RegistrationError(f"{_label(function)} is a generator, so it has no one result: return a list instead")
    if _overloaded(plain):
        raise RegistrationError(
            f"{_label(function)} has overloads: a payload is read by one signature. Make a job type of each, or use a union"
        )
    if getattr(plain, "__type_params__", ()):
        raise RegistrationError(f"{_label(function)} is generic: a payload is read as concrete types. Name them")
    if not inspect.iscoroutinefunction(function) and inspect.iscoroutinefunction(inspect.unwrap(plain)):
        raise RegistrationError(
            f"{_label(function)} is a def around an async def, so it would run in a thread and return an awaitable: make the "
            "wrapper async def too"
        )


def is_async_function(function: Any) -> bool:
    """Whether what a function, or an object that can be called, gives is awaited: otherwise it's called in a thread."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - the method is asked


def _overloaded(function: Any) -> bool:
    try:
        return bool(typing.get_overloads(function))
    except AttributeError:  # built-in functions have no module to look in
        return False


def _plain(function: object) -> Any:
    plain: Any = function
    while isinstance(plain, functools.partial):
        plain = plain.func
    return plain


def _in_class_body(function: object) -> bool:
    outer, _, _ = getattr(_plain(function), "__qualname__", "").rpartition(".")
    return bool(outer) and not outer.endswith("<locals>")


def _label(function: object) -> str:
    return getattr(_plain(function), "__qualname__", None) or repr(function)


def read_parameters(function: Callable[..., Any], type_name: str) -> Parameters:
    """Read the parameters.

    Raises:
        RegistrationError: One can't be stored by name, or has a mutable default.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError) as error:
        raise RegistrationError(f"{type_name}: the signature can't be read: {error}; wrap it in a function") from None
    for parameter in parameters:
        _refuse_parameter(parameter, type_name)
    return Parameters(
        type_name,
        tuple(each.name for each in parameters),
        tuple(each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD),
        frozenset(each.name for each in parameters if each.default is each.empty),
        {each.name: each.default for each in parameters if each.default is not each.empty},
    )


def _refuse_parameter(parameter: inspect.Parameter, type_name: str) -> None:
    problem = None
    if parameter.kind is parameter.VAR_POSITIONAL:
        problem = f"*{parameter.name} has no names to be stored by: take a list or tuple"
    elif parameter.kind is parameter.VAR_KEYWORD:
        problem = f"**{parameter.name} has no fixed names: take a dict or TypedDict"
    elif parameter.kind is parameter.POSITIONAL_ONLY:
        problem = f"{parameter.name!r} is positional-only, and arguments are stored by name: remove the `/`"
    elif parameter.default is not parameter.empty and not _hashable(parameter.default):
        problem = (
            f"{parameter.name!r} has a mutable default, {parameter.default!r:.60}, which all jobs of a worker would share: "
            "use None, a tuple or a frozen dataclass"
        )
    if problem is not None:
        raise RegistrationError(f"{type_name}: {problem}")


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def read_hints(function: Callable[..., Any], namespace: Mapping[str, Any] | None) -> dict[str, Any]:
    """Resolve the annotations, with the names of the module, of the closure, and of `namespace`.

    Raises:
        NameError: One isn't there (yet).
    """
    plain = _plain(function)
    local = _names_at(inspect.unwrap(plain), namespace)
    return typing.get_type_hints(plain, localns=local or None, include_extras=True)


def read_return_hint(function: Callable[..., Any]) -> dict[str, Any]:
    """Resolve the annotation of what a function returns, whatever those of its parameters are; empty if there is none.

    Raises:
        NameError: A name in it isn't there (yet).
    """
    target: Any = inspect.unwrap(_plain(function))
    annotation = inspect.signature(target).return_annotation
    if annotation is inspect.Signature.empty:
        return {}
    alone = types.SimpleNamespace(__annotations__={"return": annotation}, __globals__=getattr(target, "__globals__", {}))
    return typing.get_type_hints(alone, localns=_names_at(target, None) or None, include_extras=True)


def _names_at(target: Any, namespace: Mapping[str, Any] | None) -> dict[str, Any]:
    """Names beyond those of its module with which a function's annotations may have been written."""
    local = dict(namespace or {})
    if (closure := getattr(target, "__closure__", None)) is not None:
        for name, cell in zip(target.__code__.co_freevars, closure, strict=False):
            try:
                local.setdefault(name, cell.cell_contents)
            except ValueError:  # not assigned yet
                continue
    return local


def refuse_hints(hints: Mapping[str, Any], *, is_async: bool) -> None:
    """Refuse annotations that can't be read as one concrete type.

    Raises:
        RegistrationError: With the way out.
    """
    for name, hint in hints.items():
        if any(isinstance(each, (TypeVar, ParamSpec, TypeVarTuple)) for each in _parts(hint, 0)):
            raise RegistrationError(f"{name!r} is annotated with a type variable: a payload is read as concrete types")
    returned = hints.get("return")
    origin = getattr(returned, "__origin__", returned)
    if not is_async and isinstance(origin, type) and issubclass(origin, Awaitable):
        raise RegistrationError("it is a def that returns an awaitable, and would run in a thread: make it async def")


def read_result(returned: Any) -> tuple[Any, bool]:
    """Read what a handler is annotated to return.

    Returns:
        The type of the value that its chain ends with, and whether the handler may continue it: whether it returns a `Call`.

    Raises:
        RegistrationError: A `Call` is there in a way that leaves one of the two open; with the way out.
    """
    bare = _bare(returned)
    if bare is Call:
        raise RegistrationError("-> Call doesn't say what its chain ends with: annotate -> Call[int], say, or -> Call[None]")
    if not _mentions_call(bare):
        return returned, False
    if typing.get_origin(bare) is Call:
        (result,) = typing.get_args(bare)
        if not _mentions_call(result):
            return result, True
        raise RegistrationError(
            f"-> {_shown(bare)}: a chain ends with a value, and not with a Call: annotate -> Call[R], where "
            "R is the value's type"
        )
    if typing.get_origin(bare) in (typing.Union, types.UnionType):
        members = [arg for each in typing.get_args(bare) for arg in (typing.get_args(each) if _is_call(each) else (each,))]
        wanted = " | ".join(dict.fromkeys("None" if each is type(None) else _shown(each) for each in members))
        raise RegistrationError(
            f"-> {_shown(bare)}: a handler that may continue its chain returns a Call in any case: annotate "
            f"-> Call[{wanted}], and return done(value) for a finished value"
        )
    raise RegistrationError(
        f"-> {_shown(bare)}: a Call can't be a part of a result: return one Call, annotated -> Call[R], to "
        "continue the chain, and enqueue others with current_attempt().client"
    )


def result_of(returned: Any) -> Any:
    """The type of the value that a chain ends with: R of `Call[R]`, and what else is annotated as it is. Also of texts."""
    if isinstance(returned, str):
        found = re.fullmatch(r"(?:\w+\.)*Call\[(.*)\]", returned.strip(), re.DOTALL)
        return found[1] if found else returned
    bare = _bare(returned)
    return typing.get_args(bare)[0] if typing.get_origin(bare) is Call else returned


def _bare(hint: Any) -> Any:
    """An annotation without `Annotated` around it, and without a name that was given to it by `type`."""
    for _ in range(_DEEPEST_ANNOTATION_LEVELS):
        if typing.get_origin(hint) is typing.Annotated:
            hint = hint.__origin__
        elif hasattr(hint, "__value__"):
            hint = hint.__value__
        else:
            break
    return hint


def _shown(hint: Any) -> str:
    return inspect.formatannotation(hint).replace(f"{Call.__module__}.", "")


def _is_call(hint: Any) -> bool:
    return typing.get_origin(hint) is Call


def _mentions_call(hint: Any) -> bool:
    return any(each is Call for each in _parts(hint, 0))


def _parts(hint: Any, depth: int) -> Iterator[Any]:
    yield getattr(hint, "__origin__", hint)
    if depth < _DEEPEST_ANNOTATION_LEVELS:
        for each in getattr(hint, "__args__", ()):
            yield from _parts(each, depth + 1)


def output_codec(returned: Any, converters: Mapping[type, Converter]) -> ValueCodec:
    """What reads and writes the handler's result.

    Raises:
        RegistrationError: It can't be converted.
    """
    if returned in (typing.NoReturn, typing.Never):
        returned = None
    try:
        return ValueCodec(returned, converters)
    except RegistrationError as error:
        raise RegistrationError(f"the result: {error}") from None


def resolved(function: Callable[..., Any], namespace: Mapping[str, Any] | None = None) -> inspect.Signature:
    """The signature with its annotations resolved.

    Raises:
        NameError: One isn't there (yet).
    """
    hints = read_hints(function, namespace)
    signature = inspect.signature(function)
    parameters = [each.replace(annotation=hints.get(each.name, each.empty)) for each in signature.parameters.values()]
    return signature.replace(parameters=parameters, return_annotation=hints.get("return", signature.empty))


def shown(function: Callable[..., Any]) -> str:
    """A function's signature as text, for its job type's repr."""
    try:
        return str(inspect.signature(function)).replace(f"{Call.__module__}.", "")
    except (ValueError, TypeError):
        return "(...)"
