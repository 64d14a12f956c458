"""Finding the registry that the command line names."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from aioqueue import Registry
from aioqueue.cli._imports import ImportProblem, load_registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODULE = """
from aioqueue import Registry

registry = Registry(prefix="made.")
number = 7

class queues:
    main = registry

def make_registry() -> Registry:
    return registry

def make_nothing() -> None:
    return None

def takes_a_parameter(name: str) -> Registry:
    return registry

async def make_later() -> Registry:
    return registry

def raises() -> Registry:
    raise LookupError("the real reason")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project's folder, with a clean import system before and after."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    (tmp_path / "jobsapp.py").write_text(MODULE)
    package = tmp_path / "jobspackage"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "tasks.py").write_text(MODULE)
    (package / "broken.py").write_text("import missing_dependency_of_ours\n")
    (package / "raising.py").write_text("def deep():\n    raise KeyError('the real reason')\n\ndeep()\n")
    (package / "exits.py").write_text("raise SystemExit(0)\n")
    (package / "syntax.py").write_text("def broken(:\n")
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    "path",
    [
        "jobsapp:registry",
        "jobsapp",
        "jobsapp:queues.main",
        "jobsapp:make_registry",
        "jobspackage.tasks:registry",
        "jobspackage.tasks:queues.main",
    ],
)
def test_registries_are_found_from_the_project_s_folder(folder: Path, path: str) -> None:
    assert isinstance(load_registry(path), Registry)


def test_the_folder_is_appended_and_only_once(folder: Path) -> None:
    load_registry("jobsapp:registry")
    load_registry("jobsapp:registry")
    assert sys.path[-1] == str(folder)
    assert sys.path.count(str(folder)) == 1


def test_another_folder_can_be_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(ImportProblem, match=r"no module 'jobsapp' in .*--app-dir"):
        load_registry("jobsapp:registry")
    assert isinstance(load_registry("jobsapp:registry", str(folder)), Registry)
    with pytest.raises(ImportProblem, match="there is no folder"):
        load_registry("jobsapp:registry", str(folder / "nowhere"))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("jobsap:registry", r"no module 'jobsap' .*Did you mean jobsapp\?"),
        ("jobspackage.task:registry", r"no module 'jobspackage.task' .*Did you mean jobspackage\.tasks\?"),
        ("jobsapp.tasks:registry", r"jobsapp is a module, not a package"),
        ("nowhere.at.all:registry", r"no module 'nowhere', so 'nowhere.at.all' can't be imported"),
        ("jobsapp:registri", r"jobsapp has no attribute 'registri'\. Did you mean registry\?"),
        ("jobsapp:app", r"jobsapp has no attribute 'app'\. Did you mean registry\?"),
        ("jobsapp:queues.man", r"jobsapp\.queues has no attribute 'man'\. Did you mean main\?"),
        ("jobsapp:number", r"jobsapp:number is an int, not a Registry"),
        ("jobsapp:make_nothing", r"jobsapp:make_nothing\(\) returned None, not a Registry"),
        ("jobsapp:takes_a_parameter", r"takes parameters"),
        ("jobsapp:make_later", r"is an async function"),
        ("jobsapp.py:registry", r"is a file's name: .*such as jobsapp:registry"),
        ("jobspackage/tasks.py", r"is a file's name: .*such as jobspackage\.tasks:registry"),
        ("jobsapp:", r"isn't of the form module:attribute"),
        ("", r"isn't of the form module:attribute"),
        ("a b:c", r"isn't of the form module:attribute"),
    ],
)
def test_mistakes_are_explained(folder: Path, path: str, message: str) -> None:
    with pytest.raises(ImportProblem, match=message) as raised:
        load_registry(path)
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("jobspackage.broken:registry", ["ModuleNotFoundError: No module named 'missing_dependency_of_ours'", "broken.py"]),
        ("jobspackage.raising:registry", ["KeyError: 'the real reason'", "in deep"]),
        ("jobspackage.exits:registry", ["SystemExit"]),
        ("jobspackage.syntax:registry", ["SyntaxError", "syntax.py"]),
        ("jobsapp:raises", ["LookupError: the real reason", "in raises"]),
    ],
)
def test_errors_of_the_user_s_code_show_their_own_traceback(
    folder: Path, path: str, shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ImportProblem, match=r"can't be imported|failed"):
        load_registry(path)
    written = capsys.readouterr().err
    for text in shown:
        assert text in written
    assert "importlib" not in written
    assert "_imports.py" not in written


def test_a_file_named_like_an_installed_package_shadows_nothing_and_is_named(folder: Path) -> None:
    (folder / "click.py").write_text(MODULE)
    with pytest.raises(ImportProblem, match=r"click has no attribute 'registry'.* installed packages aren't shadowed"):
        load_registry("click:registry")


def test_a_module_with_several_registries_needs_the_attribute(folder: Path) -> None:
    (folder / "several.py").write_text("from aioqueue import Registry\none, two = Registry(), Registry()\n")
    with pytest.raises(ImportProblem, match="give several:one or several:two"):
        load_registry("several")
    (folder / "none_here.py").write_text("")
    with pytest.raises(ImportProblem, match="has no Registry"):
        load_registry("none_here")
