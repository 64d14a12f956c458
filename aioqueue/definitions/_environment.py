"""Reads the `AIOQUEUE_*` variables: for the client, the worker and the command line alike."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._numbers import read_duration, read_whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEFAULT_URL", "URL_VARIABLE", "Environment", "variable_of"]

DEFAULT_URL = "sqlite:///aioqueue.db"
URL_VARIABLE = "AIOQUEUE_URL"

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


def variable_of(setting: str) -> str:
    """The variable from which a setting comes where it isn't given as an argument: `AIOQUEUE_LEASE` for `lease`."""
    return f"AIOQUEUE_{setting.upper()}"


class Environment:
    """The process's variables. One that is empty counts as not set.

    Arguments:
        variables: Others to read instead.
    """

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self._variables = os.environ if variables is None else variables

    def url(self) -> str:
        """Where the database is, if nothing else is said."""
        return self.text(URL_VARIABLE) or DEFAULT_URL

    def text(self, variable: str) -> str | None:
        """Its text without the spaces around it; None if it isn't set."""
        return self._variables.get(variable, "").strip() or None

    def duration(self, variable: str) -> float | None:
        """Its seconds; None if it isn't set.

        Raises:
            ConfigurationError: It isn't a duration.
        """
        text = self.text(variable)
        return None if text is None else read_duration(text, variable)

    def whole_number(self, variable: str) -> int | None:
        """Its number; None if it isn't set.

        Raises:
            ConfigurationError: It isn't a whole number.
        """
        text = self.text(variable)
        return None if text is None else read_whole_number(text, variable)

    def flag(self, variable: str) -> bool | None:
        """Whether it says yes or no; None if it isn't set.

        Raises:
            ConfigurationError: It says something else.
        """
        text = self.text(variable)
        if text is None:
            return None
        if (lower := text.lower()) not in _YES | _NO:
            raise ConfigurationError(f"{variable} must be 1 or 0 (or true, false, yes, no, on, off), not {text!r}")
        return lower in _YES
