"""Workers: they run jobs.

| file | what it does |
|---|---|
| `_worker`, `_run`, `_claimed_types` | the life: start, run, stop; the parts of one run, put together; what it claims |
| `_loop`, `_until_idle` | fill, look, reap, wait; and when there is nothing left to do |
| `_type_concurrency` | how many jobs may be claimed of types that say how many may run |
| `_gates`, `_gate_fields` | at which gates jobs wait, and the limits that code defines; who lacks what tells them apart |
| `_wakeup`, `_notifications` | wake the loop; hear what the store tells |
| `_slots`, `_holdings` | one task per running job; the claims that the worker answers for |
| `_attempt`, `_threads` | run one attempt, where its handler is a plain function in a thread |
| `_processes`, `_process` | handlers in processes of their own: which one, and one of them |
| `_process_main`, `_process_messages` | such a process from within; what is said between the two |
| `_slot_attempt`, `_outbox`, `_returned` | what a handler sees of it, what it has enqueued, what is made of what it returned |
| `_stages`, `_phases`, `_progress`, `_reports` | its phases and its progress, and who stores them |
| `_captured` | what its handler logs, where that is kept |
| `_completion`, `_completion_views`, `_completing` | transactions that complete jobs: block, insides, how far it is |
| `_policy`, `_stop_reason`, `_interruption` | the retry policy that counts; why attempts are stopped; what becomes of those |
| `_outcome`, `_refusal` | what became of an attempt; less of it where the database refuses it |
| `_attempt_log`, `_attempt_span`, `_attempt_told` | that in the log and in its span; what's known only once it's written |
| `_observed` | what observers are told of it |
| `_text` | texts that can be stored |
| `_writer`, `_settling`, `_postponed`, `_backoff` | write outcomes and give claims back: in batches, and again later |
| `_lease`, `_lease_groups`, `_lease_thread`, `_unheld` | leases: kept, shared, renewed by a thread, compared |
| `_standby` | opens them, and waits while another worker has the name that only one may have |
| `_recovery`, `_waiting_orphans` | the jobs of dead workers; those that can't be settled now |
| `_lasting_task`, `_bounded_calls` | loops beside the main one, until they are stopped; their calls, bounded in time |
| `_tending` | what no claim leads to: jobs that wait for chains that have ended, or weren't started in time |
| `_webhooks`, `_webhooks_sender`, `_addresses` | send webhooks: the pool, one message, where it may go |
| `_webhooks_answer`, `_webhooks_told` | what a receiver has said; what the log and observers are told |
| `_schedules`, `_schedules_decided`, `_schedules_put_off` | decide ticks: when, many at once, and not those that can't be |
| `_schedules_reconciled`, `_schedules_told` | store the schedules that stand in code; what is told of ticks |
| `_retention` | removes what finished long ago |
| `_watchdog` | sees what blocks the event loop |
| `_shutdown`, `_health`, `_view` | the end of a run; what fails at the moment; what other threads see of it |
| `_signals`, `_event_loop_end`, `_own_event_loop` | what ends a program: a signal must, a job's exit mustn't |

docs/internals.md has who is given whom, and what they hand on.
"""

from aioqueue.worker._health import Health, LateAttempt, OnceResult
from aioqueue.worker._signals import run_until_signalled, stopped_by_signals
from aioqueue.worker._worker import Worker

__all__ = ["Health", "LateAttempt", "OnceResult", "Worker", "run_until_signalled", "stopped_by_signals"]
