"""The lanes of a claim: one for each type and priority, in its own range of the index. No other backlog is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.sqlite._rows import dump
from aioqueue.sqlite._rows_times import NOW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._quota import Quota

__all__ = ["HEADS", "HEADS_WITHIN_QUOTAS", "quotas_as_json"]


def _of_type(given: str, place: str = "") -> str:
    """An expression: what a parameter, a JSON object, has for the lane's type."""
    return f"""json_extract({given}, '$."' || lane.value || '"{place}')"""


_LANES = f"""
        FROM json_each(:types) AS lane, json_each('[1,2,3,4]') AS urgency, json_each((
            SELECT json_group_array(json_array(run_at, id)) FROM (
                SELECT run_at, id FROM job INDEXED BY job_due
                WHERE state = 1 AND type = lane.value AND priority = urgency.value AND run_at <= {NOW}
                ORDER BY run_at, id LIMIT :limit))) AS head"""
_ORDER = f"urgency.value, head.key, iif(:turns = '', 0, {_of_type(':turns')}), head.value ->> 0, head.value ->> 1"

HEADS = f"""(
        SELECT head.value ->> 1 AS id {_LANES}
        ORDER BY {_ORDER} LIMIT :limit)"""
"""The ids of due jobs, the most urgent first; of one priority the lanes in turn."""

HEADS_WITHIN_QUOTAS = f"""(
        SELECT id FROM (
            SELECT head.value ->> 1 AS id, {_of_type(":quotas", "[1]")} AS quota,
                row_number() OVER (ORDER BY {_ORDER}) AS place,
                row_number() OVER (PARTITION BY {_of_type(":quotas", "[0]")} ORDER BY {_ORDER}) AS place_in_quota {_LANES})
        WHERE quota IS NULL OR place_in_quota <= quota ORDER BY place LIMIT :limit)"""
"""The same, without those for which the quota of their types has no room."""


def quotas_as_json(quotas: Sequence[Quota]) -> str:
    """For each type that has one, the number of its quota and how many jobs that is, as a JSON object; empty without any."""
    of_types = {name: [number, quota.jobs] for number, quota in enumerate(quotas) for name in quota.types}
    return dump(of_types) if of_types else ""
