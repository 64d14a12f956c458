"""Chains' requests to end, as they stand in the rows of live jobs: none in those of jobs for which nobody asked that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.sqlite._rows import dump, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["REASON", "reason_of", "requests"]

REASON = "iif(job.cancel_reason IS NULL, NULL, hex(job.cancel_reason))"
"""The column that `reason_of` reads. It can be put into JSON, whatever somebody has written."""

_REQUESTS = f"""
SELECT json_group_array(json_array(job.id, {REASON})) FROM json_each(:ids) AS asked CROSS JOIN job ON job.id = asked.value
WHERE job.cancel_reason IS NOT NULL
"""


def reason_of(digits: str) -> str:
    """Read the reason of a request."""
    return bytes.fromhex(digits).decode("utf-8", "replace")


def requests(connection: Statements, ids: Sequence[str]) -> dict[str, str]:
    """Look which of these live jobs' chains were asked to end, and why."""
    rows = load(connection.execute(_REQUESTS, {"ids": dump(ids)}).fetchone()[0])
    return {job_id: reason_of(digits) for job_id, digits in rows}
