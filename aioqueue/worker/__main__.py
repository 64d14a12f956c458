"""`python -m aioqueue.worker app:registry`: the command `aioqueue worker` without the script."""

from __future__ import annotations

from aioqueue.cli._worker import worker

if __name__ == "__main__":
    worker.main(prog_name="python -m aioqueue.worker")
