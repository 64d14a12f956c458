"""Schedules that a worker can't decide for now."""

from __future__ import annotations

import math

from aioqueue.worker._schedules_put_off import PutOff


def test_many_that_wait_are_tried_with_few_looks() -> None:
    """However many there are: each time that one of them is due costs a statement."""
    now, looks = 0.0, 0
    put_off = PutOff(lambda: now)
    names = [f"s{number}" for number in range(1000)]
    for number, name in enumerate(names):
        now = number / 1000
        assert put_off.add(name, "its time zone isn't known")
    while now < 120:
        now = put_off.next_at()
        looks += 1
        waiting = set(put_off.waiting())
        assert len(waiting) < len(names)
        for name in names:
            if name not in waiting:
                assert not put_off.add(name, "its time zone isn't known")
    assert looks <= 121
    for name in names:
        put_off.done(name)
    assert put_off.next_at() == math.inf
