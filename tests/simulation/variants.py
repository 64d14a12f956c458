"""Finds stores and workers that are known to make mistakes: each must be noticed by the very promise that it breaks."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from tests.known_mistakes.stores import STORE_MISTAKES
from tests.known_mistakes.workers import WORKER_MISTAKES
from tests.simulation.history import Verdict, simulate
from tests.simulation.themes import seeds_of

if TYPE_CHECKING:
    from tests.known_mistakes.mistake import Mistake

__all__ = ["ENOUGH", "VARIANTS", "found", "write_hints"]

ENOUGH = 400
"""Histories within which every mistake must be found."""

_HINTS = Path(__file__).with_name("found_in.json")
"""The seed by which each mistake was found last: tried first, since looking through those before it takes minutes. It's a hint:
where it's wrong, since the histories of seeds have changed, all are looked through."""

VARIANTS: dict[str, Mistake] = {
    name: mistake for name, mistake in {**STORE_MISTAKES, **WORKER_MISTAKES}.items() if mistake.breaks is not None
}
"""Those that show in a history, by name."""


def found(name: str, count: int = ENOUGH, *, hints: bool = True) -> tuple[int | None, list[Verdict]]:
    """Look for a mistake in so many histories.

    Returns:
        The seed by which it was found, None if it wasn't; and the histories in which something else was.
    """
    mistake, others = VARIANTS[name], list[Verdict]()
    hint = _hints().get(name) if hints else None
    with mistake.made():
        for seed in chain(() if hint is None else (hint,), seeds_of(mistake.theme, count)):
            verdict = simulate(seed)
            if verdict.violation is None:
                continue
            if verdict.violation.promise is mistake.breaks:
                return seed, others
            others.append(verdict)
    return None, others


def write_hints() -> None:
    """Look for each mistake that isn't found by its hint, and write by which seed it was."""
    seeds = {name: found(name)[0] for name in VARIANTS}
    _HINTS.write_text(json.dumps({name: seed for name, seed in seeds.items() if seed is not None}, indent=1) + "\n")


def _hints() -> dict[str, int]:
    hints: dict[str, int] = json.loads(_HINTS.read_text())
    return hints
