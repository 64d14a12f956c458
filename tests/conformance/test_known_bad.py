"""The cases can fail: a store without mistakes passes all of them, and one with a known mistake doesn't."""

from __future__ import annotations

import pytest

from aioqueue.testing import CASES, Case
from aioqueue.testing.conformance import _tools as tools
from tests.conformance.memory_harness import Bug, MemoryHarness

pytestmark = pytest.mark.anyio

QUICK = [case for case in CASES if not any(word in case.name for word in ("large", "many", "big"))]


async def failed(case: Case, *bugs: Bug) -> bool:
    harness = MemoryHarness(*bugs)
    await harness.open()
    try:
        await case.run(harness)
    except Exception:
        return True
    finally:
        await harness.close()
    return False


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_store_without_mistakes_passes(case: Case) -> None:
    harness = MemoryHarness()
    await harness.open()
    try:
        await case.run(harness)
    finally:
        await harness.close()


@pytest.mark.parametrize("bug", Bug, ids=lambda bug: bug.name.lower())
async def test_each_mistake_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "PATIENCE", 0.01)  # what is missing in memory doesn't come later
    found = False
    for case in QUICK:
        found = await failed(case, bug)
        if found:
            break
    assert found, f"no case finds that {bug.value}"


def test_names_are_unique_and_described() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert [case.name for case in CASES if not case.description] == []
