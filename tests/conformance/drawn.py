"""What the state machine draws jobs from."""

from __future__ import annotations

from hypothesis import strategies as st

__all__ = ["HOUR", "HOURS", "NEW_JOBS", "TYPES"]

HOUR = 3600
TYPES = ("a", "b")
HOURS = st.sampled_from([0.0, 0.0, 1.0 * HOUR, 3.0 * HOUR])
NEW_JOBS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(TYPES),
        "priority": st.integers(1, 4),
        "delay": HOURS,
        "expires": st.sampled_from([None, 2.0 * HOUR, 5.0 * HOUR]),
        "key": st.sampled_from(["k", None]),
        "unique": st.booleans(),
    }
)
