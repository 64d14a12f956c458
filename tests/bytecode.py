"""The package and the tests are compiled once, before the first test.

A plugin of pytest, loaded for all tests, since hundreds of them start interpreters. Where `PYTHONDONTWRITEBYTECODE` is
set, as in containers, each of those would compile the whole package anew: twice the time of its start.

Nor does each process of pytest-xdist rewrite the assertions of all tests, and of the plugins, by itself: that took three
quarters of what they spend before the first test. pytest keeps what it has rewritten in files, which are written here.
"""

from __future__ import annotations

import compileall
import importlib.util
import multiprocessing
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import aioqueue

try:
    from _pytest.assertion.rewrite import PYC_TAIL, _read_pyc, _rewrite_test, _write_pyc, assertstate_key, get_cache_dir
except ImportError:  # another version of pytest: each process rewrites for itself
    PYC_TAIL = None

if TYPE_CHECKING:
    from collections.abc import Iterator

_config: pytest.Config
"""What the processes that rewrite have inherited."""


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # those of pytest-xdist come after the one that starts them
        return
    compileall.compile_dir(Path(aioqueue.__file__).parent, quiet=2, workers=0)
    if PYC_TAIL is not None and config.getoption("numprocesses", None) and config.getoption("assertmode") == "rewrite":
        global _config
        _config = config
        with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
            pool.map(_rewrite, sorted({*_tests(config), *_plugins(config)}))


def _tests(config: pytest.Config) -> Iterator[Path]:
    """The files of tests that were asked for, and what configures them."""
    for argument in config.args:
        path = config.invocation_params.dir / argument.partition("::")[0]
        yield from path.rglob("test_*.py") if path.is_dir() else [path]
    yield from Path(__file__).parent.rglob("conftest.py")


def _plugins(config: pytest.Config) -> Iterator[Path]:
    """The files of whatever has a plugin of pytest: their assertions are rewritten, too."""
    for name in config.pluginmanager.rewrite_hook._must_rewrite:
        spec = importlib.util.find_spec(name)
        for folder in (spec.submodule_search_locations or []) if spec is not None else []:
            yield from Path(folder).rglob("*.py")


def _rewrite(path: Path) -> None:
    """Rewrite one file's assertions, unless that has been done. Who can't keep them here goes on without."""
    kept = get_cache_dir(path) / f"{path.stem}{PYC_TAIL}"
    try:
        if _read_pyc(path, kept) is None:
            source, code = _rewrite_test(path, _config)
            kept.parent.mkdir(exist_ok=True)
            _write_pyc(_config.stash[assertstate_key], code, source, kept)
    except (OSError, SyntaxError, ValueError):  # whoever imports it tells of it
        pass
