"""Reads the `AIOQUEUE_*` variables: for the client, the worker and the command line alike."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEFAULT_URL", "URL_VARIABLE", "Environment", "variable_of"]

DEFAULT_URL = "sqlite:///aioqueue.db"
URL_VARIABLE = "AIOQUEUE_URL"


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
