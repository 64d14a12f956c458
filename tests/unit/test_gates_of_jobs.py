"""At which gates a job waits, and which of several jobs may go through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioqueue.store_rules._gates import Candidate, GateState, admit, fair_gate_of, gates_of
from aioqueue.vocabulary._gates import By, GateRules
from aioqueue.vocabulary._identifiers import new_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

ACME = b'{"tenant": "acme", "account": 42}'
ALL = GateRules(
    type="a",
    limit=True,
    limit_by=By("tenant"),
    shared="stripe",
    rate=True,
    rate_by=By("account"),
    sequence_by=By("account"),
    fair_by=By("tenant"),
)


def test_the_sequence_comes_first_and_the_rate_last() -> None:
    assert gates_of(ALL, None, ACME, b"{}") == ("sequence=a=42", 'job:a="acme"', "stripe", "rate:a=42")


def test_the_sequence_of_the_call_counts_before_that_of_the_type() -> None:
    assert gates_of(ALL, "mine", ACME, b"{}")[0] == "sequence=mine"


def test_a_job_of_a_type_without_rules_has_only_its_sequence() -> None:
    assert gates_of(None, "mine", ACME, b"{}") == ("sequence=mine",)
    assert gates_of(None, None, ACME, b"{}") == ()
    assert gates_of(GateRules(type="a"), None, ACME, b"{}") == ()


@pytest.mark.parametrize("payload", [b"{broken", b"[]", b""])
def test_what_cannot_be_read_has_gates_without_a_value(payload: bytes) -> None:
    assert gates_of(ALL, None, payload, b"{broken") == ("sequence=a", "job:a", "stripe", "rate:a")
    assert fair_gate_of(ALL, payload, b"{broken") == "fair:a"


def test_gates_have_the_present_name_of_a_type() -> None:
    """Rules are found by the name that is stored, and name the type as it's called now."""
    assert gates_of(GateRules(type="new", limit=True), None, b"{}", b"{}") == ("job:new",)


def test_turns_are_of_a_value() -> None:
    assert fair_gate_of(ALL, ACME, b"{}") == 'fair:a="acme"'
    assert fair_gate_of(GateRules(type="a"), ACME, b"{}") is None


def candidates(*gates: Sequence[str]) -> list[Candidate]:
    return [Candidate(new_id(), tuple(each)) for each in gates]


def ids(some: Sequence[Candidate]) -> list[UUID]:
    return [each.id for each in some]


def test_as_many_go_through_as_are_free() -> None:
    some = candidates(["x"], ["x"], ["x"], [])
    result = admit(some, {"x": GateState(free=2)}, 10)
    assert result.goes == [some[0].id, some[1].id, some[3].id]
    assert result.parked == {some[2].id: "x"}
    assert result.used == {"x": 2}


def test_without_a_limit_any_number_goes() -> None:
    some = candidates(["x"], ["x"])
    assert admit(some, {"x": GateState()}, 10).goes == ids(some)


def test_those_for_whom_there_is_no_slot_are_neither_here_nor_there() -> None:
    some = candidates(["x"], ["x"], ["y"], ["x"])
    result = admit(some, {"x": GateState(free=2), "y": GateState(free=0)}, 1)
    assert (result.goes, result.parked, result.used) == ([some[0].id], {some[2].id: "y"}, {"x": 1})


def test_one_that_is_parked_uses_nothing() -> None:
    """Neither at the gates before the closed one, nor at those behind it."""
    some = candidates(["x", "y", "z"], ["x"], ["z"])
    result = admit(some, {"x": GateState(free=1), "y": GateState(free=0), "z": GateState(free=1)}, 10)
    assert result.goes == [some[1].id, some[2].id]
    assert result.parked == {some[0].id: "y"}


def test_the_first_closed_gate_is_where_one_is_parked() -> None:
    (one,) = some = candidates(["x", "y", "z"])
    states = {"x": GateState(free=1), "y": GateState(free=0), "z": GateState(free=0)}
    assert admit(some, states, 10).parked == {one.id: "y"}


def test_only_the_head_of_a_sequence_goes() -> None:
    some = candidates(["s"], ["s"], ["s"])
    result = admit(some, {"s": GateState(sequence=True, head=some[1].id)}, 10)
    assert (result.goes, set(result.parked)) == ([some[1].id], {some[0].id, some[2].id})


def test_nobody_goes_while_one_of_the_sequence_runs() -> None:
    some = candidates(["s"])
    assert admit(some, {"s": GateState(sequence=True)}, 10).goes == []


def test_the_head_of_a_sequence_goes_once() -> None:
    """Though it were among the candidates twice."""
    (one,) = candidates(["s"])
    assert admit([one, one], {"s": GateState(sequence=True, head=one.id)}, 10).goes == [one.id]
