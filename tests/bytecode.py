"""The package is compiled once, before the first test.

A plugin of pytest, loaded for all tests, since hundreds of them start interpreters. Where `PYTHONDONTWRITEBYTECODE` is
set, as in containers, each of those would compile the whole package anew: twice the time of its start.
"""

from __future__ import annotations

import compileall
from pathlib import Path

import pytest

import aioqueue


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # those of pytest-xdist come after the one that starts them
        compileall.compile_dir(Path(aioqueue.__file__).parent, quiet=2)
