"""Every kind of outcome has its place in all that tell kinds apart; whoever adds one hears here what is left to do."""

from __future__ import annotations

import ast
import dataclasses
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

import aioqueue.worker
from aioqueue.runtime._log import event
from aioqueue.vocabulary._job import JobState, SettlementKind, StoredState
from aioqueue.worker import OnceResult, _attempt_log, _health
from aioqueue.worker._outcome import Outcome

WORKER = Path(aioqueue.worker.__file__).parent
KINDS = list(SettlementKind)


def test_the_worker_s_last_line_has_a_word_for_each() -> None:
    assert set(_health._ENDS) == set(KINDS)
    assert len(set(_health._ENDS.values())) == len(KINDS)


def test_a_single_run_counts_each() -> None:
    assert {field.name for field in dataclasses.fields(OnceResult)} == {kind.name.lower() for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_log_has_a_line_for_each(kind: SettlementKind, caplog: pytest.LogCaptureFixture) -> None:
    job = SimpleNamespace(type="a.job", id=UUID(int=1), attempt=1, origin=None)
    slot = SimpleNamespace(job=job, began=0.0, event=event)
    with caplog.at_level(logging.INFO, logger="aioqueue.worker"):
        _attempt_log.log_end(cast("Any", slot), Outcome(kind=kind))
    assert [cast("Any", record).outcome for record in caplog.records] == [kind.name.lower()]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_each_is_final_in_a_state_that_is_shown_or_makes_the_job_pending_again(kind: SettlementKind) -> None:
    final = {state.value for state in StoredState if state.value > StoredState.RUNNING}
    assert (kind.value in final) is kind.finishes
    if kind.value in final:
        assert StoredState(kind.value).shown(due=True) is JobState(kind.name.lower())


def test_outcomes_are_made_in_one_place() -> None:
    makers = {
        path.stem
        for path in WORKER.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Outcome"
    }
    assert makers == {"_outcome"}
