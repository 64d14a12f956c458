"""The cases about where a store may be used call every method of the protocol."""

from __future__ import annotations

import pytest

from aioqueue.abc import (
    Insertable,
    Leasable,
    Operable,
    Recordable,
    Store,
    SupportsEvents,
    SupportsGates,
    SupportsPauses,
    SupportsPrune,
    SupportsRetention,
    SupportsSchedules,
    SupportsWebhooks,
)
from aioqueue.testing.conformance._tools import HOUR, start_one
from aioqueue.testing.conformance._verbs import blocking_verbs, verbs
from tests.conformance.memory_harness import MemoryHarness

pytestmark = pytest.mark.anyio

PROTOCOLS = (
    Insertable,
    Leasable,
    Operable,
    Recordable,
    Store,
    SupportsPrune,
    SupportsRetention,
    SupportsWebhooks,
    SupportsEvents,
    SupportsGates,
    SupportsPauses,
    SupportsSchedules,
)
METHODS = {name for each in PROTOCOLS for name, value in vars(each).items() if callable(value) and not name.startswith("_")}


async def test_each_method_is_a_verb_that_needs_an_open_store() -> None:
    harness = MemoryHarness()
    await harness.open()
    try:
        claimed = await start_one(harness.store, await harness.store.open_lease("w", HOUR))
        named = {name.partition(" ")[0] for name in verbs(harness.store, claimed)}
        assert named == METHODS - {"open", "close"}
        assert blocking_verbs(harness.store).keys() <= named
    finally:
        await harness.close()
