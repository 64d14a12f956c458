"""What producers and operators call."""

from __future__ import annotations

from aioqueue.client._client import Client
from aioqueue.client._handle import JobHandle
from aioqueue.client._transaction import BoundClient, Connection, Transaction

__all__ = ["BoundClient", "Client", "Connection", "JobHandle", "Transaction"]
