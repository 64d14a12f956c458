"""Schedules of the fault tests: `FAULTS_SCHEDULES` says which there are, so that each process may have a state of the code of
its own. `FAULTS_RECONCILED` are the seconds between two times at which that's said, and those for which it counts.
"""

from __future__ import annotations

import json
import os
from typing import TypedDict

from aioqueue import Registry, current_attempt
from aioqueue.worker import _schedules_reconciled
from tests.faults.app import write

registry = Registry(name="shop")


class Said(TypedDict):
    """What is said of a schedule: who says it, and its interval."""

    version: str
    every: float


@registry.job
async def tick(version: str) -> None:
    write("start", f"{version} {current_attempt().job.nominal_time}")
    write("end")


def define(schedules: dict[str, Said]) -> None:
    for name, said in schedules.items():
        registry.schedule(tick(said["version"]), name=name, every=said["every"], catch_up="all", catch_up_limit=1000)


if "FAULTS_SCHEDULES" in os.environ:
    define(json.loads(os.environ["FAULTS_SCHEDULES"]))
if "FAULTS_RECONCILED" in os.environ:
    every, live = map(float, os.environ["FAULTS_RECONCILED"].split())
    _schedules_reconciled.EVERY_SECONDS, _schedules_reconciled._LIVE_SECONDS = every, live
