"""Every statement of the store, by name, for one schema. Each module keeps its own next to what it does with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.postgres._claim import claim_statements
from aioqueue.postgres._claim_singly import claim_singly_statements
from aioqueue.postgres._insert import insert_statements
from aioqueue.postgres._operate import operate_statements
from aioqueue.postgres._ownership import ownership_statements
from aioqueue.postgres._settle import settle_statements
from aioqueue.postgres._stats import stats_statements

if TYPE_CHECKING:
    from aioqueue.postgres._options_schema import Schema

__all__ = ["all_statements"]


def all_statements(schema: Schema) -> dict[str, str]:
    """All but the listings, which are put together for each filter."""
    return {
        **insert_statements(schema),
        **claim_statements(schema),
        **claim_singly_statements(schema),
        **settle_statements(schema),
        **ownership_statements(schema),
        **operate_statements(schema),
        **stats_statements(schema),
    }
