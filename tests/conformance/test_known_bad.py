"""The cases can fail: the store in memory passes all of them, and with a known mistake it fails those that this names."""

from __future__ import annotations

from pathlib import Path

import pytest

from aioqueue.testing import CASES, Case, conformance
from aioqueue.testing.conformance import _tools as tools
from tests.conformance.memory_harness import MemoryHarness
from tests.known_mistakes.stores import STORE_MISTAKES

pytestmark = pytest.mark.anyio

BY_NAME = {case.name: case for case in CASES}
FOUND_BY = [(name, case) for name, mistake in STORE_MISTAKES.items() for case in mistake.cases]
CONFORMANCE = Path(conformance.__file__).parent


async def run(case: Case) -> None:
    harness = MemoryHarness()
    await harness.open()
    try:
        await case.run(harness)
    finally:
        await harness.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_store_without_mistakes_passes(case: Case) -> None:
    await run(case)


@pytest.mark.parametrize(("name", "case"), FOUND_BY)
async def test_a_mistake_is_found_by_the_cases_that_it_names(name: str, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what they say: an error of another kind comes out, and one that the store itself asserts doesn't count."""
    monkeypatch.setattr(tools, "PATIENCE_SECONDS", 0.01)  # what is missing in memory doesn't come later
    with STORE_MISTAKES[name].made(), pytest.raises(AssertionError) as found:
        await run(BY_NAME[case])
    assert CONFORMANCE in Path(str(found.traceback[-1].path)).parents


def test_each_mistake_names_who_finds_it() -> None:
    assert [name for name, mistake in STORE_MISTAKES.items() if not mistake.cases and mistake.breaks is None] == []


def test_names_are_unique_and_described() -> None:
    assert len(BY_NAME) == len(CASES)
    assert [case.name for case in CASES if not case.description] == []
