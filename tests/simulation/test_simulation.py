"""What is known to be bad breaks the promise that it names, and a seed is one history."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from tests.simulation.history import Verdict, simulate
from tests.simulation.themes import FIRST_OF_GATES, FIRST_OF_PHASES, FIRST_OF_PLANS, THEMES
from tests.simulation.variants import VARIANTS, found

EACH_THEME = (*range(len(THEMES)), FIRST_OF_PHASES, FIRST_OF_PLANS, FIRST_OF_GATES)


@pytest.mark.parametrize("name", VARIANTS)
def test_what_is_known_to_be_bad_is_found_by_the_promise_that_it_breaks(name: str) -> None:
    seed, others = found(name)
    assert seed is not None, f"not found; what was found instead: {Counter(str(each.violation) for each in others)}"


def test_a_mistake_is_found_without_a_hint_too() -> None:
    assert found(next(iter(VARIANTS)), hints=False)[0] is not None


@cache
def _histories() -> tuple[Verdict, ...]:
    return tuple(simulate(seed) for seed in EACH_THEME)


def test_a_seed_gives_the_same_history_every_time() -> None:
    assert tuple(simulate(seed) for seed in EACH_THEME) == _histories()


def _digest() -> str:
    histories = "\n".join("\n".join(verdict.lines) for verdict in _histories())
    return hashlib.sha256(histories.encode()).hexdigest()


@pytest.mark.parametrize("hash_seed", ["1", pytest.param("2", marks=pytest.mark.soak)])
def test_a_seed_gives_the_same_history_in_every_process(hash_seed: str) -> None:
    """This process has a hash seed of its own: one other is enough to see that none counts."""
    program = "from tests.simulation.test_simulation import _digest; print(_digest())"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == _digest()
