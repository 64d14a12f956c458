"""A database in a file, and the command line called in this process."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Protocol

import pytest
from click.testing import CliRunner

from aioqueue.cli import main

# Before click 8.2 they're one unless it's told to keep them apart, and `output` is then only one of them.
APART: dict[str, Any] = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}


@dataclass(frozen=True)
class Result:
    """What a command has written; `output` is both."""

    exit_code: int
    stdout: str
    stderr: str
    output: str


class Invoke(Protocol):
    def __call__(self, *arguments: str, exit_code: int = 0, **environment: str) -> Result: ...


@pytest.fixture(autouse=True)
def _same_logging(same_logging: None) -> None:
    """For every test of commands."""


@pytest.fixture
def invoke(url: str) -> Invoke:
    return _invoker(url)


@pytest.fixture
def each_invoke(each_url: str) -> Invoke:
    """On a database of each kind."""
    return _invoker(each_url)


def _invoker(url: str) -> Invoke:
    def call(*arguments: str, exit_code: int = 0, **environment: str) -> Result:
        result = CliRunner(**APART).invoke(main, arguments, env={"AIOQUEUE_URL": url, **environment})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        output = result.stdout + result.stderr if APART else result.output
        assert result.exit_code == exit_code, output
        return Result(result.exit_code, result.stdout, result.stderr, output)

    return call
