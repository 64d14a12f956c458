"""Outputs that don't exist yet: what stands for one in the arguments of a call, and what fills it in later. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, cast

import msgspec

from aioqueue.errors import ArgumentsError, OutputNotReady
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._ends import Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioqueue.vocabulary._blockers import EndedBlocker

__all__ = ["Placeholder", "filled", "is_settled", "source_of"]

_LONGEST_PATH_STEPS = 300
"""JSON that is written by this library isn't nested as deep."""


class _NotThere(OutputNotReady, AttributeError):
    """For names that tools ask every object for: that it has none is an answer to them."""


class Placeholder:
    """Stands for the output of a job that hasn't run. It can be passed on as an argument of another call, and nothing else.

    Arguments:
        source: The call or handle whose end it stands for.
        text: What it stands for, for people.
        settled: Whether it stands for the end either way, and not only for an output.
    """

    __slots__ = ("__settled", "__source", "__text")

    def __init__(self, source: object, text: str, *, settled: bool) -> None:
        set_slot = object.__setattr__
        set_slot(self, "_Placeholder__source", source)
        set_slot(self, "_Placeholder__text", text)
        set_slot(self, "_Placeholder__settled", settled)

    def __repr__(self) -> str:
        return f"<{self.__text}, which hasn't run yet>"

    def __copy__(self) -> Placeholder:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Placeholder:
        return self

    def __getattr__(self, name: str) -> NoReturn:
        # Debuggers, `copy` and libraries that tell values apart look for names with an underscore: they have to be told
        # that it has none. Whoever means an attribute of the output mustn't get a default in its place.
        kind = _NotThere if name.startswith("_") else OutputNotReady
        raise kind(_refusal(self, f"its attribute {name!r} was used"))


def source_of(placeholder: Placeholder) -> object:
    """The call or handle whose end it stands for."""
    return cast("Any", placeholder)._Placeholder__source


def is_settled(placeholder: Placeholder) -> bool:
    """Whether it stands for the end either way, and not only for an output."""
    return bool(cast("Any", placeholder)._Placeholder__settled)


def _refusal(placeholder: Placeholder, use: str) -> str:
    text: str = cast("Any", placeholder)._Placeholder__text
    return (
        f"{use}, but this is {text}, which hasn't run yet: it can only be passed on as an argument of another call. What is to "
        "be done with the output belongs in the handler that gets it"
    )


_ARITHMETIC = ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow")
_BITWISE = ("lshift", "rshift", "and", "or", "xor")
# `__next__` isn't among them: a class that has it is an iterator to pydantic, which would use it up. Without it `next()` fails.
_NAMES = (
    *("str", "bytes", "format", "bool", "int", "float", "complex", "index", "hash", "eq", "ne", "lt", "le", "gt", "ge"),
    *("len", "length_hint", "contains", "iter", "reversed", "getitem", "setitem", "delitem", "call", "setattr", "delattr"),
    *("fspath", "abs", "neg", "pos", "invert", "round", "trunc", "floor", "ceil", "reduce", "reduce_ex", "getstate"),
    *("enter", "exit", "aenter", "aexit", "await", "aiter", "anext"),
    *(prefix + name for name in _ARITHMETIC + _BITWISE for prefix in ("", "r", "i")),
)


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refuse(self: Placeholder, *_arguments: object, **_named: object) -> NoReturn:
        raise OutputNotReady(_refusal(self, f"it was used ({name})"))

    refuse.__name__ = name
    return refuse


for _name in _NAMES:
    setattr(Placeholder, f"__{_name}__", _refuse(f"__{_name}__"))


_read_places = msgspec.json.Decoder(list[list[str | int]])
_read_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_read_array = msgspec.json.Decoder(list[msgspec.Raw])

_Tree = dict["str | int", "_Tree | msgspec.Raw"]
"""What to fill in, by the steps that lead there."""

_FAILED_STATES: dict[ChainEnd, Any] = {
    ChainEnd.FAILED: "failed",
    ChainEnd.CANCELLED: "cancelled",
    ChainEnd.DELETED: "deleted",
}


def filled(payload: bytes, blockers: Sequence[EndedBlocker]) -> bytes:
    """Put the ends of chains where they belong in a job's arguments. What stands there already keeps its text.

    Arguments:
        payload: The stored arguments: a JSON object, with null at the places.
        blockers: The chains that the job has waited for.

    Returns:
        The arguments, ready to be decoded; `payload` itself if no place is named.

    Raises:
        ArgumentsError: The places don't fit the arguments, or an output is needed of a chain that hasn't completed.
    """
    tree: _Tree = {}
    for blocker in blockers:
        if blocker.places != b"[]":
            _plant(tree, blocker)
    return bytes(_fill(msgspec.Raw(payload), tree, ())) if tree else payload


def _plant(tree: _Tree, blocker: EndedBlocker) -> None:
    try:
        places = _read_places.decode(blocker.places)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ArgumentsError(f"where the end of {blocker.chain_id} belongs can't be read: {error}") from None
    values: dict[str | int, msgspec.Raw] = {}
    for place in places:
        if not 2 <= len(place) <= _LONGEST_PATH_STEPS:
            _refuse_place(place[1:3], "is no place in arguments")
        kind, *before, last = place
        if kind not in values:
            values[kind] = _value(blocker, kind)
        node = tree
        for step in before:
            child = node.setdefault(step, {})
            if isinstance(child, msgspec.Raw):
                _refuse_place(place[1:], "is within another one")
            node = child
        if node.setdefault(last, values[kind]) is not values[kind]:
            _refuse_place(place[1:], "is named twice")


def _value(blocker: EndedBlocker, kind: str | int) -> msgspec.Raw:
    completed = blocker.end is ChainEnd.COMPLETED
    output = b"null" if blocker.output is None else bytes(blocker.output)
    if kind == "settled":
        if completed:
            return msgspec.Raw(b'{"end":"completed","value":' + output + b"}")
        cause = blocker.cause.encode(errors="replace").decode()  # it was stored by anybody
        return msgspec.Raw(msgspec.json.encode(Failed(blocker.chain_id, _FAILED_STATES[blocker.end], cause)))
    if kind != "output":
        raise ArgumentsError(f"what belongs in the arguments of the chain {blocker.chain_id} isn't known: {kind!r:.100}")
    if not completed:
        raise ArgumentsError(f"there is no output of the chain {blocker.chain_id}: {blocker.cause}")
    return msgspec.Raw(output)


def _fill(stored: msgspec.Raw, node: _Tree | msgspec.Raw, path: tuple[str | int, ...]) -> msgspec.Raw:
    if isinstance(node, msgspec.Raw):
        if bytes(stored).strip() != b"null":
            _refuse_place(path, "isn't empty in the stored arguments")
        return node
    try:
        if isinstance(next(iter(node)), str):
            parts: Any = _read_object.decode(stored)
            missing = node.keys() - parts.keys()
        else:
            parts = _read_array.decode(stored)
            missing = node.keys() - set(range(len(parts)))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ArgumentsError(f"the stored arguments don't fit what is to be filled in at {_shown(path)}: {error}") from None
    if missing:
        _refuse_place((*path, min(missing, key=str)), "isn't there in the stored arguments")
    for step, child in node.items():
        parts[step] = _fill(parts[step], child, (*path, step))
    return msgspec.Raw(msgspec.json.encode(parts))


def _refuse_place(path: Sequence[str | int], problem: str) -> NoReturn:
    raise ArgumentsError(f"the place {_shown(path)} for an output {problem}", path=_shown(path))


def _shown(path: Sequence[str | int]) -> str:
    text = ".".join(map(str, path[:20]))
    return text if len(text) <= 200 else f"{text[:197]}..."
