"""Random histories keep every promise."""

from __future__ import annotations

import pytest

from tests.simulation.history import simulate
from tests.simulation.themes import FIRST_OF_GATES, FIRST_OF_PHASES, FIRST_OF_PLANS

SEEDS = 100
PHASES = 10
PLANS = 6
GATES = 6


def _must_hold(seeds: range) -> None:
    for seed in seeds:
        verdict = simulate(seed)
        if verdict.violation is not None:
            history = "\n".join(verdict.lines)
            pytest.fail(f"{history}\nseed {seed}: {verdict.violation}; python -m tests.simulation {seed} shows it again")


def test_random_histories_keep_all_promises() -> None:
    _must_hold(range(SEEDS))


def test_random_histories_of_phases_keep_all_promises() -> None:
    _must_hold(range(FIRST_OF_PHASES, FIRST_OF_PHASES + PHASES))


def test_random_histories_of_schedules_and_pauses_keep_all_promises() -> None:
    _must_hold(range(FIRST_OF_PLANS, FIRST_OF_PLANS + PLANS))


def test_random_histories_of_limits_and_sequences_keep_all_promises() -> None:
    _must_hold(range(FIRST_OF_GATES, FIRST_OF_GATES + GATES))


@pytest.mark.soak
def test_thousands_of_random_histories_keep_all_promises() -> None:
    _must_hold(range(10_000, 15_000))
    _must_hold(range(FIRST_OF_PHASES, FIRST_OF_PHASES + 1_000))
    _must_hold(range(FIRST_OF_PLANS, FIRST_OF_PLANS + 2_000))
    _must_hold(range(FIRST_OF_GATES, FIRST_OF_GATES + 2_000))
