"""Each module says in `__all__` what others may import from it; a public one offers that and nothing else.

Public is a module without an underscore in its dotted name. The folders of the inner layers (vocabulary, definitions, runtime,
store_rules, telemetry) are public by that rule, and export nothing: what users may name is in `aioqueue`, and the package's own
modules import from the module that has it.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parent.parent.parent / "aioqueue"
INNER = ["aioqueue.definitions", "aioqueue.runtime", "aioqueue.store_rules", "aioqueue.telemetry", "aioqueue.vocabulary"]


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py")) if path.stem != "__main__"}
TREES = {name: ast.parse(path.read_text()) for name, path in SOURCES.items()}
PUBLIC = [name for name in SOURCES if "._" not in name]


def statements(name: str) -> Iterator[ast.stmt]:
    """The module's own statements, with those that only the type checker runs."""
    for node in TREES[name].body:
        yield node
        if isinstance(node, ast.If):
            yield from node.body


def defined(name: str) -> set[str]:
    """The names that the module's own statements define."""
    names: set[str] = set()
    for node in statements(name):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def passed_on(name: str) -> set[str]:
    """What the module imports, at run time, from within the package."""
    imports = [
        node for node in TREES[name].body if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aioqueue")
    ]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def imported() -> dict[str, set[str]]:
    """What the package's modules import from each other, by the module that it's imported from."""
    found: dict[str, set[str]] = {}
    for tree in TREES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in SOURCES:
                names = {alias.name for alias in node.names if f"{node.module}.{alias.name}" not in SOURCES}
                found.setdefault(node.module, set()).update(names)
    return found


IMPORTED = imported()


@pytest.mark.parametrize("name", SOURCES)
def test_all_names_what_is_there_and_what_others_import(name: str) -> None:
    exported = importlib.import_module(name).__all__
    assert isinstance(exported, list)
    assert len(exported) == len(set(exported))
    assert not [each for each in exported if each.startswith("_") and each != "__version__"]
    assert set(exported) <= defined(name) | passed_on(name)
    assert IMPORTED.get(name, set()) <= set(exported)


@pytest.mark.parametrize("name", PUBLIC)
def test_all_of_a_public_module_is_exact(name: str) -> None:
    public = {each for each in defined(name) if not each.startswith("_")}
    if SOURCES[name].stem == "__init__":  # whatever it imports can be imported from it
        public |= {each for each in passed_on(name) if f"{name}.{each}" not in SOURCES and not each.startswith("_")}
    exported = set(importlib.import_module(name).__all__)
    assert public <= exported
    assert exported <= public | passed_on(name)


@pytest.mark.parametrize("name", [name for name in PUBLIC if SOURCES[name].stem == "__init__"])
def test_a_package_imports_nothing_by_the_way(name: str) -> None:
    others = [node for node in TREES[name].body if isinstance(node, (ast.Import, ast.ImportFrom))]
    modules = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in others}
    assert {module for module in modules if not (module or "").startswith("aioqueue")} <= {"__future__", "typing"}


@pytest.mark.parametrize("name", INNER)
def test_a_folder_of_an_inner_layer_exports_nothing(name: str) -> None:
    assert importlib.import_module(name).__all__ == []


def test_what_the_protocol_passes_on_is_imported_from_where_it_is() -> None:
    """`aioqueue.abc` passes the values in the protocol on to users; inside the package each has one address."""
    passed = passed_on("aioqueue.abc") & set(importlib.import_module("aioqueue.abc").__all__)
    assert len(passed) > 5
    assert IMPORTED["aioqueue.abc"] & passed == set()
