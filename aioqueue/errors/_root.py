"""The root of all errors, and what every exception of the package has in common."""

from __future__ import annotations

__all__ = ["AioqueueError", "Portable"]


def _rebuild(kind: type[Exception], arguments: tuple[object, ...], attributes: dict[str, object]) -> Exception:
    error = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


class Portable(Exception):
    """An exception that survives `pickle` and `copy` with its attributes, also out of a process pool.

    Python rebuilds an exception by calling its class with `args`, which fails for one with named arguments.
    """

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class AioqueueError(Portable):
    """The root of all of aioqueue's errors."""
