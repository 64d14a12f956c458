"""What a known mistake is: something that a store or a worker could do wrong, and the promise that notices it."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.plan import Theme
    from tests.simulation.promises import Promise

__all__ = ["Mistake", "Patch", "instead_of"]

Patch = tuple[Any, str, Any]
"""An owner, the name of its attribute, and what is there instead. A function gets the method's own arguments."""


def instead_of(owner: Any, attribute: str, function: Callable[..., Any]) -> Patch:
    """A patch whose function gets what it replaces as its first argument."""
    real = getattr(owner, attribute)

    def method(*arguments: Any, **named: Any) -> Any:
        return function(real, *arguments, **named)

    return owner, attribute, method


@dataclass(frozen=True)
class Mistake:
    """One mistake. It has to be noticed by what it names; whatever else it breaks counts for nothing.

    Attributes:
        patches: How it's made.
        cases: Conformance cases, each of which has to fail on a store in memory that makes the mistake.
        breaks: The promise that the simulation has to find broken; None if it shows in no history.
        theme: Of the histories in which it shows; None for all of them.
    """

    patches: tuple[Patch, ...]
    cases: tuple[str, ...] = ()
    breaks: Promise | None = None
    theme: Theme | None = None

    @contextmanager
    def made(self) -> Iterator[None]:
        """Make it, for the length of a block."""
        with ExitStack() as stack:
            for owner, attribute, instead in self.patches:
                stack.enter_context(patch.object(owner, attribute, instead))
            yield
