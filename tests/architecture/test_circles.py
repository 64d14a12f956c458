"""No modules import each other in a circle: neither at run time nor for the type checker, nor a package and what is in it.

The contract `circles` looks at the folders' neighbours; this looks at single modules, so it also sees a module that imports
its own package back.
"""

from __future__ import annotations

import graphlib

import grimp
import pytest


def check_order(graph: grimp.ImportGraph) -> None:
    """Raise if there is no order in which each module comes after what it imports; the error names the circle."""
    imports = {each: graph.find_modules_directly_imported_by(each) - {each} for each in graph.modules}
    graphlib.TopologicalSorter(imports).prepare()


def test_the_imports_have_an_order() -> None:
    check_order(grimp.build_graph("aioqueue", cache_dir=None))


def test_a_circle_is_found_also_between_a_package_and_what_is_in_it() -> None:
    graph = grimp.build_graph("aioqueue", cache_dir=None)
    graph.add_import(importer="aioqueue.worker._worker", imported="aioqueue.worker")
    with pytest.raises(graphlib.CycleError) as caught:
        check_order(graph)
    assert {"aioqueue.worker", "aioqueue.worker._worker"} <= set(caught.value.args[1])
