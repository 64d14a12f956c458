"""Defining a job again: reloads and notebook cells that are run twice."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import RegistrationError, Registry

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::aioqueue.CallNeverEnqueued")

CELL = """
@registry.job(tags=["t"])
async def cell(n: int, *, by: int = 2) -> int:
    return [n * each for each in (by,)][0]
"""


def run(registry: Registry, source: str, *, name: str = "__main__") -> Any:
    """Run a cell as a notebook does: each time compiled anew, from a file of another name."""
    names: dict[str, Any] = {"registry": registry, "__name__": name}
    run.cells = getattr(run, "cells", 0) + 1
    exec(compile(source, f"<cell {run.cells}>", "exec"), names)
    return names["cell"]


def test_the_same_cell_may_be_run_twice() -> None:
    registry = Registry()
    first = run(registry, CELL)
    second = run(registry, "\n\n\n" + CELL)
    assert registry.types == {"cell": second}
    assert first(1) == second(1)


@pytest.mark.parametrize(
    "changed",
    [
        CELL.replace("n * each", "n + each"),
        CELL.replace("by: int = 2", "by: int = 3"),
        CELL.replace('["t"]', '["u"]'),
        CELL.replace("n * each", "7 * each"),
    ],
    ids=["other code", "other default", "other option", "other constant"],
)
def test_a_changed_cell_is_refused_with_both_places_unless_the_registry_replaces(changed: str) -> None:
    registry = Registry()
    run(registry, CELL)
    with pytest.raises(RegistrationError, match=r"(?s)taken by __main__\.cell \(<cell \d+>, line 2\), so .*replace=True"):
        run(registry, changed)
    notebook = Registry(replace=True)
    run(notebook, CELL)
    second = run(notebook, changed)
    assert notebook.types == {"cell": second}
    assert notebook.runnable == {"cell": second}


def test_names_that_a_changed_definition_no_longer_has_are_gone() -> None:
    registry = Registry(replace=True)
    run(registry, CELL.replace('tags=["t"]', 'aliases=["old"]'))
    second = run(registry, CELL)
    assert registry.types == {"cell": second}


def test_a_registry_that_includes_it_follows() -> None:
    part, whole = Registry(), Registry()
    run(part, CELL)
    whole.include(part)
    second = run(part, CELL)
    assert whole.types == part.types == {"cell": second}
    with pytest.raises(RegistrationError, match="taken"):
        run(whole, CELL)  # another registry's: nobody could tell whose middlewares count


def test_a_module_may_be_reloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    registry = Registry()
    monkeypatch.setattr(sys.modules[__name__], "shared", registry, raising=False)
    source = f"from {__name__} import shared as registry\n" + CELL
    (tmp_path / "reloaded_jobs.py").write_text(source)
    try:
        module = importlib.import_module("reloaded_jobs")
        importlib.reload(module)
        assert registry.types == {"cell": module.cell}
    finally:
        sys.modules.pop("reloaded_jobs", None)
