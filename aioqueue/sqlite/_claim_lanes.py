"""The lanes of a claim: one for each type and priority, in its own range of the index. No other backlog is looked at."""

from __future__ import annotations

from aioqueue.sqlite._rows_times import NOW

__all__ = ["HEADS"]

HEADS = f"""(
        SELECT head.value ->> 1 AS id
        FROM json_each(:types) AS lane, json_each('[1,2,3,4]') AS urgency, json_each((
            SELECT json_group_array(json_array(run_at, id)) FROM (
                SELECT run_at, id FROM job INDEXED BY job_due
                WHERE state = 1 AND type = lane.value AND priority = urgency.value AND run_at <= {NOW}
                ORDER BY run_at, id LIMIT :limit))) AS head
        ORDER BY urgency.value, head.key, json_extract(:turns, '$."' || lane.value || '"'), head.value ->> 0, head.value ->> 1
        LIMIT :limit)"""
"""The ids of due jobs, the most urgent first; of one priority the lanes in turn."""
