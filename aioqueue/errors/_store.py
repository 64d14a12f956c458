"""The root of what a store raises."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from aioqueue.errors._root import AioqueueError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["StoreError"]


class StoreError(AioqueueError):
    """The database refused.

    Attributes:
        changed: Of an operation on many jobs, which changes them in portions: what became of those before, by id. Of one on
            all that fit a filter, which may be very many: how many became what, by `Changed`.
    """

    changed: Mapping[Any, object] = MappingProxyType({})
