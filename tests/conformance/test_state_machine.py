"""Random commands for a store and for a simple model of it, which must agree after each."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.conformance.machine_gates import GatesMachine
from tests.conformance.machine_life import LifeMachine
from tests.conformance.machine_plans import PlansMachine
from tests.conformance.machine_waiting import WaitingMachine
from tests.conformance.memory_harness import MemoryHarness
from tests.harnesses import PostgresHarness, SQLiteHarness
from tests.known_mistakes.stores import STORE_MISTAKES

if TYPE_CHECKING:
    from contextlib import ExitStack

    from tests.postgres_databases import Databases


class SQLiteMachine(PlansMachine):
    def make_harness(self, stack: ExitStack) -> Any:
        return SQLiteHarness(Path(stack.enter_context(TemporaryDirectory(prefix="aioqueue-"))) / "jobs.db")


class MemoryMachine(PlansMachine):
    def make_harness(self, stack: ExitStack) -> Any:
        return MemoryHarness()


class SQLiteGatesMachine(GatesMachine):
    def make_harness(self, stack: ExitStack) -> Any:
        return SQLiteHarness(Path(stack.enter_context(TemporaryDirectory(prefix="aioqueue-"))) / "jobs.db")


class MemoryGatesMachine(GatesMachine):
    def make_harness(self, stack: ExitStack) -> Any:
        return MemoryHarness()


class LifeMemoryMachine(LifeMachine):
    """With fewer commands, each of them comes sooner."""

    def make_harness(self, stack: ExitStack) -> Any:
        return MemoryHarness()


class WaitingMemoryMachine(WaitingMachine):
    """With fewer commands, each of them comes sooner."""

    def make_harness(self, stack: ExitStack) -> Any:
        return MemoryHarness()


def postgres_machine(databases: Databases) -> type[LifeMachine]:
    class PostgresMachine(PlansMachine):
        def make_harness(self, stack: ExitStack) -> Any:
            return PostgresHarness(stack.enter_context(databases.reused()))

    return PostgresMachine


def postgres_gates_machine(databases: Databases) -> type[GatesMachine]:
    class PostgresGatesMachine(GatesMachine):
        def make_harness(self, stack: ExitStack) -> Any:
            return PostgresHarness(stack.enter_context(databases.reused()))

    return PostgresGatesMachine


def gates_machine_for(store_kind: str, request: pytest.FixtureRequest) -> type[GatesMachine]:
    if store_kind == "sqlite":
        return SQLiteGatesMachine
    databases = "postgres_databases" if store_kind == "postgresql" else "postgres15_databases"
    return postgres_gates_machine(request.getfixturevalue(databases))


def check(machine: type[RuleBasedStateMachine], *, examples: int, steps: int, random: bool = False) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=not random,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            # A program that fails is short enough to be read; making it shorter takes minutes.
            phases=[Phase.generate],
            report_multiple_bugs=False,
        ),
    )


def machine_for(store_kind: str, request: pytest.FixtureRequest) -> type[LifeMachine]:
    if store_kind == "sqlite":
        return SQLiteMachine
    databases = "postgres_databases" if store_kind == "postgresql" else "postgres15_databases"
    return postgres_machine(request.getfixturevalue(databases))


def test_store_and_model_agree(store_kind: str, request: pytest.FixtureRequest) -> None:
    examples = 12 if store_kind == "sqlite" else 6
    check(machine_for(store_kind, request), examples=examples, steps=40)


def test_memory_and_model_agree() -> None:
    check(MemoryMachine, examples=20, steps=40)


def test_store_and_model_agree_about_gates(store_kind: str, request: pytest.FixtureRequest) -> None:
    check(gates_machine_for(store_kind, request), examples=6 if store_kind == "sqlite" else 3, steps=30)


def test_memory_and_model_agree_about_gates() -> None:
    check(MemoryGatesMachine, examples=15, steps=40)


@pytest.mark.parametrize(
    "name",
    [
        "a store that claims before the due time",
        "a store in which unique keys aren't",
        "a store that forgets finished jobs",
        # What it takes hundreds of histories to find is for the long run: the conformance's own cases find each of them, too.
        pytest.param("a store in which a continuation lets go of the unique key", marks=pytest.mark.soak),
        pytest.param("a store that takes the first step for the end", marks=pytest.mark.soak),
        "a store that counts two blockers of one batch as one",
        "a store in which a failure lets those run that need the output",
        pytest.param("a store that retries without looking at blockers", marks=pytest.mark.soak),
    ],
)
def test_the_machine_finds_mistakes(name: str) -> None:
    _finds(WaitingMemoryMachine, name)


@pytest.mark.parametrize(
    "name",
    [
        "a store that takes phases and progress from anybody",
        pytest.param("a store in which a chain is as old as its first step", marks=pytest.mark.soak),
        "a store that removes what it has found, whatever it is now",
    ],
)
def test_the_machine_finds_mistakes_in_the_life_of_a_job(name: str) -> None:
    _finds(LifeMemoryMachine, name)


@pytest.mark.parametrize(
    "name",
    [
        "a store that decides a tick as often as it's asked to",
        "a store in which ticks never overlap",
        "a store in which whoever asks last is current",
        "a store that claims what has a paused key",
        "a store that claims what is paused",
        "a store in which two have a name",
    ],
)
def test_the_machine_finds_mistakes_with_plans(name: str) -> None:
    _finds(MemoryMachine, name)


@pytest.mark.parametrize(
    "name",
    [
        "a store whose deletions let nobody come",
        "a store in which a sequence is a limit of one",
        "a store that saves unused starts",
    ],
)
def test_the_machine_finds_mistakes_with_gates(name: str) -> None:
    _finds(MemoryGatesMachine, name)


def _finds(machine: type[RuleBasedStateMachine], name: str) -> None:
    with STORE_MISTAKES[name].made(), pytest.raises((AssertionError, pytest.fail.Exception)):
        check(machine, examples=1000, steps=40)


@pytest.mark.soak
def test_store_and_model_agree_for_long(store_kind: str, request: pytest.FixtureRequest) -> None:
    examples = 1000 if store_kind == "sqlite" else 200
    check(machine_for(store_kind, request), examples=examples, steps=80, random=True)


@pytest.mark.soak
def test_store_and_model_agree_about_gates_for_long(store_kind: str, request: pytest.FixtureRequest) -> None:
    examples = 500 if store_kind == "sqlite" else 100
    check(gates_machine_for(store_kind, request), examples=examples, steps=80, random=True)
