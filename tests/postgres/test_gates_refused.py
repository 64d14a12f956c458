"""A gate at which nobody can be let come, such as by a trigger of somebody's that takes too long: only that is left alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from aioqueue.postgres import _gates_refusals
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
