"""The allow-list of an adapter: what isn't on it is refused, and so is an entry that nothing needs."""

from __future__ import annotations

import pytest
from grimp import ImportGraph

from tests.architecture.allow_list import AllowListContract


def check(allowed: list[str], *imports: tuple[str, str]) -> dict[str, list[object]]:
    """What the contract finds in a package `shop`, of which `shop.store` has a list."""
    graph = ImportGraph()
    for module in ("shop", "shop.store", "shop.store.rows", "shop.values", "shop.values.job", "shop.other"):
        graph.add_module(module)
    for external in ("driver", "drivers", "json"):
        graph.add_module(external, is_squashed=True)
    for importer, imported in imports:
        graph.add_import(importer=importer, imported=imported)
    options = {"name": "list", "importers": ["shop.store"], "allowed": allowed}
    contract = AllowListContract("list", {}, options)
    found = contract.check(graph, verbose=False)
    assert found.kept is not any(found.metadata.values())
    return {what: list(where) for what, where in found.metadata.items() if where}


@pytest.mark.parametrize(
    "imported",
    ["shop.values", "shop.values.job", "shop.store", "json", "driver"],
)
def test_what_is_on_the_list_its_own_and_the_standard_library_are_allowed(imported: str) -> None:
    needed = (("shop.store", "shop.values"), ("shop.store", "driver"))
    assert check(["shop.values", "driver"], ("shop.store.rows", imported), *needed) == {}


@pytest.mark.parametrize("imported", ["shop.other", "shop", "drivers"])
def test_anything_else_is_refused(imported: str) -> None:
    found = check(["driver"], ("shop.store.rows", imported), ("shop.store", "driver"))
    assert found == {"refused": [("shop.store.rows", imported)]}


def test_others_may_import_what_they_like() -> None:
    assert check(["driver"], ("shop.other", "drivers"), ("shop.store", "driver")) == {}


def test_an_entry_that_nothing_needs_is_refused() -> None:
    assert check(["driver", "shop.values"], ("shop.store", "driver")) == {"idle": ["shop.values"]}
