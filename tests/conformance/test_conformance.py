"""Every conformance case on every store of ours."""

from __future__ import annotations

import pytest

from aioqueue.testing import CASES, Case, Harness

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_case(case: Case, harness: Harness) -> None:
    missing = case.needs - harness.capabilities
    if missing:
        pytest.skip(f"this store doesn't: {', '.join(sorted(missing))}")
    await case.run(harness)
