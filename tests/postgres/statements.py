"""Every statement of the store, by name, from the rooms that have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.postgres._claim import claim_statements
from aioqueue.postgres._claim_singly import claim_singly_statements
from aioqueue.postgres._events import event_statements
from aioqueue.postgres._gates import gate_status_statements
from aioqueue.postgres._gates_limits import limit_statements
from aioqueue.postgres._insert_edges import blocker_statements
from aioqueue.postgres._insert_unique import unique_statements
from aioqueue.postgres._lease import lease_statements
from aioqueue.postgres._lease_session import session_statements
from aioqueue.postgres._listing import listing_statements
from aioqueue.postgres._notifications_listener import listener_statements
from aioqueue.postgres._operate import operate_statements
from aioqueue.postgres._pauses import pause_statements
from aioqueue.postgres._progress import progress_statements
from aioqueue.postgres._recovery import recovery_statements
from aioqueue.postgres._retention import retention_statements
from aioqueue.postgres._schedules import schedule_statements
from aioqueue.postgres._settle import settle_statements
from aioqueue.postgres._settle_end import end_statements
from aioqueue.postgres._stats import stats_statements
from aioqueue.postgres._stats_workers import worker_statements
from aioqueue.postgres._tend import tend_statements
from aioqueue.postgres._webhooks import webhook_statements

if TYPE_CHECKING:
    from aioqueue.postgres._options_schema import Schema

__all__ = ["all_statements"]


def all_statements(schema: Schema) -> dict[str, str]:
    """All but the pages of listings, which are put together for each filter."""
    return {
        **unique_statements(schema),
        **blocker_statements(schema),
        **claim_statements(schema),
        **claim_singly_statements(schema),
        **settle_statements(schema),
        **end_statements(schema),
        **tend_statements(schema),
        **lease_statements(schema),
        **session_statements(schema),
        **recovery_statements(schema),
        **operate_statements(schema),
        **listing_statements(schema),
        **listener_statements(schema),
        **stats_statements(schema),
        **worker_statements(schema),
        **progress_statements(schema),
        **pause_statements(schema),
        **limit_statements(schema),
        **gate_status_statements(schema),
        **webhook_statements(schema),
        **event_statements(schema),
        **retention_statements(schema),
        **schedule_statements(schema),
    }
