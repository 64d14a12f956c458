"""Names that job types, prefixes and shared limits can have."""

from __future__ import annotations

import re
from typing import TypeGuard

from aioqueue.errors import ConfigurationError, RegistrationError
from aioqueue.vocabulary._gates import FAIR, JOB_LIMIT, RATE, SEQUENCE
from aioqueue.vocabulary._safe_text import safe_repr

__all__ = ["LONGEST_NAME_CHARACTERS", "check_name", "check_prefix", "check_shared_limit"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[.:/-][A-Za-z0-9_]+)*")
LONGEST_NAME_CHARACTERS = 200

_OF_GATES = (JOB_LIMIT, RATE, FAIR, "pause:")
"""What the names of a store's own gates begin with."""


def check_name(name: object) -> str:
    """Check the full name of a job type.

    Raises:
        RegistrationError: No registry could have a type of this name.
    """
    if not _can_be_name(name):
        raise RegistrationError(
            f"{name!r} can't be a name: use ASCII letters, digits and _, with . : / or - in between, "
            f"{LONGEST_NAME_CHARACTERS} at most"
        )
    return name


def check_prefix(prefix: object) -> str:
    """Check what stands before the names of a registry's types; it may be empty.

    Raises:
        RegistrationError: No name could begin with it.
    """
    if not isinstance(prefix, str) or (prefix and _NAME.fullmatch(f"{prefix}x") is None):
        raise RegistrationError(f"the prefix {prefix!r} can't begin a name: use letters, digits and _ with . : / or -")
    return prefix


def check_shared_limit(name: object) -> str:
    """Check the name of a limit that job types share.

    Raises:
        ConfigurationError: None can have it.
    """
    if not _can_be_name(name):
        raise ConfigurationError(
            f"a limit can't be named {safe_repr(name)}: use ASCII letters, digits and _, with . : / or - in between, "
            f"{LONGEST_NAME_CHARACTERS} at most"
        )
    if name == SEQUENCE or name.startswith(_OF_GATES):
        raise ConfigurationError(
            f"a limit can't be named {name!r}: {SEQUENCE!r}, and what begins with {', '.join(map(repr, _OF_GATES))}, are names "
            "that aioqueue gives: use another"
        )
    return name


def _can_be_name(name: object) -> TypeGuard[str]:
    return isinstance(name, str) and len(name) <= LONGEST_NAME_CHARACTERS and _NAME.fullmatch(name) is not None
