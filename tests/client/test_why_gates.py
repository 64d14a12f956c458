"""`jobs why` of a job that is held at a gate says what it waits for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from aioqueue.client import ReasonCode
from aioqueue.client._why import find_reasons
from aioqueue.vocabulary._gates import GateStatus, kind_of
from aioqueue.vocabulary._job import Job, JobState
from aioqueue.vocabulary._workers import LeaseFacts, Standing

AN_HOUR_AGO = datetime(2026, 1, 31, 11, tzinfo=UTC)
NOW = AN_HOUR_AGO + timedelta(hours=1)
FIRST, SECOND, THIRD = (UUID(f"00000000-0000-7000-8000-00000000000{number}") for number in (1, 2, 3))
RESIZE = 'job:resize="acme"'
HELD = Job(
    id=FIRST,
    chain_id=FIRST,
    type="resize",
    state=JobState.HELD,
    priority=2,
    payload=b"{}",
    created_at=AN_HOUR_AGO,
    run_at=AN_HOUR_AGO,
)
STANDING = Standing(now=NOW)
WORKER = LeaseFacts(id=1, worker="w", types=("resize",), slots=1, running=1, ends_in=60.0)


def status(gate: str, **given: object) -> GateStatus:
    return replace(GateStatus(gate=gate, kind=kind_of(gate), waiting=1), **given)  # by their names


@pytest.mark.parametrize(
    ("gate", "code", "text", "advice"),
    [
        (
            status(RESIZE, places=3, running=(SECOND, THIRD), count=4, waiting=7),
            ReasonCode.AT_LIMIT,
            f"it waits for one of 3 places at {RESIZE} (7 wait there): these run: {SECOND}, {THIRD} and 2 more",
            "`aioqueue limits put job:resize PLACES`",
        ),
        (
            status("stripe", places=1, running=(SECOND,), count=1),
            ReasonCode.AT_LIMIT,
            f"it waits for the one place at stripe: these run: {SECOND}",
            f"`aioqueue jobs show {SECOND}`",
        ),
        (status("stripe", places=0), ReasonCode.AT_LIMIT, "the limit stripe is 0", "`aioqueue limits put stripe PLACES`"),
        (status("stripe", places=2, count=1), ReasonCode.AT_LIMIT, "1 of 2 places at stripe are free", "no worker is alive"),
        (status("stripe"), ReasonCode.AT_LIMIT, "nothing is limited at stripe any more", "no worker is alive"),
        (
            status("rate:resize", places=100, per=60.0, next_at=NOW, waiting=10_000),
            ReasonCode.AT_RATE,
            "the next start at rate:resize (100 in 1.0 min) is allowed at 2026-01-31 12:00:00 UTC (10,000 or more wait there)",
            "",
        ),
        (status("rate:resize", places=100, per=60.0), ReasonCode.AT_RATE, "a start is allowed at rate:resize now", "no worker"),
        (
            status("rate:resize", places=0, per=60.0),
            ReasonCode.AT_RATE,
            "the rate rate:resize is 0",
            "`aioqueue limits put rate:resize STARTS --per TIME`",
        ),
        (status("rate:resize"), ReasonCode.AT_RATE, "starts aren't limited at rate:resize any more", "no worker"),
        (
            status("sequence=account:42", running=(SECOND,), count=1),
            ReasonCode.IN_SEQUENCE,
            f"it's the turn of job {SECOND} in sequence account:42, which runs",
            f"`aioqueue jobs show {SECOND}`",
        ),
        (
            status("sequence=account:42", head=SECOND),
            ReasonCode.IN_SEQUENCE,
            f"it's the turn of job {SECOND} in sequence account:42",
            f"`aioqueue jobs why {SECOND}`",
        ),
        (
            status("sequence=my accounts", blocked_by=SECOND),
            ReasonCode.IN_SEQUENCE,
            f"sequence my accounts is kept by the failed job {SECOND}",
            f"`aioqueue jobs retry {SECOND}`; or go on without it: `aioqueue sequences resume 'my accounts'`.",
        ),
        (status("sequence=s", head=FIRST), ReasonCode.IN_SEQUENCE, "it's its turn in sequence s", "no worker is alive"),
        (status("sequence=s"), ReasonCode.IN_SEQUENCE, "it's nobody's turn in sequence s: a job before it waits", ""),
        (
            status("sequence=s", awaited=SECOND),
            ReasonCode.IN_SEQUENCE,
            f": job {SECOND} before it",
            f"`aioqueue jobs why {SECOND}`",
        ),
        (
            status('fair:resize="acme"', waiting=5),
            ReasonCode.WAITS_FOR_TURN,
            'its turn among the values of fairness_by of resize, of which its own is "acme" (5 wait there)',
            "Start more workers",
        ),
        (status("fair:resize"), ReasonCode.WAITS_FOR_TURN, "it takes turns with all that have none", ""),
    ],
)
def test_what_a_job_at_a_gate_waits_for(gate: GateStatus, code: ReasonCode, text: str, advice: str) -> None:
    reason = find_reasons(replace(HELD, held_by=gate.gate), STANDING, [WORKER], gate=gate)[0]
    assert (reason.code, text in reason.text, advice in reason.advice) == (code, True, True), reason


def test_busy_slots_are_what_a_turn_is_waited_for() -> None:
    gate = status('fair:resize="acme"')
    reasons = find_reasons(replace(HELD, held_by=gate.gate), STANDING, [WORKER], gate=gate)
    assert [each.code for each in reasons] == [ReasonCode.WAITS_FOR_TURN, ReasonCode.SLOTS_BUSY]


def test_a_gate_that_it_has_left_since_isnt_told_of() -> None:
    (reason,) = find_reasons(replace(HELD, held_by="stripe"), STANDING, [WORKER], gate=status(RESIZE, places=1))
    assert (reason.code, reason.text) == (ReasonCode.HELD, "it is held back by stripe")


def test_that_no_worker_runs_its_type_is_told_too() -> None:
    gate = status("stripe", places=1, running=(SECOND,), count=1)
    reasons = find_reasons(replace(HELD, held_by="stripe"), STANDING, [], gate=gate)
    assert [each.code for each in reasons] == [ReasonCode.AT_LIMIT, ReasonCode.NO_WORKER]
