"""Whether the variables of this process are those of settings, and can be read: a part of `aioqueue doctor`."""

from __future__ import annotations

import difflib
import os
from typing import TYPE_CHECKING

from aioqueue.definitions._environment import Environment, variable_of
from aioqueue.definitions._setting_table import SETTINGS
from aioqueue.definitions._settings import WorkerSettings
from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._finding import Finding, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["judge_variables"]

_CHECK = "variables"
_PREFIX = variable_of("")
_OF_TESTS = variable_of("test_")
"""What begins with this is for the tests of this package."""


def judge_variables(variables: Mapping[str, str] = os.environ) -> list[Finding]:
    """Which variables nobody reads, as their names are misspelt, and which can't be read. Values that are fine aren't shown."""
    environment = Environment(variables)
    known = {setting.variable for setting in SETTINGS}
    given = sorted(each for each in variables if each.startswith(_PREFIX) and environment.text(each) is not None)
    findings: list[Finding] = []
    for name in given:
        if name not in known and not name.startswith(_OF_TESTS):
            close = difflib.get_close_matches(name, sorted(known), n=1)
            advice = f"Did you mean {close[0]}?" if close else "`aioqueue worker --help` names those that there are."
            findings.append(Finding(_CHECK, Verdict.WARNING, f"{name} is set, and no setting has that variable", advice))
    try:
        for setting in SETTINGS:
            setting.read(None, environment)
        WorkerSettings.resolve(environment=variables)
    except ConfigurationError as error:
        findings.append(Finding(_CHECK, Verdict.PROBLEM, str(error), "A worker with these variables doesn't start."))
    if findings:
        return findings
    used = [name for name in given if name in known]
    return [Finding(_CHECK, Verdict.OK, f"set for this process: {', '.join(used) or 'none'}")]
