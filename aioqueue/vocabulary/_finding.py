"""What a diagnosis has found, one check at a time: what `Client.diagnose` gives and `aioqueue doctor` prints."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Finding", "Verdict"]


class Verdict(StrEnum):
    """What a finding means for whoever operates the queue."""

    OK = "ok"
    WARNING = "warning"
    """Something works less well than it could, or won't for long."""
    PROBLEM = "problem"
    """Something doesn't work."""
    UNKNOWN = "unknown"
    """It couldn't be found out; the text says why."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check, and what it has found.

    Attributes:
        check: What was looked at, for programs: such as `clock`. A check may have several findings.
        verdict: Whether that is as it should be.
        seen: What was seen, for people; never a password.
        advice: What to do about it; empty if there is nothing to be done.
    """

    check: str
    verdict: Verdict
    seen: str
    advice: str = ""
