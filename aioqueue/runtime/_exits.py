"""`SystemExit` and `KeyboardInterrupt`: which mean a job's failure, and which mean the whole program."""

from __future__ import annotations

import dis
import signal
from asyncio.runners import Runner
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, TracebackType

__all__ = ["exits_in", "from_a_signal", "is_exit", "members", "traceback_of"]

_RAISE = bytes([dis.opmap["RAISE_VARARGS"]])
_BY_ASYNCIO: set[CodeType] = {cast("Any", Runner)._on_sigint.__code__, Runner.run.__code__}
"""Where `asyncio.run` raises it: at a second SIGINT, and when the program that the first has cancelled has ended."""


def members(error: BaseException) -> tuple[BaseException, ...]:
    """The exceptions of a group; none, if it isn't one."""
    if not issubclass(type(error), BaseExceptionGroup):
        return ()
    # The group's own attribute, whatever a class derived from it makes of that name.
    return tuple(cast("Any", BaseExceptionGroup).exceptions.__get__(error))


def exits_in(error: BaseException) -> Iterator[BaseException]:
    """Give the error if it's an exit, or those among the errors of a group. Ctrl-C is none: it means the program."""
    left = [error]
    while left:
        each = left.pop()
        left.extend(members(each))
        if issubclass(type(each), (SystemExit, KeyboardInterrupt)) and not from_a_signal(each):
            yield each


def is_exit(error: BaseException) -> bool:
    """Whether it's an exit, or several errors with one among them."""
    return next(exits_in(error), None) is not None


def from_a_signal(error: BaseException) -> bool:
    """Whether it's the `KeyboardInterrupt` of a real SIGINT, rather than one raised by code.

    The interpreter's own handler raises it between any two instructions; `asyncio.run` has one of its own.
    """
    where = traceback_of(error) if type(error) is KeyboardInterrupt else None
    if where is None:
        return False
    while where.tb_next is not None:
        where = where.tb_next
    code = where.tb_frame.f_code
    if code in _BY_ASYNCIO:
        return True
    raised_by_code = code.co_code[where.tb_lasti : where.tb_lasti + 1] == _RAISE
    return not raised_by_code and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def traceback_of(error: BaseException) -> TracebackType | None:
    """An exception's traceback, whatever its class makes of the attribute."""
    return cast("TracebackType | None", BaseException.__dict__["__traceback__"].__get__(error))
