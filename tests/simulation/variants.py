"""Finds stores and workers that are known to make mistakes: each must be noticed by the very promise that it breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.known_mistakes.stores import STORE_MISTAKES
from tests.known_mistakes.workers import WORKER_MISTAKES
from tests.simulation.history import Verdict, simulate
from tests.simulation.themes import seeds_of

if TYPE_CHECKING:
    from tests.known_mistakes.mistake import Mistake

__all__ = ["VARIANTS", "found"]

VARIANTS: dict[str, Mistake] = {
    name: mistake for name, mistake in {**STORE_MISTAKES, **WORKER_MISTAKES}.items() if mistake.breaks is not None
}
"""Those that show in a history, by name."""


def found(mistake: Mistake, count: int) -> tuple[int | None, list[Verdict]]:
    """Look for a mistake in so many histories.

    Returns:
        In how many it was found, None if it wasn't; and the histories in which something else was.
    """
    others: list[Verdict] = []
    with mistake.made():
        for number, seed in enumerate(seeds_of(mistake.theme, count), 1):
            verdict = simulate(seed)
            if verdict.violation is None:
                continue
            if verdict.violation.promise is mistake.breaks:
                return number, others
            others.append(verdict)
    return None, others
