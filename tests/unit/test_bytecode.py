"""What is compiled before the tests is found by them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import PYTEST_TAG


def test_the_processes_of_xdist_find_assertions_rewritten(pytestconfig: pytest.Config) -> None:
    if not hasattr(pytestconfig, "workerinput"):
        pytest.skip("a single process rewrites by itself")
    if not sys.dont_write_bytecode:
        pytest.skip("this process would have written it, too")
    here = Path(__file__)
    assert (here.parent / "__pycache__" / f"{here.stem}.{PYTEST_TAG}.pyc").exists()
