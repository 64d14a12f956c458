"""A gate at which nobody can be let come, such as by a trigger of somebody's that takes too long: only that is left alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from aioqueue.postgres import _gates_promote, _gates_refusals
from aioqueue.vocabulary._gates import GateRules
from tests.postgres.stores import completed, connected, job, opened

pytestmark = pytest.mark.anyio

NAMES = [f"type{number}" for number in range(5)]
RULES = {name: GateRules(type=name, shared=f"shared-{name}") for name in NAMES}
LIMITS = "INSERT INTO aioqueue.gate_limit (name, places) SELECT 'shared-' || name, 1 FROM unnest($1::text[]) AS name"
# As when a statement has taken too long: the whole transaction fails, and nothing says which row was to blame.
TRIGGER = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN RAISE EXCEPTION 'it takes too long' USING ERRCODE = 'query_canceled'; END$$;
CREATE TRIGGER slow BEFORE UPDATE ON aioqueue.job FOR EACH ROW
    WHEN (OLD.state = 0 AND OLD.gate = 'shared-type2') EXECUTE FUNCTION slow();"""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time by which gates are left alone."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(_gates_refusals, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


async def test_others_come_and_nothing_spins(
    postgres_url: str, clock: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        await other.execute(LIMITS, NAMES)
        lease = await store.open_lease("w", 600)
        await store.insert([job(name) for name in NAMES for _ in range(2)])
        running = await store.claim(lease, NAMES, 10, gates=RULES)
        assert sorted(each.type for each in running) == NAMES
        await other.execute(TRIGGER)
        await store.settle([completed(each) for each in running])

        taken = [each.type for _ in range(4) for each in await store.claim(lease, NAMES, 10, gates=RULES)]
        assert sorted(taken) == [name for name in NAMES if name != "type2"]
        due = (await store.next_due(NAMES, own=[lease], gates=RULES)).job
        assert due == pytest.approx(1.0)
        (told,) = (record.getMessage() for record in caplog.records if record.levelname == "ERROR")
        assert told.startswith("jobs can't be let come at shared-type2: ")
        assert "it takes too long" in told

        waits: list[float] = []
        for _ in range(6):
            clock.now += due or 0.0
            assert not await store.claim(lease, NAMES, 10, gates=RULES)
            due = (await store.next_due(NAMES, own=[lease], gates=RULES)).job
            waits.append(due or 0.0)
        assert waits == pytest.approx([2, 4, 8, 16, 30, 30])
        assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1

        await other.execute("DROP TRIGGER slow ON aioqueue.job")
        clock.now += 30
        (last,) = await store.claim(lease, NAMES, 10, gates=RULES)
        assert last.type == "type2"


REFUSES = """
CREATE FUNCTION refuses() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = 'integrity_constraint_violation'; END$$;
CREATE TRIGGER refuses BEFORE UPDATE ON aioqueue.job FOR EACH ROW
    WHEN (OLD.state = 0 AND NEW.state = 1 AND OLD.key = 'bad') EXECUTE FUNCTION refuses();"""
ONE = {"type0": RULES["type0"]}


@pytest.mark.parametrize("upkeep", [False, True])
async def test_a_job_that_refuses_keeps_no_others_at_its_gate(
    postgres_url: str, caplog: pytest.LogCaptureFixture, *, upkeep: bool
) -> None:
    """The next one comes instead, at once, and it alone is told of; whether by a mark or by upkeep."""
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        await other.execute(LIMITS, ["type0"])
        lease = await store.open_lease("w", 600)
        await store.insert(
            [job("type0"), bad := job("type0", key="bad"), bad_too := job("type0", key="bad"), good := job("type0")]
        )
        await store.insert([job("type0")])
        (running,) = await store.claim(lease, ["type0"], 10, gates=ONE)
        await other.execute(REFUSES)
        await store.settle([completed(running)])
        if upkeep:
            await other.execute("DELETE FROM aioqueue.gate_mark")
            assert (await store.tend(100)).resumed > 0
        (taken,) = await store.claim(lease, ["type0"], 10, gates=ONE)
        assert taken.id == good.id
        await store.settle([completed(taken)])
        assert len(await store.claim(lease, ["type0"], 10, gates=ONE)) == 1
        told = [record for record in caplog.records if record.levelname == "ERROR"]
        assert sorted(record.__dict__["job_id"] for record in told[:2]) == sorted([str(bad.id), str(bad_too.id)])
        assert len(told) == 2 * (1 + upkeep)


async def test_where_all_refuse_the_gate_is_left_alone(
    postgres_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one after the other, for ever: others go on meanwhile."""
    monkeypatch.setattr(_gates_promote, "_SEARCHING_SECONDS", 60.0)
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        await other.execute(LIMITS, NAMES[:2])
        rules = {name: RULES[name] for name in NAMES[:2]}
        lease = await store.open_lease("w", 600)
        await store.insert([job(name) for name in rules])
        await store.insert([job("type0", key="bad") for _ in range(60)])
        await store.insert([good := job("type1")])
        running = await store.claim(lease, list(rules), 500, gates=rules)
        assert len(running) == 2
        while await other.fetchval("SELECT count(*) FROM aioqueue.job WHERE state = 1"):
            await store.claim(lease, list(rules), 500, gates=rules)
        await other.execute("UPDATE aioqueue.gate_limit SET places = 60")
        await other.execute(REFUSES)
        await store.settle([completed(each) for each in running])
        await other.execute("UPDATE aioqueue.gate_mark SET freed = 60")
        taken = [each.id for _ in range(5) for each in await store.claim(lease, list(rules), 10, gates=rules)]
        assert taken == [good.id]
        told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert len(told) == 21
        assert told[-1].startswith("jobs can't be let come at shared-type0: ")
