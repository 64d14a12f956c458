"""How every store runs the checks of a diagnosis: each bounded in time, and one that fails stops only itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioqueue.errors import AioqueueError
from aioqueue.vocabulary._finding import Finding, Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    Check = Callable[[], Awaitable[Sequence[Finding]]]

__all__ = ["CHECK_SECONDS", "run_checks"]

CHECK_SECONDS = 15.0


async def run_checks(checks: Mapping[str, Check], *, longest: float = CHECK_SECONDS) -> list[Finding]:
    """Run checks one after the other.

    Arguments:
        checks: By name. Each gives its findings, or raises, which becomes a finding too.
        longest: Seconds that each may take.
    """
    findings: list[Finding] = []
    for name, check in checks.items():
        try:
            async with asyncio.timeout(longest):
                findings += await check()
        except TimeoutError:
            findings.append(Finding(name, Verdict.UNKNOWN, f"it can't be told: no answer within {longest:g} s"))
        except AioqueueError as error:
            findings.append(Finding(name, Verdict.UNKNOWN, f"it can't be told: {error}"))
        except Exception as error:  # noqa: BLE001 - classified: whatever a check stumbles over, the others are still made
            findings.append(Finding(name, Verdict.UNKNOWN, f"it can't be told: {type(error).__name__}: {error}"))
    return findings
