"""What producers and operators call.

| file | what it does |
|---|---|
| `_client` | the verbs that producers call, and the client's life |
| `_operations`, `_operations_changing` | the verbs that operators call: those that look, and those that change jobs |
| `_operations_planning`, `_pausing` | those about what is to come; what isn't to be started for now |
| `_bound` | the same in a transaction that the user commits: `using(tx)`, `tx=` |
| `_transaction` | a transaction of the client's own |
| `_within` | the verbs that operators call, in either |
| `_session` | owns the connection to the store: opens, closes, refuses use from elsewhere |
| `_opened` | what is there while the client is open |
| `_enqueue` | enqueues calls: rows of them, through the middlewares |
| `_ticking`, `_ticks` | what ticks of schedules enqueue, for workers |
| `_in_flight` | which calls are being enqueued: what waits for one is stored after it |
| `_insert`, `_keyed` | store the rows: gathered; with unique keys or chosen ids |
| `_chunks` | cuts many rows into what one statement may have |
| `_conflicts` | what became of calls that weren't simply stored |
| `_end` | ends jobs from outside: completes them, continues their chains, fails them |
| `_tries` | repeats what couldn't be written, for a bounded time |
| `_rows`, `_unclear` | one row of those; what may have been stored already |
| `_handle`, `_waiters`, `_finished` | make handles, and wait for results; what is said of a job that has ended |
| `_operate`, `_filters` | what operators look for; which jobs are meant |
| `_diagnosis`, `_diagnosis_planned`, `_diagnosis_gates` | what is wrong around the queue; with what is to come; and at gates |
| `_schedules`, `_schedule` | schedules at run time; one of them, as it's shown |
| `_limits`, `_sequences` | limits and rates at run time; whose turn it is in sequences |
| `_changes`, `_portions` | what operators change; many jobs, a bounded number in each commit |
| `_cancelling` | asks chains to end |
| `_progress` | how far jobs have come, for whoever waits for them |
| `_observing`, `_event_streams` | what happens: to whoever observes, or reads it |
| `_event_feed`, `_subscription` | the one who reads it for all streams; what waits for one of them |
| `_why`, `_why_paused`, `_why_gates`, `_reasons` | why a job isn't running, and what keeps it back; the answer |
| `_deliveries` | what webhooks were sent, and sending them once more |
| `_blockers` | what they ask about jobs that wait for each other |
| `_named`, `_stores`, `_phase` | calls by name; the store for a URL; how far a transaction is |
"""

from __future__ import annotations

from aioqueue.client._bound import BoundClient, Connection
from aioqueue.client._client import Client
from aioqueue.client._event_streams import EventStream
from aioqueue.client._handle import JobHandle
from aioqueue.client._limits import Limits
from aioqueue.client._portions import Changes
from aioqueue.client._reasons import Reason, ReasonCode, Why
from aioqueue.client._schedule import ListedSchedules, Schedule
from aioqueue.client._schedules import Schedules
from aioqueue.client._sequences import Sequences
from aioqueue.client._transaction import Transaction

__all__ = [
    "BoundClient",
    "Changes",
    "Client",
    "Connection",
    "EventStream",
    "JobHandle",
    "Limits",
    "ListedSchedules",
    "Reason",
    "ReasonCode",
    "Schedule",
    "Schedules",
    "Sequences",
    "Transaction",
    "Why",
]
