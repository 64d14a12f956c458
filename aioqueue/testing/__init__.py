"""For tests: a store in memory, attempts without a worker, and what every store must do.

`MemoryStore` is for the unit tests of programs that use aioqueue: `Client(MemoryStore())`. `attempt_of` is for
those of handlers that ask for their attempt.

The conformance cases are for the authors of stores, ours and others'; they are data. A store passes if every case whose needs
its harness meets passes:

    from aioqueue.testing import CASES

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    async def test_store(case, make_harness):
        harness = make_harness()                      # a fresh database, see `Harness`
        if case.needs <= harness.capabilities:
            await case.run(harness)

Nothing here needs pytest, or any other framework: a case raises AssertionError. No case waits for time to pass; the
harness moves stored times instead (`Harness.age`).
"""

from __future__ import annotations

from aioqueue.testing._attempts import attempt_of
from aioqueue.testing.conformance import CASES, Capability, Case, Fault, Harness
from aioqueue.testing.memory import MemoryStore

__all__ = ["CASES", "Capability", "Case", "Fault", "Harness", "MemoryStore", "attempt_of"]
