"""The commands:
`aioqueue worker | migrate | enqueue | jobs | chains | pause | resume | pauses | limits | sequences | schedules | workers
| stats | top | webhooks | health | doctor | completion`.

A thin layer over the client and the worker.
"""

from aioqueue.cli._main import main

__all__ = ["main"]
