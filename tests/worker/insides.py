"""What tests look at inside of a worker that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioqueue.worker import Worker
    from aioqueue.worker._run import Run

__all__ = ["left_behind", "parts"]


def parts(worker: Worker) -> Run:
    """The parts of a worker that runs."""
    run = worker._run
    assert run is not None
    return run


def left_behind(worker: Worker) -> int:
    """How many jobs its last run has left behind."""
    return worker._left_behind
