"""Workers: they run jobs."""

from aioqueue.worker._health import Health, OnceResult
from aioqueue.worker._signals import run_until_signalled, stopped_by_signals
from aioqueue.worker._worker import Worker

__all__ = ["Health", "OnceResult", "Worker", "run_until_signalled", "stopped_by_signals"]
